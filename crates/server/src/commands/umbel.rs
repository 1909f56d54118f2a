//! `UMBEL.*`: what RedisBloom's commands cannot say.

use std::sync::Arc;
use std::time::Duration;

use umbel_core::Error;
use umbel_core::engine::{Answer, Handle, Token, Written};
use umbel_core::entry::Request;
use umbel_filter::Fingerprint;

use super::arguments::{Words, float, is, text, unsigned};
use super::table::Id;
use super::{Outcome, bf, filter_again, look, with_filter};
use crate::growth::{Pace, fitting, seconds};
use crate::making::Making;
use crate::names::{key_of, name_of};
use crate::resp::{Command, Reply};
use crate::session::Session;
use crate::work::beside;

/// How long somebody may wait for a position: nobody notices that it hangs up meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How soon it is looked for the first time whether it is reached, and how seldom in the end: each look may read the log.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(100);

const HELP: &[&str] = &[
    "UMBEL.CREATE key capacity error [KIND bloom|counting|counting8] [FAMILY murmur3|xxh3|keyed|redisbloom|redisson]",
    "    [LAYOUT blocked|guava|redisbloom|redisson] [EXPANSION times | NONSCALING] [GROWAT percent] [RETAIN yes|no]",
    "    [SHARDS auto|one|all] [EXPIRE seconds] [WINDOW 24h BUCKETS 24]",
    "    -- Makes a filter. One with a window forgets what was added longer ago, by whole buckets.",
    "UMBEL.ADD key [SESSION id SEQUENCE number] ITEMS item [item ...]",
    "    -- Adds items. The same session and sequence again have no second effect and get the same answer.",
    "UMBEL.REMOVE key [SESSION id SEQUENCE number] ITEMS item [item ...]",
    "    -- Takes items out of a counting filter, each once, if they were added.",
    "UMBEL.EXISTS key [AFTER position] [READ any|current|strong] ITEMS item [item ...]",
    "    -- absent, maybe or unknown for each item, and the position that the answers include.",
    "UMBEL.VERIFY key item [item ...]",
    "    -- How often each item was added, exactly.",
    "UMBEL.WAIT position [milliseconds]",
    "    -- Waits until this server has a position.",
    "UMBEL.RESIZE key [CAPACITY elements|FIT] [ERROR rate] [EXPANSION times|none] [GROWAT percent|default]",
    "    -- Grows, shrinks or makes stricter, while the filter answers; and says by how much and when it grows by itself.",
    "UMBEL.GROWTH key",
    "    -- How fast a filter fills, when it will be full, and which sizes it had: when, why, and how long that took.",
    "UMBEL.CLEAR key",
    "    -- Forgets all items.",
    "UMBEL.RENAME key name [NX]",
    "    -- Gives a filter another name; NX: unless that is taken.",
    "UMBEL.MERGE key from [from ...]",
    "    -- Adds all that other filters hold, and says how many items were new.",
    "UMBEL.REBUILD START|ADD|STATUS|FINISH|ABORT key ...",
    "    -- Fills a filter anew from a source while it is used: see UMBEL.REBUILD HELP.",
    "UMBEL.EXPORT key [FORMAT native|guava|redisson]",
    "    -- A filter as a file of that format.",
    "UMBEL.IMPORT key FORMAT native|guava DATA bytes",
    "UMBEL.IMPORT key FORMAT redisson SIZE bits HASHITERATIONS n EXPECTEDINSERTIONS n FALSEPROBABILITY p DATA bytes",
    "    -- A filter that answers as the one in the file does.",
    "UMBEL.STATS key",
    "    -- Fill, estimated error, generation, bytes, adds a second.",
    "UMBEL.ROUTES key",
    "    -- Which nodes have which items: for clients that ask the right one at once.",
    "UMBEL.LOOKUP catalog key [FETCH] [LOCAL] [WITHIN milliseconds]",
    "    -- Which domains may have a key, the likeliest first; FETCH: the record, from the domain that has it.",
    "UMBEL.HOTTEST catalog [COUNT keys]",
    "    -- The keys that were asked for most often, with about how often.",
    "UMBEL.NODE LIST",
    "UMBEL.NODE DIGESTS",
    "UMBEL.NODE DRAIN|UNDRAIN [name]",
    "    -- The nodes of the cluster; lets one give its partitions away, or have them again.",
    "UMBEL.LIST",
    "    -- All filters with what they are.",
];

