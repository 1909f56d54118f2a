//! The web console: pages that are part of the binary, what they are told while they are open, and who may send requests from a browser.
//!
//! ```text
//!  browser <-- / and /console/*: files of this binary (assets)
//!          --> /v1/*: the API, with a token like everybody else; of other websites nothing is taken (origin)
//!          <-- /v1/console/events: one sample a second for all open pages (monitor)
//! ```
//!
//! There is no cookie and no session: a page has the rights of the token that its user gave it.

mod alerts;
mod assets;
mod monitor;
mod origin;

pub(crate) use alerts::Alert;
pub(crate) use assets::router;
pub(crate) use monitor::{Monitor, STEP_SECONDS, Sample};
pub(crate) use origin::guarded;
