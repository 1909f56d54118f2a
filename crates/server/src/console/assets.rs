//! The files of the console, as they are in the binary.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use xxhash_rust::xxh3::xxh3_64;

/// Scripts and styles come from here alone, nothing is inline, and no other page has it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

const PAGE: Asset =
    Asset { name: "index.html", kind: HTML, bytes: include_bytes!("../../console/index.html") };

struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! assets {
    ($($name:literal $kind:ident,)*) => {
        [$(Asset { name: $name, kind: $kind, bytes: include_bytes!(concat!("../../console/", $name)) },)*]
    };
}

static ASSETS: &[Asset] = &assets! {
    "style.css" STYLE,
    "icon.svg" PICTURE,
    "main.js" SCRIPT,
    "api.js" SCRIPT,
    "live.js" SCRIPT,
    "dom.js" SCRIPT,
    "words.js" SCRIPT,
    "confirm.js" SCRIPT,
    "plot.js" SCRIPT,
    "ring.js" SCRIPT,
    "overview.js" SCRIPT,
    "filters.js" SCRIPT,
    "filter.js" SCRIPT,
    "tryout.js" SCRIPT,
    "changes.js" SCRIPT,
    "cluster.js" SCRIPT,
    "sync.js" SCRIPT,
    "lookups.js" SCRIPT,
    "slowlog.js" SCRIPT,
    "settings.js" SCRIPT,
    "explain.js" SCRIPT,
    "textbook.js" SCRIPT,
    "sizing.js" SCRIPT,
};

/// The page at the root, and what it is made of.
pub(crate) fn router() -> Router {
    Router::new()
        .route("/", get(async |request: HeaderMap| PAGE.serve(&request)))
        .route("/console/{file}", get(file))
}

async fn file(Path(name): Path<String>, request: HeaderMap) -> Response {
    match ASSETS.iter().find(|asset| asset.name == name) {
        Some(asset) => asset.serve(&request),
        None => (StatusCode::NOT_FOUND, "there is no such file\n").into_response(),
    }
}

impl Asset {
    fn serve(&self, request: &HeaderMap) -> Response {
        let tag = format!("\"{:016x}\"", xxh3_64(self.bytes));
        let known = request.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
        let is_known = known.is_some_and(|tags| tags.split(',').any(|known| known.trim() == tag));
        let mut response = match is_known {
            true => StatusCode::NOT_MODIFIED.into_response(),
            false => ([(header::CONTENT_TYPE, self.kind)], self.bytes).into_response(),
        };
        let headers = response.headers_mut();
        let fixed: [(HeaderName, &'static str); 6] = [
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::X_FRAME_OPTIONS, "DENY"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
            // Asked for each time, and not sent again: another version of the server has other files.
            (header::CACHE_CONTROL, "no-cache"),
        ];
        for (name, value) in fixed {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(header::ETAG, tag);
        }
        response
    }
}
