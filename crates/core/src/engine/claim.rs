//! The claim of an engine to be the only one on its blobs and its log.
//!
//! Two would remove each other's checkpoints, and trim what the other still needs. Where somebody outside decides who it is, an engine that
//! cannot be sure goes on with what harms nobody: it answers, and takes what the log takes.

use std::fmt::Debug;

use super::Shared;
use crate::{Error, Result};

/// Who knows whether an engine is the only one.
pub trait Claim: Debug + Send + Sync + 'static {
    /// Whether it is sure at this moment that nobody else may be it.
    fn is_held(&self) -> bool;
}

impl Shared {
    /// An error if another engine may be making checkpoints now: asked before each step that makes one count, or removes something.
    pub(super) fn claimed(&self) -> Result<()> {
        match &self.claim {
            Some(claim) if !claim.is_held() => Err(Error::Retry(
                "another server may have this deployment: no checkpoints are made and nothing is removed until the registry says who has it"
                    .into(),
            )),
            _ => Ok(()),
        }
    }
}
