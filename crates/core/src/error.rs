use std::io;

use crate::Position;

/// What went wrong, sorted by what the caller can do about it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing is lost and nothing was changed: the same call may succeed later, say when there is space again.
    #[error("{0}")]
    Retry(String),
    /// The request makes no sense here: change it.
    #[error("{0}")]
    Invalid(String),
    /// Another node has to be asked; nothing was changed here. Who that is can be known now.
    #[error("{0}")]
    Moved(String),
    /// The filter was dropped, and nothing was changed in it. Its name may mean another one by now, or none.
    #[error("{0}")]
    Gone(String),
    /// Stored bytes are not what was written. The message names the file and the offset.
    #[error("{0}")]
    Corrupt(String),
    /// The entries asked for are gone: begin with a snapshot.
    #[error("the log was trimmed up to {oldest}")]
    Trimmed {
        /// Where the log begins now.
        oldest: Position,
    },
    /// No call will succeed until the process is started again.
    #[error("{0}")]
    Closed(String),
}

impl Error {
    /// An error of the blob store while `doing` something. A blob that is not there was expected to be.
    pub(crate) fn blob(doing: impl Into<String>, error: &object_store::Error) -> Self {
        let message = format!("{}: {error}", doing.into());
        match error {
            object_store::Error::NotFound { .. } => Self::Corrupt(message),
            _ => Self::Retry(message),
        }
    }

    /// The same with another message.
    pub(crate) fn reworded(self, reword: impl FnOnce(&str) -> String) -> Self {
        match self {
            Self::Retry(why) => Self::Retry(reword(&why)),
            Self::Invalid(why) => Self::Invalid(reword(&why)),
            Self::Moved(why) => Self::Moved(reword(&why)),
            Self::Gone(why) => Self::Gone(reword(&why)),
            Self::Corrupt(why) => Self::Corrupt(reword(&why)),
            Self::Closed(why) => Self::Closed(reword(&why)),
            Self::Trimmed { oldest } => Self::Trimmed { oldest },
        }
    }

    /// An error of the system while `doing` something. It may pass, unless it is one of those that a closed log
    /// gives.
    pub(crate) fn io(doing: impl Into<String>, error: &io::Error) -> Self {
        Self::Retry(format!("{}: {error}", doing.into()))
    }
}

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;
