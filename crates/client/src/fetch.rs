//! From the name of a version to a copy that may answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use hyper::StatusCode;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue, IF_NONE_MATCH};
use umbel_core::copy::Assembly;
use umbel_core::engine::Token;
use umbel_core::limits::MANIFEST_BYTES_MAX;
use umbel_core::version::{CHUNK_BYTES_MAX, ChunkId, Version};
use umbel_filter::Spec;

use crate::coding;
use crate::http::{Ask, Base};
use crate::limits::FETCHES_MAX;
use crate::shared::{Live, Shared, blocking, count};
use crate::{Error, Result};

/// Which version.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// The one that is to be served, not older than this.
    Current(Duration),
    /// The newest one, not older than this.
    Latest(Duration),
    /// The newest one, with everything up to a token.
    AtLeast(Token),
    /// One by its number.
    Number(u64),
}

impl Wanted {
    fn path(&self) -> String {
        match self {
            Self::Current(Duration::MAX) => "versions/current".to_owned(),
            Self::Current(age) => format!("versions/current?max_age_ms={}", age.as_millis()),
            Self::Latest(age) => format!("versions/latest?max_age_ms={}", age.as_millis()),
            Self::AtLeast(token) => format!("versions/latest?at_least={token}"),
            Self::Number(number) => format!("versions/{number}"),
        }
    }
}

/// A version, unless it is the one that a live copy has already.
pub(crate) async fn version(
    shared: &Shared,
    wanted: &Wanted,
    known: Option<&Live>,
) -> Result<Option<Version>> {
    let mut ask = Ask::get(shared.sources.path(&wanted.path()));
    let tag = known.map(|live| format!("\"{}-{}\"", live.digest, live.number()));
    if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(&tag).ok()) {
        ask.head.push((IF_NONE_MATCH, tag));
    }
    let reply = shared.sources.ask(&ask).await?;
    if reply.status == StatusCode::NOT_MODIFIED {
        return Ok(None);
    }
    let digest = reply.field("umbel-digest").map(str::to_owned);
    let bytes = reply.bytes(MANIFEST_BYTES_MAX).await?;
    let version = Version::decode(&bytes, "a version that was sent")?;
    let found = version.digest().to_string();
    if digest.as_deref() != Some(&*found) {
        let digest = digest.unwrap_or_else(|| "nothing".to_owned());
        return Err(Error::Corrupt(format!("a version's digest is {found}; the server announced {digest}")));
    }
    if let Wanted::Number(number) = wanted
        && version.number != *number
    {
        return Err(Error::Corrupt(format!("version {} came where {number} was asked for", version.number)));
    }
    let same = known.is_some_and(|live| live.copy.version() == &version);
    Ok((!same).then_some(version))
}

/// Puts a copy of a version together, from `given` chunks, the copy that answers, the folder, other replicas and the server, in this
/// order; checks it; and keeps its chunks in the folder.
pub(crate) async fn assemble(shared: &Arc<Shared>, version: Version, given: Vec<Bytes>) -> Result<Arc<Live>> {
    check_definition(shared, &version)?;
    check_size(shared, &version)?;
    let begin = Arc::clone(shared);
    let mut assembly = blocking(move || begin_with(&begin, version, &given)).await??;
    fetch_missing(shared, &mut assembly).await?;
    let end = Arc::clone(shared);
    blocking(move || {
        let version = assembly.version().clone();
        let copy = assembly.finish(&end.means)?;
        let live = Arc::new(Live { digest: version.digest(), copy });
        check_probes(&end, &live)?;
        keep_chunks(&end, &live);
        Ok(live)
    })
    .await?
}

/// A copy from the folder alone; none if something of it is missing.
pub(crate) fn assemble_stored(shared: &Shared, version: Version) -> Result<Option<Live>> {
    check_definition(shared, &version)?;
    check_size(shared, &version)?;
    let assembly = begin_with(shared, version, &[])?;
    if assembly.missing().len() > 0 {
        return Ok(None);
    }
    let digest = assembly.version().digest();
    let live = Live { copy: assembly.finish(&shared.means)?, digest };
    check_probes(shared, &live)?;
    Ok(Some(live))
}

/// What can be had without asking anybody.
fn begin_with(shared: &Shared, version: Version, given: &[Bytes]) -> Result<Assembly> {
    let live = shared.live().filter(|live| live.copy.version().filter == version.filter);
    let mut assembly = Assembly::new(version, &shared.means)?;
    let all = assembly.missing().len();
    for chunk in given {
        if assembly.put(chunk)? {
            fetched(shared, chunk.len());
        }
    }
    let given = all - assembly.missing().len();
    if let Some(live) = live {
        assembly.reuse(&live.copy);
    }
    if let Some(store) = &shared.store {
        for id in assembly.missing().collect::<Vec<_>>() {
            if let Some(chunk) = store.chunk(id) {
                assembly.put(&chunk)?;
            }
        }
    }
    count(&shared.counters.reused_chunks, (all - given - assembly.missing().len()) as u64);
    Ok(assembly)
}

async fn fetch_missing(shared: &Arc<Shared>, assembly: &mut Assembly) -> Result<()> {
    let missing: Vec<ChunkId> = assembly.missing().collect();
    let peers: Vec<(Base, AtomicBool)> =
        shared.sources.peers().into_iter().map(|peer| (peer, AtomicBool::new(true))).collect();
    let fetches = missing.into_iter().map(|id| fetch_chunk(shared, &peers, id));
    let mut chunks = stream::iter(fetches).buffer_unordered(FETCHES_MAX);
    while let Some(chunk) = chunks.next().await {
        let (id, bytes) = chunk?;
        assembly.put(&bytes)?;
        if shared.store.is_some() {
            let keeper = Arc::clone(shared);
            // What cannot be kept is fetched again after the next restart.
            let kept =
                blocking(move || keeper.store.as_ref().map_or(Ok(()), |store| store.put_chunk(id, &bytes)));
            if let Err(error) = kept.await? {
                shared.fail(&error);
            }
        }
    }
    Ok(())
}

