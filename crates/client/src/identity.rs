//! Whether what a folder holds is of the filter that was asked for. It is found out before anything of it answers.
//!
//! | the server says | the folder's name is the one asked for | it is another name |
//! | --- | --- | --- |
//! | the same number | the copy answers | the filter was renamed: the copy answers |
//! | the number of its successor | the copy answers until the successor's is there | refused |
//! | another number | the copy is dropped, and the new filter's fetched | refused |
//! | there is no such filter | everything is unknown | refused |
//! | another deployment | refused | refused |
//! | nothing | the copy answers, if that deployment was met at one of the addresses; else refused | refused |

use std::sync::Arc;

use serde::Deserialize;
use tokio::time::timeout;

use crate::http::{Ask, escaped};
use crate::limits::IDENTITY_TIMEOUT;
use crate::shared::{Shared, blocking};
use crate::store::{Owner, Store};
use crate::{Error, Result};

/// What may be done with a copy that is in the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// It may answer.
    Usable,
    /// It is of a filter that was dropped.
    Gone,
    /// It is of a filter that had the name before.
    Replaced,
}

#[derive(Deserialize)]
struct Identity {
    filter: String,
    predecessor: Option<String>,
}

/// Finds out what may be done with the copy in the folder. An error says what is in the folder, and what was asked for.
pub(crate) async fn check(shared: &Arc<Shared>) -> Result<Stored> {
    let Some(owner) = shared.store.as_ref().and_then(Store::owner) else {
        return Ok(Stored::Usable);
    };
    let name = &shared.options.filter;
    let is_named = owner.is_named(name);
    shared.sources.expect(owner.deployment);
    let ask = Ask { patience: IDENTITY_TIMEOUT, ..Ask::get(shared.sources.path("identity")) };
    let asked = async { shared.sources.ask(&ask).await?.json::<Identity>().await };
    let told = match timeout(IDENTITY_TIMEOUT, asked).await {
        Ok(told) => told,
        Err(_) => Err(Error::Unreachable(format!("no answer in {IDENTITY_TIMEOUT:?}"))),
    };
    let number = format!("{:016x}", owner.filter);
    let stored = match told {
        Ok(told) if told.filter == number => Stored::Usable,
        Ok(told) if is_named && told.predecessor.as_ref() == Some(&number) => Stored::Usable,
        Ok(_) if is_named => Stored::Replaced,
        Ok(told) => return Err(refused(shared, &owner, &format!("that is the filter {}", told.filter))),
        Err(error) if error.is_other_deployment() => {
            return Err(refused(shared, &owner, &error.to_string()));
        }
        // A server that is older than this question says so too, and tells what there is later.
        Err(error) if error.is_no_path() && is_named => return Ok(Stored::Usable),
        Err(error) if error.is_no_filter() && is_named => return Ok(Stored::Gone),
        Err(error) if error.is_no_filter() && !error.is_no_path() => {
            return Err(refused(shared, &owner, "there is no such filter"));
        }
        Err(_) if is_named && owner.was_met_at(&shared.sources.servers()) => return Ok(Stored::Usable),
        Err(error) => {
            let why = format!("whether that is the same filter cannot be asked: {error}");
            return Err(refused(shared, &owner, &why));
        }
    };
    if stored == Stored::Usable && told_now(&owner, shared) != owner {
        let (keeper, owner) = (Arc::clone(shared), told_now(&owner, shared));
        blocking(move || keeper.store.as_ref().map_or(Ok(()), |store| store.set_owner(&owner))).await??;
    }
    Ok(stored)
}

/// The owner as it is known after the server told of it.
fn told_now(owner: &Owner, shared: &Shared) -> Owner {
    let (deployment, servers) = (shared.sources.deployment(), owner.servers().to_vec());
    Owner::new(deployment, owner.filter, &shared.options.filter, servers).met_at(&shared.sources.servers())
}

fn refused(shared: &Shared, owner: &Owner, why: &str) -> Error {
    let folder = shared.store.as_ref().map(|store| store.folder.display().to_string()).unwrap_or_default();
    let deployment = match owner.deployment {
        Some(deployment) => format!(" of the deployment {deployment}"),
        None => String::new(),
    };
    let met = match owner.servers() {
        [] => String::new(),
        servers => format!(", met at {}", servers.join(", ")),
    };
    Error::Invalid(format!(
        "{folder} holds a copy of the filter {} ({:016x}){deployment}{met}; asked for was the filter {} at {}: {why}. \
         Give each filter a folder of its own, or remove this one with what it holds",
        owner.name(),
        owner.filter,
        escaped(&shared.options.filter),
        shared.sources.servers().join(", "),
    ))
}
