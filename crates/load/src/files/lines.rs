//! A key in each line.

use super::opened::Opened;
use super::records::Records;
use crate::{Batch, Bookmark, Cursor, Error, Result};

pub(super) struct Lines(Records);

impl Lines {
    pub(super) fn open(
        opened: Opened,
        from: u64,
        to: Option<u64>,
        at: Option<u64>,
        name: String,
    ) -> Result<Self> {
        Ok(Self(Records::open(opened, from, to, at, name)?))
    }
}

impl Cursor for Lines {
    fn next(&mut self, batch: &mut Batch) -> Result<Option<Bookmark>> {
        while !batch.is_full() {
            match self.0.next()? {
                None => break,
                Some([]) => batch.skip(),
                Some(line) => {
                    if let Err(error) = batch.push(line) {
                        return Err(Error::Invalid(format!("{}: {error}", self.0.name())));
                    }
                }
            }
        }
        batch.consumed(self.0.consumed());
        Bookmark::behind(batch, self.0.at())
    }
}
