//! Memory for a given error, down to rates that need a hundred million lookups to be seen at all.

use std::error::Error;
use std::f64::consts::LN_2;

use umbel_filter::Spec;

use super::contest::CHUNK;
use super::keys::{self, Kind, with_keys};
use super::peers::{Mode, Peer, Umbel};
use super::report::{Row, power};
use crate::measure::{Progress, median, per_item};

/// Error rates and the number of absent keys that each is measured with.
pub(super) const RATES: [(f64, u64); 5] =
    [(1e-2, 20_000_000), (1e-3, 20_000_000), (1e-4, 20_000_000), (1e-5, 100_000_000), (1e-6, 100_000_000)];
pub(super) const CASE: &str = "bits";
/// The peer of these rows: bits a key of the textbook's filter.
pub(super) const FORMULA: &str = "formula";
const KEYS: u64 = 1_000_000;

pub(super) fn run(progress: &mut Progress) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows = Vec::new();
    for (error, probes) in RATES {
        progress.step(format!("bits a key, error {}", power(error)));
        let mut filter = Umbel::new("umbel", Mode::Batch, &Spec::bloom(KEYS, error))?;
        with_keys(Kind::Ready, 0..KEYS, |keys| filter.insert(keys))?;
        let rounds = probes.div_ceil(CHUNK);
        let (mut times, mut found) = (Vec::new(), 0);
        for round in 0..rounds {
            progress.part(round, rounds);
            with_keys(Kind::Ready, keys::absent(CHUNK, round), |keys| {
                let (time, false_positives) = per_item(keys.len(), || filter.contains(keys));
                times.push(time);
                found += false_positives;
            });
        }
        let bits_per_key = filter.bytes() as f64 * 8.0 / KEYS as f64;
        rows.push(Row {
            case: CASE,
            n: KEYS,
            error,
            keys: Kind::Ready.name(),
            mode: Mode::Batch.name(),
            op: "miss",
            ours_ns: median(&times),
            peer: FORMULA,
            peer_ns: None,
            ratio: bits_per_key / (-error.log2() / LN_2),
            fpr: found as f64 / (rounds * CHUNK) as f64,
            bits_per_key,
        });
    }
    Ok(rows)
}

/// What a measured rate may be and still say that the filter holds `error`: two standard deviations of the count.
pub(super) fn tolerated(error: f64) -> f64 {
    let probes = RATES.iter().find(|(rate, _)| *rate == error).map_or(1, |(_, probes)| *probes);
    error + 2.0 * (error / probes as f64).sqrt()
}
