//! Checksums of questions and answers, for those who ask for them: replicas do.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{self, HeaderName};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use umbel_core::seal;

use super::fault::Fault;

const SUM: HeaderName = HeaderName::from_static("umbel-sum");

/// What the checksum of a question has to be.
#[derive(Clone, Debug)]
pub(super) struct Seal(String);

impl Seal {
    /// Whether the question is the one that was sent.
    pub(super) fn check(&self, method: &Method, uri: &axum::http::Uri, body: &[u8]) -> Result<(), Fault> {
        let found = seal::of_question(method.as_str(), uri.path(), uri.query().unwrap_or_default(), body);
        if found == self.0 {
            return Ok(());
        }
        let message = format!("the request was damaged on the way: its checksum is {found}, not {}", self.0);
        Err(Fault::of(StatusCode::BAD_REQUEST, "damaged", message))
    }
}

/// Checks a question that has a checksum, and gives its answer one, if that is JSON: other answers have checksums of their own.
pub(super) async fn sealed(mut request: Request, next: Next) -> Response {
    let Some(sum) = request.headers().get(SUM).and_then(|sum| sum.to_str().ok()).map(str::to_owned) else {
        return next.run(request).await;
    };
    let expected = Seal(sum.clone());
    let answer = if matches!(*request.method(), Method::GET | Method::HEAD | Method::DELETE) {
        match expected.check(request.method(), request.uri(), &[]) {
            Ok(()) => next.run(request).await,
            Err(fault) => fault.into_response(),
        }
    } else {
        // Whoever reads the body compares: only then is it known who asks, and how long a body may be.
        request.extensions_mut().insert(expected);
        next.run(request).await
    };
    seal_answer(answer, &sum).await
}

async fn seal_answer(answer: Response, question: &str) -> Response {
    if answer.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind != "application/json") {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    // It is in memory already.
    let body = match to_bytes(body, usize::MAX).await {
        Ok(body) => body,
        Err(error) => return Fault::unavailable(format!("the answer broke off: {error}")).into_response(),
    };
    if let Ok(sum) = HeaderValue::from_str(&seal::of_answer(question, head.status.as_u16(), &body)) {
        head.headers.insert(SUM, sum);
    }
    Response::from_parts(head, Body::from(body))
}

/// What a body has to be compared with, if its sender asked for that.
pub(super) fn expected(head: &Parts) -> Option<&Seal> {
    head.extensions.get()
}
