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

/// What an error is that is one of the way to what is read, and not of that itself. Files have none of this kind.
pub(crate) const FAR: io::ErrorKind = io::ErrorKind::ConnectionReset;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What the system said while `doing` something with a file. Reading it again would give the same, unless it is far away.
    pub(crate) fn file(doing: impl std::fmt::Display, error: &io::Error) -> Self {
        Self::reading(Self::Invalid, doing, error)
    }

    /// What the system said while bytes were read: of a file that `kind` of error, of what is far away one that may pass.
    pub(crate) fn reading(
        kind: impl FnOnce(String) -> Self,
        doing: impl std::fmt::Display,
        error: &io::Error,
    ) -> Self {
        let message = format!("{doing}: {error}");
        if error.kind() == FAR { Self::Retry(message) } else { kind(message) }
    }
}
