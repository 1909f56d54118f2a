use std::io;

/// What went wrong, in the caller's terms: every message names the offending value and the rule it broke.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter makes no sense, whatever the machine: change it.
    #[error("invalid {what}: {why}")]
    Invalid {
        /// The parameter.
        what: &'static str,
        /// The value that was given and the range that is allowed.
        why: String,
    },
    /// A size or count is over its limit; nothing was allocated.
    #[error("{what} is {asked}, over the limit of {limit}")]
    TooLarge {
        /// What was asked for, with its unit.
        what: &'static str,
        /// The size asked for.
        asked: u128,
        /// The limit in force.
        limit: u64,
    },
    /// The system refused the memory.
    #[error("cannot reserve {bytes} bytes: {source}")]
    NoMemory {
        /// The size of the array.
        bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Two filters that should fit together do not.
    #[error("filters differ in {what}: {left} against {right}")]
    Mismatch {
        /// The property that differs.
        what: &'static str,
        /// Its value in the filter that was asked.
        left: String,
        /// Its value in the other one.
        right: String,
    },
    /// The operation has no meaning for this kind or layout.
    #[error("{operation} is not possible on {subject}")]
    Unsupported {
        /// The operation.
        operation: &'static str,
        /// The filter, or the part of a file, that cannot do it.
        subject: String,
    },
    /// A filter that may not grow has taken as many keys as it was made for.
    #[error("the filter is full: it holds its {capacity} keys and may not grow")]
    Full {
        /// The declared capacity.
        capacity: u64,
    },
    /// The bytes are not what their format demands.
    #[error("corrupt {format} data at byte {offset}: {why}")]
    Corrupt {
        /// The format being read.
        format: &'static str,
        /// Where in the input the fault was noticed.
        offset: u64,
        /// What was found and what was expected.
        why: String,
    },
    /// The input ended before the filter was whole.
    #[error("truncated {format} data: it ends at byte {offset}, {missing} bytes early or more")]
    Truncated {
        /// The format being read.
        format: &'static str,
        /// Where the input ended.
        offset: u64,
        /// The least number of bytes that are missing.
        missing: u64,
    },
    /// The reader or writer that was handed in failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Error {
    pub(crate) fn invalid(what: &'static str, why: impl Into<String>) -> Self {
        Self::Invalid { what, why: why.into() }
    }

    pub(crate) fn unsupported(operation: &'static str, subject: impl Into<String>) -> Self {
        Self::Unsupported { operation, subject: subject.into() }
    }

    pub(crate) fn mismatch(what: &'static str, left: impl Into<String>, right: impl Into<String>) -> Self {
        Self::Mismatch { what, left: left.into(), right: right.into() }
    }
}

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;
