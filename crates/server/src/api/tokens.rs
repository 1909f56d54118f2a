//! Bearer tokens: rights that end, for programs that have no user.
//!
//! A token is a user of its own, with rules made from its scopes. What is kept of its secret is a digest. A caller makes, sees and revokes
//! tokens within its own rights only, and a token makes none that outlives it.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use umbel_core::registry::{Change, Expected};

use super::caller::Caller;
use super::fault::{Fault, Reply};
use crate::acl::{User, generate_password};
use crate::commands::table::{Id, Rules};
use crate::digest::Digest;
use crate::node::{Node, unix_time};

/// Where tokens are in the registry.
const FOLDER: &str = "tokens/";
/// What a token begins with, so that people and scanners of secrets know it.
const PREFIX: &str = "umbel_";
/// How long a token lasts if nobody says: thirty days.
const LASTS_SECONDS: u64 = 30 * 86_400;
const ID_BITS: i64 = 64;
const SECRET_BITS: i64 = 256;
/// Longest pattern and note.
const TEXT_BYTES_MAX: usize = 512;
const TOKENS_MAX: usize = 10_000;

/// What a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scope {
    /// Ask.
    Read,
    /// Ask, and change filters.
    Write,
    /// Everything, other tokens among it.
    Admin,
}

impl Scope {
    fn rules(self) -> &'static [&'static str] {
        match self {
            Self::Read => &["+@read"],
            Self::Write => &["+@read", "+@write"],
            Self::Admin => &["+@all"],
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    scope: Scope,
    /// The filters that it is for.
    filters: Option<String>,
    expires_in_seconds: Option<u64>,
    #[serde(default)]
    note: String,
}

/// What is kept of a token.
#[derive(Serialize, Deserialize)]
struct Kept {
    digest: String,
    scope: Scope,
    filters: String,
    expires_ms: u64,
    note: String,
}

fn now_ms() -> u64 {
    unix_time().as_millis() as u64
}

impl Kept {
    /// A user with the token's rights.
    fn user(&self, id: &str) -> Result<User, Fault> {
        let keys = format!("~{}", self.filters);
        let mut rules = vec!["on", "resetkeys", &keys];
        rules.extend(self.scope.rules());
        let user = User::new(&format!("token:{id}"), &Rules).and_then(|user| user.with(&rules, &Rules));
        user.map_err(|error| Fault::invalid(error.to_string()))
    }

    /// Whether the caller has all rights of the token. Of one that cannot be read, no caller has them.
    fn is_within(&self, caller: &Caller, id: &str) -> bool {
        self.user(id).is_ok_and(|user| caller.includes(&user))
    }
}

/// The user that a token stands for, and when the token ends; none for one that is not known.
pub(super) async fn user(node: &Node, token: &str) -> Result<Option<(Arc<User>, u64)>, Fault> {
    let Some((id, secret)) = token.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')) else {
        return Ok(None);
    };
    if id.len() * 4 != ID_BITS as usize || !id.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Ok(None);
    }
    let Some(kept) = node.registry.get(&format!("{FOLDER}{id}")).await? else { return Ok(None) };
    let kept: Kept = super::parse(&kept.value)?;
    if Digest::from_hex(&kept.digest) != Some(Digest::of(secret.as_bytes())) {
        return Ok(None);
    }
    if kept.expires_ms <= now_ms() {
        return Err(Fault::unauthorized("the token has expired"));
    }
    Ok(Some((Arc::new(kept.user(id)?), kept.expires_ms)))
}

/// When a token of that caller ends: when it is asked to, or in thirty days, or with the caller's own.
fn end(caller: &Caller, lasts_seconds: Option<u64>) -> Result<u64, Fault> {
    let lasts = lasts_seconds.unwrap_or(LASTS_SECONDS);
    let end = now_ms().saturating_add(lasts.saturating_mul(1000));
    match (caller.ends_ms.filter(|own| *own < end), lasts_seconds) {
        (None, _) => Ok(end),
        (Some(own), None) => Ok(own),
        (Some(own), Some(lasts)) => {
            let left = own.saturating_sub(now_ms()) / 1000;
            Err(Fault::forbidden(format!("expires_in_seconds is {lasts}; your own token ends in {left}")))
        }
    }
}

