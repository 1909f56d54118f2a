//! Blobs in a folder: the object store of a process that has no other.

pub mod suite;

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path as Location;
use object_store::{
    Attributes, CopyMode, CopyOptions, Error, Extensions, GetOptions, GetRange, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result, UploadPart,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::disk::{Disk, DiskFile, Lock};

/// Bytes that are read at once: a blob may be larger than the memory.
const CHUNK_BYTES: u64 = 1 << 20;
/// The end of the names of files that are not finished.
const UNFINISHED: &str = ".tmp";
const STORE: &str = "folder";

/// An object store in a folder of a [`Disk`].
///
/// ```text
/// a/b/c    in    <folder>/a/b/c
///                <folder>/a/b/7.tmp    on its way to a name
/// ```
///
/// - A put, a copy or a deletion returns only when it is durable: first the bytes, then the name.
/// - A reader sees an object as it was or as it becomes, never a mixture; one who has begun keeps what it began with.
/// - After an error, the object is the old one or the new one, and the new one may be gone after a power cut. Putting it
///   again decides it.
/// - That an object exists already is said only when it is durable, because one who hears it may act on it.
/// - To delete what is not there succeeds.
///
/// A folder belongs to one store of one process. An object cannot have the name of a folder that another one is in: `a`
/// and `a/b` exclude each other, and an empty folder stays. Names that end in `.tmp` are refused. The disk knows no time and
/// no versions: objects are of the year 1970, without tags, and [`PutMode::Update`] is not there.
#[derive(Clone, Debug)]
pub struct FolderStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// The number of the next unfinished file.
    next: AtomicU64,
    /// Folders whose own names are known to be durable.
    durable: Mutex<BTreeSet<PathBuf>>,
    /// One is held while a name is given, so that of two who create it one is refused. Which one follows from the folder: syncs of
    /// several folders go on at the same time.
    naming: [Mutex<()>; 64],
    /// What keeps other processes from the folder, where nothing else does.
    _lock: Option<Lock>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does work that waits for the disk where it holds up nobody else.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(work).await.map_err(generic)?,
        Err(_) => work(),
    }
}

fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: STORE, source: source.into() }
}

/// An error of the disk. Its kind is kept, and that the disk is full is said in the same words on every disk.
fn failed(doing: &str, path: &Path, error: &io::Error) -> Error {
    let full = if error.kind() == io::ErrorKind::StorageFull { "no space left on the disk: " } else { "" };
    generic(io::Error::new(error.kind(), format!("cannot {doing} {}: {full}{error}", path.display())))
}

fn not_implemented(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.into(), implementer: "FolderStore".into() }
}

/// Nothing, if the reason for a failure is that there is no such file or folder.
fn found<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory | IsADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

fn meta(location: Location, size: u64) -> ObjectMeta {
    ObjectMeta { location, last_modified: Default::default(), size, e_tag: None, version: None }
}

/// Reads all of a range, which lies in the file.
fn read(file: &dyn DiskFile, path: &Path, range: &Range<u64>) -> Result<Bytes> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let read = file.read_at(&mut bytes, range.start).map_err(|error| failed("read", path, &error))?;
    if read < bytes.len() {
        let end = range.start + read as u64;
        return Err(generic(format!("{} ends at byte {end}, before {}", path.display(), range.end)));
    }
    Ok(bytes.into())
}

/// A range in pieces that are small enough to be read at once.
fn chunks(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range.step_by(CHUNK_BYTES as usize).map(move |start| start..end.min(start + CHUNK_BYTES))
}

/// A file without its name yet. It is gone when this is dropped, unless it got one.
#[derive(Debug)]
struct Unfinished {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    named: bool,
}

impl Unfinished {
    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        write(&*self.file, &self.path, bytes, offset)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.named {
            // Nobody looks at such a file, and the next start removes what is left now.
            let _ = self.disk.remove(&self.path);
        }
    }
}

fn write(file: &dyn DiskFile, path: &Path, bytes: &[u8], offset: u64) -> Result<()> {
    file.write_at(bytes, offset).map_err(|error| failed("write", path, &error))
}

impl FolderStore {
    /// The store in a folder, which the first put makes. The folder above it has to be durable.
    pub fn new(disk: Arc<dyn Disk>, folder: impl Into<PathBuf>) -> Self {
        Self(Arc::new(Shared {
            disk,
            folder: folder.into(),
            next: AtomicU64::new(0),
            durable: Mutex::default(),
            naming: std::array::from_fn(|_| Mutex::default()),
            _lock: None,
        }))
    }

