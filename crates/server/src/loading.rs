//! Filters that arrive in parts.

/// Filters that are not whole yet.
#[derive(Debug, Default)]
pub struct Loading {}
