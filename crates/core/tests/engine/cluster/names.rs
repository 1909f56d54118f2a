//! Names at several nodes: what one node has acknowledged, every node knows.

use super::*;
use crate::slow::SlowLog;

/// Names that are made, dropped and given to others.
const NAMES: usize = 4;

/// Rules of names, each of which a test breaks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    /// A2: a change of the catalog is acknowledged only when every node of the settled view has folded it.
    ChangesConfirmed,
    /// B3: without a lease, a node uses its catalog behind a read barrier only.
    NamesWithLease,
    /// B3: the same while its view is not settled.
    NamesInSettledView,
    /// B3: the same until it has read the catalog to its end once in its present term.
    NamesReadOnce,
}

/// What is known of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Meaning {
    #[default]
    Nothing,
    Filter(u64),
    /// The call that makes it failed: it may be there.
    PerhapsMade,
    /// A call failed that may have taken the name away.
    Unknown,
}

/// What was acknowledged of some names.
#[derive(Debug, Default)]
pub(super) struct Register {
    meanings: [Meaning; NAMES],
    /// Names of which it is not known what became are not used again.
    used_up: [usize; NAMES],
    added: Vec<(usize, u64, u64)>,
}

/// Whether a call may have been done all the same.
fn is_indeterminate(error: &Error) -> bool {
    matches!(error, Error::Retry(_) | Error::Moved(_))
}

impl Register {
    fn name(&self, number: usize) -> String {
        format!("name {number} {}", self.used_up[number])
    }

    /// Takes another name for one of which it is not known what became.
    fn give_up(&mut self, number: usize) {
        self.meanings[number] = Meaning::Nothing;
        self.used_up[number] += 1;
        self.added.retain(|(name, _, _)| *name != number);
    }

    fn set(&mut self, number: usize, meaning: Meaning) {
        if self.meanings[number] != meaning {
            self.added.retain(|(name, _, _)| *name != number);
        }
        self.meanings[number] = meaning;
    }

    /// Checks what a node says of a name.
    fn check(&self, number: usize, found: Option<&Arc<Handle>>, at: &str) {
        let found = found.map(|filter| filter.id());
        match self.meanings[number] {
            Meaning::Nothing => assert_eq!(found, None, "{at}: {} is there", self.name(number)),
            Meaning::Filter(id) => {
                assert_eq!(found, Some(id), "{at}: {} is not this filter", self.name(number));
            }
            Meaning::PerhapsMade | Meaning::Unknown => {}
        }
    }

