//! Lookups compared with sets.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use common::{Exact, filter};
use proptest::prelude::*;
use umbel_core::engine::{Engine, NewFilter, Settings};
use umbel_core::log::MemoryLog;
use umbel_domains::{Answer, Catalog, Domain, EngineFilter, Origin, Standing};
use umbel_filter::{Family, Spec};

const SECOND: Duration = Duration::from_secs(1);

fn words(standings: &[Standing]) -> Vec<(&str, &'static str)> {
    standings.iter().map(|standing| (&*standing.domain, standing.answer.word())).collect()
}

fn domain(name: &str) -> Domain {
    Domain::new(name).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Filters of any kind and family: what is there is never absent, others are asked if and only if the local one does not have a key,
    /// and batches say what single questions say.
    #[test]
    fn filters_say_what_sets_say(
        domains in prop::collection::vec((0_usize..4, prop::collection::btree_set(0_u32..3000, 0..200)), 1..6),
        asked in prop::collection::vec(0_u32..3000, 0..2500),
    ) {
        let families = [Family::Murmur3, Family::Xxh3, Family::RedisBloom, Family::Murmur3];
        let key = |number: &u32| format!("record {number}");
        let held: Vec<_> = domains.iter().map(|(kind, keys)| {
            let spec = if *kind == 3 { Spec::counting(300, 0.01) } else { Spec::bloom(300, 0.01) };
            let filter = filter(&spec.family(families[*kind]));
            keys.iter().for_each(|number| { filter.insert(key(number)).unwrap(); });
            filter
        }).collect();
        let catalog = Catalog::new(domain("0").held(Arc::clone(&held[0]) as _));
        for (number, filter) in held.iter().enumerate().skip(1) {
            catalog.join(domain(&number.to_string()).held(Arc::clone(filter) as _)).unwrap();
        }
        let keys: Vec<String> = asked.iter().map(key).collect();
        let answers = catalog.look_many(&keys);
        prop_assert_eq!(answers.len(), keys.len());
        for (place, (number, text)) in asked.iter().zip(&keys).enumerate() {
            let told: Vec<(&str, Answer)> = answers.of(place).collect();
            let here = held[0].contains(text);
            prop_assert_eq!(answers.local(place), if here { Answer::Maybe } else { Answer::Absent });
            prop_assert_eq!(told.len(), if here { 1 } else { held.len() });
            for (name, answer) in &told {
                let which: usize = name.parse().unwrap();
                prop_assert_eq!(*answer == Answer::Maybe, held[which].contains(text));
                prop_assert!(*answer == Answer::Maybe || !domains[which].1.contains(number));
            }
            let maybes = told.iter().take_while(|(_, answer)| *answer == Answer::Maybe).count();
            prop_assert!(told[maybes..].iter().all(|(_, answer)| *answer == Answer::Absent));
            prop_assert_eq!(answers.is_absent(place), maybes == 0);
            if place % 97 == 0 {
                prop_assert_eq!(catalog.look(text), answers.standings(place));
            }
        }
    }

    /// Domains that are down, held here, elsewhere or both, in any mixture: nothing is absent that somebody may have, and nothing is
    /// said of those who cannot be asked.
    #[test]
    fn who_cannot_be_asked_is_unknown(
        domains in prop::collection::vec((any::<[bool; 4]>(), prop::collection::btree_set(0_u32..20, 0..10)), 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let key = |number: &u32| format!("{number}");
        let make = |number: usize| {
            let ([is_held, is_remote, here_down, there_down], keys) = &domains[number];
            let [here, there] = [here_down, there_down].map(|is_down| {
                let keys: Vec<String> = keys.iter().map(key).collect();
                let domain = Exact::of(&keys.iter().map(String::as_str).collect::<Vec<_>>());
                domain.set(|state| state.is_down = *is_down);
                domain.arc()
            });
            let mut made = domain(&number.to_string());
            if *is_held { made = made.held(here); }
            if *is_remote { made = made.remote(there); }
            made
        };
        let catalog = Catalog::new(make(0));
        (1..domains.len()).for_each(|number| catalog.join(make(number)).unwrap());
        let keys: Vec<String> = (0..20).map(|number| key(&number)).collect();
        let answers = runtime.block_on(catalog.lookup_many(&keys, SECOND));
        for number in 0..20_u32 {
            for (name, answer) in answers.of(number as usize) {
                let ([is_held, is_remote, here_down, there_down], keys) = &domains[name.parse::<usize>().unwrap()];
                let answers = *is_held && !here_down || *is_remote && !there_down;
                let expected = match keys.contains(&number) {
                    _ if !answers => Answer::Unknown,
                    true => Answer::Maybe,
                    false => Answer::Absent,
                };
                prop_assert_eq!(answer, expected);
            }
        }
    }
}

#[test]
fn the_likeliest_comes_first() {
    let of_age = |age: Option<u64>, keys: &[&str]| {
        let domain = Exact::of(keys);
        domain.set(|state| state.age = age.map(Duration::from_secs));
        domain.arc()
    };
    let catalog = Catalog::new(domain("here").held(of_age(Some(0), &["local"])));
    catalog.join(domain("old").held(of_age(Some(9), &["a"]))).unwrap();
    catalog.join(domain("fresh").held(of_age(Some(1), &["a"]))).unwrap();
    catalog.join(domain("ageless").held(of_age(None, &["a"]))).unwrap();
    catalog.join(domain("without").held(of_age(Some(0), &[]))).unwrap();
    catalog.join(domain("silent")).unwrap();
    let told = catalog.look("a");
    assert_eq!(
        words(&told),
        [
            ("fresh", "maybe"),
            ("old", "maybe"),
            ("ageless", "maybe"),
            ("silent", "unknown"),
            ("here", "absent"),
            ("without", "absent")
        ]
    );
    assert_eq!((told[1].age, told[1].origin), (Some(Duration::from_secs(9)), Origin::Filter));
    assert_eq!(words(&catalog.look("local")), [("here", "maybe")]);
}

#[test]
fn domains_come_and_go() {
    let catalog = Catalog::new(domain("here").held(Exact::of(&[]).arc()));
    assert!(catalog.join(domain("here")).is_err() && !catalog.leave("here"));
    catalog.join(domain("north")).unwrap();
    assert_eq!(words(&catalog.look("a")), [("north", "unknown"), ("here", "absent")]);
    catalog.join(domain("north").held(Exact::of(&["a"]).arc())).unwrap();
    assert_eq!(words(&catalog.look("a")), [("north", "maybe"), ("here", "absent")]);
    assert!(catalog.leave("north") && !catalog.leave("north"));
    assert_eq!(words(&catalog.look("a")), [("here", "absent")]);
    for bad in ["", "a b", "a/b", "é", &"x".repeat(200)] {
        assert!(Domain::new(bad).is_err(), "{bad}");
    }
}

#[tokio::test(start_paused = true)]
async fn deadlines_are_kept_and_late_domains_are_unknown() {
    let slow = Exact::of(&["a"]);
    slow.set(|state| state.delay = 10 * SECOND);
    let quick = Exact::of(&["a"]);
    quick.set(|state| (state.delay, state.age) = (SECOND / 10, Some(SECOND)));
    let catalog = Catalog::new(domain("here").held(Exact::of(&[]).arc()));
    catalog.join(domain("slow").remote(slow.arc())).unwrap();
    catalog.join(domain("quick").remote(quick.arc())).unwrap();
    let before = tokio::time::Instant::now();
    let told = catalog.lookup("a", SECOND).await;
    assert!((SECOND..SECOND * 11 / 10).contains(&before.elapsed()), "{:?}", before.elapsed());
    assert_eq!(words(&told), [("quick", "maybe"), ("slow", "unknown"), ("here", "absent")]);
    assert_eq!((told[0].age, told[0].origin), (Some(SECOND), Origin::Network));
    slow.set(|state| state.delay = Duration::ZERO);
    assert_eq!(words(&catalog.lookup("b", SECOND).await).len(), 3);
    assert!(catalog.lookup_many(&["b"], SECOND).await.is_absent(0));
    // One that comes back with old data says how old it is.
    quick.set(|state| (state.keys, state.age) = (BTreeSet::new(), Some(3600 * SECOND)));
    let told = catalog.lookup("a", SECOND).await;
    assert_eq!(words(&told), [("slow", "maybe"), ("here", "absent"), ("quick", "absent")]);
    assert_eq!(told[2].age, Some(3600 * SECOND));
}

#[tokio::test]
async fn an_engines_filter_is_found_by_its_name() {
    let (log, blobs) = (Arc::new(MemoryLog::new(2)), Arc::new(object_store::memory::InMemory::new()));
    let engine = Engine::builder(Settings { slots: 4, ..Settings::default() });
    let engine = Arc::new(engine.with_log(log).with_blobs(blobs).open().await.unwrap());
    let books = EngineFilter::new(Arc::clone(&engine), "books");
    let catalog = Catalog::new(domain("here").held(Arc::new(books.clone())).remote(Arc::new(books)));
    assert_eq!(words(&catalog.lookup("a", SECOND).await), [("here", "unknown")]);
    for round in 0..2 {
        let filter = engine.create(NewFilter::new("books", Spec::counting(1_000, 0.001))).await.unwrap();
        assert_eq!(words(&catalog.look("a")), [("here", "absent")]);
        engine.add(&filter, &[filter.hasher().fingerprint(b"a")]).await.unwrap();
        assert_eq!(words(&catalog.look("a")), [("here", "maybe")], "round {round}");
        engine.drop_filter(&filter).await.unwrap();
        assert_eq!(words(&catalog.look("a")), [("here", "unknown")]);
    }
}
