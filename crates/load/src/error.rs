use std::io;

/// What went wrong, sorted by what the caller can do about it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The same step may succeed later: a connection was lost, a server is busy.
    #[error("{0}")]
    Retry(String),
    /// What was asked for makes no sense here: change it.
    #[error("{0}")]
    Invalid(String),
    /// Bytes are not what they should be: a file is damaged, or was changed behind our back.
    #[error("{0}")]
    Corrupt(String),
    /// The filter takes no more keys.
    #[error("{0}")]
    Full(String),
    /// Somebody told us to stop.
    #[error("stopped")]
    Stopped,
}

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What the system said while `doing` something with a file. Reading it again would give the same.
    pub(crate) fn file(doing: impl std::fmt::Display, error: &io::Error) -> Self {
        Self::Invalid(format!("{doing}: {error}"))
    }
}
