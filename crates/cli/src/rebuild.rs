//! `umbel rebuild`: a filter is filled anew from where its keys are, while it is used.

use std::error::Error;
use std::process::ExitCode;

use serde_json::json;
use umbel_load::sink::{Rebuild, ServerSink};
use umbel_load::size;

use crate::load::STOPPED;
use crate::load::fill::{Fill, Filled, Reading};
use crate::load::from::Place;
use crate::load::show::{counted, event};
use crate::remote::Remote;
use crate::units::{grouped, parse_count};

/// Fills a filter anew from files, objects, a database, a Redis or a topic of Kafka, and lets the new one take its place
///
/// The filter answers and takes keys all the while. What is added to it or taken out of it meanwhile is so in the new one as well, and the
/// new one takes its place at one moment, when everything was read: nobody sees less. Whatever fails before leaves the filter as it was.
/// Stopped, killed or refused, it waits with its memory: the same command goes on from where it was, --restart begins again, and
/// --abort gives it up.
#[derive(clap::Args)]
#[command(
    mut_arg("source", |source| source.required(false).required_unless_present("abort")),
    after_help = "An application adds a key to the filter after it has put it into the database, or before: of what it does while the table is read, both are seen.
What it added to the filter before the rebuild began and puts into the database only later, behind what was read, is not: begin when such work is done.
Examples:
  umbel rebuild urls postgres://app@db1/shop --table public.orders --column url
  umbel rebuild urls 'exports/*.parquet' --column url --capacity 200M
  umbel rebuild urls keys.txt --anyway         # although it has less than half as many keys as the filter
  umbel rebuild urls --abort                   # gives up one that was begun; also DELETE /v1/filters/urls/rebuild"
)]
pub(crate) struct Arguments {
    /// The filter
    filter: String,
    #[command(flatten)]
    from: Place,
    #[command(flatten)]
    remote: Remote,
    /// The capacity of the new one; else what the source needs, or the filter's own
    #[arg(long, value_parser = parse_count)]
    capacity: Option<u64>,
    /// The error rate of the new one; else the filter's own
    #[arg(long)]
    error: Option<f64>,
    /// Lets the new one take the filter's place although it has no keys, or less than half as many
    #[arg(long)]
    anyway: bool,
    /// Gives up a rebuild that was begun, and frees its memory; the filter is as it was
    #[arg(long, conflicts_with_all = ["anyway", "restart", "capacity", "error"])]
    abort: bool,
    #[command(flatten)]
    reading: Reading,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let (name, json) = (&arguments.filter, arguments.reading.json);
    if arguments.abort {
        return abort(arguments);
    }
    let source = arguments.from.open()?;
    let mut sink = ServerSink::new(arguments.remote.open()?, name)?;
    let facts =
        sink.facts()?.ok_or_else(|| format!("there is no filter {name}; umbel load --create makes one"))?;
    let mut begun = sink.rebuild()?;
    if begun.is_some() && arguments.reading.restart {
        sink.abort_rebuild()?;
        begun = None;
    }
    let is_new = begun.is_none();
    let rebuild = match begun {
        Some(rebuild) => rebuild,
        None => {
            let parts = source.parts(1)?;
            let expected = size::estimate(&*source, &parts)?;
            // Smaller than before only if that is asked for.
            let needed = expected.map(size::capacity_for).filter(|needed| *needed > facts.capacity);
            sink.begin_rebuild(arguments.capacity.or(needed), arguments.error)?
        }
    };
    if let Some(why) = &rebuild.failed {
        let ways = format!("--restart begins again, {}", giving_up(name));
        return Err(format!("the rebuild of {name} cannot be finished: {why}; {ways}").into());
    }
    tell(json, &rebuild, is_new, name);
    sink.fill_rebuild();
    let fill = Fill {
        reading: &arguments.reading,
        source: &*source,
        sink: &sink,
        target: format!("{name} at {}, rebuild {}", arguments.remote.server, rebuild.id),
        // What the source says twice counts once here.
        exactly_once: false,
    };
    let filled = fill.run(|_| Ok(())).map_err(|error| format!("{error}; {}", giving_up(name)))?;
    let Filled::Whole { counts, seconds, rate } = filled else {
        eprintln!("umbel: {}", giving_up(name));
        return Ok(ExitCode::from(STOPPED));
    };
    let now = sink.finish_rebuild(&rebuild, arguments.anyway).map_err(|error| {
        let told = error.to_string();
        let go_on =
            if told.contains("force") { "with --anyway the same command" } else { "the same command" };
        format!("{told}; {go_on} goes on, {}", giving_up(name))
    })?;
    if json {
        let mut told = counted(&counts);
        told["event"] = "switched".into();
        told["seconds"] = seconds.into();
        told["items"] = now.items.into();
        told["capacity"] = now.capacity.into();
        event(&told);
        return Ok(ExitCode::SUCCESS);
    }
    let number = |number: u64| grouped(number.into());
    println!(
        "{} keys from {} in {seconds:.1} s, {} a second: {name} has {} items now and room for {}",
        number(counts.keys),
        source.name(),
        grouped(rate as u128),
        number(now.items),
        number(now.capacity)
    );
    if counts.nulls > 0 {
        println!("{} rows without a key were passed over", number(counts.nulls));
    }
    Ok(ExitCode::SUCCESS)
}

/// Gives up the rebuild that was begun.
fn abort(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let name = &arguments.filter;
    let sink = ServerSink::new(arguments.remote.open()?, name)?;
    let Some(rebuild) = sink.rebuild()? else { return Err(format!("no rebuild of {name} was begun").into()) };
    sink.abort_rebuild()?;
    match arguments.reading.json {
        true => event(&json!({ "event": "aborted", "id": rebuild.id, "items": rebuild.items })),
        false => println!(
            "the rebuild of {name}, which had {} keys, is given up: {name} is as it was",
            grouped(rebuild.items.into())
        ),
    }
    Ok(ExitCode::SUCCESS)
}

/// How a rebuild that waits is given up.
fn giving_up(name: &str) -> String {
    format!("umbel rebuild {name} --abort gives it up and frees its memory")
}

fn tell(json: bool, rebuild: &Rebuild, is_new: bool, name: &str) {
    let room = grouped(rebuild.capacity.into());
    if json {
        event(
            &json!({ "event": "rebuild", "id": rebuild.id, "capacity": rebuild.capacity, "begun_before": !is_new }),
        );
    } else if is_new {
        eprintln!("umbel: {name} is filled anew, with room for {room} keys; until then it answers as before");
    } else {
        eprintln!(
            "umbel: going on with the rebuild of {name}, which has {} keys",
            grouped(rebuild.items.into())
        );
    }
}
