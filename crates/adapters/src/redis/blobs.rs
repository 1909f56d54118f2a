//! Blobs in Redis: a string for each object, and a sorted set of their names.

use std::fmt::{self, Display};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyMode, CopyOptions, Error, Extensions, GetOptions, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result, UploadPart,
};
use redis::{FromRedisValue, Script, ScriptInvocation};

use super::{Connection, script};
use crate::{Opened, Url};

/// Names that are listed at a time.
const PAGE: usize = 1000;

/// What every script begins with. All keys have one hash tag.
const COMMON: &str = r"
local p = KEYS[1]
local names = p .. ':names'
local function data(name) return p .. ':data:' .. name end
local function size(name) return redis.call('STRLEN', data(name)) end
local function exists(name) return redis.call('EXISTS', data(name)) == 1 end
";

const PUT: &str = r"
if ARGV[3] == 'create' and exists(ARGV[1]) then return 0 end
redis.call('SET', data(ARGV[1]), ARGV[2])
redis.call('ZADD', names, 0, ARGV[1])
return 1";

/// An upload that nobody ends is gone after a day.
const PART: &str = r"
local upload = p .. ':upload:' .. ARGV[1]
redis.call('SETRANGE', upload, ARGV[2], ARGV[3])
redis.call('EXPIRE', upload, 86400)
return 1";

const COMPLETE: &str = r"
local upload = p .. ':upload:' .. ARGV[1]
if redis.call('STRLEN', upload) ~= tonumber(ARGV[3]) then return 0 end
if ARGV[3] == '0' then
  redis.call('SET', data(ARGV[2]), '')
else
  redis.call('RENAME', upload, data(ARGV[2]))
  redis.call('PERSIST', data(ARGV[2]))
end
redis.call('ZADD', names, 0, ARGV[2])
return 1";

const ABORT: &str = "return redis.call('DEL', p .. ':upload:' .. ARGV[1])";

const SIZE: &str = "if exists(ARGV[1]) then return size(ARGV[1]) end return -1";

const GET: &str = r"
if size(ARGV[1]) ~= tonumber(ARGV[2]) then return false end
if ARGV[3] == ARGV[4] then return '' end
return redis.call('GETRANGE', data(ARGV[1]), ARGV[3], tonumber(ARGV[4]) - 1)";

const DELETE: &str = r"
redis.call('ZREM', names, ARGV[1])
return redis.call('DEL', data(ARGV[1]))";

const COPY: &str = r"
if not exists(ARGV[1]) then return -1 end
if ARGV[3] == 'create' and exists(ARGV[2]) then return 0 end
redis.call('SET', data(ARGV[2]), redis.call('GET', data(ARGV[1])))
redis.call('ZADD', names, 0, ARGV[2])
return 1";

const LIST: &str = r"
local found = {}
for _, name in ipairs(redis.call('ZRANGEBYLEX', names, ARGV[1], '+', 'LIMIT', 0, ARGV[3])) do
  if string.sub(name, 1, #ARGV[2]) ~= ARGV[2] then break end
  table.insert(found, name)
  table.insert(found, tostring(size(name)))
end
return found";

/// An object store in Redis, for deployments that have nothing else. An object is in memory as a whole, and Redis takes up to 512
/// MiB. There are no times, tags and versions: objects are of the year 1970, and [`PutMode::Update`] is not there.
#[derive(Clone, Debug)]
struct RedisStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    connection: Connection,
    key: String,
    /// Tells uploads of this process from those of others.
    process: u64,
    uploads: AtomicU64,
    scripts: Scripts,
}

#[derive(Debug)]
struct Scripts {
    put: Script,
    part: Script,
    complete: Script,
    abort: Script,
    size: Script,
    get: Script,
    delete: Script,
    copy: Script,
    list: Script,
}

