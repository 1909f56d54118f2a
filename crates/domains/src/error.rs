/// What went wrong, sorted by what the caller can do about it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody answered, or not in time: the same call may succeed later.
    #[error("{0}")]
    Retry(String),
    /// What was asked for makes no sense here: change it.
    #[error("{0}")]
    Invalid(String),
    /// Bytes are not what was written or sent.
    #[error("{0}")]
    Corrupt(String),
}

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<umbel_core::Error> for Error {
    fn from(error: umbel_core::Error) -> Self {
        use umbel_core::Error as Core;
        let why = error.to_string();
        match error {
            Core::Corrupt(_) => Self::Corrupt(why),
            Core::Invalid(_) => Self::Invalid(why),
            // A process that is started again, or another node, may do better.
            _ => Self::Retry(why),
        }
    }
}

impl From<umbel_client::Error> for Error {
    fn from(error: umbel_client::Error) -> Self {
        use umbel_client::Error as Client;
        let why = error.to_string();
        match error {
            Client::Corrupt(_) => Self::Corrupt(why),
            Client::Invalid(_) => Self::Invalid(why),
            Client::Refused { status: 400..500, .. } => Self::Invalid(why),
            _ => Self::Retry(why),
        }
    }
}

impl From<umbel_load::Error> for Error {
    fn from(error: umbel_load::Error) -> Self {
        use umbel_load::Error as Load;
        let why = error.to_string();
        match error {
            Load::Corrupt(_) => Self::Corrupt(why),
            Load::Retry(_) | Load::Stopped => Self::Retry(why),
            _ => Self::Invalid(why),
        }
    }
}
