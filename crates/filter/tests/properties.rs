//! Filters against naive oracles: a set, and a multiset.

mod common;

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use umbel_filter::format::native::{self, Compression};
use umbel_filter::{
    BLOCK_BYTES, Counter, Error, Family, Filter, Geometry, Kind, Layout, Limits, Secret, Spec,
};

fn layouts() -> impl Strategy<Value = Layout> {
    prop::sample::select(vec![
        Layout::Blocked,
        Layout::Guava,
        Layout::Guava32,
        Layout::Redisson,
        Layout::RedisBloom { expansion: Some(2) },
    ])
}

/// Small filters of every layout and family, so that they overflow and collide.
fn specs() -> impl Strategy<Value = Spec> {
    let families =
        prop::sample::select(vec![Family::Murmur3, Family::Xxh3, Family::RedisBloom, Family::Redisson]);
    let kinds = prop::sample::select(vec![
        Kind::Bloom,
        Kind::Counting(Counter::Nibble),
        Kind::Counting(Counter::Byte),
    ]);
    let errors = prop::sample::select(vec![0.5, 0.1, 1e-2, 1e-4, 1e-7]);
    (layouts(), families, kinds, 1..60_u64, errors).prop_map(|(layout, family, kind, capacity, error)| {
        let spec = Spec::hosted(layout, capacity, error);
        if layout == Layout::Blocked { spec.family(family).kind(kind) } else { spec }
    })
}

fn keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..24), 0..200)
}

fn filter(spec: &Spec) -> Filter {
    Filter::new(spec, &Limits::default()).unwrap()
}

fn filled(spec: &Spec, keys: &[Vec<u8>]) -> Filter {
    let filter = filter(spec);
    filter.insert_batch(keys, &mut Vec::new()).unwrap();
    filter
}

