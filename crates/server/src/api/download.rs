//! Bytes for caches: what they are told of an answer, and what they may ask instead of all of it.

use std::ops::Range;

use axum::body::Body;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::encoding::Coding;
use super::fault::Fault;
use super::ranges::{Asked, asked};

/// What never changes may be kept for ever.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// What may be kept, if it is asked each time whether it is still so.
const ASK_FIRST: &str = "no-cache";

/// What is told of an answer besides its bytes.
#[derive(Debug)]
pub(super) struct Download {
    tag: String,
    headers: HeaderMap,
}

/// How an answer goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Whole(Option<Coding>),
    Part(Range<u64>),
    /// The client asks for bytes that are not there.
    Outside,
}

impl Download {
    /// An answer whose tag is the same if and only if its content is.
    pub(super) fn new(kind: &'static str, tag: &str, never_changes: bool) -> Self {
        let mut download = Self { tag: format!("\"{tag}\""), headers: HeaderMap::new() };
        download.set(header::CONTENT_TYPE, kind);
        download.set(header::ETAG, &download.tag.clone());
        download.set(header::CACHE_CONTROL, if never_changes { FOR_EVER } else { ASK_FIRST });
        download
    }

    /// Tells something else.
    pub(super) fn set(&mut self, name: HeaderName, value: &str) {
        // What we tell is plain text.
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
    }

    /// Whether the client has it already: then that is all it is told.
    pub(super) fn is_known(&self, request: &HeaderMap) -> bool {
        let mut tags = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        tags.any(|tags| {
            let mut tags = tags.split(',').map(str::trim);
            tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == self.tag)
        })
    }

    pub(super) fn not_modified(self) -> Response {
        self.reply(StatusCode::NOT_MODIFIED, Body::empty())
    }

    /// An answer of which there are no parts.
    pub(super) fn whole(self, body: impl Into<Body>) -> Response {
        self.reply(StatusCode::OK, body.into())
    }

    /// How an answer of so many bytes goes, by what the client asks.
    pub(super) fn plan(&mut self, request: &HeaderMap, length: u64) -> Plan {
        self.set(header::VARY, "Accept-Encoding");
        self.set(header::ACCEPT_RANGES, "bytes");
        let text = |name| request.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        // A part of something else is of no use: then all of it goes.
        let is_same = text(header::IF_RANGE).is_none_or(|tag| tag == self.tag);
        match asked(text(header::RANGE).filter(|_| is_same), length) {
            Asked::Whole => Plan::Whole(text(header::ACCEPT_ENCODING).and_then(Coding::chosen)),
            Asked::Part(part) => Plan::Part(part),
            Asked::Outside => Plan::Outside,
        }
    }

    /// A refusal that says how many bytes there are.
    pub(super) fn outside(length: u64) -> Response {
        let message = format!("there are {length} bytes");
        let fault = Fault::of(StatusCode::RANGE_NOT_SATISFIABLE, "range", message);
        let mut response = fault.into_response();
        if let Ok(value) = HeaderValue::from_str(&format!("bytes */{length}")) {
            response.headers_mut().insert(header::CONTENT_RANGE, value);
        }
        response
    }

    /// All of it, perhaps compressed.
    pub(super) fn encoded(mut self, coding: Option<Coding>, body: impl Into<Body>) -> Response {
        if let Some(coding) = coding {
            self.set(header::CONTENT_ENCODING, coding.name());
        }
        self.reply(StatusCode::OK, body.into())
    }

    /// A part of it, of so many bytes in all.
    pub(super) fn part(mut self, part: &Range<u64>, length: u64, body: impl Into<Body>) -> Response {
        self.set(header::CONTENT_RANGE, &format!("bytes {}-{}/{length}", part.start, part.end - 1));
        self.reply(StatusCode::PARTIAL_CONTENT, body.into())
    }

    fn reply(self, status: StatusCode, body: Body) -> Response {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = self.headers;
        response
    }
}
