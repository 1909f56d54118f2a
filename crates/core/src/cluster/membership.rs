//! One node's place among the others: its lease, its record, and the view on which it acts.
//!
//! Nothing here waits for time: whoever runs a node calls [`Membership::keep_alive`] and [`Membership::look`] often enough.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use super::isolation::Instance;
use super::record::{Partitions, Record};
use super::table::Table;
use super::view::View;
use super::{LEAVING, NODES, TABLE};
use crate::clock::Clock;
use crate::engine::Role;
use crate::random::Random;
use crate::registry::{Change, Expected, Lease, Registry, Versioned};
use crate::{Error, Result};

/// How often a record is written until a listing has it as it should be. Others may change theirs meanwhile.
const TRIES: usize = 8;

/// Who a node is, and what all agree on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// Where other nodes reach it.
    pub address: String,
    /// What may fail at once with it.
    pub zone: String,
    /// Points on the ring.
    pub weight: u32,
    /// How long a node that says nothing keeps its place.
    pub lease: Duration,
    /// Partitions of the log.
    pub partitions: u32,
    /// Hosts of each.
    pub copies: u32,
}

/// What came of the wish to join.
#[derive(Debug)]
pub enum Joining {
    /// It is a node now, and serves nothing yet.
    Joined(Arc<Membership>),
    /// Another one has the name: it lives, or its lease has not ended yet.
    Taken(Record),
}

/// A node's place.
#[derive(Debug)]
pub struct Membership {
    settings: Settings,
    instance: u64,
    registry: Arc<dyn Registry>,
    clock: Arc<dyn Clock>,
    acting: ArcSwap<Acting>,
    /// Nanoseconds of the clock until which nobody else takes this node for gone.
    valid_until: AtomicU64,
    wishes: Mutex<Wishes>,
    /// Whoever reads or writes the registry for this node.
    turn: tokio::sync::Mutex<Place>,
    lease: AtomicU64,
    changes: watch::Sender<u64>,
    /// Grows while the lease is over.
    overdue: watch::Sender<u64>,
    woken: Notify,
    lost: OnceLock<String>,
}

/// What this node acts on.
#[derive(Debug)]
struct Acting {
    view: Arc<View>,
    /// Another number whenever this node may not have been a first host for a moment.
    term: u64,
    /// The partitions of which it is the first host; none while the view is not settled.
    first: Partitions,
    /// The partitions whose changes wait for this node if they are the catalog; none while the view is not settled.
    confirms: Partitions,
}

/// What the record is to say.
#[derive(Clone, Debug, Default)]
struct Wishes {
    /// The node ends.
    ends: bool,
    /// Somebody has asked it to leave.
    is_asked: bool,
    serves: Partitions,
    unreached: BTreeSet<Instance>,
}

/// What is known of the registry.
#[derive(Debug, Default)]
struct Place {
    /// The digest of the view whose table stands in the registry.
    tabled: Option<u64>,
    /// The version of its own record in place of which a record was put last. While a listing has it still, that put may be under way.
    put_over: Option<u64>,
}

impl Membership {
    /// Takes a place, if nobody has the name.
    pub async fn join(
        settings: Settings,
        registry: Arc<dyn Registry>,
        clock: Arc<dyn Clock>,
        random: &dyn Random,
    ) -> Result<Joining> {
        // No node has number 0, so that a number tells that there is one.
        let instance = random.next().max(1);
        let record = record(&settings, instance, &Wishes::default());
        record.check()?;
        let before = clock.now();
        let lease = registry.grant(settings.lease).await?;
        let key = format!("{NODES}{}", settings.name);
        // Rule L4.
        match put(&*registry, &key, &record, Expected::Absent, lease).await? {
            Change::Done(_) => {}
            Change::Conflict(other) => {
                registry.revoke(lease).await?;
                return match other {
                    Some(other) => Ok(Joining::Taken(Record::decode(&key, &other.value)?)),
                    None => Err(Error::Retry(format!("another node called {} has just gone", settings.name))),
                };
            }
        }
        let view = View::new(Vec::new(), settings.partitions, settings.copies, 0, None)?;
        let acting = Acting {
            view: Arc::new(view),
            term: 1,
            first: Partitions::default(),
            confirms: Partitions::default(),
        };
        let membership = Self {
            instance,
            acting: ArcSwap::from_pointee(acting),
            valid_until: AtomicU64::new(0),
            wishes: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            lease: AtomicU64::new(lease.0),
            changes: watch::Sender::new(0),
            overdue: watch::Sender::new(0),
            woken: Notify::new(),
            lost: OnceLock::new(),
            registry,
            clock,
            settings,
        };
        membership.is_alive_since(before);
        membership.look().await?;
        Ok(Joining::Joined(Arc::new(membership)))
    }

