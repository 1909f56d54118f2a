//! `CF.*`: filters from which items can be taken out again. RedisBloom's are cuckoo filters, ours count.

use std::sync::Arc;

use bytes::Bytes;
use umbel_core::Error;
use umbel_core::definition::Growth;
use umbel_core::engine::{Handle, NewFilter};
use umbel_filter::{Fingerprint, Spec};

use super::arguments::{Words, integer, is};
use super::{Outcome, Refusal, bf, check_kind, failed_again, filter_again, filter_of, with_filter};
use crate::names::name_of;
use crate::resp::Command;
use crate::session::Session;
use crate::work::beside;

const BUCKET_SIZE: u64 = 2;
const MAX_ITERATIONS: u64 = 20;
const EXPANSION: u64 = 1;
/// What labels of filters begin with that were made here.
const LABELS: &[u8] = b"CF1";

/// What a filter is made of. A counting filter has no buckets and moves nothing about; what a client asked for is remembered and told.
#[derive(Clone, Copy, Debug)]
pub struct Making {
    capacity: u64,
    bucket_size: u64,
    max_iterations: u64,
    expansion: u64,
}

impl Making {
    fn of(session: &Session) -> Self {
        Self {
            capacity: session.node.defaults().cuckoo_capacity,
            bucket_size: BUCKET_SIZE,
            max_iterations: MAX_ITERATIONS,
            expansion: EXPANSION,
        }
    }

    fn filter(&self, session: &Session, key: &[u8]) -> NewFilter {
        let defaults = session.node.defaults();
        let spec = Spec::counting(self.capacity, defaults.cuckoo_error).family(defaults.family);
        let growth = match self.expansion {
            0 => Growth::Fixed,
            // An expansion of one adds as much again.
            expansion => Growth::Percent(expansion.clamp(2, 32_768) as u32 * 100),
        };
        NewFilter { growth, labels: self.to_labels(), ..NewFilter::new(name_of(key), spec) }
    }

    fn to_labels(self) -> Bytes {
        let numbers = [self.bucket_size, self.max_iterations, self.expansion];
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        LABELS.iter().copied().chain(bytes).collect()
    }

    /// What was asked for when the filter was made. One that was made otherwise has what it would have by default.
    fn of_filter(session: &Session, filter: &Handle) -> Self {
        let definition = filter.definition();
        let words = definition.labels.strip_prefix(LABELS).map(|rest| rest.as_chunks::<8>().0);
        let made = Self { capacity: definition.spec.capacity, ..Self::of(session) };
        match words {
            Some([bucket_size, max_iterations, expansion]) => Self {
                bucket_size: u64::from_le_bytes(*bucket_size),
                max_iterations: u64::from_le_bytes(*max_iterations),
                expansion: u64::from_le_bytes(*expansion),
                ..made
            },
            _ => made,
        }
    }
}

/// Makes a filter, unless somebody else just did.
pub async fn make(session: &Session, key: &[u8], making: Option<Making>) -> Outcome<Arc<Handle>> {
    let making = making.unwrap_or_else(|| Making::of(session));
    bf::make_unless_made(session, key, making.filter(session, key), true).await
}

/// `CF.RESERVE key capacity [BUCKETSIZE b] [MAXITERATIONS i] [EXPANSION x]`
pub async fn reserve(session: &mut Session, command: Command<'_>) -> Outcome {
    let capacity = integer(command.get(2)).ok_or("Bad capacity")?;
    let mut making = Making::of(session);
    let mut words = Words::from(command, 3);
    while let Some(word) = words.next() {
        let wrong = || Refusal::from("ERR wrong number of arguments for 'cf.reserve' command");
        let value = words.next().ok_or_else(wrong)?;
        let (name, range, into) = if is(word, "BUCKETSIZE") {
            ("BUCKETSIZE", 1..=255, &mut making.bucket_size)
        } else if is(word, "MAXITERATIONS") {
            ("MAXITERATIONS", 1..=65_535, &mut making.max_iterations)
        } else if is(word, "EXPANSION") {
            ("EXPANSION", 0..=32_768, &mut making.expansion)
        } else {
            return Err("Unknown argument received".into());
        };
        let value = integer(value).ok_or_else(|| format!("Couldn't parse {name}"))?;
        if !range.contains(&value) {
            return Err(format!(
                "{name}: value must be an integer between {} and {}, inclusive.",
                range.start(),
                range.end()
            )
            .into());
        }
        *into = value.unsigned_abs();
    }
    making.capacity = check_capacity(capacity, making.bucket_size)?;
    let key = command.get(1);
    if let Some(filter) = session.node.filter(&name_of(key)).await? {
        check_kind(&filter, true)?;
        return Err("ERR item exists".into());
    }
    let new = making.filter(session, key);
    bf::create(session, key, new).await
}

