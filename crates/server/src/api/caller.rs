//! Who asks, and what that one may do.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use umbel_core::engine::Handle;

use super::fault::Fault;
use super::{Api, tokens};
use crate::acl::{Access, User};
use crate::commands::table::Id;
use crate::names::name_of;
use crate::node::Node;

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// Who asks.
pub(super) struct Caller {
    pub(super) node: Arc<Node>,
    user: Arc<User>,
    /// When the token ends that the caller showed, if it was one.
    pub(super) ends_ms: Option<u64>,
}

impl FromRequestParts<Api> for Caller {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Fault> {
        let node = api.0.node().map_err(Fault::unavailable)?;
        let peer = parts.extensions.get::<Peer>().copied();
        if peer.is_some_and(|peer| node.keeps_out(peer.0).is_some()) {
            return Err(Fault::forbidden(
                "protected mode: no password is set, so only this machine may ask; set one, or turn protected_mode off",
            ));
        }
        let mut ends_ms = None;
        let user = match parts.headers.get(header::AUTHORIZATION) {
            None => node.acl.greet().map(|login| Arc::clone(login.user())),
            Some(value) => {
                let (scheme, credentials) =
                    value.to_str().ok().and_then(|value| value.split_once(' ')).unwrap_or_default();
                if scheme.eq_ignore_ascii_case("bearer") {
                    let token = tokens::user(&node, credentials.trim()).await?;
                    ends_ms = token.as_ref().map(|(_, ends_ms)| *ends_ms);
                    token.map(|(user, _)| user)
                } else if scheme.eq_ignore_ascii_case("basic") {
                    basic(&node, credentials.trim())
                } else {
                    None
                }
            }
        };
        let user =
            user.ok_or_else(|| Fault::unauthorized("a bearer token, or a user and its password, is needed"))?;
        Ok(Self { node, user, ends_ms })
    }
}

/// A user of RESP with its password.
fn basic(node: &Node, credentials: &str) -> Option<Arc<User>> {
    let decoded = BASE64_STANDARD.decode(credentials).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let name = std::str::from_utf8(&decoded[..colon]).ok()?;
    let login = node.acl.authenticate(name, &decoded[colon + 1..]).ok()?;
    Some(Arc::clone(login.user()))
}

impl Caller {
    /// Whether the user may do what this command does, to these filters.
    pub(super) fn may(&self, id: Id, names: &[&str]) -> Result<(), Fault> {
        let access = if id.row().is("write") { Access::WRITE } else { Access::READ };
        let keys = names.iter().map(|name| name.as_bytes());
        self.user
            .can(id as u16, keys, access)
            .map_err(|denied| Fault::forbidden(denied.reply(self.user.name(), id.row().name)))
    }

    /// Whether lists show the user a filter.
    pub(super) fn sees(&self, name: &str) -> bool {
        self.may(Id::UmbelStats, &[name]).is_ok()
    }

    /// Whether the user may do what this command does to filters of all names.
    pub(super) fn may_on_all(&self, id: Id) -> Result<(), Fault> {
        self.may(id, &[])?;
        let access = if id.row().is("write") { Access::WRITE } else { Access::READ };
        if self.user.can_on_all_keys(id as u16, access) {
            Ok(())
        } else {
            Err(Fault::forbidden("this concerns all filters, and you may not access all of them"))
        }
    }

    /// Whether the caller may do all that another user may.
    pub(super) fn includes(&self, other: &User) -> bool {
        self.user.includes(other)
    }

    /// The filter of that name, if the user may do that to it.
    pub(super) async fn filter(&self, id: Id, name: &str) -> Result<Arc<Handle>, Fault> {
        self.may(id, &[name])?;
        self.node.filter(&name_of(name.as_bytes())).await?.ok_or_else(|| Fault::no_filter(name))
    }
}
