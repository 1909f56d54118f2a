//! Filters as bytes: in parts, as a whole, and as files of other systems.

use std::sync::Arc;

use umbel_core::engine::{Handle, NewFilter};
use umbel_filter::format::{guava, native, redisbloom, redisson};
use umbel_filter::{Filter, Layout, Limits, Plan};
use xxhash_rust::xxh3::xxh3_64;

use super::arguments::{Words, float, integer, is, text, unsigned};
use super::{Outcome, Refusal, check_kind, filter_of};
use crate::files::Format;
use crate::loading::{Partial, Whole};
use crate::names::name_of;
use crate::node::{Node, unix_time};
use crate::resp::Command;
use crate::session::Session;
use crate::work::beside;

/// What a dumped filter begins with.
const MAGIC: &[u8; 8] = b"UMBELDP1";
/// The cursor of a header.
const HEADER: u64 = 1;
const SUM_BYTES: usize = 8;
const CHUNK_HEAD_BYTES: usize = 12;

/// `BF.SCANDUMP key cursor`, `CF.SCANDUMP key cursor`
pub(super) async fn scan_dump(session: &mut Session, command: Command<'_>, is_cuckoo: bool) -> Outcome {
    let wrong = if is_cuckoo { "Invalid position" } else { "Second argument must be numeric" };
    let cursor = unsigned(command.get(2)).ok_or(wrong)?;
    let filter = filter_of(session, command.get(1), is_cuckoo).await?;
    let (next, chunk) = match chain(&filter, session, cursor).await? {
        Some(chunk) => chunk,
        None => {
            let (next, chunk) = session.node.engine.dump(&filter, cursor).await?;
            (next, chunk.into())
        }
    };
    session.reply.array(2);
    session.reply.count(next);
    session.reply.bulk(chunk);
    Ok(())
}

/// The chunk of a filter that is RedisBloom's own, for RedisBloom.
async fn chain(filter: &Arc<Handle>, session: &Session, cursor: u64) -> Outcome<Option<(u64, Vec<u8>)>> {
    if !matches!(filter.definition().spec.layout, Layout::RedisBloom { .. }) {
        return Ok(None);
    }
    session.node.engine.refresh(filter).await?;
    let slot = filter.slots().next().unwrap_or_default();
    let projection = filter.projection(slot).ok_or("TRYAGAIN the filter is not in memory")?;
    let Some(chain) = projection.filters().next() else { return Ok(None) };
    Ok(Some(redisbloom::scan_dump(chain, cursor)?))
}

/// `BF.LOADCHUNK key cursor data`, `CF.LOADCHUNK key cursor data`
pub(super) async fn load_chunk(session: &mut Session, command: Command<'_>, is_cuckoo: bool) -> Outcome {
    let wrong = if is_cuckoo { "Invalid position" } else { "ERR Second argument must be numeric" };
    let cursor = integer(command.get(2))
        .and_then(|cursor| u64::try_from(cursor).ok())
        .filter(|cursor| *cursor > 0)
        .ok_or(wrong)?;
    let (key, chunk) = (command.get(1), command.get(3));
    let name = name_of(key);
    let node = Arc::clone(&session.node);
    if let Some(filter) = node.filter(&name).await? {
        check_kind(&filter, is_cuckoo)?;
        return Err("ERR item exists".into());
    }
    let whole = if cursor == HEADER {
        let partial = Partial::begin(chunk, &node.engine)?;
        if is_cuckoo != partial.is_erasable() {
            let what = if is_cuckoo {
                "an erasable filter of Umbel; cuckoo filters cannot be loaded"
            } else {
                "a Bloom filter"
            };
            return Err(format!("ERR received bad data: not {what}").into());
        }
        node.loading.begin(&name, partial, node.now())?
    } else {
        node.loading.load(&name, cursor, chunk, node.now())?
    };
    match whole {
        None => {}
        Some(Whole::Own(loader)) => {
            let name = name.into_owned();
            beside(&node, |node| async move { node.engine.import_loaded(&name, *loader).await }).await?;
        }
        Some(Whole::RedisBloom(filter)) => {
            let new = NewFilter::new(name, *filter.spec());
            beside(&node, |node| async move { node.engine.import(new, *filter).await }).await?;
        }
    }
    session.reply.ok();
    Ok(())
}