/// `UMBEL.HELP`
pub(super) fn help(session: &mut Session) -> Outcome {
    session.reply.array(HELP.len());
    HELP.iter().for_each(|line| session.reply.simple(line));
    Ok(())
}

/// A filter of any kind.
pub(super) async fn any_filter(session: &Session, key: &[u8]) -> Outcome<Arc<Handle>> {
    session.node.filter(&name_of(key)).await?.ok_or_else(|| "ERR not found".into())
}

/// `UMBEL.CREATE key capacity error [option...]`
pub(super) async fn create(session: &mut Session, command: Command<'_>) -> Outcome {
    let key = command.get(1);
    let capacity = unsigned(command.get(2)).ok_or("ERR bad capacity")?;
    let error = float(command.get(3)).ok_or("ERR bad error rate")?;
    let mut making = Making::new(capacity, error, session.node.defaults());
    let mut words = Words::from(command, 4);
    while let Some(word) = words.next() {
        if is(word, "NONSCALING") {
            making.is_fixed();
            continue;
        }
        let option = String::from_utf8_lossy(word).to_uppercase();
        let value = words.next().and_then(text).ok_or_else(|| format!("ERR {option} takes a value"))?;
        making.set(&option.to_lowercase(), value).map_err(|why| format!("ERR {why}: see UMBEL.HELP"))?;
    }
    let new = making.finish(&name_of(key)).map_err(|why| format!("ERR {why}"))?;
    bf::create(session, key, new).await
}

/// Options from a word on up to `ITEMS`, each with a value, and where the items begin.
pub(super) fn options<'a, const N: usize>(
    command: Command<'a>,
    first: usize,
    names: [&str; N],
) -> Outcome<([Option<&'a [u8]>; N], usize)> {
    let mut values = [None; N];
    let mut words = Words::from(command, first);
    while let Some(word) = words.next() {
        if is(word, "ITEMS") {
            if words.left() == 0 {
                break;
            }
            return Ok((values, words.at()));
        }
        let Some(number) = names.iter().position(|name| is(word, name)) else {
            return Err(format!(
                "ERR unknown option '{}'; items come after ITEMS",
                String::from_utf8_lossy(word)
            )
            .into());
        };
        values[number] = words.next();
    }
    Err("ERR ITEMS and one item or more are missing".into())
}

pub(super) fn hashed(filter: &Handle, command: Command<'_>, first: usize) -> Vec<Fingerprint> {
    command.from(first).map(|item| filter.hasher().fingerprint(item)).collect()
}

pub(super) fn request(session: Option<&[u8]>, sequence: Option<&[u8]>) -> Outcome<Request> {
    match (session, sequence) {
        (None, None) => Ok(Request::default()),
        (Some(session), Some(sequence)) => {
            let session = unsigned(session)
                .filter(|session| *session != 0)
                .ok_or("ERR bad session; it is a number from 1")?;
            let sequence = unsigned(sequence).ok_or("ERR bad sequence")?;
            Ok(Request { session, sequence })
        }
        _ => Err("ERR SESSION and SEQUENCE go together".into()),
    }
}

fn position(text: &[u8]) -> Result<Token, &'static str> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or("ERR bad position")
}

/// `UMBEL.ADD key [SESSION id SEQUENCE number] ITEMS item...`
pub(super) async fn add(session: &mut Session, command: Command<'_>) -> Outcome {
    let ([id, sequence], first) = options(command, 2, ["SESSION", "SEQUENCE"])?;
    let request = request(id, sequence)?;
    let filter = any_filter(session, command.get(1)).await?;
    let engine = Arc::clone(&session.node.engine);
    let write =
        async |filter: &Arc<Handle>| engine.add_as(filter, &hashed(filter, command, first), request).await;
    let key = command.get(1);
    let again = async || filter_again(session, key, "ERR not found").await;
    let written = with_filter(key, &filter, again, write).await?;
    write_written(session, &written);
    Ok(())
}

