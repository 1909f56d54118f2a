//! What is made of whole filters, where no node has all of one.

use umbel_core::Error;
use umbel_core::engine::{Engine, Handle, Loader, NewFilter};
use umbel_filter::{Filter, Kind, Limits, Spec};

use super::*;

/// Filters with keys that are partly archived, partly not, and added through all nodes.
async fn filled(world: &World, new: NewFilter, numbers: std::ops::Range<u64>) -> Arc<Handle> {
    let name = new.name.clone();
    world.engine(0).create(new).await.unwrap();
    let step = (numbers.end - numbers.start).div_ceil(4);
    for (node, part) in [0, 1, 2, 0].into_iter().zip(numbers.clone().step_by(step as usize)) {
        let engine = world.engine(node);
        let filter = engine.find(&name).await.unwrap().unwrap();
        engine.add(&filter, &keys(part..(part + step).min(numbers.end))).await.unwrap();
        if node == 1 {
            for node in 0..NODES {
                world.engine(node).checkpoint().await.unwrap();
            }
        }
    }
    world.engine(2).find(&name).await.unwrap().unwrap()
}

#[test]
fn a_union_has_the_keys_of_all_nodes() {
    run(async {
        let world = World::new(11).await;
        let bloom = filled(&world, everywhere("bloom", Spec::bloom(20_000, 0.01)), 0..4000).await;
        let counting = filled(&world, everywhere("counting", Spec::counting(20_000, 0.01)), 3000..6000).await;
        // All know the checkpoints, and those who take over have not read what came after them.
        for node in [0, 1, 2, 0, 1, 2] {
            let _ = world.engine(node).follow().await;
        }
        let engine = world.engine(2);
        engine.add(&counting, &keys(3000..3100)).await.unwrap();
        engine.remove(&counting, &keys(5500..6000)).await.unwrap();
        world.hand_over();
        for (name, new) in [
            ("small", NewFilter::new("small", Spec::counting(100, 0.01))),
            ("large", everywhere("large", Spec::counting(20_000, 0.01))),
        ] {
            let into = engine.create(new).await.unwrap();
            engine.merge(&into, &[Arc::clone(&bloom), Arc::clone(&counting)]).await.unwrap();
            for node in 0..NODES {
                let engine = world.engine(node);
                let into = engine.find(name).await.unwrap().unwrap();
                let counts = engine.verify(&into, &keys(0..6000)).await.unwrap();
                for (number, count) in (0..).zip(counts) {
                    let twice = u64::from((3000..3100).contains(&number));
                    let expected =
                        u64::from(number < 4000) + u64::from((3000..5500).contains(&number)) + twice;
                    assert_eq!(count, expected, "{name}: {number} at {node}");
                }
            }
        }
        let other =
            engine.create(NewFilter::new("other", Spec::bloom(100, 0.01).family(umbel_filter::Family::Xxh3)));
        let refused = engine.merge(&other.await.unwrap(), &[bloom]).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    });
}

#[test]
fn keys_of_a_part_come_in_pages() {
    run(async {
        let world = World::new(12).await;
        let many = umbel_core::limits::KEYS_PAGE_MAX as u64 * 2 + 5;
        let from = filled(&world, NewFilter::new("from", Spec::counting(200_000, 0.01)), 0..many).await;
        let first = lock(&world.town.table).first[world.engine(0).catalog() as usize];
        let asked = world.engine((first + 1) % NODES);
        asked.remove(&asked.find("from").await.unwrap().unwrap(), &keys(0..1000)).await.unwrap();
        let spec = Spec::bloom(200_000, 0.001);
        let out = asked.project(&asked.find("from").await.unwrap().unwrap(), spec).await.unwrap();
        let missing = keys(1000..many).iter().filter(|key| !out.contains_fingerprint(**key)).count();
        assert_eq!(missing, 0);
        let gone = keys(0..1000).iter().filter(|key| !out.contains_fingerprint(**key)).count();
        assert!(gone > 980, "{gone}");
        drop(from);
    });
}