proptest! {
    #[test]
    fn no_added_key_is_ever_absent(spec in specs(), keys in keys(), others in keys()) {
        let (singly, batched) = (filter(&spec), filter(&spec));
        let mut set = HashSet::new();
        let mut new = Vec::new();
        for key in &keys {
            let told = singly.insert(key).unwrap();
            // A filter may take a new key for a known one, never the other way round.
            prop_assert!(!told || set.insert(key.clone()), "a known key is told to be new");
            set.insert(key.clone());
            new.push(told);
            prop_assert!(singly.contains(key));
        }
        let mut told = Vec::new();
        batched.insert_batch(&keys, &mut told).unwrap();
        prop_assert_eq!(told, new);
        prop_assert_eq!(singly.digest(), batched.digest());
        prop_assert!(set.iter().all(|key| batched.contains(key)));

        let mut answers = Vec::new();
        batched.contains_batch(&others, &mut answers);
        let hashed: Vec<_> = others.iter().map(|key| batched.hasher().fingerprint(key)).collect();
        let mut hashed_answers = Vec::new();
        batched.contains_fingerprints(&hashed, &mut hashed_answers);
        prop_assert_eq!(&answers, &hashed_answers);
        prop_assert!(others.iter().zip(&answers).all(|(key, answer)| singly.contains(key) == *answer));
    }

    #[test]
    fn filling_alone_gives_the_same_bits(spec in specs(), keys in keys()) {
        let (shared, mut alone) = (filled(&spec, &keys), filter(&spec));
        let keys: Vec<_> = keys.iter().map(|key| shared.hasher().fingerprint(key)).collect();
        let (first, second) = keys.split_at(keys.len() / 2);
        alone.fill_fingerprints(first).unwrap();
        alone.fill_fingerprints(second).unwrap();
        prop_assert_eq!(alone.digest(), shared.digest());
        prop_assert!(keys.is_empty() || !alone.take_dirty().is_empty());
    }

    #[test]
    fn filling_counts_is_adding_as_often(
        spec in specs(), before in keys(), removed in 0..8_u8,
        counts in prop::collection::vec(
            (0..12_u8, prop::sample::select(vec![0, 1, 2, 7, 14, 15, 16, 100, 254, 255, 256, 1000, u32::MAX])),
            0..40,
        )
    ) {
        let (shared, mut alone) = (filled(&spec, &before), filled(&spec, &before));
        shared.take_dirty();
        alone.take_dirty();
        let counts: Vec<_> =
            counts.into_iter().map(|(key, count)| (shared.hasher().fingerprint(&[key]), count)).collect();
        for (key, count) in &counts {
            // No counter goes beyond 255, so more adds change nothing.
            for _ in 0..(*count).min(300) {
                shared.insert_fingerprint(*key).unwrap();
            }
        }
        alone.fill_counts(&counts).unwrap();
        prop_assert_eq!(alone.digest(), shared.digest());
        // Notes of change may be more, never fewer.
        let dirty = alone.take_dirty();
        prop_assert!(shared.take_dirty().iter().all(|block| dirty.contains(block)));
        if spec.kind != Kind::Bloom {
            // Counters that stick do so in both.
            for key in (0..removed).cycle().take(usize::from(removed) * 20) {
                prop_assert_eq!(alone.remove([key]).unwrap(), shared.remove([key]).unwrap());
            }
            prop_assert_eq!(alone.digest(), shared.digest());
        }
    }

    #[test]
    fn counters_follow_a_multiset(
        byte: bool, capacity in 1..40_u64, error in prop::sample::select(vec![0.5, 0.01, 1e-5]),
        steps in prop::collection::vec((0..30_u8, any::<bool>()), 0..400)
    ) {
        let (counter, most) = if byte { (Counter::Byte, 255) } else { (Counter::Nibble, 15) };
        let filter = filter(&Spec::bloom(capacity, error).kind(Kind::Counting(counter)));
        let mut multiset: HashMap<u8, u64> = HashMap::new();
        for (key, add) in steps {
            let held = multiset.entry(key).or_default();
            if add {
                prop_assert!(filter.insert([key]).unwrap() || filter.count([key]).unwrap() > 1);
                *held += 1;
            } else if *held > 0 {
                prop_assert!(filter.remove([key]).unwrap(), "what was added can be removed");
                *held -= 1;
            } else if filter.count([key]).unwrap() == 0 {
                let before = filter.digest();
                prop_assert!(!filter.remove([key]).unwrap(), "what is not there cannot");
                prop_assert_eq!(filter.digest(), before, "a refusal changes nothing");
            }
            for (key, held) in &multiset {
                prop_assert!(filter.count([*key]).unwrap() >= (*held).min(most));
                prop_assert!(*held == 0 || filter.contains([*key]));
            }
        }
    }

    #[test]
    fn a_union_has_what_either_has(spec in specs(), ours in keys(), theirs in keys()) {
        let (left, right) = (filled(&spec, &ours), filled(&spec, &theirs));
        if let Layout::RedisBloom { .. } = spec.layout {
            prop_assert!(left.union(&right).is_err());
            return Ok(());
        }
        left.union(&right).unwrap();
        let both = filled(&spec, &[ours, theirs].concat());
        prop_assert_eq!(left.digest(), both.digest());
    }

    #[test]
    fn a_folded_filter_is_the_half_size_filter(spec in specs(), keys in keys()) {
        let whole = filled(&spec, &keys);
        match whole.halved() {
            Ok(half) => {
                let built = Filter::with_geometry(&spec, half.geometry(), None, &Limits::default()).unwrap();
                built.insert_batch(&keys, &mut Vec::new()).unwrap();
                prop_assert_eq!(half.digest(), built.digest());
            }
            Err(error) => prop_assert!(error.to_string().contains("folding")),
        }
    }

    #[test]
    fn the_digest_knows_content_and_not_order(spec in specs(), mut keys in keys()) {
        prop_assume!(spec.layout != Layout::RedisBloom { expansion: Some(2) });
        let filter = filled(&spec, &keys);
        keys.reverse();
        prop_assert_eq!(filled(&spec, &keys).digest(), filter.digest());
        let before = filter.digest();
        if filter.insert(b"one more key").unwrap() {
            prop_assert_ne!(filter.digest(), before);
        }
    }

    #[test]
    fn any_parameters_are_planned_or_refused(capacity: u64, error: f64, shards: u32) {
        let _ = umbel_filter::Plan::new(&Spec::bloom(capacity, error), shards);
        let limits = Limits { filter_bytes_max: 1 << 20, ..Limits::default() };
        for layout in [Layout::Blocked, Layout::Guava, Layout::Redisson, Layout::RedisBloom { expansion: None }] {
            if let Ok(filter) = Filter::new(&Spec::hosted(layout, capacity, error), &limits) {
                prop_assert!(filter.stats().bytes <= 1 << 20);
            }
        }
    }
}

