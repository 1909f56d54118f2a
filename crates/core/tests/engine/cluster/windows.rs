//! Windows of a cluster: any node makes buckets, by a clock of its own.

use std::time::Duration;

use umbel_core::definition::Window;
use umbel_core::engine::NewFilter;

use super::*;

const LENGTH: u64 = 60_000;
const WINDOW: Window = Window { length_ms: LENGTH, buckets: 6 };

impl World {
    fn pass(&self, millis: u64) {
        self.clocks.iter().for_each(|clock| clock.advance(Duration::from_millis(millis)));
    }

    async fn maintain(&self) {
        for node in 0..NODES {
            self.engine(node).maintain().await.unwrap();
        }
        // The log was trimmed: whoever had not read it takes checkpoints in instead.
        for node in [0, 1, 2, 0, 1, 2] {
            let _ = self.engine(node).follow().await;
        }
    }
}

async fn new_in_window(world: &World, node: usize, numbers: std::ops::Range<u64>) -> usize {
    let engine = world.engine(node);
    let window = engine.find("w").await.unwrap().unwrap();
    let written = engine.add(&window, &keys(numbers)).await.unwrap();
    written.answers.iter().filter(|answer| **answer == Some(true)).count()
}

fn windowed(sharded: bool) -> NewFilter {
    let spec = if sharded { Spec::bloom(1_000_000, 0.01) } else { Spec::bloom(6000, 0.01) };
    NewFilter { window: Some(WINDOW), ..NewFilter::new("w", spec) }
}

#[test]
fn a_window_remembers_what_any_node_took() {
    for sharded in [false, true] {
        run(async {
            let world = World::new(21).await;
            // Clocks differ: one is behind by most of a bucket, one is ahead by three of them.
            world.pass(1_000_000);
            world.clocks[1].advance(Duration::from_millis(9000));
            world.clocks[2].advance(Duration::from_millis(30_000));
            world.engine(0).create(windowed(sharded)).await.unwrap();
            for node in 0..NODES {
                let first = node as u64 * 1000;
                assert!(new_in_window(&world, node, first..first + 300).await > 290, "{node}");
                // Whoever has not heard of the bucket does before it answers, and before it takes the same keys again.
                for other in 0..NODES {
                    let all = keys(first..first + 300);
                    assert_eq!(absent(&world.engine(other), "w", &all).await, 0, "{node} {other}");
                }
                for other in 0..NODES {
                    assert_eq!(new_in_window(&world, other, first..first + 300).await, 0, "{node} {other}");
                    assert!(absent(&world.engine(other), "w", &keys(50_000..50_300)).await > 280);
                }
            }
            // Before the length is over nothing is forgotten but for what clocks differ by; some time later all is.
            for _ in 0..3 {
                world.pass(10_000);
                world.maintain().await;
            }
            for node in 0..NODES {
                for first in [0, 1000, 2000] {
                    assert_eq!(absent(&world.engine(node), "w", &keys(first..first + 300)).await, 0);
                }
                let engine = world.engine(node);
                let window = engine.find("w").await.unwrap().unwrap();
                let counts = engine.counts(&window).await.unwrap();
                assert!(counts.items.abs_diff(900) < 2000, "{counts:?}");
                assert_eq!(engine.verify(&window, &keys(0..3)).await.unwrap(), [1, 1, 1]);
            }
            for _ in 0..12 {
                world.pass(10_000);
                world.maintain().await;
            }
            for node in 0..NODES {
                assert_eq!(absent(&world.engine(node), "w", &keys(0..300)).await, 300);
            }
        });
    }
}

#[test]
fn a_window_that_is_cleared_or_dropped_is_so_everywhere() {
    run(async {
        let world = World::new(22).await;
        world.pass(1_000_000);
        world.engine(0).create(windowed(false)).await.unwrap();
        for node in 0..NODES {
            new_in_window(&world, node, 0..300).await;
            world.pass(10_000);
        }
        let engine = world.engine(2);
        engine.clear(&engine.find("w").await.unwrap().unwrap()).await.unwrap();
        for node in 0..NODES {
            assert_eq!(absent(&world.engine(node), "w", &keys(0..300)).await, 300, "at {node}");
        }
        new_in_window(&world, 1, 0..300).await;
        let stale = world.engine(0).find("w").await.unwrap().unwrap();
        assert_eq!(absent(&world.engine(0), "w", &keys(0..300)).await, 0);
        engine.drop_filter(&engine.find("w").await.unwrap().unwrap()).await.unwrap();
        let told = world.engine(0).contains(&stale, &keys(0..3), None).await.unwrap();
        assert_eq!(told, [Answer::Unknown; 3]);
        world.maintain().await;
        assert!(world.engine(0).find("w").await.unwrap().is_none());
        assert_eq!(world.engine(0).budget().used(), 0);
    });
}

/// A node whose clock is ahead by an hour, or behind by one, comes while others use a window, and may be the one that drops buckets.
#[test]
fn a_node_whose_clock_is_wrong_lets_nothing_go_early_and_nothing_stay() {
    const BUCKET: u64 = 10_000;
    for (seed, step, is_corrected) in [
        (31, 3_600_000, true),
        (32, -3_600_000, true),
        (33, 24 * 3_600_000, true),
        (34, 3_600_000, true),
        (35, 3_600_000, false),
        (36, 3_600_000, false),
    ] {
        run(async {
            let world = World::new(seed).await;
            world.pass(10_000_000_000);
            world.engine(1).create(windowed(false)).await.unwrap();
            let mut added: Vec<u64> = Vec::new();
            let mut passed = 0;
            for round in 0..50_u64 {
                if round == 4 {
                    // The first host of the catalog, which drops buckets, is started again with a wrong clock.
                    world.clocks[0].step(step);
                    world.town.engines.write().unwrap()[0] = None;
                    world.start(0).await.unwrap();
                    for partition in 0..PARTITIONS {
                        world.engine(0).host(partition).await.unwrap();
                        world.town.move_to(partition, 0);
                    }
                    world.everybody_learns();
                }
                if round == 12 && is_corrected {
                    world.clocks[0].step(-step);
                }
                if round < 30 {
                    // In some of the cases the node with the wrong clock is asked for nothing.
                    let node = if (34..36).contains(&seed) {
                        1 + (round as usize % 2)
                    } else {
                        round as usize % NODES
                    };
                    new_in_window(&world, node, round * 100..round * 100 + 100).await;
                    added.push(passed);
                }
                world.pass(5_000);
                passed += 5_000;
                world.maintain().await;
                for (group, at) in added.iter().enumerate() {
                    let (age, group) = (passed - at, group as u64 * 100);
                    for node in 0..NODES {
                        let what =
                            format!("seed {seed}, round {round}: group {group} of age {age} at {node}");
                        let absent = absent(&world.engine(node), "w", &keys(group..group + 100)).await;
                        assert!(absent == 0 || age > LENGTH, "{what}: {absent} are absent");
                        assert!(absent > 95 || age < 2 * (LENGTH + BUCKET) + BUCKET, "{what} is still there");
                    }
                }
            }
        });
    }
}
