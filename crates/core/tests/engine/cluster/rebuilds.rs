//! Filters that are filled anew where no node has all of one.

use umbel_core::engine::{Handle, Refill};
use umbel_core::entry::Request;

use super::*;

async fn filter(world: &World, node: usize) -> (Arc<Engine>, Arc<Handle>) {
    let engine = world.engine(node);
    let filter = engine.find("f").await.unwrap().unwrap();
    (engine, filter)
}

/// Goes on with what is being filled, through a node.
async fn fill(world: &World, node: usize, numbers: std::ops::Range<u64>) {
    let (engine, filter) = filter(world, node).await;
    let (rebuild, _) = engine.begin_rebuild(&filter, &Refill::default()).await.unwrap();
    engine.fill(&rebuild, &keys(numbers), Request::default()).await.unwrap();
}

#[test]
fn a_filter_is_filled_through_all_nodes_and_takes_the_place_on_all() {
    for sharded in [false, true] {
        run(async {
            let world = World::new(31).await;
            let spec = Spec::counting(20_000, 1e-7);
            let new = if sharded { everywhere("f", spec) } else { NewFilter::new("f", spec) };
            world.engine(0).create(new).await.unwrap();
            let (engine, old) = filter(&world, 1).await;
            engine.add(&old, &keys(0..1000)).await.unwrap();
            // Whoever begins it, all nodes know it, and there is one.
            let (begun, is_resumed) = engine.begin_rebuild(&old, &Refill::default()).await.unwrap();
            assert!(!is_resumed);
            for node in 0..NODES {
                let (engine, filter) = filter(&world, node).await;
                let (resumed, is_resumed) = engine.begin_rebuild(&filter, &Refill::default()).await.unwrap();
                assert!(is_resumed && resumed.id() == begun.id(), "{node}");
                let other = Refill { capacity: Some(5), ..Refill::default() };
                assert!(matches!(engine.begin_rebuild(&filter, &other).await, Err(Error::Invalid(_))));
            }
            for (node, first) in [(0, 0), (1, 300), (2, 600)] {
                let (engine, filter) = filter(&world, node).await;
                // Before the source names them and after that, through whichever node.
                engine.remove(&filter, &keys(first..first + 10)).await.unwrap();
                fill(&world, (node + 1) % NODES, first..first + 300).await;
                engine.remove(&filter, &keys(first + 10..first + 20)).await.unwrap();
                fill(&world, (node + 2) % NODES, first..first + 300).await;
                engine.add(&filter, &keys(2000 + first..2010 + first)).await.unwrap();
                // Others take over, from checkpoints and the log.
                for node in 0..NODES {
                    let _ = world.engine(node).checkpoint().await;
                    let _ = world.engine(node).follow().await;
                }
                if node == 0 {
                    world.hand_over();
                }
                for node in [0, 1, 2, 0, 1, 2] {
                    let _ = world.engine(node).follow().await;
                }
            }
            let (engine, old) = filter(&world, 2).await;
            engine.finish_rebuild(&old, false).await.unwrap();
            for node in 0..NODES {
                // Whoever still has the old one at hand, or has not heard of the new one yet, goes on with it all the same.
                let (engine, at_hand) = filter(&world, node).await;
                assert_eq!(absent(&engine, "f", &keys(20..300)).await, 0, "{node}");
                let more = 4000 + node as u64;
                for filter in [&old, &at_hand] {
                    engine.add(filter, &[key(more)]).await.unwrap();
                }
                engine.follow().await.unwrap();
                let (_, filter) = filter(&world, node).await;
                assert_eq!(filter.id(), begun.id(), "{node}");
                assert_eq!(engine.verify(&filter, &[key(more)]).await.unwrap(), [2]);
                let counts = engine.verify(&filter, &keys(0..3000)).await.unwrap();
                for (number, count) in (0..3000_u64).zip(counts) {
                    let expected = match number {
                        0..900 => u64::from(number % 300 >= 20),
                        2000..2010 | 2300..2310 | 2600..2610 => 1,
                        _ => 0,
                    };
                    assert_eq!(count, expected, "{number} at {node}");
                }
                assert!(engine.rebuild_of(&filter).await.unwrap().is_none());
            }
        });
    }
}

#[test]
fn nothing_is_filled_for_a_filter_that_another_node_dropped() {
    run(async {
        let world = World::new(32).await;
        world.engine(0).create(everywhere("f", Spec::bloom(20_000, 0.01))).await.unwrap();
        let (engine, old) = filter(&world, 1).await;
        let (rebuild, _) = engine.begin_rebuild(&old, &Refill::default()).await.unwrap();
        let (other, filter) = filter(&world, 2).await;
        other.drop_filter(&filter).await.unwrap();
        engine.follow().await.unwrap();
        assert!(engine.find("f").await.unwrap().is_none());
        assert!(engine.fill(&rebuild, &keys(0..10), Request::default()).await.is_err());
        assert!(engine.finish_rebuild(&old, true).await.is_err());
        assert!(engine.find("f").await.unwrap().is_none());
    });
}