#[test]
fn intersections_are_estimated() {
    for spec in [
        Spec::bloom(100_000, 0.01),
        Spec::counting(100_000, 0.01),
        Spec::hosted(Layout::Guava, 100_000, 0.01),
    ] {
        let [left, right] = [0..60_000, 40_000..100_000].map(|range| {
            let keys: Vec<_> = range.map(|i| format!("item:{i}").into_bytes()).collect();
            filled(&spec, &keys)
        });
        let estimated = left.intersection(&right).unwrap();
        assert!((19_000.0..21_000.0).contains(&estimated), "{spec:?}: {estimated}");
    }
}

#[test]
fn dirty_blocks_are_all_that_a_copy_needs() {
    let filter = filter(&Spec::bloom(1_000_000, 0.01));
    assert!(filter.take_dirty().is_empty());
    let mut copy = vec![0; filter.stats().bytes as usize];
    let mut random = common::Random(7);
    let mut bytes = Vec::new();
    for round in 0..20 {
        for _ in 0..random.below(5) {
            filter.insert(random.word().to_le_bytes()).unwrap();
        }
        let dirty = filter.take_dirty();
        assert!(dirty.len() <= 4, "round {round}: {dirty:?}");
        for block in dirty {
            filter.copy_block(block, &mut bytes);
            copy[block * BLOCK_BYTES..][..bytes.len()].copy_from_slice(&bytes);
        }
        let mut whole = Vec::new();
        for block in 0..filter.blocks() {
            filter.copy_block(block, &mut bytes);
            whole.extend_from_slice(&bytes);
        }
        assert_eq!(copy, whole);
    }
}

/// Filters of every layout, kind and some numbers of banks, several blocks large; the chain has two links.
fn large() -> Vec<Filter> {
    let mut filters = Vec::new();
    for kind in [Kind::Bloom, Kind::Counting(Counter::Nibble), Kind::Counting(Counter::Byte)] {
        for banks in [1, 2, 3, 8] {
            let geometry = Geometry::Blocked { cell_bits: kind.cell_bits(), banks, lines: 2500 };
            let spec = Spec::bloom(1000, 0.01).kind(kind);
            filters.push(Filter::with_geometry(&spec, geometry, None, &Limits::default()).unwrap());
        }
    }
    for layout in [Layout::Guava, Layout::Guava32, Layout::Redisson] {
        filters.push(filter(&Spec::hosted(layout, 250_000, 0.01)));
    }
    let chain = filter(&Spec::hosted(Layout::RedisBloom { expansion: Some(2) }, 60_000, 0.01));
    let first_link = chain.blocks();
    (0..70_000_u32).for_each(|i| assert!(chain.insert(i.to_le_bytes()).is_ok()));
    assert!(first_link > 1 && chain.blocks() > 2 * first_link);
    chain.take_dirty();
    filters.push(chain);
    assert!(filters.iter().all(|filter| filter.blocks() > 2));
    filters
}