    /// Who this node is.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// The registry that all nodes share.
    pub fn registry(&self) -> &Arc<dyn Registry> {
        &self.registry
    }

    /// The view on which it acts.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.acting.load().view)
    }

    /// The view on which it acts, if all nodes act on it and this node's lease is valid (rule A1 of docs/cluster-protocol.md).
    pub fn settled_view(&self) -> Option<Arc<View>> {
        // The lease first: a lease that began again finds the view that was unsettled before it began.
        if !self.is_valid() {
            return None;
        }
        Some(self.view()).filter(|view| view.is_settled())
    }

    /// What this node is for a partition at this moment (rule R1).
    #[inline]
    pub fn role(&self, partition: u32) -> Role {
        // In this order: whoever finds a lease that began anew finds the term that began with it.
        if !self.is_valid() {
            return Role::Other;
        }
        let acting = self.acting.load();
        if acting.first.contains(partition) { Role::First { term: acting.term } } else { Role::Other }
    }

    /// The term in which this node is the first host of all of these partitions at this moment, if it is.
    pub fn term_as_first(&self, partitions: &Partitions) -> Option<u64> {
        if !self.is_valid() {
            return None;
        }
        let acting = self.acting.load();
        acting.first.has_all(partitions).then_some(acting.term)
    }

    /// The term in which no change of the catalog is acknowledged before this node has folded it; none if it is not known that this holds
    /// at this moment. Every lookup of a name asks.
    #[inline]
    pub fn term_as_confirmer(&self, catalog: u32) -> Option<u64> {
        // In this order, as for `role`.
        if !self.is_valid() {
            return None;
        }
        let acting = self.acting.load();
        acting.confirms.contains(catalog).then_some(acting.term)
    }

    /// Those of these partitions of which this node is the first host at this moment.
    pub fn first_of(&self, partitions: &Partitions) -> Partitions {
        if !self.is_valid() {
            return Partitions::default();
        }
        self.acting.load().first.and(partitions)
    }

    /// Whether all others take this node for alive, surely.
    #[inline]
    pub fn is_valid(&self) -> bool {
        let now = self.clock.now().as_nanos() as u64;
        now < self.valid_until.load(Ordering::Acquire)
    }

    /// How many partitions it is the first host of.
    pub fn first_count(&self) -> usize {
        if self.is_valid() { self.acting.load().first.len() } else { 0 }
    }

    /// What this node says that it serves, or is about to say.
    pub fn serves(&self) -> Partitions {
        self.wishes().serves.clone()
    }

    /// Says that a partition is served here from now on, or is not.
    pub fn serve(&self, partition: u32, serves: bool) {
        let mut wishes = self.wishes();
        let changed = if serves { wishes.serves.insert(partition) } else { wishes.serves.remove(partition) };
        drop(wishes);
        if changed {
            self.woken.notify_one();
        }
    }

    /// Reports the processes of other nodes that this one does not reach (rule V5).
    pub fn report_unreached(&self, unreached: BTreeSet<Instance>) {
        let mut wishes = self.wishes();
        let changed = wishes.unreached != unreached;
        wishes.unreached = unreached;
        drop(wishes);
        if changed {
            self.woken.notify_one();
        }
    }

    /// Whether all nodes know that this one is cut off from the others (rule V5).
    pub fn is_isolated(&self) -> bool {
        self.settled_view().is_some_and(|view| view.is_isolated(self.name()))
    }

    /// Says that it gives its partitions away.
    pub fn leave(&self) {
        self.wishes().ends = true;
        self.woken.notify_one();
    }

    /// Whether it does.
    pub fn is_leaving(&self) -> bool {
        self.wishes().ends || self.view().node(self.name()).is_some_and(|node| node.leaving)
    }

    /// Why it has no place any more, if so.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// Is another number after each change of what it acts on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Counts that the lease is over still, for [`overdue`](Self::overdue).
    pub fn count_overdue(&self) {
        self.overdue.send_modify(|count| *count += 1);
    }

    /// Grows by one every tenth of a second while the lease is over, so that what waits can give up without a timer of its own.
    pub fn overdue(&self) -> watch::Receiver<u64> {
        self.overdue.subscribe()
    }

    /// Waits until somebody wants a look at the registry.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }

    /// Wants a look at the registry.
    pub fn wake(&self) {
        self.woken.notify_one();
    }

    /// Waits until records may have changed since the last look.
    pub async fn changed(&self) -> Result<()> {
        let revision = self.acting.load().view.revision();
        self.registry.changed(NODES, revision).await
    }

    /// Keeps the place.
    pub async fn keep_alive(&self) -> Result<()> {
        let before = self.clock.now();
        if self.registry.keep_alive(Lease(self.lease.load(Ordering::Acquire))).await? {
            self.is_alive_since(before);
        } else {
            // The next look takes a new one.
            self.valid_until.store(0, Ordering::Release);
            self.woken.notify_one();
        }
        Ok(())
    }

    /// The lease was alive at this time: before the request was sent that the registry acknowledged (rule L1).
    fn is_alive_since(&self, before: Duration) {
        // A little less, because clocks differ.
        let until = before + self.settings.lease - self.settings.lease / 10;
        let was = Duration::from_nanos(self.valid_until.load(Ordering::Acquire));
        if was <= self.clock.now() {
            self.begin_term();
        }
        self.valid_until.store(until.as_nanos() as u64, Ordering::Release);
    }

    /// Begins a term after a gap in the lease (rule V4).
    fn begin_term(&self) {
        self.acting.rcu(|acting| Acting {
            view: Arc::clone(&acting.view),
            term: acting.term + 1,
            first: acting.first.clone(),
            confirms: acting.confirms.clone(),
        });
    }

    /// Reads all records, acts on them, and says so.
    pub async fn look(&self) -> Result<()> {
        let mut place = self.turn.lock().await;
        if let Some(why) = self.lost() {
            return Err(Error::Closed(why.to_owned()));
        }
        self.look_for_wish().await?;
        for _ in 0..TRIES {
            if self.look_once(&mut place).await? {
                return Ok(());
            }
        }
        // Others go on changing; there will be another look.
        self.woken.notify_one();
        Ok(())
    }

    async fn look_for_wish(&self) -> Result<()> {
        let is_asked = is_leaving(&*self.registry, self.name()).await?;
        self.wishes().is_asked = is_asked;
        Ok(())
    }

    /// Whether the record is as it should be.
    async fn look_once(&self, place: &mut Place) -> Result<bool> {
        let (records, revision) = list(&*self.registry).await?;
        let key = self.key();
        let own = records.iter().find(|(record, _)| record.name == self.settings.name);
        let Some((own, version)) = own.map(|(record, version)| (record.clone(), *version)) else {
            self.return_to_place().await?;
            return Ok(false);
        };
        // Rule L4.
        if own.instance != self.instance {
            return Err(self.lose(&own));
        }
        let before = self.view();
        let (partitions, copies) = (self.settings.partitions, self.settings.copies);
        let records = records.into_iter().map(|(record, _)| record).collect();
        let view = View::new(records, partitions, copies, revision, Some(&before))?;
        let wanted = Record { view: own.view, ..record(&self.settings, self.instance, &self.wishes()) };
        // A put whose outcome is not known may still arrive, and others may settle what it names. So the record is put again before anything
        // counts as settled: then the late put expects a version that is gone (rule V6).
        let is_unsure = place.put_over == Some(version);
        // What is to be said is acted upon before it is said (rule V2).
        let view = match wanted == own {
            true if is_unsure => view.unsettled(),
            true => view,
            false => view.with(wanted.clone())?,
        };
        let wanted = Record { view: view.digest(), ..wanted };
        self.act_on(view);
        if wanted != own || is_unsure {
            place.put_over = Some(version);
            let lease = Lease(self.lease.load(Ordering::Acquire));
            put(&*self.registry, &key, &wanted, Expected::Version(version), lease).await?;
            return Ok(false);
        }
        self.put_table(place).await?;
        Ok(true)
    }

    /// Takes the place again after the lease has ended.
    async fn return_to_place(&self) -> Result<()> {
        self.valid_until.store(0, Ordering::Release);
        // Rule L3: while it was gone, others may have agreed on something without it. Until it has listed the records under its new lease,
        // what it acted on is not settled.
        let unsettled = Arc::new(View::clone(&self.view()).unsettled());
        self.acting.rcu(|acting| Acting {
            view: Arc::clone(&unsettled),
            term: acting.term + 1,
            first: Partitions::default(),
            confirms: Partitions::default(),
        });
        let key = self.key();
        let before = self.clock.now();
        let lease = self.registry.grant(self.settings.lease).await?;
        let record = record(&self.settings, self.instance, &self.wishes());
        let change = put(&*self.registry, &key, &record, Expected::Absent, lease).await?;
        if let Change::Conflict(Some(Versioned { value, .. })) = change {
            self.registry.revoke(lease).await?;
            return Err(self.lose(&Record::decode(&key, &value)?));
        }
        self.lease.store(lease.0, Ordering::Release);
        self.is_alive_since(before);
        Ok(())
    }

    fn lose(&self, other: &Record) -> Error {
        self.valid_until.store(0, Ordering::Release);
        let why = format!("another node called {} took its place, at {}", other.name, other.address);
        let _ = self.lost.set(why.clone());
        self.changes.send_modify(|changes| *changes += 1);
        Error::Closed(why)
    }

    fn act_on(&self, view: View) {
        let is_mine = |partition: &u32| view.first(*partition).is_some_and(|node| node.name == self.name());
        let first: Partitions = match view.is_settled() {
            true => (0..view.partitions()).filter(is_mine).collect(),
            false => Partitions::default(),
        };
        let confirms: Partitions = match view.is_settled() {
            true => (0..view.partitions()).filter(|one| view.is_confirmer(self.name(), *one)).collect(),
            false => Partitions::default(),
        };
        let view = Arc::new(view);
        let mut changes = false;
        self.acting.rcu(|acting| {
            let is_same = acting.view.digest() == view.digest();
            // Rule V4.
            changes = !is_same || acting.view.is_settled() != view.is_settled();
            Acting {
                view: Arc::clone(&view),
                term: acting.term + u64::from(changes),
                first: first.clone(),
                confirms: confirms.clone(),
            }
        });
        if changes {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Lets people see it. One node does it, the first by name.
    async fn put_table(&self, place: &mut Place) -> Result<()> {
        let view = self.view();
        let is_ours = view.nodes().first().is_some_and(|node| node.name == self.settings.name);
        if !is_ours || !view.is_settled() || place.tabled == Some(view.digest()) {
            return Ok(());
        }
        let found = self.registry.get(TABLE).await?;
        let before = found.as_ref().and_then(|found| Table::decode(&found.value).ok());
        let table = Table::after(before.as_ref(), &view);
        if before.as_ref() != Some(&table) {
            let expected = found.map_or(Expected::Absent, |found| Expected::Version(found.version));
            // If another node was faster, its table is as good.
            self.registry.put(TABLE, table.encode(), expected, None).await?;
        }
        place.tabled = Some(view.digest());
        Ok(())
    }

    /// Gives the place up.
    pub async fn end(&self) -> Result<()> {
        let _alone = self.turn.lock().await;
        self.valid_until.store(0, Ordering::Release);
        // Nobody takes it again by accident.
        let _ = self.lost.set("it has left".to_owned());
        self.registry.revoke(Lease(self.lease.load(Ordering::Acquire))).await
    }

    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self) -> String {
        format!("{NODES}{}", self.settings.name)
    }
}