    /// The same store, which holds a lock as long as somebody has the store. To be called before it is shared.
    #[must_use]
    pub fn keeping(mut self, lock: Lock) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared._lock = Some(lock);
        }
        self
    }

    /// Removes what unfinished puts of an earlier process left, and says how many files it was. Also makes durable what
    /// that process had named but not yet acknowledged, because it is visible. To be called before the first put.
    pub fn remove_leftovers(&self) -> crate::Result<u64> {
        let Shared { disk, folder, .. } = &*self.0;
        let mut removed = 0;
        let mut to_visit = vec![folder.clone()];
        while let Some(folder) = to_visit.pop() {
            let mut visit = || -> io::Result<()> {
                let Some(names) = found(disk.list(&folder))? else { return Ok(()) };
                for name in names.iter().filter(|name| name.ends_with(UNFINISHED)) {
                    disk.remove(&folder.join(name))?;
                    removed += 1;
                }
                disk.sync_folder(&folder)?;
                to_visit.extend(disk.folders(&folder)?.iter().map(|name| folder.join(name)));
                Ok(())
            };
            visit().map_err(|error| {
                crate::Error::io(format!("cannot clean the blobs in {}", folder.display()), &error)
            })?;
        }
        Ok(removed)
    }

    /// The folder and the file of an object.
    fn place(&self, location: &Location) -> Result<(PathBuf, PathBuf)> {
        match location.filename() {
            Some(name) if !name.ends_with(UNFINISHED) => {}
            _ => {
                let why =
                    format!("\"{location}\" cannot be an object here: it is empty or ends in {UNFINISHED}");
                return Err(Error::NotSupported { source: why.into() });
            }
        }
        let path = self.path(location);
        let folder = path.parent().unwrap_or(&self.0.folder).to_owned();
        Ok((folder, path))
    }

    fn path(&self, location: &Location) -> PathBuf {
        let mut path = self.0.folder.clone();
        path.extend(location.parts().map(|part| part.as_ref().to_owned()));
        path
    }

    /// Makes a folder and those above it, up to the store's own, and their names durable.
    fn make_folder(&self, folder: &Path) -> Result<()> {
        let Shared { disk, folder: top, durable, .. } = &*self.0;
        let mut unsure = Vec::new();
        {
            let durable = lock(durable);
            for level in folder.ancestors().take_while(|level| level.starts_with(top)) {
                if durable.contains(level) {
                    break;
                }
                unsure.push(level);
            }
        }
        if unsure.is_empty() {
            return Ok(());
        }
        disk.create_folder(folder).map_err(|error| failed("make", folder, &error))?;
        for level in unsure.into_iter().rev() {
            if let Some(above) = level.parent() {
                // What is named relative to here has an empty parent, which the system does not open.
                let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
                disk.sync_folder(above).map_err(|error| failed("sync", above, &error))?;
            }
            lock(durable).insert(level.to_owned());
        }
        Ok(())
    }

    /// A new file beside those of a folder.
    fn begin(&self, folder: &Path) -> Result<Unfinished> {
        self.make_folder(folder)?;
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{number}{UNFINISHED}"));
        let file = self.0.disk.create(&path).map_err(|error| failed("create", &path, &error))?;
        Ok(Unfinished { disk: Arc::clone(&self.0.disk), path, file, named: false })
    }

    /// Makes a file durable, gives it the name of an object and makes that durable too.
    fn finish(&self, mut unfinished: Unfinished, location: &Location, create: bool) -> Result<()> {
        let (folder, path) = self.place(location)?;
        let disk = &self.0.disk;
        unfinished.file.sync().map_err(|error| failed("sync", &unfinished.path, &error))?;
        let sync_folder = || disk.sync_folder(&folder).map_err(|error| failed("sync", &folder, &error));
        let number = xxh3_64(folder.as_os_str().as_encoded_bytes()) as usize % self.0.naming.len();
        let _naming = lock(&self.0.naming[number]);
        if create && self.open(&path)?.is_some() {
            sync_folder()?;
            return Err(Error::AlreadyExists { path: location.to_string(), source: "it is there".into() });
        }
        disk.rename(&unfinished.path, &path).map_err(|error| failed("name", &path, &error))?;
        unfinished.named = true;
        sync_folder()
    }

    /// The file at a path, with its length.
    fn open(&self, path: &Path) -> Result<Option<(Arc<dyn DiskFile>, u64)>> {
        let open = || -> io::Result<_> {
            let Some(file) = found(self.0.disk.open(path))? else { return Ok(None) };
            let length = file.length()?;
            Ok(Some((file, length)))
        };
        open().map_err(|error| failed("open", path, &error))
    }

    /// The file of an object that has to be there.
    fn open_object(&self, location: &Location) -> Result<(PathBuf, Arc<dyn DiskFile>, u64)> {
        let (_, path) = self.place(location)?;
        let (file, length) = self.open(&path)?.ok_or_else(|| Error::NotFound {
            path: location.to_string(),
            source: format!("there is no file {}", path.display()).into(),
        })?;
        Ok((path, file, length))
    }

    fn put(&self, location: &Location, payload: &PutPayload, create: bool) -> Result<()> {
        let (folder, _) = self.place(location)?;
        let unfinished = self.begin(&folder)?;
        let mut offset = 0;
        for bytes in payload {
            unfinished.write(bytes, offset)?;
            offset += bytes.len() as u64;
        }
        self.finish(unfinished, location, create)
    }

    fn copy(&self, from: &Location, to: &Location, create: bool) -> Result<()> {
        let (path, file, length) = self.open_object(from)?;
        let (folder, _) = self.place(to)?;
        let unfinished = self.begin(&folder)?;
        for range in chunks(0..length) {
            unfinished.write(&read(&*file, &path, &range)?, range.start)?;
        }
        self.finish(unfinished, to, create)
    }

    fn delete(&self, location: &Location) -> Result<()> {
        let (folder, path) = self.place(location)?;
        found(self.0.disk.remove(&path)).map_err(|error| failed("remove", &path, &error))?;
        // Also if nothing was there: an earlier call may have removed it and then failed.
        found(self.0.disk.sync_folder(&folder)).map_err(|error| failed("sync", &folder, &error))?;
        Ok(())
    }

    /// What is directly below a prefix: objects, and folders, which may be empty.
    fn below(&self, prefix: &Location) -> Result<(Vec<ObjectMeta>, Vec<Location>)> {
        let folder = self.path(prefix);
        let names = |outcome| -> Result<Vec<String>> {
            Ok(found(outcome).map_err(|error| failed("list", &folder, &error))?.unwrap_or_default())
        };
        let location = |name: &String| -> Result<Location> {
            // Names on the disk are encoded already, so they are not joined as new parts.
            Ok(Location::parse(format!("{prefix}/{name}"))?)
        };
        let mut objects = Vec::new();
        let files = names(self.0.disk.list(&folder))?;
        for name in files.iter().filter(|name| !name.ends_with(UNFINISHED)) {
            // One that was deleted since then is left out.
            if let Some((_, size)) = self.open(&folder.join(name))? {
                objects.push(meta(location(name)?, size));
            }
        }
        let folders = names(self.0.disk.folders(&folder))?;
        Ok((objects, folders.iter().map(location).collect::<Result<_>>()?))
    }

    /// Whether there is an object anywhere below a prefix.
    fn holds_objects(&self, prefix: Location) -> Result<bool> {
        let mut to_visit = vec![prefix];
        while let Some(prefix) = to_visit.pop() {
            let (objects, folders) = self.below(&prefix)?;
            if !objects.is_empty() {
                return Ok(true);
            }
            to_visit.extend(folders);
        }
        Ok(false)
    }
}

