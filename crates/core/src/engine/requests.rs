//! What users ask of an engine.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use umbel_filter::{Fingerprint, Plan, Spec};

use super::handle::{Answer, Handle};
use super::part::Order;
use super::steps::Why;
use super::{Engine, Shared};
use crate::definition::{CATALOG, Definition, Growth, Window};
use crate::entry::{Entry, Operation, Request, SPREAD};
use crate::fold::no_filter;
use crate::limits::FINGERPRINTS_MAX;
use crate::{Error, Position, Result};

/// A filter that is to be made.
#[derive(Clone, Debug)]
pub struct NewFilter {
    /// What users call it.
    pub name: String,
    /// Kind, layout, family, capacity and error rate.
    pub spec: Spec,
    /// In how many slots it lives.
    pub sharding: Sharding,
    /// Whether its fingerprints are kept, so that it can be rebuilt in any other size and removals can be verified.
    pub retain: bool,
    /// What happens when it fills up.
    pub growth: Growth,
    /// How full it is when it begins to grow, in percent, if not as full as others.
    pub grow_at: Option<u8>,
    /// When it is gone, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// What a door wants to remember of it, at most 256 bytes.
    pub labels: Bytes,
    /// Whether, and for how long, it remembers its newest keys only.
    pub window: Option<Window>,
}

/// In how many slots a filter lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharding {
    /// By the size of its array.
    #[default]
    BySize,
    /// Whole in one slot.
    Whole,
    /// With a shard in every slot.
    Everywhere,
}

impl NewFilter {
    /// A filter with defaults for everything else.
    pub fn new(name: impl Into<String>, spec: Spec) -> Self {
        Self {
            name: name.into(),
            spec,
            sharding: Sharding::default(),
            retain: true,
            growth: Growth::default(),
            grow_at: None,
            expires: None,
            labels: Bytes::new(),
            window: None,
        }
    }
}

/// What came of adds or removals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// For each key, whether it was new, or was there to be removed; nothing if the filter was too full to take it.
    pub answers: Vec<Option<bool>>,
    /// Why some keys were not taken.
    pub refused: Option<String>,
    /// Where it stands in the log.
    pub token: Token,
}

/// How much of the log an answer includes: the greatest position of each partition. Whoever asks with a token reads at least what
/// the token has seen.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Token(BTreeMap<u32, Position>);

impl Token {
    /// Notes a position in a partition.
    pub fn see(&mut self, partition: u32, position: Position) {
        let seen = self.0.entry(partition).or_default();
        *seen = position.max(*seen);
    }

    /// The position in a partition; the beginning, if it has seen nothing of it.
    pub fn position(&self, partition: u32) -> Position {
        self.0.get(&partition).copied().unwrap_or_default()
    }

    /// Whether all that another one has seen was seen here too.
    pub fn includes(&self, other: &Self) -> bool {
        other.positions().all(|(partition, position)| self.position(partition) >= position)
    }

    /// Whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Partitions and positions.
    pub fn positions(&self) -> impl Iterator<Item = (u32, Position)> {
        self.0.iter().map(|(partition, position)| (*partition, *position))
    }
}

/// Longest token that is read: far over one position for each partition.
const TOKEN_TEXT_BYTES_MAX: usize = 256 << 10;

/// `0:1f40,2:a3`: a partition and its position each.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        self.positions().try_for_each(|(partition, position)| {
            write!(f, "{}{partition}:{position}", std::mem::replace(&mut comma, ","))
        })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({self})")
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut token = Self::default();
        let parts = text.split(',').filter(|part| !part.is_empty());
        let read = |part: &str| {
            let (partition, position) = part.split_once(':')?;
            let position = u128::from_str_radix(position, 16).ok()?;
            Some((partition.parse().ok()?, Position::from_number(position)))
        };
        let wrong = || Error::Invalid("a position reads like 0:1f40,2:a3".to_owned());
        if text.len() > TOKEN_TEXT_BYTES_MAX {
            return Err(wrong());
        }
        for part in parts {
            let (partition, position) = read(part).ok_or_else(wrong)?;
            token.see(partition, position);
        }
        Ok(token)
    }
}

