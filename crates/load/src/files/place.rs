//! Where files are: on this machine, or in a bucket.

#[cfg(feature = "parquet")]
use std::fs::File;
use std::path::{Path, PathBuf};
#[cfg(feature = "s3")]
use std::sync::Arc;

#[cfg(feature = "s3")]
use super::bucket::Bucket;
use super::opened::{Identity, Opened};
#[cfg(feature = "parquet")]
use super::parquet;
use crate::limits::FILES_MAX;
use crate::{Error, Result};

/// How the address of an object begins.
const S3: &str = "s3://";

#[derive(Clone)]
pub(super) enum Place {
    /// On this machine: paths, or patterns of them.
    Disk(Vec<String>),
    /// In a bucket.
    #[cfg(feature = "s3")]
    Bucket(Arc<Bucket>),
}

impl Place {
    pub(super) fn of(patterns: &[String]) -> Result<Self> {
        match patterns {
            [address] if address.starts_with(S3) => {
                #[cfg(feature = "s3")]
                return Ok(Self::Bucket(Arc::new(Bucket::open(address)?)));
                #[cfg(not(feature = "s3"))]
                Err(Error::Invalid("this build lacks S3; rebuild with --features s3".into()))
            }
            many if many.iter().any(|address| address.starts_with(S3)) => Err(Error::Invalid(
                "objects have one address: a folder, or a pattern such as s3://bucket/logs/*.gz".into(),
            )),
            files => Ok(Self::Disk(files.to_vec())),
        }
    }

    /// What people are told, without secrets.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Disk(patterns) => patterns.clone(),
            #[cfg(feature = "s3")]
            Self::Bucket(bucket) => vec![bucket.name()],
        }
    }

    /// Every file once.
    pub(super) fn find(&self) -> Result<Vec<(PathBuf, Identity)>> {
        match self {
            Self::Disk(patterns) => {
                let with_identity = |path: PathBuf| Identity::of(&path).map(|identity| (path, identity));
                paths(patterns)?.into_iter().map(with_identity).collect()
            }
            #[cfg(feature = "s3")]
            Self::Bucket(bucket) => bucket.find(),
        }
    }

    /// Refuses a file that is another one now.
    pub(super) fn check(&self, path: &Path, identity: Identity) -> Result<()> {
        match self {
            Self::Disk(_) => identity.check(path),
            #[cfg(feature = "s3")]
            Self::Bucket(bucket) => bucket.check(path, identity),
        }
    }

    pub(super) fn open(&self, path: &Path) -> Result<Opened> {
        match self {
            Self::Disk(_) => Opened::file(path),
            #[cfg(feature = "s3")]
            Self::Bucket(bucket) => {
                let object = Bucket::object(bucket, path)?;
                let bytes = object.bytes();
                Opened::whole(object, bytes).map_err(|error| Error::file(path.display(), &error))
            }
        }
    }

    #[cfg(feature = "parquet")]
    pub(super) fn parquet(&self, path: &Path) -> Result<parquet::File> {
        use ::parquet::file::reader::{FileReader, SerializedFileReader};
        let name = path.display().to_string();
        let reader: ::parquet::errors::Result<Box<dyn FileReader>> = match self {
            Self::Disk(_) => {
                let file = File::open(path).map_err(|error| Error::file(&name, &error))?;
                SerializedFileReader::new(file).map(|reader| Box::new(reader) as _)
            }
            #[cfg(feature = "s3")]
            Self::Bucket(bucket) => {
                SerializedFileReader::new(Bucket::object(bucket, path)?).map(|reader| Box::new(reader) as _)
            }
        };
        let reader = reader.map_err(|error| parquet::wrong(&name, &error))?;
        Ok((reader, name))
    }
}

/// Every file once, in the order in which they were named; those of a pattern in the order of their names.
fn paths(patterns: &[String]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for pattern in patterns {
        let before = found.len();
        // A file may have a star in its name.
        if let Ok(about) = std::fs::metadata(pattern) {
            if !about.is_file() {
                return Err(no_file(pattern, about.is_dir()));
            }
            found.push(PathBuf::from(pattern));
        } else {
            let paths = glob::glob(pattern)
                .map_err(|error| Error::Invalid(format!("{pattern:?} is no pattern: {error}")))?;
            for path in paths {
                let path = path.map_err(|error| Error::file(error.path().display(), error.error()))?;
                if path.is_file() {
                    found.push(path);
                }
                if found.len() > FILES_MAX {
                    return Err(Error::Invalid(format!("{pattern:?} finds more than {FILES_MAX} files")));
                }
            }
        }
        if found.len() == before {
            return Err(Error::Invalid(format!("{pattern:?}: there is no such file")));
        }
    }
    let mut seen = std::collections::HashSet::new();
    found.retain(|path| seen.insert(path.clone()));
    Ok(found)
}

/// Files are opened several times: to see how they are packed, to estimate, to read each part. What can be read only once would have lost
/// its beginning by then.
fn no_file(name: &str, is_folder: bool) -> Error {
    Error::Invalid(if is_folder {
        format!("{name:?} is a folder; name its files, as in '{}/*'", name.trim_end_matches('/'))
    } else {
        format!(
            "{name:?} is a pipe or a device, which can be read only once: pipe it into - (standard input)"
        )
    })
}
