//! A blob that is written as its bytes come.

use std::sync::Arc;

use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};

use crate::{Error, Result};

/// Bytes of a part; stores want at least five million.
const PART_BYTES: usize = 8 << 20;

/// A blob that is written in parts, or at once if it is small. Nothing is there before it is finished.
pub(super) struct Upload {
    blobs: Arc<dyn ObjectStore>,
    path: Path,
    buffer: Vec<u8>,
    written: u64,
    parts: Option<Box<dyn MultipartUpload>>,
}

impl Upload {
    pub(super) fn new(blobs: Arc<dyn ObjectStore>, name: &str) -> Self {
        Self { blobs, path: Path::from(name), buffer: Vec::new(), written: 0, parts: None }
    }

    /// Whether nothing was written yet.
    pub(super) fn is_empty(&self) -> bool {
        self.written == 0
    }

    /// Adds bytes and says where they begin.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<u64> {
        let offset = self.written;
        self.buffer.extend_from_slice(bytes);
        self.written += bytes.len() as u64;
        if self.buffer.len() >= PART_BYTES {
            self.put_part().await.map_err(|error| self.failed(&error))?;
        }
        Ok(offset)
    }

    async fn put_part(&mut self) -> object_store::Result<()> {
        let parts = match &mut self.parts {
            Some(parts) => parts,
            None => self.parts.insert(self.blobs.put_multipart(&self.path).await?),
        };
        parts.put_part(PutPayload::from(std::mem::take(&mut self.buffer))).await
    }

    /// Completes the blob. Without any bytes there is none.
    pub(super) async fn finish(mut self) -> Result<()> {
        if self.written == 0 {
            return Ok(());
        }
        self.complete().await.map_err(|error| self.failed(&error))
    }

    async fn complete(&mut self) -> object_store::Result<()> {
        if self.parts.is_some() && !self.buffer.is_empty() {
            self.put_part().await?;
        }
        match &mut self.parts {
            Some(parts) => parts.complete().await.map(drop),
            None => {
                let payload = PutPayload::from(std::mem::take(&mut self.buffer));
                self.blobs.put(&self.path, payload).await.map(drop)
            }
        }
    }

    fn failed(&self, error: &object_store::Error) -> Error {
        Error::blob(format!("cannot put {}", self.path), error)
    }
}
