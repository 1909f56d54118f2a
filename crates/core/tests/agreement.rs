//! What all nodes of a deployment agree on: who comes later takes it, or is told in what it differs.

use std::sync::Arc;

use bytes::Bytes;
use umbel_core::Error;
use umbel_core::agreement::Agreement;
use umbel_core::clock::ManualClock;
use umbel_core::registry::{Change, EmbeddedRegistry, Expected, Registry};
use umbel_filter::Secret;

const NAME: &str = "deployment";

fn registry() -> EmbeddedRegistry {
    EmbeddedRegistry::in_memory(Arc::new(ManualClock::default()))
}

fn node(slots: u32, partitions: u32, secret: Option<u8>) -> Agreement {
    let secret = secret.map(|byte| Secret([byte; 16]));
    Agreement::of_node(slots, partitions, secret.as_ref()).unwrap()
}

async fn text(registry: &dyn Registry) -> String {
    let found = registry.get(NAME).await.unwrap().unwrap();
    String::from_utf8(found.value.to_vec()).unwrap()
}

async fn put(registry: &dyn Registry, text: &str) {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    let put = registry.put(NAME, bytes, Expected::Anything, None).await.unwrap();
    assert!(matches!(put, Change::Done(_)));
}

#[tokio::test]
async fn the_first_decides_and_others_join() {
    let registry = registry();
    assert_eq!(Agreement::read(&registry).await.unwrap(), None);
    node(256, 8, None).join(&registry).await.unwrap();
    let before = registry.get(NAME).await.unwrap().unwrap().version;
    node(256, 8, None).join(&registry).await.unwrap();
    assert_eq!(registry.get(NAME).await.unwrap().unwrap().version, before, "nothing new, nothing written");
    let agreed = Agreement::read(&registry).await.unwrap().unwrap();
    assert_eq!((agreed.slots, agreed.partitions), (256, 8));

    // Of many that start at once with different ideas, one has its way.
    let registry = Arc::new(self::registry());
    let tasks: Vec<_> = (1..=16)
        .map(|slots| {
            let registry = Arc::clone(&registry);
            tokio::spawn(async move { node(slots, 1, None).join(&*registry).await.is_ok().then_some(slots) })
        })
        .collect();
    let mut winners = Vec::new();
    for task in tasks {
        winners.extend(task.await.unwrap());
    }
    assert_eq!(winners, [Agreement::read(&*registry).await.unwrap().unwrap().slots]);
}

#[tokio::test]
async fn differences_are_named_with_both_values() {
    let registry = registry();
    node(256, 8, Some(1)).join(&registry).await.unwrap();
    let before = text(&registry).await;
    for (other, expected) in [
        (node(128, 8, Some(1)), &["slots 128 here and 256 there"][..]),
        (node(128, 4, Some(1)), &["slots 128 here and 256 there", "partitions 4 here and 8 there"]),
        (node(256, 8, Some(2)), &["secret's fingerprint"]),
        (node(256, 8, None), &["secret's fingerprint none here"]),
    ] {
        let error = other.join(&registry).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)));
        let error = error.to_string();
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    }
    assert_eq!(text(&registry).await, before, "who is refused changes nothing");
}

#[tokio::test]
async fn a_secret_may_come_later_and_is_not_shown() {
    let registry = registry();
    node(16, 2, None).join(&registry).await.unwrap();
    node(16, 2, Some(0xab)).join(&registry).await.unwrap();
    assert!(!text(&registry).await.contains("abab"), "a fingerprint, not the secret");
    node(16, 2, Some(0xab)).join(&registry).await.unwrap();
    assert!(node(16, 2, None).join(&registry).await.is_err());
}

#[tokio::test]
async fn a_build_that_is_too_old_is_refused_and_a_newer_one_raises_the_formats() {
    let registry = registry();
    node(16, 2, None).join(&registry).await.unwrap();
    let ours = text(&registry).await;
    let entry = ours.lines().find(|line| line.starts_with("entry ")).unwrap();
    put(&registry, &ours.replace(entry, "entry 99")).await;
    let error = node(16, 2, None).join(&registry).await.unwrap_err().to_string();
    assert!(error.contains(&format!("format {entry} here and 99 there")), "{error}");
    put(&registry, &format!("{ours}sketch 1\n")).await;
    let error = node(16, 2, None).join(&registry).await.unwrap_err().to_string();
    assert!(error.contains("format sketch 0 here and 1 there"), "{error}");

    put(&registry, "slots 16\npartitions 2\nentry 0\n").await;
    node(16, 2, None).join(&registry).await.unwrap();
    assert_eq!(text(&registry).await, ours);
}

#[tokio::test]
async fn damage_is_told() {
    let registry = registry();
    let long = "x 1\n".repeat(2000);
    for damaged in [
        "",
        "slots 16",
        "slots 0\npartitions 1\n",
        "slots -1\npartitions 1\n",
        "slots 1\nslots 1\npartitions 1\n",
        "slots 1\npartitions 1\nsecret what\n",
        "slots\n",
        &long,
    ] {
        put(&registry, damaged).await;
        let read = Agreement::read(&registry).await;
        assert!(matches!(read, Err(Error::Corrupt(_))), "{damaged:?}: {read:?}");
        assert!(node(1, 1, None).join(&registry).await.is_err());
    }
}

#[tokio::test]
async fn a_cluster_and_a_single_server_keep_out_of_each_others_deployments() {
    let registry = EmbeddedRegistry::in_memory(Arc::new(ManualClock::default()));
    let ours = node(256, 8, None).in_cluster("orders", 2);
    ours.join(&registry).await.unwrap();
    ours.join(&registry).await.unwrap();
    assert_eq!(Agreement::read(&registry).await.unwrap().unwrap().cluster(), Some(("orders", 2)));
    for (other, shown) in [
        (node(256, 8, None), "cluster none here and orders with 2"),
        (node(256, 8, None).in_cluster("users", 2), "cluster users with 2"),
        (node(256, 8, None).in_cluster("orders", 3), "orders with 3"),
    ] {
        let error = other.join(&registry).await.unwrap_err().to_string();
        assert!(error.contains(shown), "{error}");
    }
    let registry = EmbeddedRegistry::in_memory(Arc::new(ManualClock::default()));
    node(256, 8, None).join(&registry).await.unwrap();
    assert!(ours.join(&registry).await.unwrap_err().to_string().contains("and none there"));
}
