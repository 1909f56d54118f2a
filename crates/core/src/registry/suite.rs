//! The contract of [`Registry`] as tests, for every implementation: call [`all`] with an empty registry.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Change, Expected, Registry, Versioned};
use crate::Error;
use crate::limits::{REGISTRY_KEY_BYTES_MAX, REGISTRY_VALUE_BYTES_MAX};

/// Lets at least so much time pass, as the registry sees it.
pub type Wait<'a> = &'a (dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> + Sync);

/// What [`all`] runs, for tables of what passed.
pub const CASES: [&str; 6] = [
    "values have versions",
    "one of many wins",
    "listings are whole and in order",
    "changes are noticed",
    "leases end",
    "limits are kept",
];

/// Runs every test of the suite. Call it on a runtime that can spawn tasks.
///
/// # Panics
/// When the registry breaks its contract.
pub async fn all(registry: Arc<dyn Registry>, wait: Wait<'_>) {
    values_have_versions(&*registry).await;
    one_of_many_wins(Arc::clone(&registry)).await;
    listings_are_whole_and_in_order(&*registry).await;
    changes_are_noticed(Arc::clone(&registry)).await;
    leases_end(&*registry, wait).await;
    limits_are_kept(&*registry).await;
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn done(change: Change) -> u64 {
    match change {
        Change::Done(revision) => Ok(revision),
        Change::Conflict(current) => Err(current),
    }
    .expect("no conflict")
}

async fn put(registry: &dyn Registry, name: &str, value: &str, expected: Expected) -> Change {
    registry.put(name, bytes(value), expected, None).await.expect("put")
}

async fn get(registry: &dyn Registry, name: &str) -> Option<Versioned> {
    registry.get(name).await.expect("get")
}

/// Compare-and-set, and versions that only grow.
///
/// # Panics
/// When the registry breaks its contract.
pub async fn values_have_versions(registry: &dyn Registry) {
    assert_eq!(get(registry, "v/a").await, None);
    let first = done(put(registry, "v/a", "one", Expected::Absent).await);
    let held = Versioned { value: bytes("one"), version: first };
    assert_eq!(get(registry, "v/a").await, Some(held.clone()));
    for wrong in [Expected::Absent, Expected::Version(first + 1), Expected::Version(0)] {
        let conflict = Change::Conflict(Some(held.clone()));
        assert_eq!(put(registry, "v/a", "two", wrong).await, conflict);
        assert_eq!(registry.delete("v/a", wrong).await.expect("delete"), conflict);
    }
    let second = done(put(registry, "v/a", "two", Expected::Version(first)).await);
    let third = done(put(registry, "v/a", "three", Expected::Anything).await);
    assert!(first < second && second < third);
    let deleted = done(registry.delete("v/a", Expected::Version(third)).await.expect("delete"));
    assert!(deleted > third);
    assert_eq!(get(registry, "v/a").await, None);
    done(registry.delete("v/a", Expected::Anything).await.expect("deleted already"));
    assert_eq!(put(registry, "v/a", "four", Expected::Version(third)).await, Change::Conflict(None));
    assert!(
        done(put(registry, "v/a", "", Expected::Absent).await) > deleted,
        "made again, with another version"
    );
    assert_eq!(get(registry, "v/a").await.expect("an empty value is a value").value, bytes(""));
}

/// Tasks that count up one value by compare-and-set lose no step.
///
/// # Panics
/// When the registry breaks its contract.
pub async fn one_of_many_wins(registry: Arc<dyn Registry>) {
    const TASKS: u64 = 4;
    const STEPS: u64 = 25;
    done(put(&*registry, "count", "0", Expected::Absent).await);
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let registry = Arc::clone(&registry);
            tokio::spawn(async move {
                for _ in 0..STEPS {
                    loop {
                        let held = get(&*registry, "count").await.expect("it is there");
                        let number: u64 =
                            std::str::from_utf8(&held.value).expect("text").parse().expect("a number");
                        let next = (number + 1).to_string();
                        let change = put(&*registry, "count", &next, Expected::Version(held.version)).await;
                        if matches!(change, Change::Done(_)) {
                            break;
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task");
    }
    assert_eq!(
        get(&*registry, "count").await.expect("it is there").value,
        bytes(&(TASKS * STEPS).to_string())
    );
}

/// A listing has what begins with its prefix and nothing else.
///
/// # Panics
/// When the registry breaks its contract.
pub async fn listings_are_whole_and_in_order(registry: &dyn Registry) {
    for name in ["l/b", "l/a/2", "l/a/1", "l", "m/a", "l/a"] {
        done(put(registry, name, name, Expected::Absent).await);
    }
    let listed = registry.list("l/").await.expect("list");
    let names: Vec<_> = listed.entries.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["l/a", "l/a/1", "l/a/2", "l/b"]);
    assert!(
        listed
            .entries
            .iter()
            .all(|(name, held)| held.value == bytes(name) && held.version <= listed.revision)
    );
    assert!(registry.list("none/").await.expect("list").entries.is_empty());
}

/// Who waits is told: of a change that comes, and of one that came before it waited.
///
/// # Panics
/// When the registry breaks its contract.
pub async fn changes_are_noticed(registry: Arc<dyn Registry>) {
    let before = registry.list("w/").await.expect("list").revision;
    let waiting = tokio::spawn({
        let registry = Arc::clone(&registry);
        async move { registry.changed("w/", before).await }
    });
    tokio::task::yield_now().await;
    done(put(&*registry, "w/a", "new", Expected::Absent).await);
    waiting.await.expect("a task").expect("changed");
    registry.changed("w/", before).await.expect("it changed before");
    let after = registry.list("w/").await.expect("list");
    assert!(after.revision > before && after.entries.len() == 1);
}

/// What was put under a lease goes with it.
///
/// # Panics
/// When the registry breaks its contract.
pub async fn leases_end(registry: &dyn Registry, wait: Wait<'_>) {
    // Servers round up to whole seconds.
    let time = Duration::from_secs(3);
    let lease = registry.grant(time).await.expect("grant");
    done(registry.put("e/leased", bytes("x"), Expected::Absent, Some(lease)).await.expect("put"));
    done(put(registry, "e/lasting", "x", Expected::Absent).await);
    for _ in 0..3 {
        wait(time / 2).await;
        assert!(registry.keep_alive(lease).await.expect("keep alive"));
    }
    assert!(get(registry, "e/leased").await.is_some(), "it is kept alive");
    wait(time * 3).await;
    assert_eq!(get(registry, "e/leased").await, None, "it has ended");
    assert!(get(registry, "e/lasting").await.is_some());
    assert!(!registry.keep_alive(lease).await.expect("keep alive"));
    let late = registry.put("e/late", bytes("x"), Expected::Absent, Some(lease)).await;
    assert!(matches!(late, Err(Error::Invalid(_))), "{late:?}");

    let lease = registry.grant(time).await.expect("grant");
    done(registry.put("e/revoked", bytes("x"), Expected::Absent, Some(lease)).await.expect("put"));
    registry.revoke(lease).await.expect("revoke");
    assert_eq!(get(registry, "e/revoked").await, None);

    let (first, second) =
        (registry.grant(time).await.expect("grant"), registry.grant(time).await.expect("grant"));
    done(registry.put("e/moved", bytes("x"), Expected::Absent, Some(first)).await.expect("put"));
    done(registry.put("e/moved", bytes("x"), Expected::Anything, Some(second)).await.expect("put"));
    registry.revoke(first).await.expect("revoke");
    assert!(get(registry, "e/moved").await.is_some(), "it is under the lease of its last put");
    registry.revoke(second).await.expect("revoke");
    assert_eq!(get(registry, "e/moved").await, None);
}

/// The largest value is taken, a larger one refused.
///
/// # Panics
/// When the registry breaks its contract.
pub async fn limits_are_kept(registry: &dyn Registry) {
    let large = Bytes::from(vec![b'x'; REGISTRY_VALUE_BYTES_MAX]);
    done(registry.put("large", large.clone(), Expected::Absent, None).await.expect("put"));
    assert_eq!(get(registry, "large").await.expect("it is there").value, large);
    let larger = Bytes::from(vec![b'x'; REGISTRY_VALUE_BYTES_MAX + 1]);
    let names = [String::new(), "n".repeat(REGISTRY_KEY_BYTES_MAX + 1)];
    let refused = registry.put("larger", larger, Expected::Absent, None).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    for name in names {
        assert!(matches!(registry.get(&name).await, Err(Error::Invalid(_))));
        assert!(matches!(
            registry.put(&name, bytes("x"), Expected::Anything, None).await,
            Err(Error::Invalid(_))
        ));
    }
}
