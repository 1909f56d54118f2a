//! How many lookups a second one core does against ten domains. It takes minutes and gigabytes, so it is run when somebody asks for it:
//! `cargo test --release -p umbel-domains --test speed -- --ignored --nocapture`

use std::sync::Arc;
use std::time::Duration;

use umbel_core::clock::{Clock, SystemClock};
use umbel_domains::{Catalog, Domain};
use umbel_filter::{Filter, Fingerprint, Limits, Spec};

const BATCH: usize = 4096;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn key(domain: u64, record: u64) -> String {
    format!("{domain:03}-{record:012}")
}

#[test]
#[ignore = "it takes minutes and gigabytes"]
fn batches_reach_two_million_lookups_a_second() {
    let (domains, records) = (number("UMBEL_SPEED_DOMAINS", 10), number("UMBEL_SPEED_RECORDS", 10_000_000));
    let mut bytes = 0;
    let mut made = (0..domains).map(|domain| {
        let mut filter = Filter::new(&Spec::counting(records, 0.001), &Limits::default()).unwrap();
        let hasher = filter.hasher().clone();
        for first in (0..records).step_by(1 << 16) {
            let all = first..records.min(first + (1 << 16));
            let keys: Vec<Fingerprint> =
                all.map(|record| hasher.fingerprint(key(domain, record).as_bytes())).collect();
            filter.fill_fingerprints(&keys).unwrap();
        }
        bytes += filter.bytes();
        Domain::new(&format!("domain-{domain}")).unwrap().held(Arc::new(filter))
    });
    let catalog = Catalog::new(made.next().unwrap());
    made.for_each(|domain| catalog.join(domain).unwrap());
    println!("{domains} domains of {records} records in {} MB", bytes / 1_000_000);
    let clock = SystemClock::default();
    let shapes =
        [("absent everywhere", domains), ("in the last domain", domains - 1), ("in the local domain", 0)];
    for (what, domain) in shapes {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 20) % records
        };
        let keys: Vec<String> = (0..1 << 20).map(|_| key(domain, next())).collect();
        let (mut best, mut maybes) = (Duration::MAX, 0);
        for _ in 0..5 {
            let before = clock.now();
            maybes = keys
                .chunks(BATCH)
                .map(|keys| {
                    let answers = catalog.look_many(keys);
                    (0..answers.len()).filter(|key| !answers.is_absent(*key)).count()
                })
                .sum();
            best = best.min(clock.now() - before);
        }
        println!(
            "{what}: {:.2} M lookups a second; {maybes} of {} maybe",
            keys.len() as f64 / best.as_secs_f64() / 1e6,
            keys.len()
        );
    }
}
