//! What happens to filters besides keys: other names, other times, copies and unions.

use std::sync::Arc;
use std::time::Duration;

use umbel_core::Error;
use umbel_core::engine::{Handle, Loader};

use super::held::{Described, Held};
use super::{Case, GROWTHS, KEYS, NAMES, fingerprints};

impl Case {
    pub(super) async fn rename(&mut self, name: &'static str) {
        let (next, replace) = (NAMES[self.below(4) as usize], self.below(2) == 0);
        let taken = next != name && self.filters.contains_key(next);
        self.note(
            if taken && replace { "rename over another" } else { "rename" },
            &format!("{name} to {next}"),
        );
        let other = self.engine().filter(next).filter(|_| taken);
        let renamed = self.engine().rename(&self.handle(name), next, replace).await;
        if taken && !replace {
            assert!(matches!(renamed, Err(Error::Invalid(_))), "{renamed:?}");
            return;
        }
        renamed.unwrap();
        if let Some(other) = other {
            self.check_dropped(&other);
        }
        let mut held = self.filters.remove(name).unwrap();
        held.home_synced();
        self.freed.insert(name);
        self.take_name(next, held);
        assert!(next == name || self.engine().filter(name).is_none());
    }

    /// Another end, other labels, or another growth.
    pub(super) async fn describe(&mut self, name: &'static str) {
        let (handle, now) = (self.handle(name), self.now());
        let before = self.filters[name].now_described().clone();
        let next = match self.below(4) {
            0 | 1 => {
                let expires = (self.below(4) > 0).then(|| now + self.below(60));
                self.note("expire", &format!("{name} at {expires:?}, now {now}"));
                self.engine().expire(&handle, expires).await.unwrap();
                Described { expires, ..before }
            }
            2 => {
                let labels = bytes::Bytes::from(vec![self.below(256) as u8; self.below(257) as usize]);
                self.note("label", &format!("{name} {labels:?}"));
                self.engine().label(&handle, labels.clone()).await.unwrap();
                Described { labels, ..before }
            }
            _ => {
                let growth = GROWTHS[self.below(3) as usize];
                self.note("grow otherwise", &format!("{name} {growth:?}"));
                self.engine().set_growth(&handle, growth).await.unwrap();
                Described { growth, ..before }
            }
        };
        self.filters.get_mut(name).unwrap().described.push(next);
        self.lapse();
    }

    pub(super) fn pass_time(&mut self) {
        let most = [5, 25, 60][self.below(3) as usize];
        let millis = 1 + self.below(most);
        self.note("time passes", &format!("by {millis} to {}", self.now() + millis));
        let holding = |case: &Self| {
            let windows = case.filters.values().filter(|held| held.window.is_some());
            windows.map(|held| held.holding(case.now()).len()).sum::<usize>()
        };
        let before = holding(self);
        self.clock.advance(Duration::from_millis(millis));
        if holding(self) < before {
            self.tally.add("keys left a window");
        }
        self.lapse();
    }

    /// Filters whose time is over are gone from that millisecond on.
    fn lapse(&mut self) {
        for name in NAMES {
            let over = self.filters.get(name).is_some_and(|held| held.now_described().is_over(self.now()));
            if over && let Some(held) = self.filters.remove(name) {
                assert!(self.engine().filter(name).is_none(), "{name} is over");
                self.tally.add("expired");
                self.freed.insert(name);
                self.lapsed.push((name, held));
            }
        }
    }

