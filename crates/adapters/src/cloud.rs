//! Blobs in the clouds: S3 and what is compatible with it, Google's and Azure's.
//!
//! Credentials come as each cloud's own tools have them: from the environment, or from the machine.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    Certificate, ClientOptions, Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    RetryConfig,
};
use umbel_core::{Error, Result};

use crate::{About, Durability, Opened, Url};

/// How the object is called by which it is found out whether the store refuses to make what is there.
const PROBE: &str = "umbel-probe";

/// Names a file with authorities, to tools of AWS and others.
const CA_BUNDLE: &str = "AWS_CA_BUNDLE";

/// Opens `s3://bucket/prefix?region=eu-central-1&endpoint=https://host`.
#[cfg(feature = "s3")]
pub(crate) async fn open_s3(url: &Url) -> Result<Opened<dyn ObjectStore>> {
    opened(url, "S3", s3(url)?).await
}

/// A client of a bucket of S3.
#[cfg(feature = "s3")]
pub(crate) fn s3(url: &Url) -> Result<object_store::aws::AmazonS3> {
    url.allow(&["ca", "endpoint", "region", "timeout_ms"])?;
    let mut builder = object_store::aws::AmazonS3Builder::from_env()
        .with_bucket_name(bucket(url)?)
        .with_client_options(client(url)?)
        .with_retry(retry(url)?);
    if let Some(region) = url.parameter("region") {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = url.parameter("endpoint") {
        builder = builder.with_endpoint(endpoint);
    }
    builder.build().map_err(|error| invalid(url, &error))
}

/// Opens `gs://bucket/prefix`.
#[cfg(feature = "gcs")]
pub(crate) async fn open_gcs(url: &Url) -> Result<Opened<dyn ObjectStore>> {
    url.allow(&["ca", "timeout_ms"])?;
    let store = object_store::gcp::GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket(url)?)
        .with_client_options(client(url)?)
        .with_retry(retry(url)?)
        .build()
        .map_err(|error| invalid(url, &error))?;
    opened(url, "Google Cloud Storage", store).await
}

/// Opens `az://container/prefix`; the account is in the environment.
#[cfg(feature = "azure")]
pub(crate) async fn open_azure(url: &Url) -> Result<Opened<dyn ObjectStore>> {
    url.allow(&["ca", "endpoint", "timeout_ms"])?;
    let mut builder = object_store::azure::MicrosoftAzureBuilder::from_env()
        .with_container_name(bucket(url)?)
        .with_client_options(client(url)?)
        .with_retry(retry(url)?);
    if let Some(endpoint) = url.parameter("endpoint") {
        builder = builder.with_endpoint(endpoint.to_owned());
    }
    let store = builder.build().map_err(|error| invalid(url, &error))?;
    opened(url, "Azure", store).await
}

fn bucket(url: &Url) -> Result<&str> {
    match url.hosts() {
        [bucket] if url.credentials().is_none() => Ok(bucket),
        _ => Err(Error::Invalid(format!("{url} must name one bucket; credentials are in the environment"))),
    }
}

fn client(url: &Url) -> Result<ClientOptions> {
    let plain = url.parameter("endpoint").is_some_and(|endpoint| endpoint.starts_with("http://"));
    let mut options = ClientOptions::new()
        .with_allow_http(plain)
        .with_timeout(url.timeout()?)
        .with_connect_timeout(url.timeout()?);
    // Besides those of the system.
    let authorities = url.parameter("ca").map(str::to_owned).or_else(|| std::env::var(CA_BUNDLE).ok());
    if let Some(file) = authorities.filter(|file| !file.is_empty()) {
        let invalid = |why: String| Error::Invalid(format!("cannot open {url}: {file}: {why}"));
        let pem = std::fs::read(&file).map_err(|error| invalid(error.to_string()))?;
        let found = Certificate::from_pem_bundle(&pem).map_err(|error| invalid(error.to_string()))?;
        options = found.into_iter().fold(options, ClientOptions::with_root_certificate);
    }
    Ok(options)
}

fn retry(url: &Url) -> Result<RetryConfig> {
    Ok(RetryConfig { retry_timeout: url.timeout()?, ..RetryConfig::default() })
}

fn invalid(url: &Url, error: &StoreError) -> Error {
    Error::Invalid(format!("cannot open {url}: {error}"))
}

/// Tries what everything else depends on: that of two who make an object, one is refused.
async fn opened(url: &Url, engine: &'static str, store: impl ObjectStore) -> Result<Opened<dyn ObjectStore>> {
    let store = PrefixStore::new(store, Path::from(url.path_or("")));
    // A name of its own: others who open the same store must not take this object away meanwhile.
    let probe = Path::from(format!("{PROBE}-{:016x}", RandomState::new().hash_one(PROBE)));
    let create = || async {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        store.put_opts(&probe, "probe".into(), options).await
    };
    let failed = |error: StoreError| match error {
        StoreError::Generic { .. } => Error::Retry(format!("cannot open {url}: {error}")),
        _ => invalid(url, &error),
    };
    // A put that was not answered is sent again by the client, and may meet itself.
    let was_refused = |outcome: Result<_, StoreError>| match outcome {
        Ok(_) => Ok(false),
        Err(StoreError::AlreadyExists { .. }) => Ok(true),
        Err(error) => Err(failed(error)),
    };
    let first = was_refused(create().await)?;
    let again = was_refused(create().await);
    // Whatever came of it, nothing of it stays.
    store.delete(&probe).await.map_err(failed)?;
    if !(first | again?) {
        return Err(Error::Invalid(format!(
            "{url} overwrites objects that are to be made anew: it knows no conditional puts"
        )));
    }
    let durability = Durability::Synced;
    let about = About { engine, version: String::new(), durability, lacks: String::new() };
    Ok(Opened { plane: Arc::new(store), about })
}