fn check_capacity(capacity: i64, bucket_size: u64) -> Outcome<u64> {
    match u64::try_from(capacity) {
        Ok(capacity) if capacity >= bucket_size * 2 => Ok(capacity),
        _ => Err("Capacity must be at least (BucketSize * 2)".into()),
    }
}

/// `CF.ADD key item`, `CF.ADDNX key item`, where they stand alone.
pub async fn add(session: &mut Session, command: Command<'_>) -> Outcome {
    let filter = existing_or_made(session, command.get(1), None).await?;
    let unique = command.get(0).len() == "CF.ADDNX".len();
    let again = async || made_again(session, command.get(1), None).await;
    match add_items(session, &filter, again, command, 2, unique).await?[..] {
        [Some(added)] => session.reply.boolean(added),
        _ => return Err("Filter is full".into()),
    }
    Ok(())
}

/// `CF.INSERT key [CAPACITY c] [NOCREATE] ITEMS item...`, `CF.INSERTNX ...`
pub async fn insert(session: &mut Session, command: Command<'_>) -> Outcome {
    let unique = command.get(0).len() == "CF.INSERTNX".len();
    let wrong = || {
        Refusal::from(format!(
            "ERR wrong number of arguments for 'cf.insert{}' command",
            if unique { "nx" } else { "" }
        ))
    };
    let mut making = Making::of(session);
    let mut creates = true;
    let mut words = Words::from(command, 2);
    loop {
        let word = words.next().ok_or_else(wrong)?;
        if is(word, "ITEMS") {
            break;
        } else if is(word, "CAPACITY") {
            let capacity = integer(words.next().ok_or_else(wrong)?).ok_or("Bad capacity")?;
            making.capacity = check_capacity(capacity, BUCKET_SIZE)?;
        } else if is(word, "NOCREATE") {
            creates = false;
        } else {
            return Err("Unknown argument received".into());
        }
    }
    if words.left() == 0 {
        return Err(wrong());
    }
    let filter = if creates {
        existing_or_made(session, command.get(1), Some(making)).await?
    } else {
        filter_of(session, command.get(1), true).await?
    };
    let again = async || match creates {
        true => made_again(session, command.get(1), Some(making)).await,
        false => filter_again(session, command.get(1), "ERR not found").await,
    };
    let added = add_items(session, &filter, again, command, words.at(), unique).await?;
    session.reply.array(added.len());
    for added in added {
        match added {
            Some(added) if unique => session.reply.integer(i64::from(added)),
            Some(_) => session.reply.integer(1),
            None => session.reply.integer(-1),
        }
    }
    Ok(())
}

async fn existing_or_made(session: &Session, key: &[u8], making: Option<Making>) -> Outcome<Arc<Handle>> {
    match session.node.filter(&name_of(key)).await? {
        Some(filter) => check_kind(&filter, true).map(|()| filter),
        None => make(session, key, making).await,
    }
}

/// The filter of a name after the one that had it was dropped; it is made if there is none.
async fn made_again(session: &Session, key: &[u8], making: Option<Making>) -> Outcome<Arc<Handle>> {
    match session.node.filter_again(&name_of(key)).await? {
        Some(filter) => check_kind(&filter, true).map(|()| filter),
        None => make(session, key, making).await,
    }
}

