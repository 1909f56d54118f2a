//! Strong replicas that are registered: a majority is of these, whether they were heard of lately or not.
//!
//! A strong replica is registered before it gets its first lease, and stays so until it leaves or is forgotten, through restarts of the
//! server and in whichever node looks after replicas. So those that are stopped or cut off still count, and a strong publish that too
//! few have ready fails.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use umbel_core::engine::Handle;
use umbel_core::registry::{Change, Expected};
use umbel_core::{Error, Result};

use super::steward::Watch;
use crate::node::Node;

/// Where they are in the registry, by the number of the filter.
const FOLDER: &str = "members/";
/// How often a change is tried that another node is ahead of.
const ATTEMPTS: usize = 16;
/// The largest record: registries take values of about a megabyte.
const RECORD_BYTES_MAX: usize = 512 << 10;

fn entry(filter: u64) -> String {
    format!("{FOLDER}{filter:016x}")
}

/// A registered replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
}

/// The registered replicas of a filter, by name.
pub(crate) type Registered = BTreeMap<String, Member>;

/// The records that the node which looks after replicas has read. No other node changes them meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Members(Mutex<HashMap<u64, (Watch, Registered)>>);

impl Members {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (Watch, Registered)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a replica, or takes over its labels. One that is registered so already costs no question to the registry.
    pub(super) async fn register(
        &self,
        node: &Node,
        filter: &Handle,
        id: &str,
        member: Member,
    ) -> Result<()> {
        if self.of(node, filter).await?.get(id) == Some(&member) {
            return Ok(());
        }
        self.forget_gone(node).await?;
        let add = |registered: &mut Registered| _ = registered.insert(id.to_owned(), member.clone());
        self.change(node, filter, add).await
    }

    /// Takes a replica out. Returns whether it was registered.
    pub(super) async fn remove(&self, node: &Node, filter: &Handle, id: &str) -> Result<bool> {
        if !self.of(node, filter).await?.contains_key(id) {
            return Ok(false);
        }
        self.change(node, filter, |registered| _ = registered.remove(id)).await?;
        Ok(true)
    }

    /// The registered replicas of a filter.
    pub(crate) async fn of(&self, node: &Node, filter: &Handle) -> Result<Registered> {
        let watch = node.sync.steward.watch(node)?;
        if let Some((read_in, registered)) = self.lock().get(&filter.id())
            && *read_in == watch
        {
            return Ok(registered.clone());
        }
        self.read(node, filter).await
    }

    /// The same as the registry has them now.
    pub(super) async fn read(&self, node: &Node, filter: &Handle) -> Result<Registered> {
        let watch = node.sync.steward.watch(node)?;
        let (registered, _) = look_up(node, filter).await?;
        self.lock().insert(filter.id(), (watch, registered.clone()));
        Ok(registered)
    }

    async fn change(&self, node: &Node, filter: &Handle, change: impl Fn(&mut Registered)) -> Result<()> {
        let watch = node.sync.steward.watch(node)?;
        for _ in 0..ATTEMPTS {
            let (mut registered, expected) = look_up(node, filter).await?;
            change(&mut registered);
            let value = serde_json::to_vec(&registered).map_err(|error| Error::Invalid(error.to_string()))?;
            if value.len() > RECORD_BYTES_MAX {
                return Err(Error::Invalid(format!(
                    "{} strong replicas of {} take {} bytes in the registry; at most {RECORD_BYTES_MAX} are allowed: \
                     forget those that are gone",
                    registered.len(),
                    filter.definition().name,
                    value.len()
                )));
            }
            let put = node.registry.put(&entry(filter.id()), value.into(), expected, None).await?;
            if let Change::Done(_) = put {
                self.lock().insert(filter.id(), (watch, registered));
                return Ok(());
            }
        }
        Err(Error::Retry("other nodes change the registered replicas of this filter all the time".into()))
    }

    /// Removes the records of filters that are gone, except where the filter that took their place has none yet.
    async fn forget_gone(&self, node: &Node) -> Result<()> {
        let filters = node.engine.filters();
        let before = filters.iter().filter_map(|filter| filter.definition().mirrors.map(|mirror| mirror.of));
        let needed: HashSet<u64> = filters.iter().map(|filter| filter.id()).chain(before).collect();
        self.lock().retain(|filter, _| needed.contains(filter));
        let names: HashSet<String> = needed.into_iter().map(entry).collect();
        for (name, found) in node.registry.list(FOLDER).await?.entries {
            if !names.contains(&name) {
                node.registry.delete(&name, Expected::Version(found.version)).await?;
            }
        }
        Ok(())
    }
}

/// What the registry has. A filter that took the place of another begins with the replicas of that one.
async fn look_up(node: &Node, filter: &Handle) -> Result<(Registered, Expected)> {
    let damaged = |error| Error::Corrupt(format!("{} in the registry: {error}", entry(filter.id())));
    if let Some(found) = node.registry.get(&entry(filter.id())).await? {
        let registered = serde_json::from_slice(&found.value).map_err(damaged)?;
        return Ok((registered, Expected::Version(found.version)));
    }
    let Some(mirror) = filter.definition().mirrors else {
        return Ok((Registered::default(), Expected::Absent));
    };
    let registered = match node.registry.get(&entry(mirror.of)).await? {
        Some(found) => serde_json::from_slice(&found.value).map_err(damaged)?,
        None => Registered::default(),
    };
    Ok((registered, Expected::Absent))
}