/// `POST /v1/tokens`
pub(super) async fn create(caller: Caller, request: Request) -> Reply<impl IntoResponse> {
    caller.may(Id::AclSetuser, &[])?;
    let new: New = super::json(request).await?;
    let filters = new.filters.unwrap_or_else(|| "*".to_owned());
    if filters.len().max(new.note.len()) > TEXT_BYTES_MAX
        || filters.is_empty()
        || filters.contains(char::is_whitespace)
    {
        return Err(Fault::invalid(format!(
            "filters is a pattern without spaces, and it and the note are at most {TEXT_BYTES_MAX} bytes"
        )));
    }
    forget_expired(&caller.node).await?;
    if caller.node.registry.list(FOLDER).await?.entries.len() >= TOKENS_MAX {
        return Err(Fault::conflict(format!("there are {TOKENS_MAX} tokens, which is the limit")));
    }
    let random = |bits| generate_password(bits).map_err(|error| Fault::unavailable(error.to_string()));
    let (id, secret) = (random(ID_BITS)?, random(SECRET_BITS)?);
    let kept = Kept {
        digest: Digest::of(secret.as_bytes()).hex(),
        scope: new.scope,
        filters,
        expires_ms: end(&caller, new.expires_in_seconds)?,
        note: new.note,
    };
    if !caller.includes(&kept.user(&id)?) {
        let (scope, filters) = (json!(kept.scope), &kept.filters);
        return Err(Fault::forbidden(format!(
            "a token of scope {scope} for the filters {filters} would have rights that you do not have"
        )));
    }
    let value = serde_json::to_vec(&kept).map_err(|error| Fault::invalid(error.to_string()))?;
    let name = format!("{FOLDER}{id}");
    match caller.node.registry.put(&name, value.into(), Expected::Absent, None).await? {
        Change::Done(_) => {}
        Change::Conflict(_) => return Err(Fault::unavailable("a token of that number was made meanwhile")),
    }
    let mut made = shown(&id, &kept);
    made["token"] = format!("{PREFIX}{id}_{secret}").into();
    Ok((StatusCode::CREATED, Json(made)))
}

/// `GET /v1/tokens`
pub(super) async fn list(caller: Caller) -> Reply {
    caller.may(Id::AclList, &[])?;
    forget_expired(&caller.node).await?;
    let mut tokens = Vec::new();
    for (name, kept) in caller.node.registry.list(FOLDER).await?.entries {
        let (id, kept): (_, Kept) = (name.trim_start_matches(FOLDER), super::parse(&kept.value)?);
        if kept.is_within(&caller, id) {
            tokens.push(shown(id, &kept));
        }
    }
    Ok(Json(json!({ "tokens": tokens })))
}

/// `DELETE /v1/tokens/{id}`
pub(super) async fn revoke(caller: Caller, Path(id): Path<String>) -> Reply<StatusCode> {
    caller.may(Id::AclDeluser, &[])?;
    let name = format!("{FOLDER}{id}");
    let is_id = id.len() * 4 == ID_BITS as usize;
    let kept = if is_id { caller.node.registry.get(&name).await? } else { None };
    let kept = kept.ok_or_else(|| Fault::not_found("there is no such token"))?;
    if !super::parse::<Kept>(&kept.value)?.is_within(&caller, &id) {
        return Err(Fault::forbidden("the token has rights that you do not have"));
    }
    caller.node.registry.delete(&name, Expected::Anything).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn forget_expired(node: &Node) -> Result<(), Fault> {
    for (name, kept) in node.registry.list(FOLDER).await?.entries {
        if super::parse::<Kept>(&kept.value)?.expires_ms <= now_ms() {
            node.registry.delete(&name, Expected::Version(kept.version)).await?;
        }
    }
    Ok(())
}

fn shown(id: &str, kept: &Kept) -> Value {
    json!({
        "id": id,
        "scope": kept.scope,
        "filters": kept.filters,
        "expires_ms": kept.expires_ms,
        "note": kept.note,
    })
}
