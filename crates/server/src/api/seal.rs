//! Checksums of questions and answers, for those who send them: replicas do.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{self, HeaderName};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use umbel_core::seal;

use super::fault::Fault;

const SUM: HeaderName = HeaderName::from_static("umbel-sum");

/// What the checksum of a body has to be.
#[derive(Clone, Debug)]
struct BodySum(String);

fn damaged(found: &str, told: &str) -> Fault {
    let message = format!("the request was damaged on the way: its checksum is {found}, not {told}");
    Fault::of(StatusCode::BAD_REQUEST, "damaged", message)
}

/// The checksum of a question, if it has one, and whether its head is the one that was sent.
fn looked_at(request: &Request) -> Option<(String, Result<BodySum, Fault>)> {
    let text = |name| request.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let sum = text(SUM)?;
    let (told, body) = sum.split_once('-').unwrap_or((sum, ""));
    let (uri, kind) = (request.uri(), text(header::CONTENT_TYPE).unwrap_or_default());
    let found = seal::of_head(request.method().as_str(), uri.path(), uri.query().unwrap_or_default(), kind);
    let outcome = if found == told { Ok(BodySum(body.to_owned())) } else { Err(damaged(&found, told)) };
    Some((sum.to_owned(), outcome))
}

/// Checks a question that has a checksum, and gives its answer one, if that is JSON: other answers have checksums of their own.
pub(super) async fn sealed(mut request: Request, next: Next) -> Response {
    let Some((sum, outcome)) = looked_at(&request) else { return next.run(request).await };
    let answer = match outcome {
        Ok(body) => {
            // Whoever reads the body compares: only then is it known who asks, and how long a body may be.
            request.extensions_mut().insert(body);
            next.run(request).await
        }
        Err(fault) => fault.into_response(),
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

/// Whether a body is the one that was sent, if its sender said which.
pub(super) fn check_body(head: &Parts, body: &[u8]) -> Result<(), Fault> {
    let Some(BodySum(told)) = head.extensions.get() else { return Ok(()) };
    let found = seal::of_body(body);
    if found == *told { Ok(()) } else { Err(damaged(&found, told)) }
}