impl Engine {
    /// Makes a filter. One of the same name must not be there.
    pub async fn create(&self, new: NewFilter) -> Result<Arc<Handle>> {
        self.shared.create(new).await
    }

    /// The filter of that name.
    pub fn filter(&self, name: &str) -> Option<Arc<Handle>> {
        let is_over = |filter: &Handle| filter.expires() && filter.is_expired(self.shared.expiry_now());
        self.shared.directory.named(name).filter(|filter| !is_over(filter))
    }

    /// Becomes another number when a name begins to mean another filter, or none. While it is the same, whoever has found a filter
    /// that does not expire need not look for it again.
    pub fn names_version(&self) -> u64 {
        self.shared.directory.version()
    }

    /// All filters that users made, by name.
    pub fn filters(&self) -> Vec<Arc<Handle>> {
        let now = self.shared.expiry_now();
        let mut all = self.shared.directory.all();
        all.retain(|filter| !filter.definition().is_internal() && !filter.is_expired(now));
        all
    }

    /// The filter that users made under this number.
    pub fn filter_numbered(&self, id: u64) -> Option<Arc<Handle>> {
        let is_over = |filter: &Handle| filter.expires() && filter.is_expired(self.shared.expiry_now());
        let found = self.shared.directory.numbered(id).filter(|_| self.shared.directory.exists(id));
        found.filter(|filter| !filter.definition().is_internal() && !is_over(filter))
    }

    /// Adds keys.
    pub async fn add(&self, filter: &Arc<Handle>, keys: &[Fingerprint]) -> Result<Written> {
        self.add_as(filter, keys, Request::default()).await
    }

    /// Adds keys for a session: again with the same request it has no second effect, and gives the same answer.
    pub async fn add_as(
        &self,
        filter: &Arc<Handle>,
        keys: &[Fingerprint],
        request: Request,
    ) -> Result<Written> {
        let written = match filter.definition().window {
            // What is rarely done is boxed: the future of an add is moved often, and would have room for all of it.
            Some(window) => Box::pin(self.shared.add_to_window(filter, window, keys, request)).await,
            None => self.shared.add(filter, keys, request).await,
        };
        match self.successor_after(filter, &written).await {
            Some(next) => Box::pin(self.add_as(&next, keys, request)).await,
            None => written,
        }
    }

    /// Adds keys that are not in a filter with removals, each once: where the log puts the request, every node decides alike. The
    /// answers say for each key whether it was added. A key that a lookup takes for present is not added.
    pub async fn add_absent(&self, filter: &Arc<Handle>, keys: &[Fingerprint]) -> Result<Written> {
        let there = self.contains(filter, keys, None).await?;
        if there.contains(&Answer::Unknown) {
            let name = &filter.definition().name;
            return Err(Error::Retry(format!("it is not known which keys the filter {name} holds")));
        }
        // The lookup costs less than an entry whose keys are looked for in the archive. Only the entry decides that a key is absent.
        let absent: Vec<Fingerprint> = keys
            .iter()
            .zip(&there)
            .filter(|(_, there)| **there == Answer::Absent)
            .map(|(key, _)| *key)
            .collect();
        let mut written = self.add_absent_as(filter, &absent, Request::default()).await?;
        let mut added = std::mem::take(&mut written.answers).into_iter();
        let answer = |there: &Answer| match there {
            Answer::Absent => added.next().flatten(),
            _ => Some(false),
        };
        written.answers = there.iter().map(answer).collect();
        Ok(written)
    }

