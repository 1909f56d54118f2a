//! A field of an object in each line.

use super::fields::{Found, find};
use super::opened::Opened;
use super::records::Records;
use crate::{Batch, Bookmark, Cursor, Error, Result};

pub(super) struct Json {
    records: Records,
    field: Vec<String>,
    /// Whether the field was in any object so far; if it is in none of the first ones, it is the wrong name.
    was_found: bool,
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
        Ok(Self { records, field, was_found: at.is_some() || from > 0 })
    }
}

impl Cursor for Json {
    fn next(&mut self, batch: &mut Batch) -> Result<Option<Bookmark>> {
        let mut names = None;
        while !batch.is_full() {
            let at = self.records.at();
            let Some(line) = self.records.next()? else { break };
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let outcome = match find(line, &self.field) {
                Ok(Found::Text(text)) => batch.push(text.as_bytes()),
                Ok(Found::Null) => {
                    self.was_found = true;
                    batch.skip();
                    continue;
                }
                Ok(Found::Missing(others)) => {
                    names.get_or_insert(others);
                    batch.skip();
                    continue;
                }
                Err(why) => Err(Error::Invalid(why)),
            };
            if let Err(error) = outcome {
                return Err(Error::Invalid(format!(
                    "{}: the line at byte {at}: {error}",
                    self.records.name()
                )));
            }
            self.was_found = true;
        }
        batch.consumed(self.records.consumed());
        if let Some(names) = names.filter(|_| !self.was_found) {
            return Err(Error::Invalid(format!(
                "{}: no object has a field {}; the first one has {}",
                self.records.name(),
                self.field.join("."),
                names.join(", ")
            )));
        }
        if batch.is_empty() { Ok(None) } else { Bookmark::new(self.records.at().to_string()).map(Some) }
    }
}
