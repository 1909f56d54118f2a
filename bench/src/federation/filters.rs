//! What filters of many records take, and how fast all of them are asked.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use umbel_domains::{Catalog, Domain};
use umbel_filter::{Filter, Fingerprint, Limits, Spec};

use super::PART;
use super::world::key;
use crate::measure::Progress;
use crate::report::{Figure, Report, Target};

/// What others published for filters of 10 to 100 million records, in megabytes: 27 to 274, in proportion.
const PUBLISHED_MB: [(u64, f64); 3] = [(10_000_000, 27.0), (50_000_000, 137.0), (100_000_000, 274.0)];
const BATCH: usize = 4_096;
const LOOKUPS: u64 = 1 << 20;

/// The arrays of filters; untouched pages cost nothing, so none is filled.
pub(crate) fn memory(quick: bool, report: &mut Report) -> Result<(), Box<dyn Error>> {
    for (records, published) in PUBLISHED_MB.into_iter().take(if quick { 1 } else { 3 }) {
        let kinds = [
            ("bloom, 0.001", Spec::bloom(records, 0.001)),
            ("erasable, 0.01", Spec::counting(records, 0.01)),
            ("erasable, 0.001", Spec::counting(records, 0.001)),
        ];
        for (kind, spec) in kinds {
            let megabytes = Filter::new(&spec, &Limits::default())?.bytes() as f64 / 1e6;
            let what = format!("{} M records, {kind}: memory", records / 1_000_000);
            report.figure(
                Figure::new(PART, what, megabytes, "MB").against(megabytes / published, "what was published"),
            )?;
        }
    }
    Ok(())
}

/// Lookups of one core, many keys at a time.
pub(crate) fn lookups(
    quick: bool,
    report: &mut Report,
    progress: &mut Progress,
) -> Result<(), Box<dyn Error>> {
    let (domains, records) = if quick { (10, 100_000) } else { (10, 10_000_000) };
    progress.step(format!("{domains} filters of {records} records"));
    let mut catalog: Option<Catalog> = None;
    for domain in 0..domains {
        let mut filter = Filter::new(&Spec::counting(records, 0.001), &Limits::default())?;
        let hasher = filter.hasher().clone();
        for first in (0..records).step_by(1 << 16) {
            let numbers = first..records.min(first + (1 << 16));
            let keys: Vec<Fingerprint> =
                numbers.map(|record| hasher.fingerprint(key(record * domains + domain).as_bytes())).collect();
            filter.fill_fingerprints(&keys)?;
        }
        let domain = Domain::new(&format!("domain-{domain}"))?.held(Arc::new(filter));
        match &catalog {
            Some(catalog) => catalog.join(domain)?,
            None => catalog = Some(Catalog::new(domain)),
        }
        progress.part(catalog.as_ref().map_or(0, |catalog| catalog.others().len() as u64), domains);
    }
    let Some(catalog) = catalog else { return Ok(()) };
    progress.step("lookups in all of them".to_owned());
    for (what, first) in [("absent everywhere", records * domains), ("in some domain", 0)] {
        let keys: Vec<String> = (0..LOOKUPS)
            .map(|number| key(first + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (records * domains)))
            .collect();
        let (mut best, mut maybes) = (f64::MAX, 0);
        for _ in 0..5 {
            let begin = Instant::now();
            maybes = keys
                .chunks(BATCH)
                .map(|keys| {
                    let answers = catalog.look_many(keys);
                    (0..answers.len()).filter(|key| !answers.is_absent(*key)).count()
                })
                .sum();
            best = best.min(begin.elapsed().as_secs_f64());
        }
        let millions = LOOKUPS as f64 / best / 1e6;
        let share = 100.0 * maybes as f64 / LOOKUPS as f64;
        let what = format!("{domains} domains of {records}, {what} ({share:.1} % maybe)");
        report.figure(Figure::new(PART, what, millions, "M/s a core").target(Target::AtLeast(2.0)))?;
    }
    Ok(())
}
