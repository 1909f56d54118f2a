//! A field of an object in each line.

use super::opened::Opened;
use super::picker::Picker;
use super::records::Records;
use crate::{Batch, Bookmark, Cursor, Error, Result};

pub(super) struct Json {
    records: Records,
    picker: Picker,
}

impl Json {
    pub(super) fn open(
        opened: Opened,
        field: Vec<String>,
        from: u64,
        to: Option<u64>,
        at: Option<u64>,
        name: String,
    ) -> Result<Self> {
        let records = Records::open(opened, from, to, at, name)?;
        // The middle of a file may be about something else.
        let is_middle = at.is_some() || from > 0;
        Ok(Self { records, picker: Picker::new(field, is_middle) })
    }
}

impl Cursor for Json {
    fn next(&mut self, batch: &mut Batch) -> Result<Option<Bookmark>> {
        while !batch.is_full() {
            let at = self.records.at();
            let Some(line) = self.records.next()? else { break };
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if let Err(error) = self.picker.pick(line, batch) {
                let name = self.records.name();
                return Err(Error::Invalid(format!("{name}: the line at byte {at}: {error}")));
            }
        }
        batch.consumed(self.records.consumed());
        self.picker.check(self.records.name())?;
        Bookmark::behind(batch, self.records.at())
    }
}