impl Display for FolderStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FolderStore({})", self.0.folder.display())
    }
}

fn put_result() -> PutResult {
    PutResult { e_tag: None, version: None, extensions: Extensions::default() }
}

fn refuse_attributes(attributes: &Attributes) -> Result<()> {
    if attributes.is_empty() { Ok(()) } else { Err(not_implemented("a put with attributes")) }
}

#[async_trait]
impl ObjectStore for FolderStore {
    async fn put_opts(
        &self,
        location: &Location,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        refuse_attributes(&options.attributes)?;
        let create = match options.mode {
            PutMode::Overwrite => false,
            PutMode::Create => true,
            PutMode::Update(_) => return Err(not_implemented("a put with PutMode::Update")),
        };
        let (store, location) = (self.clone(), location.clone());
        blocking(move || store.put(&location, &payload, create)).await?;
        Ok(put_result())
    }

    async fn put_multipart_opts(
        &self,
        location: &Location,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        refuse_attributes(&options.attributes)?;
        let (folder, _) = self.place(location)?;
        let store = self.clone();
        let unfinished = blocking(move || store.begin(&folder)).await?;
        Ok(Box::new(Upload {
            store: self.clone(),
            location: location.clone(),
            unfinished: Some(unfinished),
            length: 0,
            written: Arc::default(),
        }))
    }

