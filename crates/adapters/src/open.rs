use std::sync::Arc;

use umbel_core::log::Log;
use umbel_core::registry::Registry;
use umbel_core::{Error, Result};

use object_store::ObjectStore;

use crate::anywhere::Anywhere;
use crate::{Opened, Url};

/// All of TLS here is ring's, but for Kafka's: clients that ask the process get it. If a provider was chosen before, that one stays.
pub(crate) fn choose_ring() {
    #[cfg(any(
        feature = "cloud",
        feature = "etcd",
        feature = "nats",
        feature = "rabbitmq",
        feature = "redis",
        feature = "zookeeper-tls"
    ))]
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Opens the log that a URL names, say `kafka://h1,h2/topic?partitions=256`.
pub async fn open_log(url: &Url) -> Result<Opened<dyn Log>> {
    choose_ring();
    let opened: Opened<dyn Log> = match url.scheme() {
        #[cfg(feature = "kafka")]
        "kafka" => crate::kafka::open_log(url).await,
        #[cfg(feature = "nats")]
        "nats" => crate::nats::open_log(url).await,
        #[cfg(feature = "rabbitmq")]
        "rabbitmq" => crate::rabbitmq::open_log(url).await,
        #[cfg(feature = "redis")]
        "redis" => crate::redis::open_log(url).await,
        scheme => Err(missing("log", scheme, &["kafka", "nats", "rabbitmq", "redis"])),
    }?;
    Ok(Opened { plane: Arc::new(Anywhere::new(opened.plane)), about: opened.about })
}

/// Opens the object store that a URL names, say `s3://bucket/prefix` or `file:///folder`.
pub async fn open_blobs(url: &Url) -> Result<Opened<dyn ObjectStore>> {
    choose_ring();
    let opened: Opened<dyn ObjectStore> = match url.scheme() {
        "file" => crate::folder::open_blobs(url),
        #[cfg(feature = "s3")]
        "s3" => crate::cloud::open_s3(url).await,
        #[cfg(feature = "gcs")]
        "gs" => crate::cloud::open_gcs(url).await,
        #[cfg(feature = "azure")]
        "az" => crate::cloud::open_azure(url).await,
        #[cfg(feature = "redis")]
        "redis" => crate::redis::open_blobs(url).await,
        scheme => Err(missing("blobs", scheme, &["az", "file", "gs", "redis", "s3"])),
    }?;
    Ok(Opened { plane: Arc::new(Anywhere::new(opened.plane)), about: opened.about })
}

/// Opens the registry that a URL names, say `etcd://h1,h2/umbel`.
pub async fn open_registry(url: &Url) -> Result<Opened<dyn Registry>> {
    choose_ring();
    let opened: Opened<dyn Registry> = match url.scheme() {
        #[cfg(feature = "etcd")]
        "etcd" => crate::etcd::open_registry(url).await,
        #[cfg(feature = "redis")]
        "redis" => crate::redis::open_registry(url).await,
        #[cfg(feature = "zookeeper")]
        "zookeeper" => crate::zookeeper::open_registry(url).await,
        scheme => Err(missing("registry", scheme, &["etcd", "redis", "zookeeper"])),
    }?;
    Ok(Opened { plane: Arc::new(Anywhere::new(opened.plane)), about: opened.about })
}

/// The feature that brings a scheme, where it has another name.
fn feature(scheme: &str) -> &str {
    match scheme {
        "az" => "azure",
        "gs" => "gcs",
        other => other,
    }
}

fn missing(plane: &str, scheme: &str, known: &[&str]) -> Error {
    if known.contains(&scheme) {
        let feature = feature(scheme);
        return Error::Invalid(format!("this build lacks {scheme}://; rebuild with --features {feature}"));
    }
    Error::Invalid(format!("no {plane} has the scheme {scheme}://; known are: {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_a_sentence() {
        let text = |error: Error| error.to_string();
        assert_eq!(
            text(missing("blobs", "gs", &["az", "gs", "s3"])),
            "this build lacks gs://; rebuild with --features gcs"
        );
        assert_eq!(
            text(missing("registry", "consul", &["etcd", "redis"])),
            "no registry has the scheme consul://; known are: etcd, redis"
        );
    }
}