    /// Adds keys that are not in a filter with removals, for a session. Every key is decided where the log puts the request.
    pub async fn add_absent_as(
        &self,
        filter: &Arc<Handle>,
        keys: &[Fingerprint],
        request: Request,
    ) -> Result<Written> {
        check_has_array(&filter.definition())?;
        let written = match self.shared.make_room(filter, keys.len() as u64).await {
            Ok(()) => self.shared.write(filter, keys, request, Operation::AddAbsent).await,
            Err(error) => Err(error),
        };
        match self.successor_after(filter, &written).await {
            Some(next) => Box::pin(self.add_absent_as(&next, keys, request)).await,
            None => written,
        }
    }

    /// Takes keys out, each once. Of a filter that keeps its keys, only what was added is taken out.
    pub async fn remove(&self, filter: &Arc<Handle>, keys: &[Fingerprint]) -> Result<Written> {
        self.remove_as(filter, keys, Request::default()).await
    }

    /// Takes keys out for a session.
    pub async fn remove_as(
        &self,
        filter: &Arc<Handle>,
        keys: &[Fingerprint],
        request: Request,
    ) -> Result<Written> {
        let written = self.shared.write(filter, keys, request, Operation::Remove).await;
        match self.successor_after(filter, &written).await {
            Some(next) => Box::pin(self.remove_as(&next, keys, request)).await,
            None => written,
        }
    }

    /// The filter that took the place of one to which something could not be written; none also if that cannot be found out, because the
    /// failure of the write says more then.
    async fn successor_after(&self, filter: &Arc<Handle>, written: &Result<Written>) -> Option<Arc<Handle>> {
        if written.is_ok() { None } else { Box::pin(self.shared.successor(filter)).await.unwrap_or_default() }
    }

    /// Asks for keys, with filters loaded that are on disk, and not before the token's positions are folded.
    pub async fn contains(
        &self,
        filter: &Arc<Handle>,
        keys: &[Fingerprint],
        after: Option<&Token>,
    ) -> Result<Vec<Answer>> {
        let told = self.shared.contains(filter, keys, after).await.map_err(|error| named(filter, error));
        if told.as_ref().is_ok_and(|answers| !answers.contains(&Answer::Unknown)) {
            return told;
        }
        match self.shared.successor(filter).await? {
            Some(next) => Box::pin(self.contains(&next, keys, after)).await,
            None => told,
        }
    }

    /// How often each key is in the filter, exactly; of a filter without removals, whether it was added. Only filters that keep
    /// their keys know.
    pub async fn verify(&self, filter: &Arc<Handle>, keys: &[Fingerprint]) -> Result<Vec<u64>> {
        if !filter.definition().retain {
            let name = &filter.definition().name;
            return Err(Error::Invalid(format!(
                "the filter {name} does not keep its keys: nothing can be verified"
            )));
        }
        if let Some(buckets) = self.shared.live_buckets(filter).await? {
            let mut counts = vec![0; keys.len()];
            for bucket in buckets {
                let held = Box::pin(self.verify(&bucket, keys)).await?;
                counts.iter_mut().zip(held).for_each(|(count, held)| *count = held.max(*count));
            }
            return Ok(counts);
        }
        self.shared.verify_anywhere(filter, keys).await
    }

    /// How often each key is in a filter with removals: exactly, if it keeps its keys, and at most, if not.
    pub async fn count(&self, filter: &Arc<Handle>, keys: &[Fingerprint]) -> Result<Vec<u64>> {
        if filter.definition().retain {
            return self.verify(filter, keys).await;
        }
        check_has_array(&filter.definition())?;
        self.shared.verify_anywhere(filter, keys).await
    }

    /// Forgets all keys of a filter.
    pub async fn clear(&self, filter: &Arc<Handle>) -> Result<()> {
        match filter.definition().window {
            Some(window) => self.shared.clear_window(filter, window).await,
            None => {
                let definition = filter.definition();
                let cleared = self.shared.everywhere(filter.id(), &definition, &Operation::Clear);
                cleared.await.map_err(|error| named(filter, error))
            }
        }
    }

    /// Removes a filter. Its name is free at once.
    pub async fn drop_filter(&self, filter: &Arc<Handle>) -> Result<()> {
        self.shared.drop_filter(filter).await
    }

