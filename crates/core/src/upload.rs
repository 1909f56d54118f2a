//! A blob that is written as its bytes come.

use std::sync::Arc;

use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};

use crate::limits::UPLOAD_PART_BYTES;
use crate::{Error, Result};

/// A blob that is written in parts, or at once if it is small. Nobody sees it before it is finished.
///
/// Whoever gives up calls [`abort`](Self::abort): some stores keep the parts of an upload that was never ended.
#[derive(Debug)]
pub(crate) struct Upload {
    blobs: Arc<dyn ObjectStore>,
    path: Path,
    buffer: Vec<u8>,
    written: u64,
    parts: Option<Box<dyn MultipartUpload>>,
    /// Set while a part is on its way: if it does not arrive there is a hole, and the blob can never be finished.
    broken: bool,
}

impl Upload {
    pub(crate) fn new(blobs: Arc<dyn ObjectStore>, path: Path) -> Self {
        Self { blobs, path, buffer: Vec::new(), written: 0, parts: None, broken: false }
    }

    /// Whether nothing was written yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.written == 0
    }

    /// Adds bytes and says where they begin.
    pub(crate) async fn write(&mut self, mut bytes: &[u8]) -> Result<u64> {
        let offset = self.written;
        while !bytes.is_empty() {
            self.check_whole()?;
            let (now, later) = bytes.split_at(bytes.len().min(UPLOAD_PART_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            self.written += now.len() as u64;
            bytes = later;
            if self.buffer.len() == UPLOAD_PART_BYTES {
                let put = self.put_part().await;
                self.give_up_after(put).await?;
            }
        }
        Ok(offset)
    }

    fn check_whole(&self) -> Result<()> {
        if self.broken {
            return Err(Error::Invalid(format!("{} cannot be written after a failure", self.path)));
        }
        Ok(())
    }

    /// After a failure the store is asked at once to forget what it has.
    async fn give_up_after(&mut self, outcome: object_store::Result<()>) -> Result<()> {
        let Err(error) = outcome else { return Ok(()) };
        self.broken = true;
        if let Some(mut parts) = self.parts.take() {
            // What cannot be removed is left to the store's own rules: nobody could do more about it.
            let _ = parts.abort().await;
        }
        Err(Error::blob(format!("cannot put {}", self.path), &error))
    }

    async fn put_part(&mut self) -> object_store::Result<()> {
        self.broken = true;
        let parts = match &mut self.parts {
            Some(parts) => parts,
            None => self.parts.insert(self.blobs.put_multipart(&self.path).await?),
        };
        parts.put_part(PutPayload::from(std::mem::take(&mut self.buffer))).await?;
        self.broken = false;
        Ok(())
    }

    /// Completes the blob and says how many bytes it has. Without any there is none.
    pub(crate) async fn finish(mut self) -> Result<u64> {
        self.check_whole()?;
        if self.written > 0 {
            let completed = self.complete().await;
            self.give_up_after(completed).await?;
        }
        Ok(self.written)
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

    /// Gives the blob up.
    pub(crate) async fn abort(mut self) {
        if let Some(mut parts) = self.parts.take() {
            let _ = parts.abort().await;
        }
    }

    /// Where the blob goes.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}
