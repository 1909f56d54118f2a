use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use umbel_client::{Server, Strategy};

use crate::domain::check_name;
use crate::limits::{DEADLINE_MAX, DOMAINS_MAX, PUBLISHED_MAX};
use crate::{Error, HotSettings, Result, SharedAnswers, Source};

/// What a domain is opened with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// Where others reach its HTTP, if they find each other by a registry.
    pub address: String,
    /// Its catalogs.
    pub catalogs: Vec<CatalogSettings>,
    /// Other domains of which something has to be said.
    pub neighbours: Vec<Neighbour>,
    /// How long this one stays in the registry when it says nothing.
    pub lease: Duration,
}

/// A catalog: records of one kind, in all domains.
#[derive(Clone, Debug)]
pub struct CatalogSettings {
    /// Its name, the same in all domains.
    pub name: String,
    /// The filter that knows its keys, which has the same name in all domains.
    pub filter: String,
    /// How filters of others are known here.
    pub follow: Follow,
    /// A copy that was not confirmed for so long says no more that a key is absent; nor does one whose way to its domain is known to be broken.
    pub stale_after: Duration,
    /// How long a lookup may take if nobody says.
    pub deadline: Duration,
    /// Answers that are kept; none, if there is no memory for them.
    pub hot: HotSettings,
    /// Where they are kept together with other servers, if they are.
    pub shared: Option<Arc<dyn SharedAnswers>>,
    /// Where this domain's own records are.
    pub source: Option<Arc<dyn Source>>,
}

/// How a filter of another domain is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// By a copy in this process.
    Copy(Strategy),
    /// Not at all: it is asked over the network, for every key.
    Ask,
}

/// Another domain.
#[derive(Clone, Debug, Default)]
pub struct Neighbour {
    /// Its name.
    pub name: String,
    /// Where it is; none if the registry says so.
    pub address: Option<String>,
    /// What its server knows us by.
    pub token: Option<String>,
    /// The authorities that vouch for it.
    pub ca_file: Option<PathBuf>,
    /// How its filters are known here, if not as those of all others.
    pub follow: Option<Follow>,
}

impl CatalogSettings {
    /// A catalog whose filter has its name, followed change by change.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            filter: name.clone(),
            name,
            follow: Follow::Copy(Strategy::delta()),
            stale_after: Duration::from_secs(2),
            deadline: Duration::from_secs(2),
            hot: HotSettings::default(),
            shared: None,
            source: None,
        }
    }
}

impl Neighbour {
    /// The server of this domain, at an address.
    pub(super) fn server(&self, address: &str) -> Result<Server> {
        Ok(Server::trusting(address, self.token.as_deref(), self.ca_file.as_deref())?)
    }
}

impl Settings {
    /// Says what cannot be.
    pub fn check(&self) -> Result<()> {
        let fail = |why: String| Err(Error::Invalid(why));
        check_name(&self.name)?;
        if self.catalogs.len() > PUBLISHED_MAX || self.neighbours.len() > DOMAINS_MAX {
            let (catalogs, others) = (self.catalogs.len(), self.neighbours.len());
            return fail(format!(
                "{catalogs} catalogs and {others} other domains; at most {PUBLISHED_MAX} and {DOMAINS_MAX}"
            ));
        }
        for (number, catalog) in self.catalogs.iter().enumerate() {
            check_name(&catalog.name)?;
            if self.catalogs[..number].iter().any(|other| other.name == catalog.name) {
                return fail(format!("two catalogs are called {}", catalog.name));
            }
            if catalog.deadline.is_zero() || catalog.deadline > DEADLINE_MAX {
                return fail(format!(
                    "lookups in {} may take {:?}; it must be more than nothing and {DEADLINE_MAX:?} at most",
                    catalog.name, catalog.deadline
                ));
            }
        }
        for neighbour in &self.neighbours {
            check_name(&neighbour.name)?;
            if neighbour.name == self.name {
                return fail(format!("{} is this domain, and cannot be another one as well", self.name));
            }
            if let Some(address) = &neighbour.address {
                neighbour.server(address)?;
            }
        }
        Ok(())
    }
}
