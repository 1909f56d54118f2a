//! A small HTTP client: requests with limits on everything that comes back.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::RootCertStore;
use serde::Deserialize;
use tokio::time::{Instant, timeout, timeout_at};
use umbel_core::seal;

use crate::limits::{
    ANSWER_BYTES_PER_MS, CONNECT_TIMEOUT, HEAD_TIMEOUT, JSON_BYTES_MAX, STALL_TIMEOUT, patience,
};
use crate::{Error, Result, tls};

/// The checksum of a question, and that of its answer.
const SUM: HeaderName = HeaderName::from_static("umbel-sum");
/// The deployment that a question is for, and that an answer comes from.
pub(crate) const DEPLOYMENT: HeaderName = HeaderName::from_static("umbel-deployment");
/// The number of the filter that keys are for.
pub(crate) const FILTER: HeaderName = HeaderName::from_static("umbel-filter");
/// The code of a refusal that is not known to be the server's own.
const NOBODYS: &str = "http";

/// Where a server or a peer is: the part of an address before the path of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base(String);

impl Base {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| Error::Invalid(format!("{text:?} is no address of a server: {why}"));
        let uri: Uri = text.parse().map_err(|error| wrong(&format!("{error}")))?;
        match uri.scheme_str() {
            Some("http" | "https") => {}
            _ => return Err(wrong("it begins with http:// or https://")),
        }
        if uri.query().is_some() || uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
            return Err(wrong("a host, a port and a path are all that it has"));
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }

    /// Whether who is there has to prove it.
    pub(crate) fn is_secure(&self) -> bool {
        self.0.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"))
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text, or bytes, as a part of a path.
pub fn escaped(text: impl AsRef<[u8]>) -> String {
    let text = text.as_ref();
    let mut out = String::with_capacity(text.len());
    for byte in text.iter().copied() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// What comes behind the base.
    pub(crate) path: String,
    pub(crate) head: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Bytes,
    /// How long the answer may take to begin.
    pub(crate) patience: Duration,
}

impl Ask {
    pub(crate) fn get(path: String) -> Self {
        Self { method: Method::GET, path, head: Vec::new(), body: Bytes::new(), patience: HEAD_TIMEOUT }
    }

    pub(crate) fn with_body(method: Method, path: String, kind: &'static str, body: Bytes) -> Self {
        let head = vec![(CONTENT_TYPE, HeaderValue::from_static(kind))];
        Self { method, head, body, ..Self::get(path) }
    }

    /// What stands for all of it.
    fn sum(&self) -> String {
        let (path, query) = self.path.split_once('?').unwrap_or((&self.path, ""));
        let kind = self.head.iter().find(|(name, _)| name == CONTENT_TYPE);
        let kind = kind.and_then(|(_, value)| value.to_str().ok()).unwrap_or_default();
        format!("{}-{}", seal::of_head(self.method.as_str(), path, query, kind), seal::of_body(&self.body))
    }
}

/// Sends requests over connections that stay.
#[derive(Debug)]
pub(crate) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    token: Option<HeaderValue>,
}

impl Http {
    /// Asks these servers, and others whom they name. Authorities are those of a file, or the system's.
    pub(crate) fn new(servers: &[Base], token: Option<&str>, ca_file: Option<&Path>) -> Result<Self> {
        let token = token.map(|token| {
            let value = HeaderValue::from_str(&format!("Bearer {token}"));
            // The token itself is in no message.
            let mut value =
                value.map_err(|_| Error::Invalid("the token is no text of a header".to_owned()))?;
            value.set_sensitive(true);
            Ok::<_, Error>(value)
        });
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        // Where nobody speaks TLS, what the system trusts need not be read.
        let is_secure = ca_file.is_some() || servers.iter().any(Base::is_secure);
        let roots = if is_secure { tls::authorities(ca_file)? } else { RootCertStore::empty() };
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::config(roots)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(5))
            .build(connector);
        Ok(Self { client, token: token.transpose()? })
    }

    /// An answer whose status is a success or "not modified"; any other is an error with what the server said.
    pub(crate) async fn send(&self, base: &Base, ask: &Ask, trusted: bool) -> Result<Reply> {
        let url = format!("{base}{}", ask.path);
        let mut request = Request::builder().method(ask.method.clone()).uri(&url);
        for (name, value) in &ask.head {
            request = request.header(name, value);
        }
        let sum = ask.sum();
        request = request.header(SUM, &sum);
        // Only servers that the user named see the token; peers are named by others.
        if let Some(token) = self.token.as_ref().filter(|_| trusted) {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::new(ask.body.clone()));
        let request = request.map_err(|error| Error::Invalid(format!("{url}: {error}")))?;
        let answer = match timeout(ask.patience, self.client.request(request)).await {
            Ok(answer) => answer.map_err(|error| Error::Unreachable(format!("{base}: {}", chain(&error))))?,
            Err(_) => return Err(Error::Unreachable(format!("{base}: no answer in {:?}", ask.patience))),
        };
        let (head, body) = answer.into_parts();
        let (base, heard) = (base.clone(), Instant::now());
        let reply = Reply { status: head.status, head: head.headers, body, base, heard, sum };
        if reply.status.is_success() || reply.status == StatusCode::NOT_MODIFIED {
            return Ok(reply);
        }
        Err(reply.refusal().await)
    }
}

/// An error with what caused it: hyper's own text is often no more than "error".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// What came back: its head, and a body that comes bit by bit.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    head: HeaderMap,
    body: Incoming,
    base: Base,
    /// When something last came.
    heard: Instant,
    /// The checksum of the question.
    sum: String,
}

#[derive(Deserialize)]
struct Refusal {
    error: Told,
}

#[derive(Deserialize)]
struct Told {
    code: String,
    message: String,
}

