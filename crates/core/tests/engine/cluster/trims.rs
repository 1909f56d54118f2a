//! Letting go of the log while first hosts change.

use futures_util::future::poll_immediate;

use super::*;
use crate::slow::SlowLog;

/// Keys of one slot, and so of one partition.
fn keys_of_slot(slot: u32, numbers: std::ops::Range<u64>) -> Vec<Fingerprint> {
    keys(numbers).into_iter().filter(|key| key.slot(SLOTS) == slot).collect()
}

#[test]
fn a_node_that_slept_while_it_trimmed_hides_no_record_of_the_others() {
    run(async {
        let world = World::new(61).await;
        let catalog = world.engine(0).catalog();
        let partition = (0..PARTITIONS).find(|partition| *partition != catalog).unwrap();
        let (sleeper, next) = (partition as usize % NODES, (partition as usize + 1) % NODES);
        let slow = Arc::new(SlowLog::new(Arc::clone(&world.log)));
        world.start_on(sleeper, Arc::clone(&slow) as _).await.unwrap();
        for own in (0..PARTITIONS).filter(|own| *own as usize % NODES == sleeper) {
            world.engine(sleeper).host(own).await.unwrap();
        }
        world.everybody_learns();
        let engine = world.engine(sleeper);
        let filter = engine.create(everywhere("seen", Spec::bloom(20_000, 0.01))).await.unwrap();
        for round in 0..3 {
            engine.add(&filter, &keys(round * 100..round * 100 + 100)).await.unwrap();
            engine.checkpoint().await.unwrap();
        }
        // It knows how far it may trim, and sleeps. Its lease ends, and another node takes over and goes further.
        engine.add(&filter, &keys(300..400)).await.unwrap();
        slow.hold(partition);
        let mut trimming = Box::pin(engine.checkpoint());
        for _ in 0..1000 {
            assert!(poll_immediate(&mut trimming).await.is_none());
        }
        lock(&world.town.seats)[sleeper].has_lease = false;
        world.engine(next).host(partition).await.unwrap();
        world.town.move_to(partition, next);
        for _ in 0..2 {
            (0..NODES).filter(|node| *node != sleeper).for_each(|node| world.town.learn(node));
        }
        let other = world.engine(next);
        // Of what was trimmed before it was read, checkpoints are taken in.
        for _ in 0..10 {
            let _ = other.follow().await;
        }
        let same = other.find("seen").await.unwrap().unwrap();
        for round in 10..14 {
            other.add(&same, &keys_of_slot(partition, round * 100..round * 100 + 100)).await.unwrap();
            other.checkpoint().await.unwrap();
        }
        slow.let_go();
        // Whatever it says: it is not the first host any more.
        let _ = trimming.await;
        let third = (0..NODES).find(|node| ![sleeper, next].contains(node)).unwrap();
        world.engine(third).host(partition).await.unwrap();
        world.town.learn(sleeper);
        world.everybody_learns();
        for node in 0..NODES {
            for _ in 0..10 {
                let _ = world.engine(node).follow().await;
            }
            assert_eq!(absent(&world.engine(node), "seen", &keys(0..400)).await, 0, "at {node}");
        }
    });
}