    /// Gives a filter another capacity or error rate. It answers as before until the new size is there, slot by slot.
    pub async fn resize(&self, filter: &Arc<Handle>, capacity: u64, error: f64) -> Result<()> {
        self.shared.resize(filter, capacity, error, Why::Asked).await
    }

    /// Builds a filter anew in the same size, from the keys that are in it: counters that were stuck count again.
    pub async fn rebuild(&self, filter: &Arc<Handle>) -> Result<()> {
        let spec = filter.definition().spec;
        self.shared.resize(filter, spec.capacity, spec.error, Why::Asked).await
    }

    /// Makes sure that the token's positions are folded here.
    pub async fn reached(&self, token: &Token) -> Result<()> {
        self.shared.reached(token).await
    }

    /// How much of the log is folded.
    pub fn token(&self) -> Token {
        let mut token = Token::default();
        for partition in 0..self.shared.lanes.len() as u32 {
            token.see(partition, self.shared.applied(partition));
        }
        token
    }
}

/// What is made of arrays cannot be made of a window.
pub(super) fn check_has_array(definition: &Definition) -> Result<()> {
    match definition.window {
        None => Ok(()),
        Some(_) => {
            Err(Error::Invalid(format!("the filter {} is a window: it has no array", definition.name)))
        }
    }
}

fn dropped_meanwhile(definition: &Definition) -> Error {
    Error::Gone(format!("the filter {} was dropped meanwhile", definition.name))
}

pub(super) fn gone(filter: &Handle) -> Error {
    Error::Gone(format!("the filter {} was dropped", filter.definition().name))
}

/// An error of what was done to a filter, in words of users: these do not know its number, by which nodes ask each other.
pub(super) fn named(filter: &Handle, error: Error) -> Error {
    if matches!(error, Error::Gone(_)) { gone(filter) } else { error }
}

/// Why a filter refused something.
pub(super) fn refused(filter: &Handle, why: String) -> Error {
    if why == no_filter(filter.id()) { gone(filter) } else { Error::Invalid(why) }
}

/// Keys of one partition.
struct Group {
    partition: u32,
    keys: Vec<Fingerprint>,
}

impl Shared {
    /// The definition of a filter that is to be made.
    pub(super) fn define(&self, new: NewFilter) -> Result<Definition> {
        let NewFilter { name, spec, sharding, retain, growth, grow_at, expires, labels, window } = new;
        let expires = expires.filter(|at| *at != u64::MAX);
        let mut whole =
            Definition { retain, growth, grow_at, expires, labels, window, ..Definition::new(name, spec) };
        if self.cluster.is_some() {
            CATALOG.clone_into(&mut whole.origin);
        }
        whole.check()?;
        let bytes = Plan::new(&spec, 1).map_err(|error| Error::Invalid(error.to_string()))?.bytes();
        let shards = match sharding {
            Sharding::Whole => 1,
            // Its buckets may be sharded.
            _ if whole.window.is_some() => 1,
            Sharding::BySize
                if whole.is_chain() || bytes <= u128::from(self.settings.sharded_above_bytes) =>
            {
                1
            }
            Sharding::BySize | Sharding::Everywhere => self.settings.slots,
        };
        let definition = Definition { shards, ..whole };
        definition.check()?;
        Ok(definition)
    }

    /// Makes a filter.
    pub(super) async fn create(&self, new: NewFilter) -> Result<Arc<Handle>> {
        self.make(self.define(new)?).await
    }

    /// Makes a filter as it is defined.
    pub(super) async fn make(&self, definition: Definition) -> Result<Arc<Handle>> {
        let _naming = self.naming.lock().await;
        self.make_alone(definition).await
    }