#[test]
fn the_blocks_of_a_key_are_known_before_it_is_added() {
    for filter in large() {
        let (is_chain, counts) = (filter.items().is_some(), filter.spec().kind != Kind::Bloom);
        let mut all = HashSet::new();
        for i in 0..200 {
            let key = filter.hasher().fingerprint(format!("key:{i}").as_bytes());
            let mut touched = HashSet::new();
            filter.prefetch(key);
            filter.blocks_touched(key, |block| {
                touched.insert(block);
            });
            assert!(touched.iter().all(|block| *block < filter.blocks()));
            assert!(filter.take_dirty().is_empty(), "asking changes nothing");
            let new = filter.insert_fingerprint(key).unwrap();
            let dirty: HashSet<_> = filter.take_dirty().into_iter().collect();
            assert!(dirty.is_subset(&touched), "{:?}: {dirty:?} {touched:?}", filter.geometry());
            assert!(!new || !dirty.is_empty());
            if i == 0 && !is_chain {
                assert_eq!(dirty, touched, "a first key changes them all");
            }
            if counts {
                assert!(filter.remove_fingerprint(key).unwrap());
                let dirty: HashSet<_> = filter.take_dirty().into_iter().collect();
                assert_eq!(dirty, touched);
                filter.insert_fingerprint(key).unwrap();
                filter.take_dirty();
            }
            all.extend(touched);
        }
        assert!(is_chain || all.len() == filter.blocks(), "keys go everywhere");
    }
}

fn contents(filter: &Filter) -> Vec<Vec<u8>> {
    let copied = |block| {
        let mut bytes = Vec::new();
        filter.copy_block(block, &mut bytes);
        bytes
    };
    (0..filter.blocks()).map(copied).collect()
}

fn load(filter: &mut Filter, blocks: &[Vec<u8>]) {
    blocks.iter().enumerate().for_each(|(block, bytes)| filter.load_block(block, bytes).unwrap());
}

fn zeros(blocks: &[Vec<u8>]) -> Vec<Vec<u8>> {
    blocks.iter().map(|block| vec![0; block.len()]).collect()
}

#[test]
fn a_loaded_block_replaces_what_was_there() {
    for mut filter in large() {
        (0..300).for_each(|i| assert!(filter.insert(format!("key:{i}")).is_ok()));
        let (full, digest) = (contents(&filter), filter.digest());
        // Some blocks keep the note of their change, of the others it was taken.
        let marked: Vec<_> = filter.take_dirty().into_iter().step_by(2).collect();
        [&marked[..], &[full.len(), usize::MAX]].concat().iter().for_each(|block| filter.mark_dirty(*block));
        let none = zeros(&full);
        for wanted in [&none, &full, &none, &full] {
            load(&mut filter, wanted);
            assert_eq!(contents(&filter), *wanted);
        }
        assert_eq!(filter.digest(), digest);
        assert_eq!(filter.take_dirty(), marked, "notes stay, and none is added");

        let long = [&full[0][..], &[0]].concat();
        for (block, bytes) in [
            (full.len(), &full[0][..]),
            (usize::MAX, &full[0][..]),
            (0, &[]),
            (0, &full[0][1..]),
            (0, &long),
            (full.len() - 1, &long),
        ] {
            let error = filter.load_block(block, bytes).unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
        }
        assert_eq!(filter.digest(), digest);
    }
}

#[test]
fn zeros_replace_what_came_without_a_note_of_change() {
    let mut file = Vec::new();
    let keys: Vec<_> = (0..1000_u32).map(|i| i.to_le_bytes().to_vec()).collect();
    let blocked = filled(&Spec::bloom(100_000, 0.01), &keys);
    native::write(&blocked, Compression::None, &mut file).unwrap();
    let geometry = Geometry::Classic { bits: 1 << 21, hashes: 7 };
    let classic = Spec::hosted(Layout::Guava, 100_000, 0.01);
    let classic = Filter::with_geometry(&classic, geometry, None, &Limits::default()).unwrap();
    classic.insert_batch(&keys, &mut Vec::new()).unwrap();
    let geometry = Geometry::Blocked { cell_bits: 1, banks: 1, lines: 4000 };
    let even = Filter::with_geometry(blocked.spec(), geometry, None, &Limits::default()).unwrap();
    even.insert_batch(&keys, &mut Vec::new()).unwrap();
    let read = native::read(&file[..], &Limits::default()).unwrap();
    for mut filter in [read, classic.halved().unwrap(), even.halved().unwrap()] {
        assert!(filter.take_dirty().is_empty());
        let full = contents(&filter);
        load(&mut filter, &zeros(&full));
        assert_eq!(filter.stats().fill, 0.0);
    }
}

