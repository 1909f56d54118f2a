//! Engines' own clients by the same addresses, for whoever wants something else of an engine than a plane.

#[cfg(any(feature = "kafka", feature = "redis", feature = "s3"))]
use umbel_core::Result;

#[cfg(any(feature = "kafka", feature = "redis", feature = "s3"))]
use crate::Url;

/// A client of one of the hosts of `redis://user:password@host:port,host:port?tls=true`, in one of its databases.
#[cfg(feature = "redis")]
pub fn redis(url: &Url, host: &str, database: u32) -> Result<redis::Client> {
    crate::open::choose_ring();
    crate::redis::client(url, host, database)
}

/// A consumer that comes to the servers of `kafka://user:password@host:port,host:port?tls=true&sasl=PLAIN`, with settings of its own.
#[cfg(feature = "kafka")]
pub fn kafka_consumer(url: &Url, settings: &[(&str, &str)]) -> Result<rdkafka::consumer::BaseConsumer> {
    let mut config = crate::kafka::configuration(url)?;
    for (name, value) in settings {
        config.set(*name, *value);
    }
    config.create().map_err(|error| crate::kafka::refused(url, &error))
}

/// A client of the bucket of `s3://bucket?region=eu-central-1&endpoint=https://host`. Nothing is asked of it yet.
#[cfg(feature = "s3")]
pub fn s3(url: &Url) -> Result<object_store::aws::AmazonS3> {
    crate::open::choose_ring();
    crate::cloud::s3(url)
}