    /// The same for one who has the naming: nobody else is told that there is room for a filter before this one has taken its own.
    pub(super) async fn make_alone(&self, definition: Definition) -> Result<Arc<Handle>> {
        let plan = Plan::new(&definition.spec, definition.shards)
            .map_err(|error| Error::Invalid(error.to_string()))?;
        let bytes = u64::try_from(plan.bytes()).unwrap_or(u64::MAX);
        let bytes = if definition.has_arrays() { bytes } else { 0 };
        if bytes > self.settings.limits.filter_bytes_max {
            return Err(Error::Invalid(format!(
                "the filter {} takes {bytes} bytes; one may take {}",
                definition.name, self.settings.limits.filter_bytes_max
            )));
        }
        self.reserve(self.share_of(bytes, definition.shards), &definition.name).await?;
        self.prove_names().await?;
        self.free_name(&definition.name).await?;
        let id = self.random.next();
        let operation = Operation::Define(definition.encode()?);
        let home = Entry {
            filter: id,
            slot: definition.home(self.settings.slots),
            request: Request::default(),
            operation,
        };
        // The home decides whether there is such a filter; the other slots follow, after a crash too.
        let partition = self.lane(home.slot).partition;
        for applied in self.submit(vec![(partition, home.clone())]).await? {
            if let Some(why) = applied.refused {
                return Err(Error::Invalid(why));
            }
        }
        if let Some(handle) = self.directory.numbered(id) {
            // All nodes know it: that was waited for.
            self.confirm_name(&handle).await?;
        }
        if definition.shards > 1 {
            self.define_everywhere(id, &definition).await?;
        }
        let made = self.directory.numbered(id).filter(|_| self.directory.exists(id));
        made.ok_or_else(|| dropped_meanwhile(&definition))
    }

    /// Gives all slots the definition of a filter that its home has.
    pub(super) async fn define_everywhere(&self, id: u64, definition: &Definition) -> Result<()> {
        self.everywhere(id, definition, &Operation::Define(definition.encode()?)).await?;
        if self.directory.exists(id) {
            return Ok(());
        }
        // Another client dropped it meanwhile: slots that dropped it first have it again.
        self.everywhere(id, definition, &Operation::Drop).await?;
        Err(dropped_meanwhile(definition))
    }

    /// Asks for keys, wherever they are.
    async fn contains(
        &self,
        filter: &Arc<Handle>,
        keys: &[Fingerprint],
        after: Option<&Token>,
    ) -> Result<Vec<Answer>> {
        if let Some(cluster) = &self.cluster {
            let (none, cluster) = (Token::default(), &**cluster);
            let after = after.unwrap_or(&none);
            return match filter.is_window() {
                true => self.window_in_nodes(cluster, filter, keys, after).await,
                false => self.contains_in_nodes(cluster, filter, keys, after).await,
            };
        }
        if let Some(token) = after {
            self.reached(token).await?;
        }
        self.load(filter).await?;
        let mut answers = Vec::new();
        filter.contains_batch(keys, &mut answers);
        Ok(answers)
    }

    /// How often each key is in a filter, wherever its slots are hosted.
    async fn verify_anywhere(&self, filter: &Arc<Handle>, keys: &[Fingerprint]) -> Result<Vec<u64>> {
        let counts = match &self.cluster {
            None => self.verify(filter, keys).await,
            Some(cluster) => self.verify_in_nodes(&**cluster, filter, keys).await,
        };
        counts.map_err(|error| named(filter, error))
    }

