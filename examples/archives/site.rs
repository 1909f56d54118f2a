//! The page, and what it asks for. Records are asked for at the archives' own doors, as any other program would.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use umbel_domains::changes::Effect;

use crate::archive::{Archive, CATALOG, Result};

/// Nothing but what is served here, and nobody else may show it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";
const NUMBER_BYTES_MAX: usize = 64;
const TITLE_BYTES_MAX: usize = 300;
const BODY_BYTES_MAX: usize = 4 << 10;
const PATIENCE: Duration = Duration::from_secs(5);

type Archives = Arc<Vec<Arc<Archive>>>;

/// Why a request is not done.
struct Fault(StatusCode, String);

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

impl<E: std::fmt::Display> From<E> for Fault {
    fn from(error: E) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

fn invalid(why: impl Into<String>) -> Fault {
    Fault(StatusCode::BAD_REQUEST, why.into())
}

/// Serves the page on this machine, and says where.
pub(crate) async fn serve(archives: Vec<Arc<Archive>>, port: u16) -> Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/", get(|| file("text/html; charset=utf-8", include_str!("page/index.html"))))
        .route("/style.css", get(|| file("text/css; charset=utf-8", include_str!("page/style.css"))))
        .route("/page.js", get(|| file("text/javascript; charset=utf-8", include_str!("page/page.js"))))
        .route("/icon.svg", get(|| file("image/svg+xml", include_str!("page/icon.svg"))))
        .route("/api/archives", get(list))
        .route("/api/lookup", post(look_up))
        .route("/api/seen", post(seen))
        .route("/api/hottest", get(hottest))
        .route("/api/records", post(put).delete(erase))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(axum::middleware::map_response(guarded))
        .with_state(Arc::new(archives));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

async fn file(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind)], text)
}

async fn guarded(mut response: Response) -> Response {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn find<'a>(archives: &'a Archives, name: &str) -> std::result::Result<&'a Arc<Archive>, Fault> {
    archives
        .iter()
        .find(|archive| archive.name() == name)
        .ok_or_else(|| invalid(format!("there is no archive {name:?}")))
}

fn checked(number: &str) -> std::result::Result<String, Fault> {
    let number = number.trim();
    match (1..=NUMBER_BYTES_MAX).contains(&number.len()) {
        true => Ok(number.to_owned()),
        false => Err(invalid(format!("a number of {} bytes; it has 1 to {NUMBER_BYTES_MAX}", number.len()))),
    }
}

async fn list(State(archives): State<Archives>) -> std::result::Result<Json<Value>, Fault> {
    let mut all = Vec::new();
    for archive in archives.iter() {
        all.push(json!({
            "name": archive.name(),
            "records": archive.records().await?,
            "http": format!("http://{}", archive.http()),
            "resp": archive.resp().to_string(),
        }));
    }
    Ok(Json(Value::Array(all)))
}

#[derive(Deserialize)]
struct Asked {
    archive: String,
    number: String,
}

/// A record, asked for in one archive.
async fn look_up(
    State(archives): State<Archives>,
    Json(asked): Json<Asked>,
) -> std::result::Result<Json<Value>, Fault> {
    let archive = find(&archives, &asked.archive)?;
    let question = json!({ "key": checked(&asked.number)?, "fetch": true });
    Ok(Json(archive.api.post(format!("/v1/lookup/{CATALOG}"), &question, PATIENCE).await?))
}

#[derive(Deserialize)]
struct Number {
    number: String,
}

/// What every archive knows of a number: its own filter, and its copies of the others'.
async fn seen(
    State(archives): State<Archives>,
    Json(asked): Json<Number>,
) -> std::result::Result<Json<Value>, Fault> {
    let number = checked(&asked.number)?;
    let mut all = Vec::new();
    for archive in archives.iter() {
        let Some(catalog) = archive.catalog() else { continue };
        let standings = catalog
            .look(&number)
            .into_iter()
            .map(|standing| json!({ "domain": &*standing.domain, "answer": standing.answer.word() }));
        all.push(json!({ "archive": archive.name(), "domains": standings.collect::<Vec<_>>() }));
    }
    Ok(Json(Value::Array(all)))
}

#[derive(Deserialize)]
struct Where {
    archive: String,
}

async fn hottest(
    State(archives): State<Archives>,
    Query(Where { archive }): Query<Where>,
) -> std::result::Result<Json<Value>, Fault> {
    let archive = find(&archives, &archive)?;
    Ok(Json(archive.api.get(format!("/v1/lookup/{CATALOG}/hottest?count=8")).await?))
}

#[derive(Deserialize)]
struct Put {
    archive: String,
    number: String,
    title: String,
}

async fn put(
    State(archives): State<Archives>,
    Json(put): Json<Put>,
) -> std::result::Result<Json<Value>, Fault> {
    let title = put.title.trim().to_owned();
    if !(1..=TITLE_BYTES_MAX).contains(&title.len()) {
        return Err(invalid(format!("a title of {} bytes; it has 1 to {TITLE_BYTES_MAX}", title.len())));
    }
    let effect = find(&archives, &put.archive)?.put(checked(&put.number)?, title).await?;
    let done = if effect == Effect::Added { "added" } else { "changed" };
    Ok(Json(json!({ "done": done })))
}

async fn erase(
    State(archives): State<Archives>,
    Json(asked): Json<Asked>,
) -> std::result::Result<Json<Value>, Fault> {
    let erased = find(&archives, &asked.archive)?.erase(checked(&asked.number)?).await?;
    Ok(Json(json!({ "done": if erased { "erased" } else { "not there" } })))
}