/// What a sparse filter does not use, its restored twin does not use either.
#[cfg(target_os = "linux")]
#[test]
fn zeros_take_no_memory() {
    let resident_pages = || -> u64 {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').nth(1).unwrap().parse().unwrap()
    };
    let mut filter = filter(&Spec::bloom(400_000_000, 0.01));
    assert!(filter.bytes() > 256 << 20);
    let before = resident_pages();
    let zeros = vec![0; BLOCK_BYTES];
    for block in 0..filter.blocks() - 1 {
        filter.load_block(block, &zeros).unwrap();
    }
    let taken = resident_pages().saturating_sub(before) * 4096;
    assert!(taken < 128 << 20, "{taken} bytes");
}

#[test]
fn keys_of_any_size_are_taken() {
    for family in Family::ALL {
        let secret = Secret([7; 16]);
        let spec = Spec::bloom(100, 1e-6).family(family);
        let filter = match family {
            Family::Keyed => Filter::keyed(&spec, &secret, &Limits::default()).unwrap(),
            _ => filter(&spec),
        };
        let megabyte = vec![0xa5; 1 << 20];
        for key in [&b""[..], b"\0", b"\0\0", &megabyte, &megabyte[1..]] {
            assert!(!filter.contains(key) && filter.insert(key).unwrap() && filter.contains(key), "{family}");
        }
    }
}

#[test]
fn filters_that_do_not_fit_together_say_why() {
    let ours = filter(&Spec::bloom(1000, 0.01));
    let secret = Secret([1; 16]);
    let keyed = |secret| Filter::keyed(&Spec::bloom(1000, 0.01), secret, &Limits::default()).unwrap();
    for (other, what) in [
        (filter(&Spec::bloom(2000, 0.01)), "geometry"),
        (filter(&Spec::bloom(1000, 0.01).family(Family::Xxh3)), "family"),
        (filter(&Spec::counting(1000, 0.01)), "geometry"),
        (filter(&Spec::hosted(Layout::Guava, 1000, 0.01)), "layout"),
        (keyed(&secret), "family"),
    ] {
        for error in [ours.union(&other).unwrap_err(), ours.intersection(&other).unwrap_err()] {
            assert!(error.to_string().contains(what), "{error}");
        }
    }
    let error = keyed(&secret).union(&keyed(&Secret([2; 16]))).unwrap_err().to_string();
    assert!(error.contains("secret"), "{error}");
    assert!(ours.remove("key").unwrap_err().to_string().contains("bloom"));
    assert!(ours.count("key").is_err());
}

#[test]
fn sizes_over_the_limit_are_refused_before_they_are_taken() {
    let limits = Limits { filter_bytes_max: 1 << 20, ..Limits::default() };
    for spec in [
        Spec::bloom(1_000_000_000_000, 1e-9),
        Spec::counting(10_000_000, 0.01),
        Spec::hosted(Layout::Guava, 1_000_000_000_000, 1e-9),
        Spec::hosted(Layout::RedisBloom { expansion: None }, 1_000_000_000_000, 1e-9),
    ] {
        let error = Filter::new(&spec, &limits).unwrap_err();
        assert!(matches!(error, Error::TooLarge { limit: 1_048_576, .. }), "{error}");
        assert!(error.to_string().contains("1048576"), "{error}");
    }
    let unbounded = Limits { filter_bytes_max: u64::MAX, ..Limits::default() };
    let error = Filter::new(&Spec::bloom(1_000_000_000_000, 1e-9), &unbounded).unwrap_err();
    assert!(matches!(error, Error::NoMemory { .. }), "{error}");
}