    /// How often each key is in a filter whose slots are hosted here; at most, if it does not keep its keys.
    pub(super) async fn verify(&self, filter: &Arc<Handle>, keys: &[Fingerprint]) -> Result<Vec<u64>> {
        if !filter.definition().retain {
            self.load(filter).await?;
            let count = |key: &Fingerprint| Some(filter.projection(filter.slot(*key))?.count(*key));
            return keys.iter().map(count).collect::<Option<_>>().ok_or_else(|| gone(filter));
        }
        let erasable = filter.is_erasable();
        let mut counts = Vec::with_capacity(keys.len());
        for key in keys {
            let number = filter.slot(*key);
            let (runs, tail) = {
                let mut turn = self.lane(number).turn.lock().await;
                let Some(slot) = turn.slot(self, number) else { return Err(gone(filter)) };
                let Some(shard) = slot.state.shard(filter.id()) else { return Err(gone(filter)) };
                if shard.projection().is_some_and(|projection| !projection.contains(*key)) {
                    counts.push(0);
                    continue;
                }
                (slot.runs_of(filter.id()), shard.tail_net(*key))
            };
            let mut net = tail;
            for run in runs {
                let nets = run.nets(filter.id(), &[*key]).await;
                let nets = nets.map_err(|error| self.lane(number).unless_outdated(self, error))?;
                net += nets.iter().sum::<i64>();
            }
            let count = u64::try_from(net).unwrap_or(0);
            counts.push(if erasable { count } else { count.min(1) });
        }
        Ok(counts)
    }

    /// Removes a filter.
    pub(super) async fn drop_filter(&self, filter: &Arc<Handle>) -> Result<()> {
        let (id, slots) = (filter.id(), self.settings.slots);
        self.drop_replaced(&filter.definition()).await?;
        if let Some(rebuild) = self.rebuild_of(id) {
            Box::pin(self.drop_filter(&rebuild)).await?;
        }
        let home = filter.definition().home(slots);
        let home = Entry { filter: id, slot: home, request: Request::default(), operation: Operation::Drop };
        let partition = self.lane(home.slot).partition;
        for applied in self.submit(vec![(partition, home)]).await? {
            if let Some(why) = applied.refused {
                return Err(refused(filter, why));
            }
        }
        // If the home forgot that it is dropped while other slots remember, the filter would be back without its keys.
        self.log.sync(partition).await?;
        if filter.definition().shards > 1 {
            self.everywhere(id, &filter.definition(), &Operation::Drop).await?;
        }
        if filter.is_window() { self.drop_buckets(filter).await } else { Ok(()) }
    }

    /// The same operation in every slot in which a filter has a shard.
    pub(super) async fn everywhere(
        &self,
        id: u64,
        definition: &Definition,
        operation: &Operation,
    ) -> Result<()> {
        let entry =
            |slot| Entry { filter: id, slot, request: Request::default(), operation: operation.clone() };
        let entries = if definition.shards == 1 {
            let home = definition.home(self.settings.slots);
            vec![(self.lane(home).partition, entry(home))]
        } else {
            self.lanes.iter().map(|lane| (lane.partition, entry(SPREAD))).collect()
        };
        let applied = self.submit(entries).await;
        if applied.is_err() {
            // Some slots may have it and others not.
            self.work.is_unfinished();
        }
        match applied?.into_iter().find_map(|applied| applied.refused) {
            Some(why) if why == no_filter(id) => Err(Error::Gone(why)),
            Some(why) => Err(Error::Invalid(why)),
            None => Ok(()),
        }
    }

    /// Waits until a filter that would become too full has grown.
    pub(super) async fn make_room(&self, filter: &Arc<Handle>, more: u64) -> Result<()> {
        if filter.has_room_for(more) || !self.grows(&filter.definition()) {
            return Ok(());
        }
        filter.wanted.fetch_max(more, Ordering::Relaxed);
        Box::pin(self.work.grown(self, filter, more)).await
    }

    /// Adds keys, with room for them.
    pub(super) async fn add(
        &self,
        filter: &Arc<Handle>,
        keys: &[Fingerprint],
        request: Request,
    ) -> Result<Written> {
        self.make_room(filter, keys.len() as u64).await?;
        self.write(filter, keys, request, Operation::Add).await
    }

