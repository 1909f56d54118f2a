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
