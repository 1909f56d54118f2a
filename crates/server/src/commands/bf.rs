//! `BF.*`: filters to which items are added.

use std::sync::Arc;

use umbel_core::Error;
use umbel_core::definition::Growth;
use umbel_core::engine::{Answer, Handle, NewFilter};
use umbel_core::fold::name_taken;
use umbel_filter::{Fingerprint, Layout, Spec};

use super::arguments::{Words, float, integer, is, unsigned};
use super::{Outcome, Refusal, cannot_tell, check_kind, dropped, failed_again, filter_of, full, with_filter};
use crate::names::name_of;
use crate::resp::{Command, Reply};
use crate::session::Session;

/// How often a filter is made where others make and drop one of the same name at the same time.
const TRIES: usize = 3;
/// RedisBloom takes no larger one either.
const EXPANSION_MAX: i64 = 32_768;

/// What a filter is made of if somebody adds to one that is not there.
#[derive(Clone, Copy, Debug)]
pub struct Making {
    /// Elements that it is made for.
    pub capacity: u64,
    /// Its error rate.
    pub error: f64,
    /// How many times larger it becomes; none if it never grows.
    pub expansion: Option<u32>,
}

impl Making {
    fn of(session: &Session) -> Self {
        let defaults = session.node.defaults();
        Self { capacity: defaults.capacity, error: defaults.error, expansion: Some(defaults.expansion) }
    }

    fn growth(&self) -> Growth {
        match self.expansion {
            None => Growth::Fixed,
            // An expansion of one adds as much again.
            Some(expansion) => Growth::Percent(expansion.max(2) * 100),
        }
    }
}

/// Makes a filter, unless somebody else just did.
pub async fn make(session: &Session, key: &[u8], making: Option<Making>) -> Outcome<Arc<Handle>> {
    let making = making.unwrap_or_else(|| Making::of(session));
    let spec = Spec::bloom(making.capacity, making.error).family(session.node.defaults().family);
    let new = NewFilter { growth: making.growth(), ..NewFilter::new(name_of(key), spec) };
    make_unless_made(session, key, new, false).await
}

/// Makes a filter; if somebody else made one of that name meanwhile, it will do.
pub async fn make_unless_made(
    session: &Session,
    key: &[u8],
    new: NewFilter,
    is_cuckoo: bool,
) -> Outcome<Arc<Handle>> {
    let mut left = TRIES;
    loop {
        left -= 1;
        let error = match session.node.engine.create(new.clone()).await {
            Ok(filter) => return Ok(filter),
            Err(error) => error,
        };
        match session.node.filter_again(&name_of(key)).await? {
            Some(filter) => return check_kind(&filter, is_cuckoo).map(|()| filter),
            // The filter that had the name was dropped since, or the one that was made.
            None => match error {
                Error::Gone(_) if left > 0 => {}
                Error::Invalid(why) if why == name_taken(&new.name) && left > 0 => {}
                Error::Gone(_) => return Err(dropped(key)),
                Error::Invalid(why) if why == name_taken(&new.name) => return Err(dropped(key)),
                error => return Err(error.into()),
            },
        }
    }
}

/// `BF.RESERVE key error_rate capacity [EXPANSION expansion] [NONSCALING]`
pub async fn reserve(session: &mut Session, command: Command<'_>) -> Outcome {
    let error = error_rate(command.get(2), "ERR bad error rate")?;
    let capacity = capacity(command.get(3), "ERR bad capacity")?;
    let mut making = Making { capacity, error, ..Making::of(session) };
    let (mut expansion, mut fixed) = (None, false);
    let mut words = Words::from(command, 4);
    while let Some(word) = words.next() {
        if is(word, "NONSCALING") {
            fixed = true;
        } else if is(word, "EXPANSION") {
            expansion = Some(parse_expansion(words.next().ok_or("ERR no expansion")?, "ERR bad expansion")?);
        } else {
            return Err("ERR unknown argument; BF.RESERVE takes EXPANSION and NONSCALING".into());
        }
    }
    match (fixed, expansion) {
        (true, Some(_)) => return Err("Nonscaling filters cannot expand".into()),
        (true, None) | (false, Some(0)) => making.expansion = None,
        (false, Some(expansion)) => making.expansion = Some(expansion),
        (false, None) => {}
    }
    let key = command.get(1);
    if let Some(filter) = session.node.filter(&name_of(key)).await? {
        check_kind(&filter, false)?;
        return Err("ERR item exists".into());
    }
    let spec = Spec::bloom(making.capacity, making.error).family(session.node.defaults().family);
    let new = NewFilter { growth: making.growth(), ..NewFilter::new(name_of(key), spec) };
    create(session, key, new).await
}