/// `DUMP key`: all chunks and a checksum.
pub(super) async fn dump(session: &mut Session, command: Command<'_>) -> Outcome {
    let Some(filter) = session.node.filter(&name_of(command.get(1))).await? else {
        session.reply.null();
        return Ok(());
    };
    check_fits(session, session.node.engine.bytes_of(&filter).await?)?;
    let mut bytes = Vec::from(MAGIC);
    let mut cursor = 0;
    loop {
        let (next, chunk) = session.node.engine.dump(&filter, cursor).await?;
        if next == 0 {
            break;
        }
        bytes.extend(next.to_le_bytes());
        bytes.extend((chunk.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&chunk);
        cursor = next;
    }
    bytes.extend(xxh3_64(&bytes).to_le_bytes());
    session.reply.bulk(bytes);
    Ok(())
}

/// Refuses what is too long for one reply.
fn check_fits(session: &Session, bytes: u64) -> Outcome {
    let most = session.node.config.load().output_bytes_max;
    if bytes >= most {
        return Err(format!(
            "ERR a reply of {bytes} bytes; output_bytes_max is {most}. BF.SCANDUMP gives a filter in parts"
        )
        .into());
    }
    Ok(())
}

/// `RESTORE key ttl data [REPLACE] [ABSTTL] [IDLETIME s] [FREQ f]`
pub(super) async fn restore(session: &mut Session, command: Command<'_>) -> Outcome {
    let ttl = integer(command.get(2)).ok_or("ERR value is not an integer or out of range")?;
    let ttl = u64::try_from(ttl).map_err(|_| Refusal::from("ERR Invalid TTL value, must be >= 0"))?;
    let (mut replace, mut absolute) = (false, false);
    let mut words = Words::from(command, 4);
    while let Some(word) = words.next() {
        if is(word, "REPLACE") {
            replace = true;
        } else if is(word, "ABSTTL") {
            absolute = true;
        } else if (is(word, "IDLETIME") || is(word, "FREQ"))
            && words.next().is_some_and(|value| unsigned(value).is_some())
        {
            // They mean nothing here.
        } else {
            return Err("ERR syntax error".into());
        }
    }
    let name = name_of(command.get(1));
    let engine = &session.node.engine;
    if !replace && session.node.filter(&name).await?.is_some() {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let mut partial = None;
    for (cursor, chunk) in chunks(command.get(3)).ok_or("ERR DUMP payload version or checksum are wrong")? {
        match (cursor, &mut partial) {
            (HEADER, None) => partial = Some(Partial::begin(chunk, engine)?),
            (_, Some(partial)) => partial.load(cursor, chunk)?,
            _ => return Err("ERR Bad data format".into()),
        }
    }
    let Some(Whole::Own(loader)) = partial.filter(Partial::is_whole).map(Partial::finish).transpose()? else {
        return Err("ERR Bad data format".into());
    };
    let now = unix_time().as_millis() as u64;
    let expires = (ttl > 0).then(|| if absolute { ttl } else { now.saturating_add(ttl) });
    let own_name = name.into_owned();
    let restore = |node: Arc<Node>| async move {
        node.engine.restore_loaded(&own_name, expires, replace, *loader).await
    };
    beside(&session.node, restore).await?;
    session.reply.ok();
    Ok(())
}

/// The chunks of a dump, if its checksum is right.
fn chunks(dump: &[u8]) -> Option<Vec<(u64, &[u8])>> {
    let (content, sum) = dump.split_at_checked(dump.len().checked_sub(SUM_BYTES)?)?;
    if xxh3_64(content).to_le_bytes() != *sum {
        return None;
    }
    let mut rest = content.strip_prefix(MAGIC)?;
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        let (head, behind) = rest.split_first_chunk::<CHUNK_HEAD_BYTES>()?;
        let cursor = u64::from_le_bytes(std::array::from_fn(|i| head[i]));
        let bytes = u32::from_le_bytes(std::array::from_fn(|i| head[8 + i]));
        let (chunk, behind) = behind.split_at_checked(bytes as usize)?;
        chunks.push((cursor, chunk));
        rest = behind;
    }
    Some(chunks)
}

/// `UMBEL.EXPORT key [FORMAT native|guava|redisson]`
pub(super) async fn export(session: &mut Session, command: Command<'_>) -> Outcome {
    let filter = super::umbel::any_filter(session, command.get(1)).await?;
    let mut format = "native";
    let mut words = Words::from(command, 2);
    while let Some(word) = words.next() {
        let value = words.next().and_then(text).unwrap_or_default();
        if !is(word, "FORMAT") {
            return Err("ERR unknown option; UMBEL.EXPORT takes FORMAT".into());
        }
        format = value;
    }
    // RedisBloom's own chunks are what BF.SCANDUMP is for.
    let Some(format) = Format::named(format).filter(|format| *format != Format::RedisBloom) else {
        return Err(format!("ERR unknown format '{format}'; known are native, guava and redisson").into());
    };
    let spec = format.spec(filter.definition().spec);
    let plan = Plan::new(&spec, 1)?;
    check_fits(session, u64::try_from(plan.bytes()).unwrap_or(u64::MAX))?;
    let copy = beside(&session.node, |node| async move { node.engine.project(&filter, spec).await }).await?;
    let mut bytes = Vec::new();
    format.write(&copy, &mut bytes)?;
    if format == Format::Redisson {
        let config = redisson::config(&copy)?;
        session.reply.map(5);
        for (name, value) in [
            ("size", config.size),
            ("hashIterations", config.hash_iterations.into()),
            ("expectedInsertions", config.expected_insertions),
        ] {
            session.reply.bulk(name);
            session.reply.count(value);
        }
        session.reply.bulk("falseProbability");
        session.reply.double(config.false_probability);
        session.reply.bulk("bitmap");
    }
    session.reply.bulk(bytes);
    Ok(())
}

/// `UMBEL.IMPORT key FORMAT native|guava|redisson [size, iterations, insertions and probability for redisson] DATA bytes`
pub(super) async fn import(session: &mut Session, command: Command<'_>) -> Outcome {
    let key = command.get(1);
    let (mut format, mut data) = (None, None);
    let mut config =
        redisson::Config { size: 0, hash_iterations: 0, expected_insertions: 0, false_probability: 0.0 };
    let mut words = Words::from(command, 2);
    while let Some(word) = words.next() {
        let option = String::from_utf8_lossy(word).to_uppercase();
        let value = words.next().ok_or_else(|| format!("ERR {option} takes a value"))?;
        let bad = || Refusal::from(format!("ERR bad {option}"));
        match &option[..] {
            "FORMAT" => format = text(value).map(str::to_lowercase),
            "DATA" => data = Some(value),
            "SIZE" => config.size = unsigned(value).ok_or_else(bad)?,
            "HASHITERATIONS" => {
                config.hash_iterations =
                    unsigned(value).and_then(|value| value.try_into().ok()).ok_or_else(bad)?;
            }
            "EXPECTEDINSERTIONS" => config.expected_insertions = unsigned(value).ok_or_else(bad)?,
            "FALSEPROBABILITY" => config.false_probability = float(value).ok_or_else(bad)?,
            _ => return Err(format!("ERR unknown option {option}: see UMBEL.HELP").into()),
        }
    }
    let data = data.ok_or("ERR DATA is missing")?;
    let engine = &session.node.engine;
    let name = name_of(key);
    if session.node.filter(&name).await?.is_some() {
        return Err("ERR item exists".into());
    }
    let limits = Limits { filter_bytes_max: engine.budget().limit(), ..engine.settings().limits.clone() };
    let filter: Filter = match format.as_deref() {
        Some("native") => native::read(data, &limits)?,
        Some("guava") => guava::read(data, &limits)?,
        Some("redisson") => redisson::read(&config, data, &limits)?,
        _ => return Err("ERR FORMAT is native, guava or redisson".into()),
    };
    let new = NewFilter::new(name, *filter.spec());
    beside(&session.node, |node| async move { node.engine.import(new, filter).await }).await?;
    session.reply.ok();
    Ok(())
}

/// `UMBEL.MERGE key from...`
pub(super) async fn merge(session: &mut Session, command: Command<'_>) -> Outcome {
    let into = super::umbel::any_filter(session, command.get(1)).await?;
    let mut from = Vec::new();
    for key in command.from(2) {
        from.push(super::umbel::any_filter(session, key).await?);
    }
    let added = beside(&session.node, |node| async move { node.engine.merge(&into, &from).await }).await?;
    session.reply.count(added);
    Ok(())
}
