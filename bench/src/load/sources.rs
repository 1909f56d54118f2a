//! A load from each source, in turns with simply reading it.

use std::error::Error;
use std::time::Instant;

use super::places::{Parquet, Place, Postgres, Sqlite, Text};
use super::{MEMORY_MAX, PART, Subject, megabytes};
use crate::measure::{Progress, median};
use crate::report::{Figure, Report, Target};

const ROUNDS: usize = 5;
/// The share of the source's own speed that is to be reached, unless keys come faster than this on a core.
const SHARE: f64 = 0.8;
const KEYS_A_CORE: f64 = 3e6;

/// What one turn came to.
struct Turn {
    read_per_second: f64,
    loaded_per_second: f64,
    loader_ns: f64,
    server_ns: f64,
    peak_megabytes: f64,
}

pub(super) fn run(
    subject: &Subject,
    rows: u64,
    postgres: Option<&str>,
    quick: bool,
    report: &mut Report,
    progress: &mut Progress,
) -> Result<(), Box<dyn Error>> {
    progress.step(format!("making sources of {rows} rows"));
    let mut places: Vec<Box<dyn Place>> = vec![
        Box::new(Text::make(&subject.folder, rows)?),
        Box::new(Parquet::make(&subject.folder, rows)?),
        Box::new(Sqlite::make(&subject.folder, rows)?),
    ];
    match postgres {
        Some(address) => places.push(Box::new(Postgres::make(address, rows)?)),
        None => eprintln!("PostgreSQL is not measured: --postgres URL names a database"),
    }
    let rounds = if quick { 1 } else { ROUNDS };
    let mut turns: Vec<Vec<Turn>> = places.iter().map(|_| Vec::new()).collect();
    for round in 1..=rounds {
        for (place, turns) in places.iter_mut().zip(&mut turns) {
            progress.step(format!("{}, turn {round} of {rounds}", place.name()));
            turns.push(turn(subject, &mut **place, rows)?);
        }
    }
    progress.pause();
    for (place, turns) in places.iter().zip(&turns) {
        let of = |figure: fn(&Turn) -> f64| median(&turns.iter().map(figure).collect::<Vec<_>>());
        let what = |what: &str| format!("{}: {what}", place.name());
        let (read, loaded) = (of(|turn| turn.read_per_second), of(|turn| turn.loaded_per_second));
        let least = (SHARE * read).min(KEYS_A_CORE).round();
        report.figures(&[
            Figure::new(PART, what("simply read"), read, "rows/s"),
            Figure::new(PART, what("into a filter"), loaded, "rows/s")
                .against(loaded / read, "reading")
                .target(Target::AtLeast(least)),
            Figure::new(PART, what("loader's CPU a key"), of(|turn| turn.loader_ns), "ns"),
            Figure::new(PART, what("server's CPU a key"), of(|turn| turn.server_ns), "ns"),
            Figure::new(PART, what("loader's peak memory"), of(|turn| turn.peak_megabytes), "MB")
                .target(Target::AtMost(MEMORY_MAX)),
        ])?;
    }
    Ok(())
}

fn turn(subject: &Subject, place: &mut dyn Place, rows: u64) -> Result<Turn, Box<dyn Error>> {
    let begin = Instant::now();
    let found = place.read()?;
    let read = begin.elapsed();
    if found != rows {
        return Err(format!("{}: {found} rows of {rows} were read", place.name()).into());
    }
    subject.make_filter(rows)?;
    let before = subject.server.processor_time();
    let ran = subject.fill("load", &place.arguments(), rows)?;
    let served = subject.server.processor_time() - before;
    let each = |seconds: f64| seconds * 1e9 / rows as f64;
    Ok(Turn {
        read_per_second: rows as f64 / read.as_secs_f64(),
        loaded_per_second: rows as f64 / ran.took.as_secs_f64(),
        loader_ns: each(ran.processor_time.as_secs_f64()),
        server_ns: each(served.as_secs_f64()),
        peak_megabytes: megabytes(ran.peak_bytes),
    })
}
