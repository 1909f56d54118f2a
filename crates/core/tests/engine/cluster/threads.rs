//! Nodes whose background work is done by threads.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use umbel_core::clock::{Clock, SystemClock};

use super::*;

/// What comes of something that must not take long.
async fn soon<F: Future>(future: F) -> F::Output {
    let clock = SystemClock::default();
    let (mut future, until) = (pin!(future), clock.now() + Duration::from_secs(30));
    std::future::poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(output),
        Poll::Pending => {
            assert!(clock.now() < until, "it takes too long");
            Poll::Pending
        }
    })
    .await
}

impl World {
    /// One in which nobody lets go of the log, so that every call is done at the first try.
    async fn calm(seed: u64) -> Self {
        let blobs = Arc::new(InMemory::new());
        Self::with_checkpoints_after(64 << 20, seed, Arc::clone(&blobs), blobs).await
    }

    fn stop(&self) {
        (0..NODES).for_each(|node| self.engine(node).stop());
    }
}

#[test]
fn through_every_node_more_keys_come_at_once_than_a_filter_has_room_for() {
    run(async {
        let world = World::calm(71).await;
        (0..NODES).for_each(|node| world.engine(node).start().unwrap());
        for node in 0..NODES {
            let engine = world.engine(node);
            for (sharded, name) in [(false, format!("whole {node}")), (true, format!("shared {node}"))] {
                let new = NewFilter::new(&name, Spec::bloom(100, 0.01));
                let new = if sharded { everywhere(&name, new.spec) } else { new };
                let filter = soon(engine.create(new)).await.unwrap();
                soon(engine.add(&filter, &keys(0..1))).await.unwrap();
                let written = soon(engine.add(&filter, &keys(1000..1101))).await.unwrap();
                assert!(written.answers.iter().filter(|new| **new == Some(true)).count() > 95, "{name}");
                assert!(filter.definition().spec.capacity > 101, "{name}");
                let some = keys(1000..1101);
                let answers = soon(engine.contains(&filter, &some, None)).await.unwrap();
                assert_eq!(answers, vec![Answer::Maybe; some.len()], "{name}");
            }
        }
        world.stop();
    });
}

#[test]
fn nobody_waits_for_checkpoints_that_others_have_to_make() {
    run(async {
        let world = World::new(73).await;
        // One node has threads; the others make no checkpoints for now.
        let engine = world.engine(1);
        engine.start().unwrap();
        let filter = soon(engine.create(everywhere("seen", Spec::bloom(10_000, 0.01)))).await.unwrap();
        for round in 0..10 {
            soon(engine.add(&filter, &keys(round * 100..round * 100 + 100))).await.unwrap();
            soon(engine.follow()).await.unwrap();
        }
        world.stop();
    });
}
