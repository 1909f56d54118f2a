//! Planes that may be called from every thread: under another runtime, or under one that has no timers and no sockets.
//!
//! The engine's background threads and the server's event loops have runtimes of their own. A connection that was made under one of them
//! would stand still while that one sleeps.

use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, Stream};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as StoreResult, UploadPart,
};
use tokio::runtime::Handle;
use umbel_core::log::{Appended, Bounds, Log, Record};
use umbel_core::registry::{Change, Expected, Lease, Listing, Registry, Versioned};
use umbel_core::{Position, Result};

/// A plane, and the runtime in which it was opened.
#[derive(Debug)]
pub(crate) struct Anywhere<T: ?Sized> {
    runtime: Handle,
    plane: Arc<T>,
}

impl<T: ?Sized> Anywhere<T> {
    /// A plane of the runtime that this is called in.
    pub(crate) fn new(plane: Arc<T>) -> Self {
        Self { runtime: Handle::current(), plane }
    }

    fn within<F>(&self, inner: F) -> Within<F> {
        within(&self.runtime, inner)
    }
}

/// A future or a stream that belongs to a runtime, whoever polls it: so do its timers, its sockets and the tasks that it starts.
struct Within<F> {
    runtime: Handle,
    inner: F,
}

fn within<F>(runtime: &Handle, inner: F) -> Within<F> {
    Within { runtime: runtime.clone(), inner }
}

impl<F: Future + Unpin> Future for Within<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let _inside = this.runtime.enter();
        Pin::new(&mut this.inner).poll(context)
    }
}

impl<S: Stream + Unpin> Stream for Within<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let this = self.get_mut();
        let _inside = this.runtime.enter();
        Pin::new(&mut this.inner).poll_next(context)
    }
}

#[async_trait]
impl Log for Anywhere<dyn Log> {
    fn partitions(&self) -> u32 {
        self.plane.partitions()
    }

    fn is_exclusive(&self) -> bool {
        self.plane.is_exclusive()
    }

    async fn append_after(&self, partition: u32, entries: Vec<Bytes>, read: Position) -> Result<Appended> {
        self.within(self.plane.append_after(partition, entries, read)).await
    }

    async fn sync(&self, partition: u32) -> Result<()> {
        self.within(self.plane.sync(partition)).await
    }

    async fn close(&self) -> Result<()> {
        self.within(self.plane.close()).await
    }

    async fn read(&self, partition: u32, after: Position, bytes_max: usize) -> Result<Vec<Record>> {
        self.within(self.plane.read(partition, after, bytes_max)).await
    }

    async fn holds(&self, partition: u32, position: Position) -> Result<bool> {
        self.within(self.plane.holds(partition, position)).await
    }

    async fn bounds(&self, partition: u32) -> Result<Bounds> {
        self.within(self.plane.bounds(partition)).await
    }

    async fn trim(&self, partition: u32, upto: Position) -> Result<()> {
        self.within(self.plane.trim(partition, upto)).await
    }
}

#[async_trait]
impl Registry for Anywhere<dyn Registry> {
    async fn get(&self, name: &str) -> Result<Option<Versioned>> {
        self.within(self.plane.get(name)).await
    }

    async fn list(&self, prefix: &str) -> Result<Listing> {
        self.within(self.plane.list(prefix)).await
    }

    async fn put(
        &self,
        name: &str,
        value: Bytes,
        expected: Expected,
        lease: Option<Lease>,
    ) -> Result<Change> {
        self.within(self.plane.put(name, value, expected, lease)).await
    }

    async fn delete(&self, name: &str, expected: Expected) -> Result<Change> {
        self.within(self.plane.delete(name, expected)).await
    }

    async fn changed(&self, prefix: &str, after: u64) -> Result<()> {
        self.within(self.plane.changed(prefix, after)).await
    }

    async fn grant(&self, time: Duration) -> Result<Lease> {
        self.within(self.plane.grant(time)).await
    }

    async fn keep_alive(&self, lease: Lease) -> Result<bool> {
        self.within(self.plane.keep_alive(lease)).await
    }

    async fn revoke(&self, lease: Lease) -> Result<()> {
        self.within(self.plane.revoke(lease)).await
    }
}

impl fmt::Display for Anywhere<dyn ObjectStore> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plane.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Anywhere<dyn ObjectStore> {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> StoreResult<PutResult> {
        self.within(self.plane.put_opts(location, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        let upload = self.within(self.plane.put_multipart_opts(location, options)).await?;
        Ok(Box::new(Upload { runtime: self.runtime.clone(), upload }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> StoreResult<GetResult> {
        let got = self.within(self.plane.get_opts(location, options)).await?;
        let payload = match got.payload {
            GetResultPayload::Stream(stream) => GetResultPayload::Stream(self.within(stream).boxed()),
            #[allow(
                unreachable_patterns,
                reason = "files are a feature of the store that others may turn on"
            )]
            file => file,
        };
        Ok(GetResult { payload, ..got })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> StoreResult<Vec<Bytes>> {
        self.within(self.plane.get_ranges(location, ranges)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        self.within(self.plane.delete_stream(locations)).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.within(self.plane.list(prefix)).boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.within(self.plane.list_with_offset(prefix, offset)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.within(self.plane.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        self.within(self.plane.copy_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct Upload {
    runtime: Handle,
    upload: Box<dyn MultipartUpload>,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let _inside = self.runtime.enter();
        Box::pin(within(&self.runtime, self.upload.put_part(data)))
    }

    async fn complete(&mut self) -> StoreResult<PutResult> {
        within(&self.runtime, self.upload.complete()).await
    }

    async fn abort(&mut self) -> StoreResult<()> {
        within(&self.runtime, self.upload.abort()).await
    }
}