/// A chunk from the first who has it. Whoever it comes from, its bytes must be those that it is named after.
async fn fetch_chunk(shared: &Shared, peers: &[(Base, AtomicBool)], id: ChunkId) -> Result<(ChunkId, Bytes)> {
    let path = shared.sources.path(&format!("chunks/{id}"));
    for (peer, useful) in peers {
        if !useful.load(Ordering::Relaxed) {
            continue;
        }
        let asked = async { shared.sources.ask_peer(peer, path.clone()).await?.bytes(CHUNK_BYTES_MAX).await };
        match asked.await {
            Ok(bytes) if ChunkId::of(&bytes) == id => {
                fetched(shared, bytes.len());
                return Ok((id, bytes));
            }
            Ok(_) => {
                tracing::warn!(%peer, %id, "another replica sent a wrong chunk");
                count(&shared.counters.wrong_chunks, 1);
                useful.store(false, Ordering::Relaxed);
            }
            // It has another version, perhaps; the next chunk may be there.
            Err(Error::Refused { .. }) => {}
            Err(_) => useful.store(false, Ordering::Relaxed),
        }
    }
    let mut ask = Ask::get(path);
    if shared.options.compression {
        ask.head.push((ACCEPT_ENCODING, HeaderValue::from_static(coding::ACCEPTED)));
    }
    let reply = shared.sources.ask(&ask).await?;
    let encoding = reply.field(CONTENT_ENCODING.as_str()).map(str::to_owned);
    let sent = reply.bytes(CHUNK_BYTES_MAX).await?;
    let length = sent.len();
    let bytes = coding::decoded(encoding.as_deref(), sent, CHUNK_BYTES_MAX)
        .inspect_err(|_| count(&shared.counters.wrong_chunks, 1))?;
    if ChunkId::of(&bytes) != id {
        count(&shared.counters.wrong_chunks, 1);
        return Err(Error::Corrupt(format!("the server sent other bytes than those of chunk {id}")));
    }
    fetched(shared, length);
    Ok((id, bytes))
}

/// Counts a chunk, with the bytes that travelled.
fn fetched(shared: &Shared, bytes: usize) {
    count(&shared.counters.fetched_chunks, 1);
    count(&shared.counters.fetched_bytes, bytes as u64);
}

/// Chunks that were in the copy before are perhaps in no file yet.
fn keep_chunks(shared: &Shared, live: &Live) {
    let Some(store) = &shared.store else { return };
    for id in live.copy.version().chunks() {
        if store.has_chunk(id) {
            continue;
        }
        if let Some(Err(error)) = live.copy.chunk(id).map(|bytes| store.put_chunk(id, &bytes)) {
            shared.fail(&error);
            return;
        }
    }
}

/// Says which two definitions do not fit together, if they do not. A filter that has grown may have more capacity.
fn check_definition(shared: &Shared, version: &Version) -> Result<()> {
    let Some(expected) = &shared.options.expected else { return Ok(()) };
    let definition = &version.definition;
    let found = &definition.spec;
    let like = Spec { capacity: expected.capacity, ..*found };
    let grown = definition.generation > 0 && found.capacity > expected.capacity;
    if like == *expected && (found.capacity == expected.capacity || grown) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the filter {} is {}; expected was {}",
        definition.name,
        described(found),
        described(expected)
    )))
}

fn described(spec: &Spec) -> String {
    let Spec { kind, layout, family, capacity, error } = spec;
    format!("{kind}, {layout}, {family}, for {capacity} elements at an error rate of {error}")
}

/// Refuses a version before memory is taken for it.
fn check_size(shared: &Shared, version: &Version) -> Result<()> {
    let layers = version.shards.iter().flat_map(|shard| &shard.layers);
    let chunks: u64 = layers.map(|layer| layer.chunks.len() as u64).sum();
    let (bytes, most) = (chunks * CHUNK_BYTES_MAX as u64, shared.options.memory_bytes_max);
    if bytes > most {
        let name = &version.definition.name;
        return Err(Error::Full(format!("a copy of {name} takes {bytes} bytes; at most {most} are allowed")));
    }
    Ok(())
}

/// Refuses a copy that lacks keys it must have, or has far more than it should.
fn check_probes(shared: &Shared, live: &Live) -> Result<()> {
    let (copy, number) = (&live.copy, live.number());
    let has = |key: &Vec<u8>| copy.contains(copy.hasher().fingerprint(key));
    let options = &shared.options;
    if let Some(lost) = options.present.iter().find(|key| !has(key)) {
        let lost = lost.escape_ascii();
        return Err(Error::Invalid(format!("version {number} is not taken: it lacks the key {lost}")));
    }
    let wrong = options.absent.iter().filter(|key| has(key)).count() as f64;
    let (keys, error) = (options.absent.len() as f64, copy.definition().spec.error);
    // Four standard deviations over what is expected, and one more for the few.
    let most = keys * error + 4.0 * (keys * error * (1.0 - error)).sqrt() + 1.0;
    if wrong > most {
        return Err(Error::Invalid(format!(
            "version {number} is not taken: it has {wrong} of {keys} keys that were never added; {most:.1} are the most \
             at an error rate of {error}"
        )));
    }
    Ok(())
}