    /// One thing that is done by name at a node.
    pub(super) async fn step(&mut self, world: &World, node: usize, engine: &Arc<Engine>, at: &str) {
        let at = &format!("{at} at {node}");
        let number = world.below(NAMES);
        let name = self.name(number);
        let found = match engine.find(&name).await {
            Ok(found) => found,
            Err(error) if is_indeterminate(&error) => return,
            Err(error) => panic!("{at}: {error}"),
        };
        self.check(number, found.as_ref(), at);
        match (world.below(10), found) {
            (0..3, None) => match engine.create(NewFilter::new(&name, Spec::bloom(100, 0.001))).await {
                Ok(made) => self.set(number, Meaning::Filter(made.id())),
                Err(error) if is_indeterminate(&error) && self.meanings[number] == Meaning::Nothing => {
                    self.set(number, Meaning::PerhapsMade);
                }
                Err(Error::Invalid(_)) if self.meanings[number] != Meaning::Nothing => {}
                Err(error) if is_indeterminate(&error) => {}
                Err(error) => panic!("{at}: {error}"),
            },
            (3..5, Some(filter)) => match engine.drop_filter(&filter).await {
                Ok(()) if self.meanings[number] == Meaning::Unknown => self.give_up(number),
                Ok(()) => self.set(number, Meaning::Nothing),
                Err(error) if is_indeterminate(&error) => self.set(number, Meaning::Unknown),
                Err(error) => panic!("{at}: {error}"),
            },
            (5, Some(filter)) => {
                let to = (number + 1) % NAMES;
                if self.meanings[number] != Meaning::Filter(filter.id()) {
                    return;
                }
                match engine.rename(&filter, &self.name(to), true).await {
                    Ok(()) => {
                        self.set(number, Meaning::Nothing);
                        self.set(to, Meaning::Filter(filter.id()));
                    }
                    Err(error) if is_indeterminate(&error) => {
                        self.set(number, Meaning::Unknown);
                        self.set(to, Meaning::Unknown);
                    }
                    Err(Error::Invalid(_) | Error::Gone(_)) if self.meanings[to] == Meaning::Unknown => {}
                    Err(error) => panic!("{at}: {error}"),
                }
            }
            (6..8, Some(filter)) => {
                let added = world.random.next();
                match engine.add(&filter, &[key(added)]).await {
                    Ok(_) => {
                        if self.meanings[number] == Meaning::PerhapsMade {
                            self.set(number, Meaning::Filter(filter.id()));
                        }
                        if self.meanings[number] == Meaning::Filter(filter.id()) {
                            self.added.push((number, filter.id(), added));
                        }
                    }
                    Err(error) if is_indeterminate(&error) => {}
                    Err(Error::Gone(_)) if self.meanings[number] == Meaning::Unknown => {}
                    Err(error) => panic!("{at}: {error}"),
                }
            }
            (8, _) => {
                let Ok(all) = engine.find_all().await else { return };
                for number in 0..NAMES {
                    let name = self.name(number);
                    self.check(number, all.iter().find(|filter| filter.definition().name == name), at);
                }
            }
            (9, Some(filter)) => {
                let own = self.added.iter().filter(|(name, id, _)| (*name, *id) == (number, filter.id()));
                let keys: Vec<Fingerprint> = own.map(|(_, _, added)| key(*added)).collect();
                if let Ok(answers) = engine.contains(&filter, &keys, None).await {
                    assert!(!answers.contains(&Answer::Absent), "{at}: {name}: {answers:?}");
                }
            }
            _ => {}
        }
        if self.meanings[number] == Meaning::Unknown && world.below(4) == 0 {
            self.give_up(number);
        }
    }
}

#[test]
fn lives_of_a_cluster_find_a_rule_of_names_that_is_broken() {
    let rules = [Rule::ChangesConfirmed, Rule::NamesWithLease, Rule::NamesInSettledView, Rule::NamesReadOnce];
    for rule in rules {
        let is_found = |seed| {
            let life = std::panic::AssertUnwindSafe(|| run(life(seed, 600, Some(rule))));
            let found = std::panic::catch_unwind(life).err()?;
            let why = found.downcast_ref::<String>().cloned().unwrap_or_default();
            why.contains("name ").then_some((seed, why))
        };
        let found = (1..=200).find_map(is_found);
        println!("{rule:?}: {found:?}");
        assert!(found.is_some(), "{rule:?}");
    }
}

#[test]
fn what_one_node_acknowledged_is_known_at_every_node() {
    run(async {
        let world = World::new(81).await;
        for round in 0..20 {
            let (one, other) = (world.engine(round % NODES), world.engine((round + 1) % NODES));
            let made = one.create(NewFilter::new("a", Spec::bloom(100, 0.01))).await.unwrap();
            assert_eq!(other.find("a").await.unwrap().map(|filter| filter.id()), Some(made.id()));
            assert_eq!(other.find_all().await.unwrap().len(), 1);
            one.rename(&made, "b", false).await.unwrap();
            assert!(other.find("a").await.unwrap().is_none(), "round {round}");
            let same = other.find("b").await.unwrap().expect("it has this name now");
            one.expire(&made, Some(u64::MAX - 1)).await.unwrap();
            assert_eq!(same.definition().expires, Some(u64::MAX - 1), "round {round}");
            one.label(&made, Bytes::from_static(b"label")).await.unwrap();
            assert_eq!(same.definition().labels, "label", "round {round}");
            one.resize(&made, 1000, 0.01).await.unwrap();
            assert_eq!(same.definition().spec.capacity, 1000, "round {round}");
            one.drop_filter(&made).await.unwrap();
            assert!(other.find("b").await.unwrap().is_none(), "round {round}");
            assert!(other.find_all().await.unwrap().is_empty());
        }
    });
}

