//! The same field of one object after another.

use super::fields::{Found, find};
use crate::{Batch, Error, Result};

pub(crate) struct Picker {
    field: Vec<String>,
    /// Whether the field was in any object so far; if it is in none of the first ones, it is the wrong name.
    was_found: bool,
    /// What the first object has that lacks it.
    others: Option<Vec<String>>,
}

impl Picker {
    /// `is_middle`: others have seen the field in objects before.
    pub(crate) fn new(field: Vec<String>, is_middle: bool) -> Self {
        Self { field, was_found: is_middle, others: None }
    }

    /// Puts an object's field into a batch.
    pub(crate) fn pick(&mut self, object: &[u8], batch: &mut Batch) -> Result<()> {
        match find(object, &self.field).map_err(Error::Invalid)? {
            Found::Text(text) => batch.push(text.as_bytes())?,
            Found::Null => batch.skip(),
            Found::Missing(others) => {
                self.others.get_or_insert(others);
                batch.skip();
                return Ok(());
            }
        }
        self.was_found = true;
        Ok(())
    }

    /// Says that no object had the field, if so. Whoever has filled a batch asks.
    pub(crate) fn check(&self, name: &str) -> Result<()> {
        match &self.others {
            Some(others) if !self.was_found => Err(Error::Invalid(format!(
                "{name}: no object has a field {}; the first one has {}",
                self.field.join("."),
                others.join(", ")
            ))),
            _ => Ok(()),
        }
    }
}
