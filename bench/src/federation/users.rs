//! People who ask at the same time, each for one record after another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::world::{World, key};
use crate::measure::at;

/// How long a lookup may take: longer than any does.
const WITHIN: Duration = Duration::from_secs(60);
/// Of so many numbers, one belongs to no record.
const MISSING: u64 = 10;

/// How a record is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Every database, at the same time.
    Everywhere,
    /// Filters, then the database that may have it.
    Filters,
    /// The same, and what was fetched is kept for a while.
    Kept,
    /// Filters alone: where it is, without the record.
    Where,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Everywhere, Self::Filters, Self::Kept, Self::Where];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Everywhere => "every database",
            Self::Filters => "filters, then one",
            Self::Kept => "filters and cache",
            Self::Where => "filters, where only",
        }
    }
}

/// What people saw.
pub(crate) struct Asked {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) per_second: f64,
    pub(crate) found: u64,
    pub(crate) answers: u64,
}

/// Numbers that people ask for: few are asked for often, and one in ten is nobody's.
struct Numbers {
    state: u64,
    records: u64,
}

impl Numbers {
    fn next(&mut self) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let share = (self.state >> 11) as f64 / (1_u64 << 53) as f64;
        let number = (self.records as f64 * share.powi(4)) as u64;
        if self.state.rotate_left(7).is_multiple_of(MISSING) { self.records + number } else { number }
    }
}

/// Lets so many people ask for so long.
pub(crate) async fn ask(world: &World, way: Way, users: u32, time: Duration) -> Asked {
    let begin = Instant::now();
    let asking = (0..users).map(|user| {
        let numbers = Numbers { state: u64::from(user) + 1, records: world.records };
        let (catalog, sources) =
            (Arc::clone(if way == Way::Kept { &world.hot } else { &world.cold }), world.sources.clone());
        tokio::spawn(async move { one(numbers, way, &catalog, &sources, begin + time).await })
    });
    let (mut latencies, mut found) = (Vec::new(), 0);
    for (own, hits) in join_all(asking).await.into_iter().flatten() {
        latencies.extend(own);
        found += hits;
    }
    let (answers, took) = (latencies.len() as u64, begin.elapsed());
    Asked {
        p50_ms: at(&mut latencies, 0.5),
        p99_ms: at(&mut latencies, 0.99),
        per_second: answers as f64 / took.as_secs_f64(),
        found,
        answers,
    }
}

async fn one(
    mut numbers: Numbers,
    way: Way,
    catalog: &umbel_domains::Catalog,
    sources: &[Arc<dyn umbel_domains::Source>],
    end: Instant,
) -> (Vec<f64>, u64) {
    let (mut latencies, mut found) = (Vec::new(), 0);
    while Instant::now() < end {
        let key = key(numbers.next());
        let begin = Instant::now();
        let is_found = match way {
            Way::Everywhere => {
                let asked = join_all(sources.iter().map(|source| source.fetch(key.as_bytes()))).await;
                asked.into_iter().any(|told| matches!(told, Ok(Some(_))))
            }
            Way::Filters | Way::Kept => catalog.fetch(&key, WITHIN).await.record.is_some(),
            Way::Where => {
                let is_there = catalog
                    .look(&key)
                    .first()
                    .is_some_and(|likeliest| likeliest.answer == umbel_domains::Answer::Maybe);
                // People are not asked to wait for others' processors.
                tokio::task::yield_now().await;
                is_there
            }
        };
        latencies.push(begin.elapsed().as_secs_f64() * 1e3);
        found += u64::from(is_found);
    }
    (latencies, found)
}