/// `UMBEL.REMOVE key [SESSION id SEQUENCE number] ITEMS item...`
pub(super) async fn remove(session: &mut Session, command: Command<'_>) -> Outcome {
    let ([id, sequence], first) = options(command, 2, ["SESSION", "SEQUENCE"])?;
    let request = request(id, sequence)?;
    let filter = any_filter(session, command.get(1)).await?;
    let engine = Arc::clone(&session.node.engine);
    let write =
        async |filter: &Arc<Handle>| engine.remove_as(filter, &hashed(filter, command, first), request).await;
    let key = command.get(1);
    let again = async || filter_again(session, key, "ERR not found").await;
    let written = with_filter(key, &filter, again, write).await?;
    write_written(session, &written);
    Ok(())
}

pub(super) fn write_written(session: &mut Session, written: &Written) {
    let reply = &mut session.reply;
    reply.map(if written.refused.is_some() { 3 } else { 2 });
    reply.simple("position");
    reply.bulk(written.token.to_string());
    reply.simple("answers");
    reply.array(written.answers.len());
    for answer in &written.answers {
        match answer {
            Some(answer) => reply.boolean(*answer),
            None => reply.null(),
        }
    }
    if let Some(why) = &written.refused {
        reply.simple("refused");
        reply.bulk(why);
    }
}

/// `UMBEL.EXISTS key [AFTER position] [READ any|current|strong] ITEMS item...`
pub(super) async fn exists(session: &mut Session, command: Command<'_>) -> Outcome {
    let ([after, read], first) = options(command, 2, ["AFTER", "READ"])?;
    let after = after.map(position).transpose()?;
    let filter = session.node.filter(&name_of(command.get(1))).await?;
    if let Some(read) = read {
        return look::exists(session, command, filter.as_ref(), after.as_ref(), (read, first)).await;
    }
    // The position is taken before the answers, so they include it.
    let position = session.node.engine.token().to_string();
    let answers = match &filter {
        // A filter that is not there has seen nothing; that is not the same as absent.
        None => vec![Answer::Unknown; command.len() - first],
        Some(filter) => {
            let keys = hashed(filter, command, first);
            match session.node.engine.contains(filter, &keys, after.as_ref()).await {
                Err(Error::Gone(_)) => vec![Answer::Unknown; keys.len()],
                answers => answers?,
            }
        }
    };
    session.reply.map(2);
    session.reply.simple("position");
    session.reply.bulk(position);
    session.reply.simple("answers");
    session.reply.array(answers.len());
    for answer in answers {
        session.reply.simple(answer.word());
    }
    Ok(())
}

/// `UMBEL.VERIFY key item...`
pub(super) async fn verify(session: &mut Session, command: Command<'_>) -> Outcome {
    let filter = any_filter(session, command.get(1)).await?;
    let verify =
        async |filter: &Arc<Handle>| session.node.engine.verify(filter, &hashed(filter, command, 2)).await;
    let key = command.get(1);
    let again = async || filter_again(session, key, "ERR not found").await;
    let counts = with_filter(key, &filter, again, verify).await?;
    session.reply.array(counts.len());
    counts.iter().for_each(|count| session.reply.count(*count));
    Ok(())
}

/// `UMBEL.WAIT position [milliseconds]`
pub(super) async fn wait(session: &mut Session, command: Command<'_>) -> Outcome {
    let token = position(command.get(1))?;
    let most = match command.len() {
        2 => Duration::from_secs(1),
        _ => Duration::from_millis(unsigned(command.get(2)).ok_or("ERR bad number of milliseconds")?),
    };
    if most > WAIT_MAX {
        return Err(format!("ERR a wait takes {} milliseconds at most", WAIT_MAX.as_millis()).into());
    }
    let (begun, mut pause) = (session.node.now(), LOOK_AGAIN);
    loop {
        match session.node.engine.reached(&token).await {
            Ok(()) => break,
            Err(Error::Retry(_)) if begun.elapsed() < most && !session.client.is_killed() => {
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(LOOK_AGAIN_MAX);
            }
            Err(error) => return Err(error.into()),
        }
    }
    session.reply.bulk(session.node.engine.token().to_string());
    Ok(())
}

