//! What is taken from browsers: requests of our own pages, and no others.
//!
//! A server without a password trusts this machine. So does a browser on it, for whatever website is open in it: without this, any page
//! could add keys here by a form. Programs are not concerned, since only browsers say where a request comes from.
//!
//! | a request says | it is |
//! | --- | --- |
//! | `Sec-Fetch-Site: same-origin` or `none` | from our page, or typed by a person |
//! | `Sec-Fetch-Site` of another kind | from another website: refused |
//! | only `Origin` | from our page if that is the `Host` that it was sent to |
//! | neither | from a program, or from a page whose name was made to stand for this machine: then `Host` tells |

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::api::{Nodes, Peer};
use crate::node::Node;

/// What everybody may read, also by way of a link on another page: it tells nothing of what is here.
const PUBLIC: [&str; 4] = ["/", "/healthz", "/readyz", "/v1/openapi.json"];
const FILES: &str = "/console/";

/// The same paths, for those who may ask.
pub(crate) fn guarded(router: Router, nodes: Arc<dyn Nodes>) -> Router {
    router.layer(from_fn_with_state(nodes, check))
}

async fn check(State(nodes): State<Arc<dyn Nodes>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_public = PUBLIC.contains(&path) || path.starts_with(FILES);
    if is_public && matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    if is_foreign(request.headers()) {
        return refused("the request comes from another website, of which this server takes nothing");
    }
    let peer = request.extensions().get::<Peer>();
    let is_near = peer.is_some_and(|peer| peer.0.ip().to_canonical().is_loopback());
    let node = nodes.node().ok().filter(|node| is_near && node.acl.is_open());
    if node.is_some_and(|node| is_strange(request.headers(), &node)) {
        return refused(
            "a server without a password is called localhost, by its address, or by the setting http_name",
        );
    }
    next.run(request).await
}

fn refused(why: &str) -> Response {
    let body = axum::Json(json!({ "error": { "code": "origin", "message": why } }));
    (StatusCode::FORBIDDEN, body).into_response()
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

/// Whether a browser says that another website sent it.
fn is_foreign(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(|site| site.to_str().unwrap_or_default());
    match (site, text(headers, header::ORIGIN)) {
        (Some("same-origin" | "none"), _) | (None, None) => false,
        (Some(_), _) => true,
        (None, Some(origin)) => {
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            let host = text(headers, header::HOST);
            !authority.zip(host).is_some_and(|(ours, host)| ours.eq_ignore_ascii_case(host))
        }
    }
}

/// Whether the server is called by a name that a website could have made its own.
fn is_strange(headers: &HeaderMap, node: &Node) -> bool {
    let host = text(headers, header::HOST).unwrap_or_default();
    let name = name_of(host).trim_end_matches('.').to_ascii_lowercase();
    let is_ours = name.parse::<IpAddr>().is_ok()
        || !name.contains('.')
        || name.ends_with(".localhost")
        || name == node.config.load().http_name.to_ascii_lowercase();
    !is_ours
}

/// A host without its port.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn other_websites_are_told_from_programs_and_our_own_pages() {
        let foreign = |lines: &[_]| is_foreign(&headers(lines));
        assert!(!foreign(&[("host", "localhost:6381")]), "a program");
        assert!(!foreign(&[("host", "h:1"), ("sec-fetch-site", "same-origin"), ("origin", "https://proxy")]));
        assert!(!foreign(&[("host", "h:1"), ("sec-fetch-site", "none")]));
        assert!(foreign(&[("host", "h:1"), ("sec-fetch-site", "cross-site")]));
        assert!(foreign(&[("host", "localhost:6381"), ("sec-fetch-site", "same-site")]), "another port");
        assert!(!foreign(&[("host", "h:1"), ("origin", "http://h:1")]));
        assert!(foreign(&[("host", "h:1"), ("origin", "http://h:2")]));
        assert!(foreign(&[("host", "h:1"), ("origin", "null")]));
        assert!(foreign(&[("origin", "http://h:1")]));
    }

    #[test]
    fn hosts_have_names() {
        assert_eq!(name_of("localhost:6381"), "localhost");
        assert_eq!(name_of("[::1]:6381"), "::1");
        assert_eq!(name_of("evil.example"), "evil.example");
    }
}