impl Reply {
    /// Where it came from.
    pub(crate) fn base(&self) -> &Base {
        &self.base
    }

    /// A field of the head.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.get(name)?.to_str().ok()
    }

    /// The next piece of the body; none at its end. Whoever gives up waiting may ask again, and misses nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let frame = timeout_at(self.heard + STALL_TIMEOUT, self.body.frame()).await;
            let Ok(frame) = frame else {
                return Err(Error::Unreachable(format!("{}: silent for {STALL_TIMEOUT:?}", self.base)));
            };
            self.heard = Instant::now();
            match frame {
                None => return Ok(None),
                Some(Err(error)) => {
                    return Err(Error::Unreachable(format!("{}: {}", self.base, chain(&error))));
                }
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    /// The whole body, if it is not longer than this, and does not come more slowly than any that has an end.
    pub(crate) async fn bytes(mut self, most: usize) -> Result<Bytes> {
        let (mut whole, begun) = (BytesMut::new(), Instant::now());
        while let Some(piece) = self.next().await? {
            if piece.len() > most - whole.len() {
                return Err(Error::Corrupt(format!(
                    "{}: an answer of more than {most} bytes where that is the most",
                    self.base
                )));
            }
            whole.extend_from_slice(&piece);
            let (bytes, patience) = (whole.len(), patience(whole.len(), ANSWER_BYTES_PER_MS));
            if begun.elapsed() > patience {
                let why = format!("{}: an answer of which {bytes} bytes came in {patience:?}", self.base);
                return Err(Error::Unreachable(why));
            }
        }
        Ok(whole.freeze())
    }

    /// The body as JSON, if it is what the server said to this question and to no other.
    pub(crate) async fn json<T: for<'a> Deserialize<'a>>(self) -> Result<T> {
        let (base, status, question) = (self.base.clone(), self.status.as_u16(), self.sum.clone());
        // Without a checksum nothing of it would be believed. It may be a stream whose status was damaged on the way: to wait for its end
        // would be to wait for ever, since signs of life go on.
        let Some(told) = self.field(SUM.as_str()).map(str::to_owned) else {
            return Err(Error::Corrupt(format!("{base}: an answer without a checksum")));
        };
        let bytes = self.bytes(JSON_BYTES_MAX).await?;
        let found = seal::of_answer(&question, status, &bytes);
        if told != found {
            let why = format!("its checksum is {found}, not {told}");
            return Err(Error::Corrupt(format!("{base}: an answer was damaged on the way: {why}")));
        }
        serde_json::from_slice(&bytes).map_err(|error| Error::Corrupt(format!("{base}: an answer: {error}")))
    }

    async fn refusal(self) -> Error {
        let (status, base) = (self.status.as_u16(), self.base.clone());
        let told = match self.json::<Refusal>().await {
            Ok(told) if told.error.code == "other_deployment" => {
                return Error::OtherDeployment(format!("{base}: {}", told.error.message));
            }
            Ok(told) if told.error.code == "damaged" => return Error::Corrupt(told.error.message),
            Ok(told) => told.error,
            // Something in between that is no Umbel server, or one that is ending, or bytes that were changed on the way.
            Err(_) => Told { code: NOBODYS.to_owned(), message: format!("{base} gave no reason") },
        };
        Error::Refused { status, code: told.code, message: told.message }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn bases_are_checked_before_anybody_connects() {
        assert_eq!(Base::parse("http://a:1/x/").unwrap().to_string(), "http://a:1/x");
        assert!(
            Base::parse("HTTPS://a").unwrap().is_secure() && !Base::parse("http://a").unwrap().is_secure()
        );
        for bad in ["", "a:1", "ftp://a", "http://u:p@a", "http://a/?b"] {
            assert!(matches!(Base::parse(bad), Err(Error::Invalid(_))), "{bad}");
        }
    }

    #[test]
    fn names_are_parts_of_a_path() {
        assert_eq!(escaped("a/b c\u{e9}?"), "a%2Fb%20c%C3%A9%3F");
        assert_eq!(escaped([0, 255]), "%00%FF");
    }

    /// Answers one question with a head, and then a byte five times a second for as long as anybody reads.
    fn endless(head: &'static str) -> Base {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // An answer that comes before its question belongs to none.
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            stream
                .write_all(format!("HTTP/1.1 {head}\r\ntransfer-encoding: chunked\r\n\r\n").as_bytes())
                .unwrap();
            while stream.write_all(b"1\r\n \r\n").is_ok() {
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Base::parse(&format!("http://{address}")).unwrap()
    }

    #[tokio::test]
    async fn what_has_no_end_is_given_up() {
        let most = STALL_TIMEOUT + Duration::from_secs(5);
        let whole = async |head| {
            let base = endless(head);
            let http = Http::new(std::slice::from_ref(&base), None, None)?;
            http.send(&base, &Ask::get("/".to_owned()), true).await?.bytes(JSON_BYTES_MAX).await
        };
        let given_up =
            async |head| timeout(most, whole(head)).await.expect("it is waited for without end").unwrap_err();
        // As an answer, as a refusal that has a checksum, and as one that has none: that could say nothing that is believed.
        let (slow, sealed, bare) = tokio::join!(
            given_up("200 OK"),
            given_up("400 No\r\numbel-sum: 0"),
            timeout(STALL_TIMEOUT / 2, whole("300 No"))
        );
        assert!(matches!(&slow, Error::Unreachable(why) if why.contains("bytes came in")), "{slow}");
        assert!(matches!(sealed, Error::Refused { status: 400, .. }), "{sealed}");
        let bare = bare.expect("it is read").unwrap_err();
        assert!(matches!(bare, Error::Refused { status: 300, .. }), "{bare}");
    }
}