/// Makes a filter that must not be there.
pub async fn create(session: &mut Session, key: &[u8], new: NewFilter) -> Outcome {
    match session.node.engine.create(new).await {
        Ok(_) => session.reply.ok(),
        // Where it is not known whether it was made, it may be its own that is there.
        Err(error @ Error::Invalid(_)) => match session.node.filter_again(&name_of(key)).await? {
            Some(_) => return Err("ERR item exists".into()),
            None => return Err(error.into()),
        },
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// `BF.ADD key item`, `BF.MADD key item...`, where they stand alone.
pub async fn add(session: &mut Session, command: Command<'_>) -> Outcome {
    let is_many = command.get(0).len() > "BF.ADD".len();
    let filter = existing_or_made(session, command.get(1), None).await?;
    add_items(session, &filter, Creates::Filter(None), command, 2, is_many).await
}

/// What is done about a filter that is not there.
#[derive(Clone, Copy)]
enum Creates {
    /// One like this is made.
    Filter(Option<Making>),
    /// The command is refused.
    Nothing,
}

/// `BF.INSERT key [CAPACITY c] [ERROR e] [EXPANSION x] [NOCREATE] [NONSCALING] ITEMS item...`
pub async fn insert(session: &mut Session, command: Command<'_>) -> Outcome {
    let mut making = Making::of(session);
    let (mut creates, mut fixed, mut expands) = (true, false, false);
    let mut words = Words::from(command, 2);
    let wrong = || Refusal::from("ERR wrong number of arguments for 'bf.insert' command");
    loop {
        let word = words.next().ok_or_else(wrong)?;
        if is(word, "ITEMS") {
            break;
        } else if is(word, "CAPACITY") {
            making.capacity = capacity(words.next().ok_or_else(wrong)?, "Bad capacity")?;
        } else if is(word, "ERROR") {
            making.error = error_rate(words.next().ok_or_else(wrong)?, "Bad error rate")?;
        } else if is(word, "EXPANSION") {
            let expansion = parse_expansion(words.next().ok_or_else(wrong)?, "Bad expansion")?;
            making.expansion = (expansion > 0).then_some(expansion);
            expands = true;
        } else if is(word, "NOCREATE") {
            creates = false;
        } else if is(word, "NONSCALING") {
            fixed = true;
        } else {
            return Err("Unknown argument received".into());
        }
    }
    if words.left() == 0 {
        return Err(wrong());
    }
    if fixed && expands {
        return Err("Nonscaling filters cannot expand".into());
    }
    if fixed {
        making.expansion = None;
    }
    let filter = if creates {
        existing_or_made(session, command.get(1), Some(making)).await?
    } else {
        filter_of(session, command.get(1), false).await?
    };
    let creates = if creates { Creates::Filter(Some(making)) } else { Creates::Nothing };
    add_items(session, &filter, creates, command, words.at(), true).await
}

async fn existing_or_made(session: &Session, key: &[u8], making: Option<Making>) -> Outcome<Arc<Handle>> {
    match session.node.filter(&name_of(key)).await? {
        Some(filter) => check_kind(&filter, false).map(|()| filter),
        None => make(session, key, making).await,
    }
}

async fn add_items(
    session: &mut Session,
    filter: &Arc<Handle>,
    creates: Creates,
    command: Command<'_>,
    first: usize,
    is_many: bool,
) -> Outcome {
    let key = command.get(1);
    let add = async |filter: &Arc<Handle>| {
        let keys: Vec<Fingerprint> =
            command.from(first).map(|item| filter.hasher().fingerprint(item)).collect();
        session.node.engine.add(filter, &keys).await
    };
    let again = async || match (session.node.filter_again(&name_of(key)).await?, creates) {
        (Some(filter), _) => check_kind(&filter, false).map(|()| filter),
        (None, Creates::Filter(making)) => make(session, key, making).await,
        (None, Creates::Nothing) => Err("ERR not found".into()),
    };
    let written = with_filter(key, filter, again, add).await?;
    let refused = full(written.refused.as_deref().unwrap_or("the filter is full"));
    match (is_many, &written.answers[..]) {
        (true, answers) => write_many(&mut session.reply, answers, &refused),
        (false, [Some(new)]) => session.reply.boolean(*new),
        (false, _) => return Err(refused.into()),
    }
    Ok(())
}

/// Answers to many adds. Where a filter took no more, the answers end with the reason.
pub fn write_many(reply: &mut Reply, answers: &[Option<bool>], refused: &str) {
    let taken = answers.iter().position(Option::is_none);
    reply.array(taken.map_or(answers.len(), |taken| taken + 1));
    answers.iter().map_while(|answer| *answer).for_each(|new| reply.boolean(new));
    if taken.is_some() {
        reply.error(refused);
    }
}

/// `BF.EXISTS key item`, `BF.MEXISTS key item...`, where they stand alone.
pub async fn exists(session: &mut Session, command: Command<'_>) -> Outcome {
    look_up(session, command, false).await
}

/// Whether items may be in a filter; of no filter, none is.
pub async fn look_up(session: &mut Session, command: Command<'_>, is_cuckoo: bool) -> Outcome {
    let is_many = command.get(0).len() > "BF.EXISTS".len();
    let key = command.get(1);
    let answers = match session.node.filter(&name_of(key)).await? {
        None => vec![Answer::Absent; command.len() - 2],
        Some(filter) => {
            check_kind(&filter, is_cuckoo)?;
            let hashed = |filter: &Handle| -> Vec<Fingerprint> {
                command.from(2).map(|item| filter.hasher().fingerprint(item)).collect()
            };
            let answers = session.node.engine.contains(&filter, &hashed(&filter), None).await;
            let is_gone = match &answers {
                Ok(answers) => answers.contains(&Answer::Unknown),
                Err(error) => matches!(error, Error::Gone(_)),
            };
            match again_if_gone(session, key, &filter, is_gone).await? {
                Now::Same => answers.map_err(|error| failed_again(key, error))?,
                Now::Nothing => vec![Answer::Absent; command.len() - 2],
                Now::Other(filter) => {
                    check_kind(&filter, is_cuckoo)?;
                    let answers = session.node.engine.contains(&filter, &hashed(&filter), None).await;
                    answers.map_err(|error| failed_again(key, error))?
                }
            }
        }
    };
    if answers.contains(&Answer::Unknown) {
        return Err(cannot_tell(key));
    }
    if is_many {
        session.reply.array(answers.len());
    }
    answers.iter().for_each(|answer| session.reply.boolean(*answer == Answer::Maybe));
    Ok(())
}

/// What a name means that meant another filter before.
pub(crate) enum Now {
    /// The same filter.
    Same,
    /// No filter.
    Nothing,
    /// This one.
    Other(Arc<Handle>),
}

/// What a name means now, if the filter that it meant may have been dropped.
pub(crate) async fn again_if_gone(
    session: &Session,
    key: &[u8],
    filter: &Arc<Handle>,
    is_gone: bool,
) -> Outcome<Now> {
    if !is_gone {
        return Ok(Now::Same);
    }
    Ok(match session.node.filter_again(&name_of(key)).await? {
        None => Now::Nothing,
        Some(now) if now.id() == filter.id() => Now::Same,
        Some(now) => Now::Other(now),
    })
}

/// `BF.INFO key [field]`
pub async fn info(session: &mut Session, command: Command<'_>) -> Outcome {
    if command.len() > 3 {
        return Err("ERR wrong number of arguments for 'bf.info' command".into());
    }
    let filter = filter_of(session, command.get(1), false).await?;
    let field = command.get(2);
    let fields = ["CAPACITY", "SIZE", "FILTERS", "ITEMS", "EXPANSION"];
    let names = ["Capacity", "Size", "Number of filters", "Number of items inserted", "Expansion rate"];
    let definition = filter.definition();
    let expansion = match (definition.spec.layout, definition.growth) {
        (Layout::RedisBloom { expansion }, _) => expansion.map(u64::from),
        (_, Growth::Fixed) => None,
        (_, Growth::Percent(percent)) => Some(u64::from(percent / 100)),
    };
    let values = [
        Some(definition.spec.capacity),
        Some(filter.bytes()),
        Some(layers(&filter)),
        Some(items(session, &filter).await?),
        expansion,
    ];
    if command.len() == 3 {
        let Some(number) = fields.iter().position(|name| is(field, name)) else {
            return Err("ERR invalid information value".into());
        };
        session.reply.array(1);
        write_value(&mut session.reply, values[number]);
        return Ok(());
    }
    session.reply.map(names.len());
    for (name, value) in names.iter().zip(values) {
        session.reply.simple(name);
        write_value(&mut session.reply, value);
    }
    Ok(())
}

fn write_value(reply: &mut Reply, value: Option<u64>) {
    match value {
        Some(value) => reply.count(value),
        None => reply.null(),
    }
}

/// Arrays that are asked for one key.
fn layers(filter: &Handle) -> u64 {
    let slot = filter.slots().next().unwrap_or_default();
    filter.projection(slot).map_or(1, |projection| projection.filters().count() as u64)
}

/// How many items were new to a filter, here and on other nodes.
async fn items(session: &Session, filter: &Arc<Handle>) -> Outcome<u64> {
    Ok(session.node.counts_of(filter).await?.items)
}

/// `BF.CARD key`
pub async fn card(session: &mut Session, command: Command<'_>) -> Outcome {
    let items = match session.node.filter(&name_of(command.get(1))).await? {
        None => 0,
        Some(filter) => {
            check_kind(&filter, false)?;
            items(session, &filter).await?
        }
    };
    session.reply.count(items);
    Ok(())
}

/// `BF.DEBUG key`
pub async fn debug(session: &mut Session, command: Command<'_>) -> Outcome {
    let filter = filter_of(session, command.get(1), false).await?;
    let slots: Vec<u16> = filter.slots().collect();
    let parts = slots.iter().filter_map(|slot| Some((slot, filter.projection(*slot)?)));
    let lines = parts.flat_map(|(slot, projection)| {
        let line = |part: &umbel_filter::Filter| {
            let (geometry, spec) = (part.geometry(), part.spec());
            format!(
                "slot:{slot} generation:{} layout:{} bytes:{} geometry:{geometry:?} capacity:{} size:{} ratio:{}",
                projection.generation(),
                spec.layout,
                part.bytes(),
                spec.capacity,
                projection.items(),
                spec.error
            )
        };
        projection.filters().map(line).collect::<Vec<_>>()
    });
    let lines: Vec<String> = lines.collect();
    session.reply.array(lines.len() + 1);
    session.reply.bulk(format!("size:{}", filter.items()));
    lines.iter().for_each(|line| session.reply.bulk(line));
    Ok(())
}

fn error_rate(word: &[u8], unreadable: &'static str) -> Outcome<f64> {
    match float(word) {
        None => Err(unreadable.into()),
        Some(error) if error > 0.0 && error < 1.0 => Ok(error.min(0.25)),
        Some(_) => Err("ERR error rate must be in the range (0.000000, 1.000000)".into()),
    }
}

fn capacity(word: &[u8], unreadable: &'static str) -> Outcome<u64> {
    match integer(word) {
        Some(capacity) if capacity > 0 => Ok(capacity.unsigned_abs()),
        Some(_) => Err("ERR (capacity should be larger than 0)".into()),
        None if unsigned(word).is_some() => Err("ERR capacity is out of range".into()),
        None => Err(unreadable.into()),
    }
}

fn parse_expansion(word: &[u8], unreadable: &'static str) -> Outcome<u32> {
    match integer(word) {
        Some(expansion @ 0..=EXPANSION_MAX) => Ok(expansion as u32),
        Some(_) => Err("ERR expansion must be in the range [0, 32768]".into()),
        None => Err(unreadable.into()),
    }
}
