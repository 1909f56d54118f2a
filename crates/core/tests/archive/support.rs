//! Naive archives to compare with, and a store that counts and fails.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use umbel_core::archive::{Cover, Run, RunWriter, Tally};
use umbel_filter::Fingerprint;

/// What a section holds.
pub(crate) type Nets = BTreeMap<Fingerprint, i32>;
/// What a run holds: for each filter, whether there are counts, and the nets.
pub(crate) type Model = BTreeMap<u64, (bool, Nets)>;

pub(crate) fn key(first: u64, second: u64) -> Fingerprint {
    Fingerprint { first, second }
}

pub(crate) fn tallies(nets: &Nets) -> Vec<Tally> {
    nets.iter().map(|(key, net)| Tally { key: *key, net: *net }).collect()
}

pub(crate) fn in_memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

/// The splitmix64 sequence.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Nets of up to `count` keys whose first words are one of `firsts`.
    pub(crate) fn nets(&mut self, counted: bool, count: usize, firsts: u64) -> Nets {
        let net = |random: &mut Self| if counted { random.below(5) as i32 - 2 } else { 1 };
        let random = (0..count).map(|_| {
            let key = key(self.below(firsts).wrapping_mul(u64::MAX / firsts), self.below(4000));
            (key, net(self))
        });
        random.filter(|(_, net)| *net != 0).collect()
    }
}

/// Writes a model in pieces of odd sizes.
pub(crate) async fn write(store: &Arc<dyn ObjectStore>, path: &str, cover: Cover, model: &Model) -> Run {
    let mut writer = RunWriter::create(store, Path::from(path), cover).unwrap();
    for (filter, (counted, nets)) in model {
        writer.begin(*filter, *counted).await.unwrap();
        for piece in tallies(nets).chunks(97) {
            if *counted || piece.len() % 2 == 0 {
                writer.push(piece).await.unwrap();
            } else {
                let keys: Vec<_> = piece.iter().map(|tally| tally.key).collect();
                writer.push_keys(&keys).await.unwrap();
            }
        }
    }
    writer.finish().await.unwrap()
}

/// All that a scan gives.
pub(crate) async fn scanned(run: &Run, filter: u64) -> umbel_core::Result<Vec<Tally>> {
    let (mut scan, mut all) = (run.scan(filter), Vec::new());
    while let Some(tallies) = scan.next().await? {
        all.extend_from_slice(tallies);
    }
    Ok(all)
}

/// A store in memory that counts what is asked of it, and fails at a part of an upload.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    inner: InMemory,
    pub(crate) ranges: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) uploads: AtomicU64,
    parts: Arc<Mutex<Vec<usize>>>,
    pub(crate) aborts: Arc<AtomicU64>,
    /// The part that fails, counted from 1; 0 for none.
    pub(crate) failing_part: AtomicU64,
}

impl Watched {
    /// Bytes of the parts that were sent.
    pub(crate) fn parts(&self) -> Vec<usize> {
        self.parts.lock().unwrap().clone()
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a watched store")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Watched {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.uploads.fetch_add(1, Relaxed);
        let inner = self.inner.put_multipart_opts(path, options).await?;
        let (parts, aborts) = (self.parts.clone(), self.aborts.clone());
        Ok(Box::new(WatchedUpload { inner, parts, aborts, failing_part: self.failing_part.load(Relaxed) }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(path, options).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.ranges.fetch_add(ranges.len() as u64, Relaxed);
        self.bytes.fetch_add(ranges.iter().map(|range| range.end - range.start).sum(), Relaxed);
        self.inner.get_ranges(path, ranges).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct WatchedUpload {
    inner: Box<dyn MultipartUpload>,
    parts: Arc<Mutex<Vec<usize>>>,
    aborts: Arc<AtomicU64>,
    failing_part: u64,
}

#[async_trait::async_trait]
impl MultipartUpload for WatchedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let mut parts = self.parts.lock().unwrap();
        parts.push(data.content_length());
        if parts.len() as u64 == self.failing_part {
            let source = "no more space".into();
            return Box::pin(async { Err(object_store::Error::Generic { store: "watched", source }) });
        }
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.aborts.fetch_add(1, Relaxed);
        self.inner.abort().await
    }
}