/// `UMBEL.RESIZE key [CAPACITY elements|FIT] [ERROR rate] [EXPANSION times|none] [GROWAT percent|default]`
pub(super) async fn resize(session: &mut Session, command: Command<'_>) -> Outcome {
    let filter = any_filter(session, command.get(1)).await?;
    let spec = filter.definition().spec;
    let (mut capacity, mut error) = (spec.capacity, spec.error);
    let mut pace = Pace::default();
    let mut words = Words::from(command, 2);
    let (mut names_capacity, mut fits) = (false, false);
    while let Some(word) = words.next() {
        if is(word, "FIT") {
            fits = true;
            continue;
        }
        let value = words.next().unwrap_or_default();
        if is(word, "CAPACITY") {
            capacity = unsigned(value).ok_or("ERR bad capacity")?;
            names_capacity = true;
        } else if is(word, "ERROR") {
            error = float(value).ok_or("ERR bad error rate")?;
        } else if is(word, "EXPANSION") || is(word, "GROWAT") {
            let value = text(value).unwrap_or_default();
            let set = if is(word, "EXPANSION") { pace.set_factor(value) } else { pace.set_threshold(value) };
            set.map_err(|why| format!("ERR {why}"))?;
        } else {
            return Err(
                "ERR unknown option; UMBEL.RESIZE takes CAPACITY, FIT, ERROR, EXPANSION and GROWAT".into()
            );
        }
    }
    if fits && names_capacity {
        return Err("ERR CAPACITY and FIT both name a size: give one of them".into());
    }
    pace.apply(&session.node, &filter).await?;
    if fits {
        capacity = fitting(&filter, session.node.counts_of(&filter).await?.items);
    }
    let is_same = (capacity, error.to_bits()) == (spec.capacity, spec.error.to_bits());
    if (pace.is_some() || fits) && is_same {
        session.reply.ok();
        return Ok(());
    }
    let items = session.node.counts_of(&filter).await?.items;
    if items > capacity {
        return Err(
            format!("ERR the filter holds {items} items: a capacity of {capacity} is too small").into()
        );
    }
    beside(&session.node, |node| async move { node.engine.resize(&filter, capacity, error).await }).await?;
    session.node.growths.look(&session.node).await;
    session.reply.ok();
    Ok(())
}

/// `UMBEL.CLEAR key`
pub(super) async fn clear(session: &mut Session, command: Command<'_>) -> Outcome {
    let filter = any_filter(session, command.get(1)).await?;
    session.node.engine.clear(&filter).await?;
    session.reply.ok();
    Ok(())
}

/// `UMBEL.STATS key`
pub(super) async fn stats(session: &mut Session, command: Command<'_>) -> Outcome {
    let filter = any_filter(session, command.get(1)).await?;
    let (mut stats, definition) = (filter.stats(), filter.definition());
    if session.node.cluster.is_some() {
        stats.items = session.node.counts_of(&filter).await?.items;
    }
    let adds_per_second = session.node.rates.adds_per_second(filter.id());
    let forecast = session.node.growths.forecast(&session.node, &filter, stats.items);
    let reply = &mut session.reply;
    let counts = [
        ("items", stats.items),
        ("capacity", stats.capacity),
        ("bytes", stats.bytes),
        ("generation", stats.generation.into()),
        ("shards", stats.shards.into()),
        ("layers", stats.layers.into()),
    ];
    let shares = [
        ("error", definition.spec.error),
        ("estimated_error", stats.estimated_error),
        ("fill", stats.fill),
        ("adds_per_second", adds_per_second),
        ("items_per_second", forecast.map_or(0.0, |forecast| forecast.rate.median)),
    ];
    reply.map(counts.len() + shares.len() + 5);
    for (name, value) in counts {
        reply.simple(name);
        reply.count(value);
    }
    for (name, value) in shares {
        reply.simple(name);
        reply.double(value);
    }
    reply.simple("resident");
    reply.boolean(stats.is_resident);
    reply.simple("growing");
    reply.boolean(stats.is_growing);
    let full = forecast.and_then(|forecast| seconds(forecast.full));
    for (name, value) in
        [("next_capacity", stats.next_capacity), ("expires", definition.expires), ("full_in_seconds", full)]
    {
        reply.simple(name);
        write_known(reply, value);
    }
    Ok(())
}

