use umbel_core::{Error, Result};

use crate::{About, Url, open_blobs, open_log, open_registry};

/// One of the three planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// Where entries are appended.
    Log,
    /// Where snapshots and archives are.
    Blobs,
    /// What all agree on.
    Registry,
}

/// What a look at an engine showed.
#[derive(Debug)]
pub struct Report {
    /// The plane that was asked for.
    pub plane: Plane,
    /// The URL as it may be shown.
    pub url: String,
    /// What the engine is and promises, or why it cannot be used.
    pub outcome: Result<About>,
}

/// Opens every plane that is named, and says what it is worth.
pub async fn probe(urls: &[(Plane, &str)]) -> Vec<Report> {
    let mut reports = Vec::new();
    for (plane, url) in urls {
        let outcome = match plane {
            Plane::Log => open_log(url).await.map(|opened| opened.about),
            Plane::Blobs => open_blobs(url).await.map(|opened| opened.about),
            Plane::Registry => open_registry(url).await.map(|opened| opened.about),
        };
        let shown = Url::parse(url).map_or_else(|_: Error| "(no URL)".into(), |url| url.to_string());
        reports.push(Report { plane: *plane, url: shown, outcome });
    }
    reports
}