#[test]
fn names_cost_no_read_of_the_log_while_all_nodes_act_on_the_same() {
    run(async {
        let world = World::new(82).await;
        world.engine(0).create(NewFilter::new("a", Spec::bloom(100, 0.01))).await.unwrap();
        for node in 0..NODES {
            let engine = world.engine(node);
            engine.find("a").await.unwrap();
            assert!(engine.has_all_names(), "at {node}");
        }
        // Not while it has no lease, nor before it has read the catalog again, nor while others act on something else.
        lock(&world.town.seats)[1].has_lease = false;
        assert!(!world.engine(1).has_all_names());
        world.town.learn(1);
        assert!(!world.engine(1).has_all_names());
        world.everybody_learns();
        assert!(!world.engine(1).has_all_names());
        world.engine(1).find("a").await.unwrap();
        assert!(world.engine(1).has_all_names());
        world.town.move_to(0, 2);
        world.town.learn(1);
        assert!(!world.engine(1).has_all_names());
    });
}

#[test]
fn a_change_that_a_node_has_not_folded_is_not_acknowledged() {
    run(async {
        let world = World::new(83).await;
        // A node is gone, and the others do not know yet that its lease has ended.
        world.town.engines.write().unwrap()[2] = None;
        let made = world.engine(0).create(NewFilter::new("a", Spec::bloom(100, 0.01))).await;
        let error = made.unwrap_err();
        assert!(matches!(&error, Error::Retry(why) if why.contains("may have been changed")), "{error:?}");
        lock(&world.town.seats)[2].has_lease = false;
        world.everybody_learns();
        // It is there, and whoever adds to it lets all nodes know it first.
        let engine = world.engine(1);
        let found = engine.find("a").await.unwrap().expect("it was made");
        engine.add(&found, &keys(0..10)).await.unwrap();
        assert_eq!(absent(&world.engine(0), "a", &keys(0..10)).await, 0);
    });
}

#[test]
fn a_key_is_not_acknowledged_in_a_filter_that_another_node_does_not_know() {
    run(async {
        let world = World::new(84).await;
        for node in 0..NODES {
            world.engine(node).find("a").await.unwrap();
        }
        // The node that makes it knows of something new, so it cannot tell that all have folded it; another node has read the log.
        let catalog = world.engine(0).catalog();
        let first = lock(&world.town.table).first[catalog as usize];
        let (maker, reader, third) = (first, (first + 1) % NODES, (first + 2) % NODES);
        lock(&world.town.table).version += 1;
        world.town.learn(maker);
        let made = world.engine(maker).create(NewFilter::new("a", Spec::bloom(100, 0.01))).await;
        assert!(matches!(made, Err(Error::Retry(_))), "{made:?}");
        world.engine(reader).follow().await.unwrap();
        let filter = world.engine(reader).find("a").await.unwrap().expect("it has read of it");
        let added = world.engine(reader).add(&filter, &keys(0..10)).await;
        let there = world.engine(third).find("a").await.unwrap();
        assert!(added.is_err() || there.is_some(), "{added:?} {there:?}");
        world.everybody_learns();
        world.engine(reader).add(&filter, &keys(0..10)).await.unwrap();
        assert_eq!(absent(&world.engine(third), "a", &keys(0..10)).await, 0);
    });
}

#[test]
fn what_is_done_to_a_dropped_filter_says_its_name() {
    run(async {
        let world = World::new(85).await;
        let made = world.engine(0).create(everywhere("a filter", Spec::counting(1000, 0.01))).await.unwrap();
        let seen = world.engine(1).find("a filter").await.unwrap().unwrap();
        world.engine(0).drop_filter(&made).await.unwrap();
        let engine = world.engine(1);
        for outcome in [
            engine.add(&seen, &keys(0..10)).await.map(drop),
            engine.remove(&seen, &keys(0..10)).await.map(drop),
            engine.contains(&seen, &keys(0..10), None).await.map(drop),
            engine.counts(&seen).await.map(drop),
            engine.verify(&seen, &keys(0..10)).await.map(drop),
            engine.expire(&seen, None).await,
            engine.clear(&seen).await,
        ] {
            let error = outcome.unwrap_err();
            assert!(
                matches!(&error, Error::Gone(why) if why == "the filter a filter was dropped"),
                "{error:?}"
            );
        }
    });
}

