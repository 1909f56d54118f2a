//! Domains that join, leave, vanish and come back, as others see it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use proptest::prelude::*;
use umbel_core::clock::{Clock, ManualClock};
use umbel_core::disk::{Disk, MemoryDisk};
use umbel_core::random::{Random, SeededRandom};
use umbel_core::registry::{Change, EmbeddedRegistry, Expected, Lease, Listing, Registry, Versioned};
use umbel_domains::roster::{Announced, Event, Place, Published, Roster, forget};
use umbel_domains::{Catalog, Domain, Error};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(10);

fn announced(name: &str, digest: u64) -> Announced {
    let filters = vec![Published { name: "records".into(), digest }];
    Announced { name: name.into(), address: format!("http://{name}:6381"), filters }
}

fn left(name: &str) -> Event {
    Event::Left(name.into())
}

/// A registry that others cannot reach for a while.
#[derive(Debug)]
struct Cut {
    inner: Arc<dyn Registry>,
    is_cut: AtomicBool,
}

impl Cut {
    fn check(&self) -> umbel_core::Result<()> {
        match self.is_cut.load(Ordering::SeqCst) {
            true => Err(umbel_core::Error::Retry("cut off".into())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Registry for Cut {
    async fn get(&self, name: &str) -> umbel_core::Result<Option<Versioned>> {
        self.check()?;
        self.inner.get(name).await
    }

    async fn list(&self, prefix: &str) -> umbel_core::Result<Listing> {
        self.check()?;
        self.inner.list(prefix).await
    }

    async fn put(
        &self,
        name: &str,
        value: Bytes,
        expected: Expected,
        lease: Option<Lease>,
    ) -> umbel_core::Result<Change> {
        self.check()?;
        self.inner.put(name, value, expected, lease).await
    }

    async fn delete(&self, name: &str, expected: Expected) -> umbel_core::Result<Change> {
        self.check()?;
        self.inner.delete(name, expected).await
    }

    async fn changed(&self, prefix: &str, after: u64) -> umbel_core::Result<()> {
        self.check()?;
        self.inner.changed(prefix, after).await
    }

    async fn grant(&self, time: Duration) -> umbel_core::Result<Lease> {
        self.check()?;
        self.inner.grant(time).await
    }

    async fn keep_alive(&self, lease: Lease) -> umbel_core::Result<bool> {
        self.check()?;
        self.inner.keep_alive(lease).await
    }

    async fn revoke(&self, lease: Lease) -> umbel_core::Result<()> {
        self.check()?;
        self.inner.revoke(lease).await
    }
}

fn registry(clock: &ManualClock) -> Arc<Cut> {
    let inner = Arc::new(EmbeddedRegistry::in_memory(Arc::new(clock.clone())));
    Arc::new(Cut { inner, is_cut: AtomicBool::new(false) })
}

async fn take(registry: &Arc<dyn Registry>, name: &str, seed: u64) -> umbel_domains::Result<Place> {
    Place::take(Arc::clone(registry), announced(name, 1), LEASE, &SeededRandom::new(seed)).await
}

#[tokio::test(start_paused = true)]
async fn joins_and_leaves_are_noticed() {
    let clock = ManualClock::default();
    let registry: Arc<dyn Registry> = registry(&clock);
    let mut roster = Roster::new(Arc::clone(&registry), SECOND);
    let north = take(&registry, "north", 1).await.unwrap();
    assert_eq!(roster.next().await.unwrap(), [Event::Joined(announced("north", 1))]);
    assert!(take(&registry, "north", 2).await.is_err(), "somebody runs it");
    assert!(take(&registry, "no rth", 2).await.is_err());
    // Whoever waits hears of the next one.
    let waiting = tokio::spawn(async move {
        let events = roster.next().await;
        (roster, events)
    });
    tokio::task::yield_now().await;
    let south = take(&registry, "south", 3).await.unwrap();
    let (mut roster, events) = waiting.await.unwrap();
    // A moment between the lease and the record may be seen, and is none of a domain.
    assert_eq!(events.unwrap(), [Event::Joined(announced("south", 1))]);
    north.tell(announced("north", 2)).await.unwrap();
    assert!(north.tell(announced("west", 2)).await.is_err());
    assert_eq!(roster.next().await.unwrap(), [Event::Changed(announced("north", 2))]);
    south.leave().await.unwrap();
    assert_eq!(roster.next().await.unwrap(), [left("south")]);
    // A lease that has ended is noticed although nobody says so.
    clock.advance(LEASE);
    assert_eq!(roster.next().await.unwrap(), [Event::Lost("north".into())]);
    assert_eq!(
        roster.domains().map(|(domain, is_alive)| (&*domain.name, is_alive)).collect::<Vec<_>>(),
        [("north", false)]
    );
    north.keep_alive().await.unwrap();
    assert_eq!(roster.next().await.unwrap(), [Event::Returned("north".into())]);
    // Somebody else takes the place of one that slept too long.
    clock.advance(LEASE);
    let other = take(&registry, "north", 4).await.unwrap();
    assert!(north.keep_alive().await.is_err());
    north.leave().await.unwrap();
    other.keep_alive().await.unwrap();
    // That it was lost was over before anybody looked, and the one that left had no place any more.
    assert_eq!(roster.look().await.unwrap(), [Event::Changed(announced("north", 1))]);
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_leave_by_itself_is_forgotten() {
    let clock = ManualClock::default();
    let registry: Arc<dyn Registry> = registry(&clock);
    let mut roster = Roster::new(Arc::clone(&registry), SECOND);
    let north = take(&registry, "north", 1).await.unwrap();
    roster.look().await.unwrap();
    assert!(forget(&*registry, "north").await.unwrap_err().to_string().contains("somebody runs"));
    assert!(!forget(&*registry, "south").await.unwrap());
    // A process that ends leaves a domain that nobody runs, and the next one has its place at once.
    north.rest().await.unwrap();
    assert_eq!(roster.look().await.unwrap(), [Event::Lost("north".into())]);
    take(&registry, "north", 2).await.unwrap().rest().await.unwrap();
    assert!(forget(&*registry, "north").await.unwrap());
    assert_eq!(roster.look().await.unwrap(), [left("north")]);
}

#[tokio::test(start_paused = true)]
async fn what_happened_during_a_gap_is_told_afterwards() {
    let clock = ManualClock::default();
    let cut = registry(&clock);
    let inner = Arc::clone(&cut.inner);
    let mut roster = Roster::new(Arc::clone(&cut) as _, SECOND);
    let (stays, goes) = (take(&inner, "stays", 1).await.unwrap(), take(&inner, "goes", 2).await.unwrap());
    assert_eq!(roster.next().await.unwrap().len(), 2);
    cut.is_cut.store(true, Ordering::SeqCst);
    assert!(roster.next().await.is_err() && roster.look().await.is_err());
    goes.leave().await.unwrap();
    let _comes = take(&inner, "comes", 3).await.unwrap();
    stays.tell(announced("stays", 9)).await.unwrap();
    cut.is_cut.store(false, Ordering::SeqCst);
    let expected =
        [left("goes"), Event::Joined(announced("comes", 1)), Event::Changed(announced("stays", 9))];
    assert_eq!(roster.next().await.unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_registry_that_restarts_keeps_the_domains_and_loses_the_leases() {
    let (disk, clock) = (
        Arc::new(MemoryDisk::default()) as Arc<dyn Disk>,
        Arc::new(ManualClock::default()) as Arc<dyn Clock>,
    );
    let open = || -> Arc<dyn Registry> {
        Arc::new(
            EmbeddedRegistry::open(Arc::clone(&disk), Path::new("/registry"), Arc::clone(&clock)).unwrap(),
        )
    };
    let first = open();
    take(&first, "north", 1).await.unwrap();
    drop(first);
    let second = open();
    let mut roster = Roster::new(Arc::clone(&second), SECOND);
    assert_eq!(
        roster.look().await.unwrap(),
        [Event::Joined(announced("north", 1)), Event::Lost("north".into())]
    );
    take(&second, "north", 2).await.unwrap();
    assert_eq!(roster.look().await.unwrap(), [Event::Returned("north".into())]);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_makes_nobody_vanish() {
    let registry: Arc<dyn Registry> = registry(&ManualClock::default());
    let mut roster = Roster::new(Arc::clone(&registry), SECOND);
    let _north = take(&registry, "north", 1).await.unwrap();
    roster.look().await.unwrap();
    for name in ["north", "strange"] {
        let key = format!("domains/known/{name}");
        registry.put(&key, Bytes::from_static(b"{\"format\":9}"), Expected::Anything, None).await.unwrap();
    }
    let strange = Announced { name: "strange".into(), address: String::new(), filters: Vec::new() };
    assert_eq!(roster.look().await.unwrap(), [Event::Joined(strange), Event::Lost("strange".into())]);
    assert_eq!(roster.domains().next().unwrap(), (&announced("north", 1), true));
}

#[tokio::test(start_paused = true)]
async fn a_catalog_follows_the_roster() {
    let clock = ManualClock::default();
    let registry: Arc<dyn Registry> = registry(&clock);
    let mut roster = Roster::new(Arc::clone(&registry), SECOND);
    let catalog = Catalog::new(Domain::new("here").unwrap());
    let _here = take(&registry, "here", 1).await.unwrap();
    let north = take(&registry, "north", 2).await.unwrap();
    let _south = take(&registry, "south", 3).await.unwrap();
    let open = |announced: &Announced| Domain::new(&announced.name);
    for event in roster.look().await.unwrap() {
        catalog.follow(&event, open).unwrap();
    }
    let others = || catalog.others().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(others(), ["north", "south"]);
    clock.advance(LEASE);
    north.leave().await.unwrap();
    for event in roster.look().await.unwrap() {
        catalog.follow(&event, open).unwrap();
    }
    assert_eq!(others(), ["south"], "nobody runs it, and nothing is known of it");
    assert_eq!(catalog.look("a").len(), 2);
    let joined = Event::Joined(announced("west", 1));
    assert!(catalog.follow(&joined, |_| Err(Error::Invalid("no".into()))).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whoever folds the events has the domains that there are, whatever happened between two looks.
    #[test]
    fn events_lead_from_one_look_to_the_next(steps in prop::collection::vec((0_u8..6, 0_usize..4, 0_u64..3), 1..80), seed: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let clock = ManualClock::default();
            let registry: Arc<dyn Registry> = registry(&clock);
            let random = SeededRandom::new(seed);
            let mut roster = Roster::new(Arc::clone(&registry), SECOND);
            let mut places: BTreeMap<usize, Place> = BTreeMap::new();
            let (mut known, mut alive): (BTreeMap<String, Announced>, BTreeSet<String>) = Default::default();
            for (what, who, digest) in steps {
                let name = format!("domain-{who}");
                match what {
                    0 => if let Ok(place) = Place::take(Arc::clone(&registry), announced(&name, digest), LEASE, &random).await {
                        places.insert(who, place);
                    },
                    1 => if let Some(place) = places.remove(&who) { place.leave().await.unwrap(); },
                    2 => if let Some(place) = places.get(&who) { let _ = place.keep_alive().await; },
                    3 => if let Some(place) = places.get(&who) { let _ = place.tell(announced(&name, digest)).await; },
                    4 => clock.advance(LEASE / 3 + Duration::from_millis(random.next() % 1000)),
                    _ => for event in roster.look().await.unwrap() {
                        match event {
                            Event::Joined(domain) => {
                                prop_assert!(alive.insert(domain.name.clone()));
                                prop_assert!(known.insert(domain.name.clone(), domain).is_none());
                            }
                            Event::Changed(domain) => prop_assert!(known.insert(domain.name.clone(), domain.clone()).is_some_and(|was| was != domain)),
                            Event::Lost(name) => prop_assert!(known.contains_key(&name) && alive.remove(&name)),
                            Event::Returned(name) => prop_assert!(known.contains_key(&name) && alive.insert(name)),
                            Event::Left(name) => {
                                prop_assert!(known.remove(&name).is_some());
                                alive.remove(&name);
                            }
                        }
                    },
                }
                if what == 5 {
                    let listing = registry.list("domains/").await.unwrap();
                    let names = |prefix: &str| -> BTreeSet<String> {
                        listing.entries.iter().filter_map(|(key, _)| key.strip_prefix(prefix).map(str::to_owned)).collect()
                    };
                    prop_assert_eq!(known.keys().cloned().collect::<BTreeSet<_>>(), names("domains/known/"));
                    prop_assert!(alive.is_subset(&names("domains/alive/")) && names("domains/alive/").intersection(&names("domains/known/")).all(|name| alive.contains(name)));
                    let seen: Vec<_> = roster.domains().map(|(domain, is_alive)| (domain.clone(), is_alive)).collect();
                    let folded: Vec<_> = known.values().map(|domain| (domain.clone(), alive.contains(&domain.name))).collect();
                    prop_assert_eq!(seen, folded);
                }
            }
            Ok::<(), TestCaseError>(())
        })?;
    }
}