/// Opens `redis://user:password@host:port/prefix`.
pub(crate) async fn open(url: &Url) -> umbel_core::Result<Opened<dyn ObjectStore>> {
    use std::hash::{BuildHasher, RandomState};
    url.allow(&["ca", "cert", "key", "timeout_ms", "tls"])?;
    let connection = Connection::new(url)?;
    let about = connection.about().await?;
    let make = |code| script(COMMON, code);
    let scripts = Scripts {
        put: make(PUT),
        part: make(PART),
        complete: make(COMPLETE),
        abort: make(ABORT),
        size: make(SIZE),
        get: make(GET),
        delete: make(DELETE),
        copy: make(COPY),
        list: make(LIST),
    };
    let shared = Shared {
        connection,
        key: format!("{{{}:blobs}}", url.path_or("umbel")),
        process: RandomState::new().hash_one(0),
        uploads: AtomicU64::new(0),
        scripts,
    };
    Ok(Opened { plane: Arc::new(RedisStore(Arc::new(shared))), about })
}

fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "redis", source: source.into() }
}

fn not_implemented(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.into(), implementer: "RedisStore".into() }
}

fn not_found(location: &Path) -> Error {
    Error::NotFound { path: location.to_string(), source: "there is no such object".into() }
}

fn meta(location: Path, size: u64) -> ObjectMeta {
    ObjectMeta { location, last_modified: Default::default(), size, e_tag: None, version: None }
}

fn put_result() -> PutResult {
    PutResult { e_tag: None, version: None, extensions: Extensions::default() }
}

fn joined(payload: &PutPayload) -> Vec<u8> {
    payload.iter().flat_map(|bytes| bytes.iter().copied()).collect()
}

impl RedisStore {
    fn call<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        script.key(&self.0.key)
    }

    async fn run<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T> {
        self.0.connection.run("cannot use blobs", call).await.map_err(generic)
    }

    async fn size(&self, location: &Path) -> Result<u64> {
        let mut call = self.call(&self.0.scripts.size);
        let size: i64 = self.run(call.arg(location.as_ref())).await?;
        u64::try_from(size).map_err(|_| not_found(location))
    }

    /// A range of an object that has this size; if it has another by now, it is another object.
    async fn bytes(&self, location: &Path, size: u64, range: &Range<u64>) -> Result<Bytes> {
        let mut call = self.call(&self.0.scripts.get);
        call.arg(location.as_ref()).arg(size).arg(range.start).arg(range.end);
        let bytes: Option<Bytes> = self.run(&call).await?;
        bytes.ok_or_else(|| generic(format!("{location} was replaced while it was read")))
    }

    async fn delete_one(&self, location: Path) -> Result<Path> {
        let mut call = self.call(&self.0.scripts.delete);
        self.run::<u64>(call.arg(location.as_ref())).await?;
        Ok(location)
    }

    /// Objects below a prefix, a page of them, after a name.
    async fn page(&self, prefix: &str, after: Option<&str>) -> Result<Vec<ObjectMeta>> {
        let from = after.map_or_else(|| format!("[{prefix}"), |after| format!("({after}"));
        let mut call = self.call(&self.0.scripts.list);
        let found: Vec<Bytes> = self.run(call.arg(from).arg(prefix).arg(PAGE)).await?;
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).map_err(generic);
        let mut objects = Vec::with_capacity(found.len() / 2);
        for pair in found.chunks_exact(2) {
            objects.push(meta(Path::parse(text(&pair[0])?)?, text(&pair[1])?.parse().map_err(generic)?));
        }
        Ok(objects)
    }
}

impl Display for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisStore({})", self.0.key)
    }
}