fn write_known(reply: &mut Reply, value: Option<u64>) {
    match value {
        Some(value) => reply.count(value),
        None => reply.null(),
    }
}

/// `UMBEL.GROWTH key`
pub(super) async fn growth(session: &mut Session, command: Command<'_>) -> Outcome {
    let filter = any_filter(session, command.get(1)).await?;
    let items = session.node.counts_of(&filter).await?.items;
    let told = session.node.growths.tell(&session.node, &filter, items).await?;
    let reply = &mut session.reply;
    reply.map(12);
    for (name, value) in
        [("items", told.items), ("capacity", told.capacity), ("at_percent", told.at_percent.into())]
    {
        reply.simple(name);
        reply.count(value);
    }
    let rate = told.forecast.as_ref().map(|forecast| forecast.rate.median);
    let shares = [
        ("factor", Some(told.factor)),
        ("items_per_second", rate),
        ("error_in_a_week", told.error_in_a_week),
    ];
    for (name, value) in shares {
        reply.simple(name);
        match value {
            Some(value) => reply.double(value),
            None => reply.null(),
        }
    }
    let times = [
        ("due_in_seconds", told.forecast.map(|forecast| forecast.due)),
        ("full_in_seconds", told.forecast.map(|forecast| forecast.full)),
        ("full_in_seconds_earliest", told.forecast.map(|forecast| forecast.full_at_earliest)),
        ("full_in_seconds_latest", told.forecast.map(|forecast| forecast.full_at_latest)),
    ];
    for (name, when) in times {
        reply.simple(name);
        write_known(reply, when.and_then(seconds));
    }
    reply.simple("forecast");
    reply.bulk(told.words());
    reply.simple("history");
    reply.array(told.steps.len());
    for step in &told.steps {
        reply.map(9);
        reply.simple("why");
        reply.bulk(&step.why);
        let counts = [
            ("generation", Some(step.generation.into())),
            ("from_capacity", Some(step.from_capacity)),
            ("to_capacity", Some(step.to_capacity)),
            ("items", Some(step.items)),
            ("began_ms", Some(step.began_ms)),
            ("took_ms", step.took_ms),
        ];
        for (name, value) in counts {
            reply.simple(name);
            write_known(reply, value);
        }
        for (name, value) in [("from_error", step.from_error), ("to_error", step.to_error)] {
            reply.simple(name);
            reply.double(value);
        }
    }
    Ok(())
}

/// `UMBEL.LIST`
pub(super) async fn list(session: &mut Session) -> Outcome {
    let filters = session.filters(Id::UmbelList).await?;
    let items = session.node.items_of(&filters).await?;
    session.reply.array(filters.len());
    for (filter, items) in filters.into_iter().zip(items) {
        let definition = filter.definition();
        session.reply.map(8);
        session.reply.simple("name");
        session.reply.bulk(key_of(&definition.name));
        for (name, value) in [
            ("kind", definition.spec.kind.to_string()),
            ("layout", definition.spec.layout.to_string()),
            ("family", definition.spec.family.to_string()),
        ] {
            session.reply.simple(name);
            session.reply.bulk(value);
        }
        session.reply.simple("error");
        session.reply.double(definition.spec.error);
        for (name, value) in
            [("capacity", definition.spec.capacity), ("items", items), ("bytes", filter.bytes())]
        {
            session.reply.simple(name);
            session.reply.count(value);
        }
    }
    Ok(())
}