fn record(settings: &Settings, instance: u64, wishes: &Wishes) -> Record {
    Record {
        name: settings.name.clone(),
        instance,
        address: settings.address.clone(),
        zone: settings.zone.clone(),
        weight: settings.weight,
        leaving: wishes.ends || wishes.is_asked,
        serves: wishes.serves.clone(),
        unreached: wishes.unreached.clone(),
        view: 0,
    }
}

/// Puts a record. If the answer is lost, the registry tells whether it is there.
async fn put(
    registry: &dyn Registry,
    key: &str,
    record: &Record,
    expected: Expected,
    lease: Lease,
) -> Result<Change> {
    let value = record.encode();
    let found = match registry.put(key, value.clone(), expected, Some(lease)).await {
        Ok(Change::Conflict(found)) => found,
        Err(Error::Retry(_)) => registry.get(key).await?,
        other => return other,
    };
    match found {
        Some(found) if found.value == value => Ok(Change::Done(found.version)),
        found => Ok(Change::Conflict(found)),
    }
}

async fn list(registry: &dyn Registry) -> Result<(Vec<(Record, u64)>, u64)> {
    let listing = registry.list(NODES).await?;
    let records = listing.entries.iter().map(|(key, found)| {
        let record = Record::decode(key, &found.value)?;
        if key.strip_prefix(NODES) != Some(&record.name) {
            return Err(Error::Corrupt(format!("{key} in the registry is the record of {}", record.name)));
        }
        Ok((record, found.version))
    });
    Ok((records.collect::<Result<_>>()?, listing.revision))
}

/// The nodes of a deployment as somebody sees them who is none, and the table that they left.
pub async fn inspect(registry: &dyn Registry, partitions: u32, copies: u32) -> Result<(View, Option<Table>)> {
    let (records, revision) = list(registry).await?;
    let records = records.into_iter().map(|(record, _)| record).collect();
    let table = registry.get(TABLE).await?;
    let table = table.map(|table| Table::decode(&table.value)).transpose()?;
    Ok((View::new(records, partitions, copies, revision, None)?, table))
}

/// Asks a node to leave, or lets it stay at its next start.
pub async fn set_leaving(registry: &dyn Registry, name: &str, leaves: bool) -> Result<()> {
    let key = format!("{LEAVING}{name}");
    let change = if leaves {
        registry.put(&key, "yes\n".into(), Expected::Anything, None).await
    } else {
        registry.delete(&key, Expected::Anything).await
    };
    change.map(drop)
}

/// Whether a node was asked to leave.
pub async fn is_leaving(registry: &dyn Registry, name: &str) -> Result<bool> {
    Ok(registry.get(&format!("{LEAVING}{name}")).await?.is_some())
}
