use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A plane that is open, and what its engine promises.
#[derive(Debug)]
pub struct Opened<T: ?Sized> {
    /// The plane.
    pub plane: Arc<T>,
    /// What was found out about the engine.
    pub about: About,
}

/// An engine as it was found when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The engine's name.
    pub engine: &'static str,
    /// Its version, as it says itself; empty if it does not.
    pub version: String,
    /// What an acknowledgement is worth.
    pub durability: Durability,
    /// What it lacks, or what a user should know besides, in one sentence; empty if there is nothing.
    pub lacks: String,
}

/// What is left of acknowledged changes when machines fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// All of it: it was on a disk before it was acknowledged.
    Synced,
    /// All of it as long as one of these servers keeps its memory; otherwise all but the last moments.
    Replicated(u32),
    /// All but what came within this time before the machine failed.
    Window(Duration),
    /// Nothing that was not asked to be kept: the engine holds it in memory.
    Memory,
    /// The engine does not say.
    Unknown,
}

impl Durability {
    /// The class in one word, for tables and programs.
    pub fn class(self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::Replicated(_) => "replicated",
            Self::Window(_) => "window",
            Self::Memory => "memory",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Synced => write!(f, "acknowledged changes are on disk"),
            Self::Replicated(servers) => {
                write!(f, "acknowledged changes are with {servers} servers, synced later")
            }
            Self::Window(time) => write!(f, "a power cut may take the last {} s", time.as_secs_f64()),
            Self::Memory => write!(f, "what is acknowledged is lost with the server"),
            Self::Unknown => write!(f, "what an acknowledgement is worth is not known"),
        }
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.engine)?;
        if !self.version.is_empty() {
            write!(f, " {}", self.version)?;
        }
        write!(f, ": {}", self.durability)?;
        if !self.lacks.is_empty() {
            write!(f, "; {}", self.lacks)?;
        }
        Ok(())
    }
}