    /// Dumps a filter, and makes another one of that.
    pub(super) async fn import(&mut self, name: &'static str) {
        let copy = NAMES[self.below(4) as usize];
        self.note("import", &format!("{copy} of {name}"));
        let source = self.handle(name);
        let (cursor, header) = match self.engine().dump(&source, 0).await {
            Ok(first) => first,
            Err(error) => {
                let window = self.filters[name].window.is_some();
                return assert!(window && matches!(error, Error::Invalid(_)), "{error}");
            }
        };
        let mut loader = Loader::new(&header, self.engine()).unwrap();
        let mut cursor = cursor;
        loop {
            let (next, chunk) = self.engine().dump(&source, cursor).await.unwrap();
            if next == 0 {
                break;
            }
            loader.load(next, &chunk).unwrap();
            cursor = next;
        }
        let imported = self.engine().import_loaded(copy, loader).await;
        if self.filters.contains_key(copy) {
            assert!(matches!(imported, Err(Error::Invalid(_))), "{imported:?}");
            return;
        }
        let imported = imported.unwrap();
        assert_eq!(imported.items(), source.items());
        let held = self.filters[name].clone();
        let described = Described { expires: None, ..held.now_described().clone() };
        let mut held = Held { id: imported.id(), retain: false, described: vec![described], ..held };
        // It is there as a whole, or not at all.
        held.synced();
        self.take_name(copy, held);
    }

    /// The union of filters is the sum of their counts.
    pub(super) async fn merge(&mut self, name: &'static str) {
        let some: Vec<_> = (0..1 + self.below(2)).filter_map(|_| self.any_filter()).collect();
        let (now, mut from) = (self.now(), Vec::new());
        for other in some {
            if other != name && !from.contains(&other) && !self.filters[other].is_uncertain(now) {
                from.push(other);
            }
        }
        if from.is_empty() {
            return;
        }
        self.steps.push(format!("merge {from:?} into {name}"));
        let into = self.filters[name].clone();
        // Without buckets, nothing of a window can be refused.
        let is_sure = |held: &Held| held.window.is_none() || !held.holding(now).is_empty();
        let fits = |held: &Held| held.chain == into.chain;
        let keyless = |held: &Held| {
            !held.retain && (into.retain || into.counting || held.counting || into.window.is_some())
        };
        let sources: Vec<Held> = from.iter().map(|other| self.filters[other].clone()).collect();
        let refused = sources.iter().any(|held| is_sure(held) && (!fits(held) || keyless(held)));
        let may_be_refused = sources.iter().any(|held| !fits(held) || !held.retain);

        let handles: Vec<Arc<Handle>> = from.iter().map(|other| self.handle(other)).collect();
        let merged = self.engine().merge(&self.handle(name), &handles).await;
        let whole = match &merged {
            Ok(_) => true,
            Err(Error::Invalid(why)) => !why.contains("only some keys"),
            Err(error) => panic!("{error}"),
        };
        assert!(!refused || merged.is_err(), "{merged:?}");
        if merged.is_err() && whole {
            assert!(may_be_refused, "{merged:?}");
            return self.tally.add("merge refused");
        }
        assert!(whole || into.may_be_full(), "{merged:?}");
        let mut after = into.clone();
        for source in &sources {
            for key in source.holding(now) {
                let times = if source.counting { source.count(key) } else { 1 };
                after.writes += times;
                after.add(key, times, now);
            }
        }
        if whole {
            let bits = sources.iter().any(|held| !held.retain);
            let windows = sources.iter().any(|held| held.window.is_some());
            self.tally.add(if bits {
                "merge bits"
            } else if windows {
                "merge a window"
            } else {
                "merge"
            });
            self.filters.insert(name, after);
            return;
        }
        self.tally.add("merge in part");
        let held = self.filters.get_mut(name).unwrap();
        held.writes = after.writes;
        if !held.retain {
            // What it took is not known, and so nothing more is demanded of it.
            return;
        }
        let keys: Vec<u64> = (0..KEYS).collect();
        let counts = self.engine().verify(&self.handle(name), &fingerprints(&keys)).await.unwrap();
        let held = self.filters.get_mut(name).unwrap();
        for (key, count) in keys.into_iter().zip(counts) {
            let ((least, before), (_, most)) = (into.range(key, now), after.range(key, now));
            assert!((least..=most).contains(&count), "{name}: key {key} {count} times of {least} to {most}");
            if held.window.is_some() {
                // One that was there before may have come to a newer bucket.
                held.may_come(key, count, before == 0, now);
            } else if count != least {
                held.set(key, count);
            }
        }
    }
}
