use super::*;

#[cfg(not(loom))]
mod twins {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> impl Strategy<Value = Vec<Fingerprint>> {
        let key = any::<(u64, u64)>().prop_map(|(first, second)| Fingerprint { first, second });
        prop::collection::vec(key, 0..200)
    }

    /// A filter for every instruction set of this machine; the last is the portable twin.
    fn twins<const CELL: u32>(banks: u32, lines: u64) -> Vec<Blocked<CELL>> {
        let twin = |kernel| Blocked { kernel, ..Blocked::new(banks, lines, &Limits::default()).unwrap() };
        Kernel::all().map(twin).collect()
    }

    fn words<const CELL: u32>(filter: &Blocked<CELL>) -> Vec<u64> {
        filter.array.words().collect()
    }

    /// All instruction sets, singles and runs, with and without prefetching, give the same bits and answers.
    fn check<const CELL: u32>(banks: u32, lines: u64, keys: &[Fingerprint], others: &[Fingerprint]) {
        let filters = twins::<CELL>(banks, lines);
        let portable = &filters[filters.len() - 1];
        assert!(matches!(portable.kernel, Kernel::Scalar(_)));
        let new: Vec<bool> = keys.iter().map(|key| portable.insert(*key)).collect();
        for (number, filter) in filters[..filters.len() - 1].iter().enumerate() {
            let mut told = vec![false; keys.len()];
            if number % 2 == 0 {
                filter.insert_run(keys, true, &mut told);
            } else {
                keys.iter().zip(&mut told).for_each(|(key, told)| *told = filter.insert(*key));
            }
            assert_eq!(told, new);
            assert_eq!(words(filter), words(portable));
        }
        for mut filter in twins::<CELL>(banks, lines) {
            filter.fill_run(keys);
            assert_eq!(words(&filter), words(portable));
        }
        for filter in &filters {
            for (asked, fetch) in [(keys, false), (keys, true), (others, false), (others, true)] {
                let mut answers = vec![false; asked.len()];
                filter.contains_run(asked, fetch, &mut answers);
                assert!(asked.iter().zip(&answers).all(|(key, answer)| portable.contains(*key) == *answer));
                assert!(asked.iter().all(|key| filter.contains(*key) == portable.contains(*key)));
            }
            assert!(keys.iter().all(|key| filter.contains(*key)));
        }
    }

    proptest! {
        #[test]
        fn vectors_and_their_portable_twin_agree(
            banks in 1..4_u32, lines in 1..9_u64, keys in keys(), others in keys()
        ) {
            check::<1>(banks, lines, &keys, &others);
            check::<4>(banks, lines, &keys, &others);
            check::<8>(banks, lines, &keys, &others);
        }

        #[test]
        fn cells_are_added_and_counted_one_by_one(ours: u64, theirs: u64) {
            fn check<const CELL: u32>(ours: u64, theirs: u64) {
                let cells = |word: u64| (0..64).step_by(CELL as usize).map(move |at| word >> at & cell_mask(CELL));
                let sums = cells(ours).zip(cells(theirs)).map(|(a, b)| {
                    if CELL == 1 { a | b } else { (a + b).min(cell_mask(CELL)) }
                });
                assert!(cells(add_cells::<CELL>(ours, theirs)).eq(sums));
                assert_eq!(used_cells::<CELL>(ours) as usize, cells(ours).filter(|cell| *cell != 0).count());
            }
            check::<1>(ours, theirs);
            check::<4>(ours, theirs);
            check::<8>(ours, theirs);
        }
    }

    #[test]
    fn large_arrays_have_the_same_bits_as_small_ones() {
        // 2 MiB is mapped, and its line numbers are no powers of two; the heap twin is compared by its halves.
        let mapped = Blocked::<1>::new(1, 40_000, &Limits::default()).unwrap();
        let folded = Blocked::<1>::new(1, 10_000, &Limits::default()).unwrap();
        let mut state = Fingerprint { first: 1, second: 2 };
        for _ in 0..100_000 {
            state = state.rehashed();
            mapped.insert(state);
            assert!(mapped.contains(state));
            folded.insert(state);
        }
        let quarter = mapped.halved().unwrap().halved().unwrap();
        assert_eq!(words(&quarter), words(&folded));
    }
}

#[cfg(loom)]
mod interleavings {
    //! Every interleaving that loom can think of, within its bound on preemptions.

    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    fn explore(test: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(test);
    }

    fn key(second: u64) -> Fingerprint {
        Fingerprint { first: 0, second }
    }

    fn one_line<const CELL: u32>() -> Arc<Blocked<CELL>> {
        Arc::new(Blocked::new(1, 1, &Limits::default()).unwrap())
    }

    /// Two keys that share seven of their eight cells.
    const ALIKE: [u64; 2] = [0, 63 << 42];

    #[test]
    fn of_two_that_add_the_same_key_one_is_told_that_it_was_new() {
        explore(|| {
            let filter = one_line::<1>();
            let other = thread::spawn({
                let filter = Arc::clone(&filter);
                move || filter.insert(key(ALIKE[0]))
            });
            let told = filter.insert(key(ALIKE[0]));
            assert!(told | other.join().unwrap());
            assert!(filter.contains(key(ALIKE[0])));
        });
    }

    #[test]
    fn counters_miss_no_add() {
        explore(|| {
            let filter = one_line::<4>();
            let other = thread::spawn({
                let filter = Arc::clone(&filter);
                move || filter.insert(key(ALIKE[0]))
            });
            filter.insert(key(ALIKE[1]));
            other.join().unwrap();
            assert!(ALIKE.iter().all(|second| filter.contains(key(*second))));
            assert_eq!(filter.count(key(0)), 1);
            assert!(filter.remove(key(ALIKE[0])));
            assert!(filter.contains(key(ALIKE[1])));
        });
    }

    #[test]
    fn a_refused_removal_never_hides_a_colliding_key() {
        explore(|| {
            let filter = one_line::<4>();
            // One key to be removed by two threads at once, and one that must stay visible throughout.
            filter.insert(key(ALIKE[0]));
            filter.insert(key(ALIKE[1]));
            let other = thread::spawn({
                let filter = Arc::clone(&filter);
                move || filter.remove(key(ALIKE[0]))
            });
            let removed = filter.remove(key(ALIKE[0]));
            assert!(filter.contains(key(ALIKE[1])));
            assert!(removed ^ other.join().unwrap(), "one removal for one add");
            assert!(filter.contains(key(ALIKE[1])));
            assert!(!filter.contains(key(ALIKE[0])));
        });
    }

    #[test]
    fn a_change_is_in_the_copy_or_reported_again() {
        explore(|| {
            let filter = one_line::<1>();
            filter.insert(key(1));
            let writer = thread::spawn({
                let filter = Arc::clone(&filter);
                move || {
                    filter.insert(key(2));
                }
            });
            let mut copy = Vec::new();
            assert_eq!(filter.array().take_dirty(), [0]);
            filter.array().copy_block(0, &mut copy);
            writer.join().unwrap();
            if !filter.array().take_dirty().is_empty() {
                filter.array().copy_block(0, &mut copy);
            }
            let mut whole = Vec::new();
            filter.array().copy_block(0, &mut whole);
            assert_eq!(copy, whole);
        });
    }
}