#[test]
fn a_node_that_takes_the_catalog_from_checkpoints_forgets_names_that_were_dropped() {
    run(async {
        let world = World::new(86).await;
        let late = world.engine(2);
        let first = world.engine(0).create(NewFilter::new("first", Spec::bloom(100, 0.01))).await.unwrap();
        let second = world.engine(0).create(NewFilter::new("second", Spec::bloom(100, 0.01))).await.unwrap();
        assert_eq!(late.find_all().await.unwrap().len(), 2);
        // It sleeps. Others change what there is, and trim the log that says so.
        lock(&world.town.seats)[2].has_lease = false;
        for _ in 0..2 {
            [0, 1].iter().for_each(|node| world.town.learn(*node));
        }
        for partition in 0..PARTITIONS {
            world.engine(0).host(partition).await.unwrap();
            world.town.move_to(partition, 0);
        }
        for _ in 0..2 {
            [0, 1].iter().for_each(|node| world.town.learn(*node));
        }
        world.engine(0).drop_filter(&first).await.unwrap();
        world.engine(0).rename(&second, "first", false).await.unwrap();
        for _ in 0..4 {
            world.engine(0).create(NewFilter::new("more", Spec::bloom(100, 0.01))).await.unwrap();
            world.engine(0).checkpoint().await.unwrap();
            let more = world.engine(0).find("more").await.unwrap().unwrap();
            world.engine(0).drop_filter(&more).await.unwrap();
            world.engine(0).checkpoint().await.unwrap();
        }
        world.everybody_learns();
        late.host(late.catalog()).await.unwrap();
        let all = late.find_all().await.unwrap();
        let all: Vec<(String, u64)> =
            all.iter().map(|filter| (filter.definition().name.clone(), filter.id())).collect();
        assert_eq!(all, [("first".to_owned(), second.id())]);
        assert_eq!(late.find("first").await.unwrap().map(|filter| filter.id()), Some(second.id()));
        assert!(late.find("second").await.unwrap().is_none());
    });
}

#[test]
fn a_name_that_another_node_knows_is_not_taken_for_one_that_is_known_here() {
    run(async {
        let world = World::new(87).await;
        let log = Arc::new(SlowLog::new(Arc::clone(&world.log)));
        world.start_on(2, Arc::clone(&log) as _).await.unwrap();
        world.everybody_learns();
        let made = world.engine(0).create(NewFilter::new("old", Spec::bloom(100, 0.01))).await.unwrap();
        let late = world.engine(2);
        assert!(late.find("old").await.unwrap().is_some());
        // It is cut off from the registry and the log, not from other nodes.
        log.cut_off(late.catalog());
        lock(&world.town.seats)[2].has_lease = false;
        world.those_with_leases_learn();
        world.engine(0).rename(&made, "new", false).await.unwrap();
        let found = late.find("new").await;
        assert!(matches!(found, Err(Error::Retry(_))), "{found:?}");
        assert!(late.find("old").await.unwrap().is_none());
        log.let_go();
        assert_eq!(late.find("new").await.unwrap().map(|filter| filter.id()), Some(made.id()));
    });
}

#[test]
fn who_sees_how_far_a_partition_is_read_sees_its_filters() {
    run(async {
        let world = World::new(88).await;
        let late = world.engine(2);
        // It sleeps, so that it takes all that was made meanwhile from checkpoints.
        lock(&world.town.seats)[2].has_lease = false;
        world.those_with_leases_learn();
        for partition in 0..PARTITIONS {
            world.engine(0).host(partition).await.unwrap();
            world.town.move_to(partition, 0);
        }
        world.those_with_leases_learn();
        let first = world.engine(0);
        for number in 0..2000 {
            first.create(NewFilter::new(format!("filter {number}"), Spec::bloom(10, 0.1))).await.unwrap();
        }
        for _ in 0..2 {
            first.checkpoint().await.unwrap();
        }
        let made = first.token().position(late.catalog());
        assert!(late.token().position(late.catalog()) < made);
        std::thread::scope(|threads| {
            let watching = threads.spawn(|| {
                while late.token().position(late.catalog()) < made {
                    std::hint::spin_loop();
                }
                (0..2000).filter(|number| late.filter(&format!("filter {number}")).is_none()).count()
            });
            let hosted = run(late.host(late.catalog()));
            hosted.unwrap();
            assert_eq!(watching.join().unwrap(), 0);
        });
    });
}