#[async_trait]
impl ObjectStore for RedisStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let mode = match options.mode {
            PutMode::Overwrite => "overwrite",
            PutMode::Create => "create",
            PutMode::Update(_) => return Err(not_implemented("a put with PutMode::Update")),
        };
        if !options.attributes.is_empty() {
            return Err(not_implemented("a put with attributes"));
        }
        let mut call = self.call(&self.0.scripts.put);
        call.arg(location.as_ref()).arg(joined(&payload)).arg(mode);
        if self.run(&call).await? {
            return Ok(put_result());
        }
        Err(Error::AlreadyExists { path: location.to_string(), source: "it is there".into() })
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if !options.attributes.is_empty() {
            return Err(not_implemented("a put with attributes"));
        }
        let number = self.0.uploads.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:016x}-{number}", self.0.process);
        let written = Arc::default();
        Ok(Box::new(Upload { store: self.clone(), location: location.clone(), id, length: 0, written }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let size = self.size(location).await?;
        let meta = meta(location.clone(), size);
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(range) => range.as_range(size).map_err(generic)?,
            None => 0..size,
        };
        // All of it at once: it would not be one object if it came piece by piece while somebody replaces it.
        let bytes = if options.head { Bytes::new() } else { self.bytes(location, size, &range).await? };
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::once(async move { Ok(bytes) }).boxed()),
            meta,
            range,
            attributes: Attributes::default(),
            extensions: Extensions::default(),
        })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let deleted = locations.and_then(move |location| {
            let store = store.clone();
            async move { store.delete_one(location).await }
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let prefix = prefix.filter(|prefix| !prefix.as_ref().is_empty());
        let prefix = prefix.map_or_else(String::new, |prefix| format!("{prefix}/"));
        let begin = (self.clone(), Some(None::<String>));
        let pages = stream::try_unfold(begin, move |(store, from)| {
            let prefix = prefix.clone();
            async move {
                let Some(after) = from else { return Ok::<_, Error>(None) };
                let objects = store.page(&prefix, after.as_deref()).await?;
                let last = objects.last().filter(|_| objects.len() == PAGE);
                let next = last.map(|last| Some(last.location.to_string()));
                Ok(Some((stream::iter(objects.into_iter().map(Ok)), (store, next))))
            }
        });
        pages.try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.cloned().unwrap_or_default();
        let all: Vec<ObjectMeta> = self.list(Some(&prefix)).try_collect().await?;
        let (mut objects, mut common_prefixes) = (Vec::new(), Vec::<Path>::new());
        for object in all {
            let Some(mut parts) = object.location.prefix_match(&prefix) else { continue };
            match (parts.next(), parts.next()) {
                (Some(folder), Some(_)) => {
                    let folder = prefix.clone().join(folder);
                    if common_prefixes.last() != Some(&folder) {
                        common_prefixes.push(folder);
                    }
                }
                _ => objects.push(object.clone()),
            }
        }
        Ok(ListResult { common_prefixes, objects, extensions: Extensions::default() })
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let mode = match options.mode {
            CopyMode::Overwrite => "overwrite",
            CopyMode::Create => "create",
        };
        let mut call = self.call(&self.0.scripts.copy);
        call.arg(from.as_ref()).arg(to.as_ref()).arg(mode);
        match self.run::<i64>(&call).await? {
            1 => Ok(()),
            0 => Err(Error::AlreadyExists { path: to.to_string(), source: "it is there".into() }),
            _ => Err(not_found(from)),
        }
    }
}

/// An object that comes in parts, each written where it belongs.
#[derive(Debug)]
struct Upload {
    store: RedisStore,
    location: Path,
    id: String,
    /// Bytes of all parts so far.
    length: u64,
    /// Bytes of those that are written.
    written: Arc<AtomicU64>,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, payload: PutPayload) -> UploadPart {
        let (store, id, written) = (self.store.clone(), self.id.clone(), Arc::clone(&self.written));
        let offset = self.length;
        let length = payload.content_length() as u64;
        self.length += length;
        let part = async move {
            let mut call = store.call(&store.0.scripts.part);
            call.arg(id).arg(offset).arg(joined(&payload));
            store.run::<bool>(&call).await?;
            written.fetch_add(length, Ordering::Release);
            Ok(())
        };
        part.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let written = self.written.load(Ordering::Acquire);
        let mut call = self.store.call(&self.store.0.scripts.complete);
        call.arg(&self.id).arg(self.location.as_ref()).arg(self.length);
        // A part that failed or was never awaited would be a hole in the object.
        if written == self.length && self.store.run(&call).await? {
            return Ok(put_result());
        }
        let (location, length) = (&self.location, self.length);
        Err(generic(format!(
            "{location}: only {written} of {length} bytes were written, or it was over before"
        )))
    }

    async fn abort(&mut self) -> Result<()> {
        let mut call = self.store.call(&self.store.0.scripts.abort);
        self.store.run::<u64>(call.arg(&self.id)).await.map(drop)
    }
}