    async fn get_opts(&self, location: &Location, options: GetOptions) -> Result<GetResult> {
        let (store, wanted) = (self.clone(), location.clone());
        let (path, file, length) = blocking(move || store.open_object(&wanted)).await?;
        let meta = meta(location.clone(), length);
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(range) => range.as_range(length).map_err(generic)?,
            None => 0..length,
        };
        let payload = if options.head { 0..0 } else { range.clone() };
        let payload = stream::iter(chunks(payload)).then(move |chunk| {
            let (path, file) = (path.clone(), Arc::clone(&file));
            blocking(move || read(&*file, &path, &chunk))
        });
        Ok(GetResult {
            payload: GetResultPayload::Stream(payload.boxed()),
            meta,
            range,
            attributes: Attributes::default(),
            extensions: Extensions::default(),
        })
    }

    /// Each range at once, into memory of its size: whoever names a range wants all of it.
    async fn get_ranges(&self, location: &Location, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (store, wanted, ranges) = (self.clone(), location.clone(), ranges.to_vec());
        blocking(move || {
            let (path, file, length) = store.open_object(&wanted)?;
            let read_one = |range: &Range<u64>| {
                let within = GetRange::Bounded(range.clone()).as_range(length).map_err(generic)?;
                read(&*file, &path, &within)
            };
            ranges.iter().map(read_one).collect()
        })
        .await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Location>>,
    ) -> BoxStream<'static, Result<Location>> {
        let store = self.clone();
        let deleted = locations.and_then(move |location| {
            let store = store.clone();
            blocking(move || store.delete(&location).map(|()| location))
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Location>) -> BoxStream<'static, Result<ObjectMeta>> {
        let to_visit = vec![prefix.cloned().unwrap_or_default()];
        let visited = stream::try_unfold((self.clone(), to_visit), |(store, mut to_visit)| {
            blocking(move || {
                let Some(prefix) = to_visit.pop() else { return Ok(None) };
                let (objects, folders) = store.below(&prefix)?;
                to_visit.extend(folders);
                Ok(Some((stream::iter(objects.into_iter().map(Ok)), (store, to_visit))))
            })
        });
        visited.try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Location>) -> Result<ListResult> {
        let (store, prefix) = (self.clone(), prefix.cloned().unwrap_or_default());
        blocking(move || {
            let (objects, folders) = store.below(&prefix)?;
            let mut common_prefixes = Vec::new();
            for folder in folders {
                if store.holds_objects(folder.clone())? {
                    common_prefixes.push(folder);
                }
            }
            Ok(ListResult { common_prefixes, objects, extensions: Extensions::default() })
        })
        .await
    }

    async fn copy_opts(&self, from: &Location, to: &Location, options: CopyOptions) -> Result<()> {
        let create = match options.mode {
            CopyMode::Overwrite => false,
            CopyMode::Create => true,
        };
        let (store, from, to) = (self.clone(), from.clone(), to.clone());
        blocking(move || store.copy(&from, &to, create)).await
    }
}

/// An object that comes in parts, each written where it belongs.
#[derive(Debug)]
struct Upload {
    store: FolderStore,
    location: Location,
    unfinished: Option<Unfinished>,
    /// Bytes of all parts so far.
    length: u64,
    /// Bytes of those that are written.
    written: Arc<AtomicU64>,
}

impl Upload {
    fn over(&self) -> Error {
        generic(format!("the upload of {} was completed or aborted", self.location))
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, payload: PutPayload) -> UploadPart {
        let Some(unfinished) = &self.unfinished else {
            return std::future::ready(Err(self.over())).boxed();
        };
        let (path, file) = (unfinished.path.clone(), Arc::clone(&unfinished.file));
        let written = Arc::clone(&self.written);
        let mut offset = self.length;
        self.length += payload.content_length() as u64;
        let part = blocking(move || {
            for bytes in &payload {
                write(&*file, &path, bytes, offset)?;
                offset += bytes.len() as u64;
            }
            written.fetch_add(payload.content_length() as u64, Ordering::Release);
            Ok(())
        });
        part.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let unfinished = self.unfinished.take().ok_or_else(|| self.over())?;
        let (store, location, length) = (self.store.clone(), self.location.clone(), self.length);
        let written = Arc::clone(&self.written);
        blocking(move || {
            // A part that failed or was never awaited would be a hole in the object.
            let written = written.load(Ordering::Acquire);
            if written != length {
                return Err(generic(format!("{location}: only {written} of {length} bytes were written")));
            }
            store.finish(unfinished, &location, false)
        })
        .await?;
        Ok(put_result())
    }

    async fn abort(&mut self) -> Result<()> {
        let unfinished = self.unfinished.take();
        blocking(move || {
            drop(unfinished);
            Ok(())
        })
        .await
    }
}
