//! Other domains join the catalogs, and leave them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use umbel_client::{Options, Strategy};
use umbel_core::registry::Registry;

use super::{Follow, Neighbour, Opened, Settings};
use crate::roster::{Announced, Event, Roster};
use crate::source::PeerRecords;
use crate::{CopiedFilter, Domain, Result, ServerFilter};

/// How often the registry is looked at although it says nothing.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long it is waited after the registry could not be read.
const PAUSE: Duration = Duration::from_secs(1);

/// What is known of other domains.
pub(super) struct Neighbours {
    local: String,
    named: Vec<Neighbour>,
    catalogs: Arc<BTreeMap<String, Opened>>,
    /// Where a domain was when it joined a catalog.
    joined: BTreeMap<(String, String), String>,
}

impl Neighbours {
    pub(super) fn new(settings: &Settings, catalogs: Arc<BTreeMap<String, Opened>>) -> Self {
        let (local, named) = (settings.name.clone(), settings.neighbours.clone());
        Self { local, named, catalogs, joined: BTreeMap::new() }
    }

    /// Those whose addresses are in the settings take part in all catalogs, for good.
    pub(super) fn join_named(&self) -> Result<()> {
        for neighbour in &self.named {
            let Some(address) = &neighbour.address else { continue };
            for opened in self.catalogs.values() {
                opened.catalog.join(open(neighbour, address, opened)?)?;
            }
        }
        Ok(())
    }

    /// Does what the registry says, for ever.
    pub(super) async fn follow(mut self, registry: Arc<dyn Registry>) {
        let mut roster = Roster::new(registry, LOOK_EVERY);
        loop {
            match roster.next().await {
                Ok(events) => events.iter().for_each(|event| self.take(event)),
                // Those that are known stay, with what is known of them.
                Err(error) => {
                    tracing::warn!(%error, "the registry does not say which domains there are");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::Joined(announced) | Event::Changed(announced) => {
                let is_settled =
                    self.named.iter().any(|named| named.name == announced.name && named.address.is_some());
                if announced.name != self.local && !is_settled {
                    self.join(announced);
                }
            }
            Event::Left(name) => {
                tracing::info!("the domain {name} has left");
                let names: Vec<String> = self.catalogs.keys().cloned().collect();
                names.iter().for_each(|catalog| self.part(catalog, name));
            }
            Event::Lost(name) => {
                tracing::warn!("nobody runs the domain {name}: what is known of it gets old");
            }
            Event::Returned(name) => tracing::info!("the domain {name} is back"),
        }
    }

    /// A domain takes part in the catalogs whose filters it publishes. One that cannot be read takes part in all, and nothing is known of it.
    fn join(&mut self, announced: &Announced) {
        let catalogs = Arc::clone(&self.catalogs);
        for (name, opened) in catalogs.iter() {
            let takes_part = announced.address.is_empty()
                || announced.filters.iter().any(|filter| filter.name == opened.settings.filter);
            if !takes_part {
                self.part(name, &announced.name);
                continue;
            }
            let place = (name.clone(), announced.name.clone());
            // Copies follow a filter that has changed by themselves.
            if self.joined.get(&place).is_some_and(|address| *address == announced.address) {
                continue;
            }
            match self.open(announced, opened).and_then(|domain| opened.catalog.join(domain)) {
                Ok(()) => {
                    tracing::info!("the domain {} is in the catalog {name}", announced.name);
                    self.joined.insert(place, announced.address.clone());
                }
                Err(error) => {
                    tracing::warn!(%error, "the domain {} cannot join the catalog {name}", announced.name);
                }
            }
        }
    }

    fn open(&self, announced: &Announced, opened: &Opened) -> Result<Domain> {
        if announced.address.is_empty() {
            return Domain::new(&announced.name);
        }
        let named = self.named.iter().find(|named| named.name == announced.name).cloned();
        let neighbour =
            named.unwrap_or_else(|| Neighbour { name: announced.name.clone(), ..Neighbour::default() });
        open(&neighbour, &announced.address, opened)
    }

    fn part(&mut self, catalog: &str, name: &str) {
        let is_settled = self.named.iter().any(|named| named.name == name && named.address.is_some());
        if let Some(opened) = self.catalogs.get(catalog).filter(|_| !is_settled) {
            opened.catalog.leave(name);
            self.joined.remove(&(catalog.to_owned(), name.to_owned()));
        }
    }
}

/// All ways to ask a domain: a copy in this process, its filter over the network, and its server for the record.
fn open(neighbour: &Neighbour, address: &str, opened: &Opened) -> Result<Domain> {
    let settings = &opened.settings;
    let remote = ServerFilter::new(neighbour.server(address)?, &settings.filter);
    let source = PeerRecords::new(neighbour.server(address)?, &settings.name);
    let stale_after = settings.stale_after;
    let domain = Domain::new(&neighbour.name)?.remote(Arc::new(remote)).source(Arc::new(source));
    let domain = domain.absent_within(stale_after);
    let Follow::Copy(strategy) = neighbour.follow.unwrap_or(settings.follow) else { return Ok(domain) };
    // One that asks now and then is confirmed no more often.
    let stale_after = match strategy {
        Strategy::Pull { interval } => stale_after.max(3 * interval),
        _ => stale_after,
    };
    let mut options =
        Options::new(address, &settings.filter, strategy).stale_after(stale_after).unknown_when_cut_off();
    if let Some(token) = &neighbour.token {
        options = options.token(token);
    }
    if let Some(path) = &neighbour.ca_file {
        options = options.ca_file(path);
    }
    Ok(domain.held(Arc::new(CopiedFilter::begin(options))))
}
