//! Real threads; the interleavings themselves are explored by loom in the library's own tests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use umbel_filter::{Filter, Layout, Limits, Spec};

const THREADS: u64 = 4;

#[test]
fn every_new_key_is_told_to_be_new_at_least_once() {
    for layout in [Layout::Blocked, Layout::Guava, Layout::RedisBloom { expansion: Some(2) }] {
        let keys = 50_000_u64;
        let filter = Filter::new(&Spec::hosted(layout, keys, 1e-6), &Limits::default()).unwrap();
        let told: Vec<AtomicU64> = (0..keys).map(|_| AtomicU64::new(0)).collect();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (filter, told) = (&filter, &told);
                scope.spawn(move || {
                    for i in 0..keys {
                        // Pairs of threads run through the keys in the same direction, close together.
                        let i = if thread % 2 == 0 { i } else { keys - 1 - i };
                        if filter.insert(i.to_le_bytes()).unwrap() {
                            told[i as usize].fetch_add(1, Ordering::Relaxed);
                        }
                        assert!(filter.contains(i.to_le_bytes()));
                    }
                });
            }
        });
        let silent = told.iter().filter(|told| told.load(Ordering::Relaxed) == 0).count();
        // A false positive may hide a new key, at the declared rate.
        assert!(silent <= 2, "{layout}: {silent}");
    }
}

/// Threads add and remove keys of their own in an array so small that every counter is shared; keys that stay must be
/// seen at every moment, and at the end the counters must be exactly those of the keys that stayed.
#[test]
fn adds_and_removes_of_colliding_keys_never_lose_another_key() {
    for spec in [Spec::counting(24, 0.05), Spec::counting(24, 1e-6)] {
        let filter = Filter::new(&spec, &Limits::default()).unwrap();
        let residents: Vec<String> = (0..8).map(|i| format!("resident {i}")).collect();
        residents.iter().for_each(|key| assert!(filter.insert(key).is_ok()));
        let before = filter.digest();
        let done = AtomicBool::new(false);
        let looks = thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut looks = 0_u64;
                while !done.load(Ordering::Relaxed) {
                    assert!(residents.iter().all(|key| filter.contains(key)), "a resident was hidden");
                    looks += 1;
                }
                looks
            });
            let workers = (0..THREADS).map(|thread| {
                let filter = &filter;
                scope.spawn(move || {
                    for round in 0..40_000 {
                        let key = format!("guest {} of {thread}", round % 3);
                        filter.insert(&key).unwrap();
                        assert!(filter.contains(&key));
                        assert!(filter.remove(&key).unwrap());
                    }
                })
            });
            workers.collect::<Vec<_>>().into_iter().for_each(|worker| worker.join().unwrap());
            done.store(true, Ordering::Relaxed);
            watcher.join().unwrap()
        });
        assert!(looks > 0);
        assert_eq!(filter.digest(), before, "what was added and removed leaves no trace");
    }
}

#[test]
fn of_many_removals_of_one_key_just_one_succeeds() {
    let filter = Filter::new(&Spec::counting(8, 0.1), &Limits::default()).unwrap();
    for round in 0..3000 {
        filter.insert("shared").unwrap();
        filter.insert("bystander").unwrap();
        let removed: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| filter.remove("shared").unwrap())).collect();
            threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
        });
        assert_eq!(removed, 1, "round {round}");
        assert!(filter.contains("bystander"));
        assert!(filter.remove("bystander").unwrap());
    }
}
