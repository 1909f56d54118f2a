//! Keys of Redis, messages of Kafka and objects of S3, compared with what was written there, on servers that `cargo xtask services` left.
#![cfg(any(feature = "kafka", feature = "redis", feature = "s3"))]

#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "s3")]
mod on_buckets;
#[cfg(feature = "kafka")]
mod on_kafka;
#[cfg(feature = "redis")]
mod on_redis;
#[path = "../../../adapters/tests/common/mod.rs"]
mod services;