/// For each item, whether it was added; nothing if the filter was too full. If the filter was dropped, they go to the one that `again` gives.
async fn add_items(
    session: &Session,
    filter: &Arc<Handle>,
    again: impl AsyncFnOnce() -> Outcome<Arc<Handle>>,
    command: Command<'_>,
    first: usize,
    unique: bool,
) -> Outcome<Vec<Option<bool>>> {
    let hashed = |filter: &Handle| -> Vec<Fingerprint> {
        command.from(first).map(|item| filter.hasher().fingerprint(item)).collect()
    };
    let engine = &session.node.engine;
    if !unique {
        let add = async |filter: &Arc<Handle>| engine.add(filter, &hashed(filter)).await;
        let written = with_filter(command.get(1), filter, again, add).await?;
        return Ok(written.answers.into_iter().map(|answer| answer.map(|_| true)).collect());
    }
    let add = async |filter: &Arc<Handle>| engine.add_absent(filter, &hashed(filter)).await;
    Ok(with_filter(command.get(1), filter, again, add).await?.answers)
}

/// `CF.EXISTS key item`, `CF.MEXISTS key item...`, where they stand alone.
pub async fn exists(session: &mut Session, command: Command<'_>) -> Outcome {
    bf::look_up(session, command, true).await
}

/// `CF.DEL key item`: only what was added is taken out, so nothing else can vanish with it.
pub async fn del(session: &mut Session, command: Command<'_>) -> Outcome {
    let filter = match session.node.filter(&name_of(command.get(1))).await? {
        Some(filter) => check_kind(&filter, true).map(|()| filter)?,
        None => return Err("Not found".into()),
    };
    let remove = async |filter: &Arc<Handle>| {
        session.node.engine.remove(filter, &[filter.hasher().fingerprint(command.get(2))]).await
    };
    let again = async || filter_again(session, command.get(1), "Not found").await;
    let written = with_filter(command.get(1), &filter, again, remove).await?;
    session.reply.boolean(written.answers == [Some(true)]);
    Ok(())
}

/// `CF.COUNT key item`: exact where the filter keeps its keys, an upper bound where not.
pub async fn count(session: &mut Session, command: Command<'_>) -> Outcome {
    let Some(filter) = session.node.filter(&name_of(command.get(1))).await? else {
        session.reply.integer(0);
        return Ok(());
    };
    check_kind(&filter, true)?;
    let count = async |filter: &Arc<Handle>| {
        session.node.engine.count(filter, &[filter.hasher().fingerprint(command.get(2))]).await
    };
    let counts = match count(&filter).await {
        Err(Error::Gone(_)) => match session.node.filter_again(&name_of(command.get(1))).await? {
            None => Vec::new(),
            Some(filter) => {
                check_kind(&filter, true)?;
                count(&filter).await.map_err(|error| failed_again(command.get(1), error))?
            }
        },
        counts => counts?,
    };
    session.reply.count(counts.first().copied().unwrap_or_default());
    Ok(())
}

/// `CF.INFO key`
pub async fn info(session: &mut Session, command: Command<'_>) -> Outcome {
    let filter = filter_of(session, command.get(1), true).await?;
    let made = Making::of_filter(session, &filter);
    let counts = session.node.counts_of(&filter).await?;
    let fields = [
        ("Size", filter.bytes()),
        ("Number of buckets", made.capacity.div_ceil(made.bucket_size.max(1))),
        ("Number of filters", 1),
        ("Number of items inserted", counts.held),
        ("Number of items deleted", counts.removed),
        ("Bucket size", made.bucket_size),
        ("Expansion rate", made.expansion),
        ("Max iterations", made.max_iterations),
    ];
    session.reply.map(fields.len());
    for (name, value) in fields {
        session.reply.simple(name);
        session.reply.count(value);
    }
    Ok(())
}

/// `CF.COMPACT key`
pub async fn compact(session: &mut Session, command: Command<'_>) -> Outcome {
    let Some(filter) = session.node.filter(&name_of(command.get(1))).await? else {
        return Err("Cuckoo filter was not found".into());
    };
    check_kind(&filter, true)?;
    if filter.definition().retain {
        beside(&session.node, |node| async move { node.engine.rebuild(&filter).await }).await?;
    }
    session.reply.ok();
    Ok(())
}
