/// What went wrong, sorted by what the caller can do about it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody answered, or not in time: the same call may succeed later.
    #[error("{0}")]
    Unreachable(String),
    /// The server said no. The code is the one of its API.
    #[error("the server refused ({status} {code}): {message}")]
    Refused {
        /// The status of HTTP.
        status: u16,
        /// What kind of refusal it is, for programs.
        code: String,
        /// Why, for people.
        message: String,
    },
    /// The options or the request make no sense here: change them.
    #[error("{0}")]
    Invalid(String),
    /// Bytes are not what was written or sent.
    #[error("{0}")]
    Corrupt(String),
    /// The server belongs to another deployment than the copy.
    #[error("{0}")]
    OtherDeployment(String),
    /// The replica's own folder failed.
    #[error("{0}")]
    Disk(String),
    /// There is no room for more keys until some were sent.
    #[error("{0}")]
    Full(String),
    /// The replica was closed.
    #[error("the replica is closed")]
    Closed,
}

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What the system said while `doing` something with the folder.
    pub(crate) fn disk(doing: impl std::fmt::Display, error: &std::io::Error) -> Self {
        Self::Disk(format!("{doing}: {error}"))
    }

    /// Whether the server has no such filter.
    pub(crate) fn is_no_filter(&self) -> bool {
        matches!(self, Self::Refused { status: 404, code, .. } if code == "not_found")
    }

    /// Whether the server knows no such question, as an older one may not.
    pub(crate) fn is_no_path(&self) -> bool {
        matches!(self, Self::Refused { status: 404, code, message } if code == "not_found" && message.contains("at this path"))
    }

    /// Whether the server belongs to another deployment than the copy.
    pub(crate) fn is_other_deployment(&self) -> bool {
        matches!(self, Self::OtherDeployment(_))
    }

    /// Whether the feed does not go back so far.
    pub(crate) fn is_trimmed(&self) -> bool {
        matches!(self, Self::Refused { status: 410, code, .. } if code == "trimmed")
    }

    /// Whether the name was given to another filter than the one that the copy is of.
    pub(crate) fn is_replaced(&self) -> bool {
        matches!(self, Self::Refused { status: 410, code, .. } if code == "replaced")
    }

    /// Whether the server itself said that this request will never be done.
    pub(crate) fn is_final(&self) -> bool {
        // Of what is refused for its length the head is all that the server looked at; a request of ours is never too long.
        let codes = ["invalid", "conflict"];
        matches!(self, Self::Refused { status: 400 | 409, code, .. } if codes.contains(&&**code))
    }

    /// Whether another server may do better.
    pub(crate) fn is_elsewhere(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused { status, .. } => *status >= 500,
            _ => false,
        }
    }
}

impl From<umbel_core::Error> for Error {
    fn from(error: umbel_core::Error) -> Self {
        use umbel_core::Error as Core;
        match error {
            Core::Corrupt(why) => Self::Corrupt(why),
            Core::Retry(why) => Self::Full(why),
            other => Self::Invalid(other.to_string()),
        }
    }
}