#[test]
fn geometries_from_nowhere_are_refused() {
    let blocked = |cell_bits, banks, lines| Geometry::Blocked { cell_bits, banks, lines };
    let (bloom, hosted) = (Spec::bloom(100, 0.01), Spec::hosted(Layout::Guava, 100, 0.01));
    for (spec, geometry) in [
        (bloom, blocked(1, 0, 10)),
        (bloom, blocked(1, 1, 0)),
        (bloom, blocked(1, u32::MAX, 10)),
        (bloom, blocked(3, 1, 10)),
        (bloom, blocked(4, 1, 10)),
        (bloom, blocked(1, 8, u64::MAX)),
        (bloom, Geometry::Classic { bits: 100, hashes: 3 }),
        (hosted, blocked(1, 1, 10)),
        (hosted, Geometry::Classic { bits: 0, hashes: 3 }),
        (hosted, Geometry::Classic { bits: 100, hashes: 0 }),
        (hosted, Geometry::Classic { bits: 100, hashes: 1000 }),
        (Spec::bloom(0, 0.01), blocked(1, 1, 10)),
    ] {
        let outcome = Filter::with_geometry(&spec, geometry, None, &Limits::default());
        assert!(outcome.is_err(), "{spec:?} {geometry:?}");
    }
    assert!(Filter::with_geometry(&bloom, blocked(1, 1, 10), None, &Limits::default()).is_ok());
}

#[test]
fn clearing_forgets_everything() {
    for spec in
        [Spec::bloom(1000, 0.01), Spec::counting(1000, 0.01), Spec::hosted(Layout::Redisson, 1000, 0.01)]
    {
        let (mut full, empty) = (filled(&spec, &[b"a".to_vec(), b"b".to_vec()]), filter(&spec));
        assert_ne!(full.digest(), empty.digest());
        full.clear().unwrap();
        assert_eq!(full.digest(), empty.digest());
        assert_eq!(full.stats().cardinality, 0.0);
    }
}

#[test]
fn blocks_are_joined_as_filters_are() {
    let chain = Layout::RedisBloom { expansion: Some(2) };
    let specs = [
        Spec::bloom(200_000, 0.01),
        Spec::bloom(50_000, 1e-6),
        Spec::hosted(Layout::Guava, 200_000, 0.01),
        Spec::hosted(chain, 20_000, 0.01),
    ];
    let key = |n: u64| n.to_le_bytes();
    for spec in specs {
        let [one, other, both] = [0; 3].map(|_| Filter::new(&spec, &Limits::default()).unwrap());
        (0..60_000).for_each(|n| _ = one.insert(key(n)).unwrap());
        (30_000..90_000).for_each(|n| _ = other.insert(key(n)).unwrap());
        (0..90_000).for_each(|n| _ = both.insert(key(n)).unwrap());
        let is_chain = spec.layout == chain;
        // An empty one of the same shape becomes the same; a union is what all keys come to.
        let copy = Filter::from_outline(&one.outline(), None, &Limits::default()).unwrap();
        let mut bytes = Vec::new();
        for block in 0..one.blocks() {
            one.copy_block(block, &mut bytes);
            assert_eq!(bytes.len(), one.block_bytes(block));
            copy.merge_block(block, &bytes).unwrap();
            assert!(copy.merge_block(block, &bytes[1..]).is_err());
        }
        assert_eq!(copy.digest(), one.digest(), "{spec:?}");
        assert_eq!(copy.take_dirty(), (0..one.blocks()).collect::<Vec<_>>());
        assert!(copy.merge_block(one.blocks(), &bytes).is_err() && copy.block_bytes(one.blocks()) == 0);
        if !is_chain {
            for block in 0..other.blocks() {
                other.copy_block(block, &mut bytes);
                copy.merge_block(block, &bytes).unwrap();
            }
            assert_eq!(copy.digest(), both.digest(), "{spec:?}");
        }
        let (exact, sampled) = (both.stats(), both.sampled_stats(32 << 10));
        assert_eq!((both.sampled_stats(u64::MAX), sampled.bytes), (exact, exact.bytes));
        assert!((sampled.fill / exact.fill - 1.0).abs() < 0.05, "{sampled:?} {exact:?}");
        assert!((sampled.cardinality / exact.cardinality - 1.0).abs() < 0.1, "{sampled:?} {exact:?}");
    }
}
