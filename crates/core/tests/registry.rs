//! The embedded registry: its contract, and the faults of its file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbel_core::Error;
use umbel_core::clock::ManualClock;
use umbel_core::disk::{Disk, Fault, MemoryDisk, RealDisk};
use umbel_core::registry::lock::{self, Fence};
use umbel_core::registry::{Change, EmbeddedRegistry, Expected, Registry, suite};

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn open(disk: &MemoryDisk) -> Result<EmbeddedRegistry, Error> {
    EmbeddedRegistry::open(Arc::new(disk.clone()), Path::new("/registry"), Arc::new(ManualClock::default()))
}

fn put(registry: &EmbeddedRegistry, name: &str, value: &str) -> Result<Change, Error> {
    block_on(registry.put(name, Bytes::copy_from_slice(value.as_bytes()), Expected::Anything, None))
}

fn get(registry: &EmbeddedRegistry, name: &str) -> Option<String> {
    let held = block_on(registry.get(name)).unwrap();
    held.map(|held| String::from_utf8(held.value.to_vec()).unwrap())
}

#[test]
fn it_keeps_the_contract_in_memory_and_in_files() {
    let folder = std::env::temp_dir().join(format!("umbel-registry-{}", std::process::id()));
    let disks: [Option<Arc<dyn Disk>>; 3] =
        [None, Some(Arc::new(MemoryDisk::default())), Some(Arc::new(RealDisk))];
    for disk in disks {
        let clock = ManualClock::default();
        let registry = match disk {
            None => EmbeddedRegistry::in_memory(Arc::new(clock.clone())),
            Some(disk) => EmbeddedRegistry::open(disk, &folder, Arc::new(clock.clone())).unwrap(),
        };
        let wait = move |time: Duration| -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
            clock.advance(time);
            Box::pin(std::future::ready(()))
        };
        block_on(suite::all(Arc::new(registry), &wait));
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_was_put_is_there_after_a_power_cut_and_leases_are_not() {
    for seed in 0..200 {
        let mut disk = MemoryDisk::default();
        let mut revision = 0;
        for round in 0..5 {
            let registry = open(&disk).unwrap();
            for number in 0..round {
                assert_eq!(get(&registry, &format!("name/{number}")), Some(format!("value {number}")));
            }
            assert_eq!(get(&registry, "leased"), None);
            let Change::Done(now) =
                put(&registry, &format!("name/{round}"), &format!("value {round}")).unwrap()
            else {
                panic!("a conflict")
            };
            assert!(now > revision);
            let lease = block_on(registry.grant(Duration::from_secs(9))).unwrap();
            let leased = registry.put("leased", Bytes::new(), Expected::Absent, Some(lease));
            let Change::Done(now) = block_on(leased).unwrap() else { panic!("a conflict") };
            revision = now;
            disk = disk.after_power_cut(seed * 10 + round);
        }
    }
}

/// Every operation of the disk fails once: what was acknowledged is there, and a full disk is no end.
#[test]
fn every_operation_of_the_disk_may_fail() {
    for fault in [Fault::Full, Fault::Broken] {
        let mut failures = 0;
        for nth in 1..60 {
            let disk = MemoryDisk::default();
            let registry = open(&disk).unwrap();
            disk.fail_at(nth, fault);
            let mut acknowledged = Vec::new();
            for number in 0..12 {
                match put(&registry, &format!("name/{number}"), "value") {
                    Ok(_) => acknowledged.push(number),
                    Err(Error::Retry(_) | Error::Closed(_)) => failures += 1,
                    Err(other) => panic!("{other}"),
                }
                if number % 3 == 2 {
                    disk.mend();
                }
            }
            if fault == Fault::Full {
                disk.mend();
                let outcome = put(&registry, "after", "space is back");
                assert!(outcome.is_ok() || matches!(outcome, Err(Error::Closed(_))), "{outcome:?}");
            }
            for disk in [disk.after_power_cut(nth), disk] {
                let registry = open(&disk).unwrap();
                let missing =
                    acknowledged.iter().filter(|number| get(&registry, &format!("name/{number}")).is_none());
                assert_eq!(missing.count(), 0, "{fault:?} at {nth}");
            }
        }
        println!("{fault:?}: {failures} puts refused, nothing acknowledged was lost");
        assert!(failures > 40);
    }
}

#[test]
fn a_damaged_file_is_refused_by_name() {
    let disk = MemoryDisk::default();
    let registry = open(&disk).unwrap();
    put(&registry, "some/name", "some value").unwrap();
    put(&registry, "another/name", "another value").unwrap();
    let path = Path::new("/registry/registry");
    let length = disk.files().iter().find(|(file, _)| file == path).unwrap().1 as usize;
    let check = |damaged: &MemoryDisk, what: String| {
        let error = open(damaged).unwrap_err();
        assert!(
            matches!(&error, Error::Corrupt(why) if why.contains("/registry/registry at byte")),
            "{what}: {error}"
        );
    };
    for bit in 0..length * 8 {
        let damaged = disk.copied();
        damaged.tamper(path, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        check(&damaged, format!("bit {bit}"));
    }
    for cut in 0..length {
        let damaged = disk.copied();
        damaged.tamper(path, |bytes| bytes.truncate(cut));
        check(&damaged, format!("cut to {cut}"));
    }
}

/// A holder that sleeps past its lease is refused after another one came.
#[test]
fn locks_are_fenced() {
    let clock = ManualClock::default();
    let registry = EmbeddedRegistry::in_memory(Arc::new(clock.clone()));
    let time = Duration::from_secs(5);
    let take = |owner: &'static [u8]| {
        block_on(async {
            let lease = registry.grant(time).await.unwrap();
            lock::acquire(&registry, "lock", Bytes::from_static(owner), lease).await.unwrap()
        })
    };
    let fence = Fence::default();
    let early = take(b"one").unwrap();
    assert!(fence.passes(early.number) && fence.passes(early.number));
    assert_eq!(take(b"one").unwrap(), early, "who asks again has it still");
    assert_eq!(take(b"other"), None);
    clock.advance(time);
    let late = take(b"other").unwrap();
    assert!(late.number > early.number && fence.passes(late.number) && !fence.passes(early.number));
    block_on(lock::release(&registry, &early)).unwrap();
    assert_eq!(take(b"third"), None, "who has lost it cannot release it");
    block_on(lock::release(&registry, &late)).unwrap();
    assert!(take(b"third").unwrap().number > late.number);
}