#[test]
fn bits_are_joined_where_keys_are_not_known() {
    run(async {
        let world = World::new(13).await;
        let bits = |name: &str| NewFilter { retain: false, ..everywhere(name, Spec::bloom(20_000, 0.01)) };
        filled(&world, bits("one"), 0..2000).await;
        let two = filled(&world, bits("two"), 1000..3000).await;
        let engine = world.engine(2);
        let one = engine.find("one").await.unwrap().unwrap();
        let new = engine.merge(&one, &[two]).await.unwrap();
        assert!(new.abs_diff(1000) < 100, "{new}");
        for node in 0..NODES {
            assert_eq!(absent(&world.engine(node), "one", &keys(0..3000)).await, 0);
            assert!(absent(&world.engine(node), "one", &keys(50_000..51_000)).await > 950);
        }
        let other = NewFilter { retain: false, ..everywhere("other", Spec::bloom(9000, 0.01)) };
        let other = engine.create(other).await.unwrap();
        assert!(matches!(engine.merge(&other, &[one]).await, Err(Error::Invalid(_))));
    });
}

async fn dumped(engine: &Engine, filter: &Arc<Handle>) -> Vec<(u64, Bytes)> {
    let mut chunks = Vec::new();
    let mut cursor = 0;
    loop {
        let (next, chunk) = engine.dump(filter, cursor).await.unwrap();
        if next == 0 {
            return chunks;
        }
        chunks.push((next, chunk));
        cursor = next;
    }
}

#[test]
fn a_dump_of_all_nodes_is_the_filter() {
    run(async {
        let world = World::new(14).await;
        for spec in [Spec::bloom(300_000, 0.001), Spec::counting(100_000, 0.01)] {
            let (name, copy) = (format!("{:?}", spec.kind), format!("copy of {:?}", spec.kind));
            filled(&world, everywhere(&name, spec), 0..3000).await;
            // Whoever is asked, it is the same.
            let mut all = Vec::new();
            for node in 0..NODES {
                let engine = world.engine(node);
                all.push(dumped(&engine, &engine.find(&name).await.unwrap().unwrap()).await);
            }
            assert!(all[0].len() > 1 && all[0] == all[1] && all[1] == all[2]);
            let engine = world.engine(1);
            let mut loader = Loader::new(&all[0][0].1, &engine).unwrap();
            all[0][1..].iter().for_each(|(cursor, chunk)| loader.load(*cursor, chunk).unwrap());
            engine.import_loaded(&copy, loader).await.unwrap();
            for node in 0..NODES {
                assert_eq!(absent(&world.engine(node), &copy, &keys(0..3000)).await, 0, "{copy} at {node}");
                assert!(absent(&world.engine(node), &copy, &keys(100_000..101_000)).await > 980);
                let engine = world.engine(node);
                let copied = engine.find(&copy).await.unwrap().unwrap();
                assert_eq!(engine.counts(&copied).await.unwrap().items / 100, 30);
            }
            if spec.kind != Kind::Bloom {
                let copied = engine.find(&copy).await.unwrap().unwrap();
                engine.remove(&copied, &keys(0..3000)).await.unwrap();
                assert!(absent(&world.engine(2), &copy, &keys(0..3000)).await > 2900);
            }
            // A cursor that nobody gave is refused.
            let filter = engine.find(&name).await.unwrap().unwrap();
            let wrong = engine.dump(&filter, all[0][1].0 - 1).await;
            assert!(matches!(wrong, Err(Error::Invalid(_))), "{wrong:?}");
        }
    });
}

#[test]
fn a_filter_from_elsewhere_is_on_all_nodes() {
    run(async {
        let world = World::new(15).await;
        let spec = Spec::bloom(5000, 0.01);
        let elsewhere = Filter::new(&spec, &Limits::default()).unwrap();
        keys(0..2000).iter().for_each(|key| _ = elsewhere.insert_fingerprint(*key));
        let engine = world.engine(2);
        engine.import(NewFilter::new("imported", spec), elsewhere).await.unwrap();
        for node in 0..NODES {
            assert_eq!(absent(&world.engine(node), "imported", &keys(0..2000)).await, 0);
        }
        let imported = world.engine(0).find("imported").await.unwrap().unwrap();
        world.engine(0).add(&imported, &keys(2000..2100)).await.unwrap();
        let back = engine.project(&engine.find("imported").await.unwrap().unwrap(), spec).await.unwrap();
        assert!(keys(0..2100).iter().all(|key| back.contains_fingerprint(*key)));
        // One that keeps its keys and has parts on all nodes becomes one array.
        filled(&world, everywhere("large", Spec::counting(20_000, 0.01)), 0..3000).await;
        for node in 0..NODES {
            let engine = world.engine(node);
            let large = engine.find("large").await.unwrap().unwrap();
            let whole = engine.project(&large, Spec::bloom(5000, 0.001)).await.unwrap();
            assert!(keys(0..3000).iter().all(|key| whole.contains_fingerprint(*key)));
        }
    });
}
