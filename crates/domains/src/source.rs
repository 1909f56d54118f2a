//! Where a domain's records are.

mod peer;
mod sql;
mod web;
mod written;

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;

use crate::Result;
pub use peer::PeerRecords;
pub use sql::SqlRecords;
pub use umbel_load::sql::{Datum as Value, Relation, Wanted};
pub use web::WebRecords;
pub(crate) use written::{record_of, record_written};

/// Where a domain's records are: the truth that its filter only speaks of.
///
/// None means that there surely is no such record. Whatever keeps a source from knowing that is an error.
#[async_trait]
pub trait Source: Debug + Send + Sync + 'static {
    /// The record with a key. Whoever calls it gives up when its own time is over.
    async fn fetch(&self, key: &[u8]) -> Result<Option<Record>>;
}

/// A record as its source gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A row of a database.
    Row(Vec<Field>),
    /// What a server sent.
    Body {
        /// Its type, as the server calls it.
        kind: Option<String>,
        /// The bytes.
        bytes: Bytes,
    },
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name of its column.
    pub column: String,
    /// The value.
    pub value: Value,
}

impl Record {
    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Body { kind, bytes } => bytes.len() + kind.as_ref().map_or(0, String::len),
            Self::Row(fields) => fields.iter().map(Field::bytes).sum(),
        }
    }
}

impl Field {
    fn bytes(&self) -> usize {
        let value = match &self.value {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::Null | Value::Int(_) | Value::Uint(_) | Value::Real(_) => 0,
        };
        size_of::<Self>() + self.column.len() + value
    }
}