    async fn write(
        &self,
        filter: &Arc<Handle>,
        keys: &[Fingerprint],
        request: Request,
        operation: impl Fn(Vec<Fingerprint>) -> Operation,
    ) -> Result<Written> {
        filter.used.store(true, Ordering::Relaxed);
        self.confirm_name(filter).await?;
        // In a cluster, other nodes may do it all, and this one may wait for a log that it does not reach. Its lanes load what they need.
        if self.cluster.is_none() && !filter.is_resident() {
            Box::pin(self.load(filter)).await?;
        }
        self.work.keep_up(self).await;
        let slot = if filter.is_whole() { filter.slot(Fingerprint::default()) } else { SPREAD };
        let (grouped, order) = self.by_partition(slot, keys);
        let mut entries = Vec::with_capacity(grouped.len());
        for Group { partition, keys } in grouped {
            if keys.len() > FINGERPRINTS_MAX && request.session != 0 {
                return Err(Error::Invalid(format!(
                    "a session's request with {} keys for partition {partition}; at most {FINGERPRINTS_MAX}",
                    keys.len()
                )));
            }
            let entry = |keys| Entry { filter: filter.id(), slot, request, operation: operation(keys) };
            if keys.len() <= FINGERPRINTS_MAX {
                entries.push((partition, entry(keys)));
                continue;
            }
            entries.extend(keys.chunks(FINGERPRINTS_MAX).map(|keys| (partition, entry(keys.to_vec()))));
        }
        let partitions: Vec<u32> = entries.iter().map(|(partition, _)| *partition).collect();
        let applied = self.submit(entries).await?;
        let mut written = Written { answers: Vec::new(), refused: None, token: Token::default() };
        let mut answers = Vec::with_capacity(keys.len());
        for (partition, applied) in partitions.into_iter().zip(applied) {
            written.token.see(partition, applied.position);
            if let Some(why) = applied.refused {
                return Err(refused(filter, why));
            }
            written.refused = written.refused.or(applied.full);
            answers.extend(applied.answers);
        }
        written.answers = match order {
            None => answers,
            Some(order) => {
                let mut placed = vec![None; keys.len()];
                order.places().zip(answers).for_each(|(place, answer)| placed[place as usize] = answer);
                placed
            }
        };
        Ok(written)
    }

    /// Keys by the partition that they belong to, and, if that is another order, where each of them stood. Within a partition they
    /// are in the order of their slots, so that nobody has to sort them again.
    fn by_partition(&self, slot: u16, keys: &[Fingerprint]) -> (Vec<Group>, Option<Order>) {
        if slot != SPREAD {
            let all = || Group { partition: self.lane(slot).partition, keys: keys.to_vec() };
            return ((!keys.is_empty()).then(all).into_iter().collect(), None);
        }
        let (slots, partitions) = (self.settings.slots, self.lanes.len() as u32);
        let each = slots.div_ceil(partitions);
        let group_of = |key: &Fingerprint| {
            let slot = key.slot(slots);
            (slot % partitions * each + slot / partitions) as u16
        };
        let order = Order::new(keys.iter().map(group_of), (partitions * each) as usize);
        let mut groups: Vec<Group> = Vec::with_capacity(keys.len().min(partitions as usize));
        let mut end = 0;
        for (group, place) in order.codes() {
            let group = u32::from(group);
            if group >= end || groups.is_empty() {
                let partition = group / each;
                end = (partition + 1) * each;
                let expected = keys.len() / partitions as usize;
                groups.push(Group { partition, keys: Vec::with_capacity(expected + expected / 4 + 4) });
            }
            if let Some(group) = groups.last_mut() {
                group.keys.push(keys[place as usize]);
            }
        }
        (groups, Some(order))
    }

    pub(super) async fn reached(&self, token: &Token) -> Result<()> {
        for (partition, position) in token.positions() {
            let lane = self.lane_of(partition)?;
            if let Some(cluster) = &self.cluster {
                cluster.reach(partition, position).await?;
                continue;
            }
            if lane.applied() >= position {
                continue;
            }
            // Others may have appended what we have not read yet.
            lane.catch_up(self, &mut *lane.turn.lock().await).await?;
            if lane.applied() < position {
                return Err(Error::Retry(format!(
                    "partition {partition} is not at {position} yet, but at {}",
                    lane.applied()
                )));
            }
        }
        Ok(())
    }
}
