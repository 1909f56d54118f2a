//! Blobs of checkpoints that failed are removed in the end, and those of checkpoints that others are making are not.

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use umbel_core::registry::Registry;

use super::*;

async fn blobs_of(world: &World, slot: u32) -> Vec<String> {
    let folder = Path::from(format!("slots/{slot:04}"));
    let listed = world.blobs.list(Some(&folder)).map_ok(|blob| blob.location.filename().unwrap().to_owned());
    let mut names: Vec<String> = listed.try_collect().await.unwrap();
    names.sort();
    names
}

/// The newest checkpoint of a slot that counts.
async fn newest(world: &World, slot: u32) -> u64 {
    let found = world.registry.get(&format!("checkpoints/{slot:04}")).await.unwrap();
    found.map_or(0, |found| std::str::from_utf8(&found.value).unwrap().parse().unwrap())
}

async fn put(world: &World, name: &str) {
    world.blobs.put(&Path::from(name), Bytes::from_static(b"x").into()).await.unwrap();
}

fn number_of(name: &str) -> u64 {
    name[..12].parse().unwrap()
}

/// Lets all first hosts make some more checkpoints, after which the two that are kept are the only ones of those that count or did not.
pub(super) async fn are_removed(world: &World, seed: u64, rounds: u64) {
    for round in 0..rounds {
        let engine = world.engine(0);
        let filter = found(&engine, "bloom").await;
        engine.add(&filter, &keys(1_000_000 + round * 200..1_000_200 + round * 200)).await.unwrap();
        for node in 0..NODES {
            // Whoever does not know the newest checkpoints finds out, and takes them in first.
            for _ in 0..10 {
                if world.engine(node).checkpoint().await.is_err() {
                    let _ = world.engine(node).follow().await;
                }
            }
        }
    }
    for slot in 0..SLOTS {
        let (names, newest) = (blobs_of(world, slot).await, newest(world, slot).await);
        let counted: Vec<&String> = names.iter().filter(|name| number_of(name) <= newest).collect();
        let manifests = counted.iter().filter(|name| name.ends_with(".manifest")).count();
        assert_eq!(manifests, 2, "seed {seed}: slot {slot}, newest {newest}: {names:?}");
    }
}

#[test]
fn what_another_node_is_making_stays() {
    run(async {
        let world = World::new(41).await;
        world.engine(0).create(everywhere("bloom", Spec::bloom(5000, 0.01))).await.unwrap();
        are_removed(&world, 41, 3).await;
        for slot in 0..SLOTS {
            let newest = newest(&world, slot).await;
            for number in [1, newest, newest + 1000] {
                put(&world, &format!("slots/{slot:04}/{number:012}-deadbeef.arrays")).await;
            }
        }
        are_removed(&world, 41, 18).await;
        for slot in 0..SLOTS {
            let names = blobs_of(&world, slot).await;
            let left: Vec<_> = names.iter().filter(|name| name.contains("deadbeef")).collect();
            // Somebody may be at work on the one whose number is greater than that of all that count.
            assert!(left.len() == 1 && number_of(left[0]) > newest(&world, slot).await, "{names:?}");
        }
    });
}

#[test]
fn a_damaged_checkpoint_that_counts_holds_up_no_later_one() {
    run(async {
        let world = World::new(43).await;
        world.engine(0).create(everywhere("bloom", Spec::bloom(5000, 0.01))).await.unwrap();
        are_removed(&world, 43, 3).await;
        let mut damaged = Vec::new();
        for slot in 0..SLOTS {
            let newest = newest(&world, slot).await;
            let names = blobs_of(&world, slot).await;
            let name = names.iter().find(|name| name.ends_with(".manifest") && number_of(name) == newest);
            put(&world, &format!("slots/{slot:04}/{}", name.unwrap())).await;
            damaged.push(newest);
        }
        for node in 0..NODES {
            world.start(node).await.unwrap();
            for own in (0..PARTITIONS).filter(|own| *own as usize % NODES == node) {
                world.engine(node).host(own).await.unwrap();
            }
        }
        world.everybody_learns();
        // Those before the damaged ones are whole, and the log goes on from there.
        assert_eq!(absent(&world.engine(0), "bloom", &keys(1_000_000..1_000_600)).await, 0);
        are_removed(&world, 43, 3).await;
        for (slot, damaged) in (0..).zip(damaged) {
            assert!(newest(&world, slot).await > damaged, "slot {slot}");
        }
    });
}
