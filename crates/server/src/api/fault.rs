//! What a request gets that is not done.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::cluster::DOWN;
use crate::commands::Refusal;
use crate::sync::Trouble;

/// What came of a request.
pub(super) type Reply<T = Json<Value>> = Result<T, Fault>;

/// Why a request is not done.
#[derive(Debug)]
pub(super) struct Fault {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// Keys that were taken before, of a stream.
    taken: Option<u64>,
}

impl Fault {
    pub(super) fn of(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), taken: None }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::of(StatusCode::BAD_REQUEST, "invalid", message)
    }

    pub(super) fn too_large(most: usize) -> Self {
        let message = format!("a body of more than {most} bytes; lines of text may be as long as they like");
        Self::of(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::of(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(super) fn no_filter(name: &str) -> Self {
        Self::not_found(format!("there is no filter {}", name.escape_debug()))
    }

    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::of(StatusCode::CONFLICT, "conflict", message)
    }

    pub(super) fn unauthorized(message: impl Into<String>) -> Self {
        Self::of(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::of(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub(super) fn method_not_allowed() -> Self {
        Self::of(StatusCode::METHOD_NOT_ALLOWED, "method", "this path takes other methods")
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::of(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    /// The same where what there is stands against what makes sense by itself.
    pub(super) fn into_conflict(self) -> Self {
        match self.status {
            StatusCode::BAD_REQUEST => Self::conflict(self.message),
            _ => self,
        }
    }

    /// The same for a stream of which some keys were taken: they stay.
    pub(super) fn after(self, taken: u64) -> Self {
        Self { taken: Some(taken), ..self }
    }
}

impl From<umbel_core::Error> for Fault {
    fn from(error: umbel_core::Error) -> Self {
        use umbel_core::Error;
        match error {
            Error::Retry(why) | Error::Closed(why) => Self::unavailable(why),
            Error::Invalid(why) => Self::invalid(why),
            Error::Gone(why) => Self::not_found(why),
            gone @ Error::Trimmed { .. } => Self::of(StatusCode::GONE, "trimmed", gone.to_string()),
            other => Self::of(StatusCode::INTERNAL_SERVER_ERROR, "corrupt", other.to_string()),
        }
    }
}

impl From<Trouble> for Fault {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Conflict(why) => Self::conflict(why),
            Trouble::Engine(error) => error.into(),
        }
    }
}

/// What a command would have said.
impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        match refusal.0.split_once(' ') {
            Some(("ERR", why)) => Self::invalid(why),
            Some(("TRYAGAIN" | "MISCONF" | DOWN, why)) => Self::unavailable(why),
            _ => Self::invalid(refusal.0),
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(taken) = self.taken {
            error["keys_taken"] = taken.into();
        }
        let mut response = (self.status, Json(json!({ "error": error }))).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}
