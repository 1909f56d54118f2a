//! Lookups that are as current as somebody wants them.

use std::time::Duration;

use super::*;

/// A node that hosts a partition of which another one is the first host.
fn second(world: &World, partition: u32) -> usize {
    (lock(&world.town.table).first[partition as usize] + 1) % NODES
}

#[test]
fn whoever_asks_for_anything_hears_how_old_it_is() {
    run(async {
        let world = World::new(31).await;
        let filter = world.engine(0).create(NewFilter::new("seen", Spec::bloom(1000, 0.01))).await.unwrap();
        let catalog = world.engine(0).catalog();
        let first = lock(&world.town.table).first[catalog as usize];
        let other = second(&world, catalog);
        world.engine(other).follow().await.unwrap();
        world.clocks.iter().for_each(|clock| clock.advance(Duration::from_secs(7)));
        let written = world.engine(first).add(&filter, &keys(0..10)).await.unwrap();

        let engine = world.engine(other);
        let seen = engine.find("seen").await.unwrap().unwrap();
        let told = engine.look(&seen, &keys(0..10), None, Consistency::Any).await.unwrap();
        assert_eq!(told.answers, [Answer::Absent; 10]);
        assert_eq!(told.age, Duration::from_secs(7));
        assert!(!told.position.includes(&written.token), "{told:?}");
        // What was written is waited for where somebody asks for it.
        let told = engine.look(&seen, &keys(0..10), Some(&written.token), Consistency::Any).await.unwrap();
        assert_eq!((&told.answers[..], told.age), (&[Answer::Maybe; 10][..], Duration::ZERO));
        assert!(told.position.includes(&written.token), "{told:?}");
        // The first host is as current as can be.
        world.clocks.iter().for_each(|clock| clock.advance(Duration::from_secs(7)));
        let at_first = world.engine(first);
        at_first.follow().await.unwrap();
        world.clocks[first].advance(Duration::from_secs(1));
        let told = at_first.look(&filter, &keys(0..20), None, Consistency::Any).await.unwrap();
        assert_eq!(told.age, Duration::ZERO);
        assert_eq!(told.answers[..10], [Answer::Maybe; 10]);
    });
}

#[test]
fn strong_lookups_rely_on_the_log_alone() {
    run(async {
        let world = World::new(32).await;
        world.engine(0).create(everywhere("seen", Spec::bloom(1000, 0.01))).await.unwrap();
        for engine in [0, 1, 2].map(|node| world.engine(node)) {
            engine.follow().await.unwrap();
        }
        // Somebody writes past all rules: its entries are in the log, and no first host knows of them.
        let outside = world.engine(0).find("seen").await.unwrap().unwrap();
        let mut appended = 0;
        for number in 0..100 {
            let slot = outside.slot(key(number));
            let entry = umbel_core::entry::Entry {
                filter: outside.id(),
                slot,
                request: Request::default(),
                operation: umbel_core::entry::Operation::Add(vec![key(number)]),
            };
            let partition = u32::from(slot) % PARTITIONS;
            world.log.append(partition, vec![entry.encode().unwrap()]).await.unwrap();
            appended += 1;
        }
        for node in 0..NODES {
            let engine = world.engine(node);
            let seen = engine.find("seen").await.unwrap().unwrap();
            let weak = engine.look(&seen, &keys(0..100), None, Consistency::Any).await.unwrap();
            let current = engine.look(&seen, &keys(0..100), None, Consistency::Current).await.unwrap();
            if node == 0 {
                assert!(weak.answers.contains(&Answer::Absent) && current.answers.contains(&Answer::Absent));
            }
            let strong = engine.look(&seen, &keys(0..100), None, Consistency::Strong).await.unwrap();
            assert_eq!(strong.answers, [Answer::Maybe; 100], "at {node}, of {appended}");
            assert_eq!(strong.age, Duration::ZERO);
            assert_eq!(strong.position.positions().count(), PARTITIONS as usize);
        }
    });
}
