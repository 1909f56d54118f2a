//! `umbel load`: keys from where they are into a filter.

pub(crate) mod fill;
pub(crate) mod from;
pub(crate) mod show;

use std::error::Error;
use std::process::ExitCode;

use serde_json::json;
use umbel_filter::{Geometry, Spec};
use umbel_load::sink::{Facts, ServerSink};
use umbel_load::size::{self, Room};
use umbel_load::{Counts, Progress, Source};

use crate::remote::Remote;
use crate::units::{grouped, parse_count};
use fill::{Fill, Filled, Reading, watched};
use from::Place;
use show::{Show, counted, event};

/// The exit status of what was stopped from outside: the same command goes on.
pub(crate) const STOPPED: u8 = 130;

/// Adds keys from files, objects, a database, a Redis or a topic of Kafka to a filter
///
/// What has arrived is written down in a file beside you. Stopped or killed, the same command goes on from there; the file goes when
/// all is done. Rows without a key (NULL, empty lines and fields) are counted and passed over.
#[derive(clap::Args)]
#[command(
    after_help = "A table is read by ranges of its primary key, in parallel. Passwords are better in UMBEL_SOURCE, PGPASSWORD or MYSQL_PWD than on the command line.
Examples:
  umbel load urls keys.txt
  umbel load urls 'logs/*.ndjson.gz' --field request.url
  umbel load mails users.csv --column email --create
  zcat keys.gz | umbel load urls -
  umbel load urls sqlite:shop.db --table orders --column url
  umbel load urls postgres://app@db1/shop --table public.orders --column url --rate 50000
  umbel load urls mysql://app@db1/shop --query 'SELECT id, url FROM orders WHERE paid' --key id --column url
  umbel load urls redis://old:6379/0 --match 'url:*'
  umbel load urls redis://old:6379/0 --set seen
  umbel load urls kafka://k1,k2/orders --field request.url
  umbel load urls 's3://bucket/exports/*.parquet?region=eu-central-1' --column url
  umbel load urls keys.txt --count             # reads all, sends nothing, says which capacity to choose"
)]
pub(crate) struct Arguments {
    /// The filter
    filter: String,
    #[command(flatten)]
    from: Place,
    #[command(flatten)]
    remote: Remote,
    /// Counts what is there instead, and says which capacity to choose
    #[arg(long)]
    count: bool,
    /// Makes the filter if there is none, in the size that the source needs or --capacity says
    #[arg(long)]
    create: bool,
    /// The capacity of a filter that is made
    #[arg(long, value_parser = parse_count, requires = "create")]
    capacity: Option<u64>,
    /// The error rate of a filter that is made
    #[arg(long, default_value_t = 0.001, requires = "create")]
    error: f64,
    /// What kind of filter is made
    #[arg(long, default_value = "bloom", value_parser = ["bloom", "counting", "counting8"], requires = "create")]
    kind: String,
    /// Gives a filter that is too small and does not grow by itself its size before the load; one that grows gets it anyway
    #[arg(long)]
    resize: bool,
    /// Begins although the filter seems to be too small; one that grows does so meanwhile
    #[arg(long)]
    anyway: bool,
    #[command(flatten)]
    reading: Reading,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let source = arguments.from.open()?;
    if arguments.count {
        return count(arguments, &*source);
    }
    let mut sink = ServerSink::new(arguments.remote.open()?, &arguments.filter)?;
    let facts = match sink.facts()? {
        Some(facts) => facts,
        None => create(arguments, &*source, &mut sink)?,
    };
    let fill = Fill {
        reading: &arguments.reading,
        source: &*source,
        sink: &sink,
        target: format!("{} at {}", arguments.filter, arguments.remote.server),
        exactly_once: facts.counts,
    };
    let filled = fill.run(|parts| check_room(arguments, &facts, size::estimate(&*source, parts)?, &sink))?;
    match filled {
        Filled::Stopped => Ok(ExitCode::from(STOPPED)),
        Filled::Whole { counts, seconds, rate } => {
            report(arguments, &*source, &counts, seconds, rate);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Makes the filter if that is asked for, or says in which size.
fn create(
    arguments: &Arguments,
    source: &dyn Source,
    sink: &mut ServerSink,
) -> Result<Facts, Box<dyn Error>> {
    let (name, parts) = (&arguments.filter, source.parts(arguments.reading.lanes)?);
    let expected = size::estimate(source, &parts)?;
    let offer = expected.map(size::capacity_for);
    let Some(capacity) = arguments.capacity.or(offer).filter(|_| arguments.create) else {
        let size =
            offer.map_or(String::new(), |offer| format!(", with room for {} keys", grouped(offer.into())));
        let with = if arguments.create { "--capacity says how large" } else { "--create makes one" };
        return Err(format!("there is no filter {name}; {with}{size}").into());
    };
    sink.create(capacity, arguments.error, &arguments.kind)?;
    tell(arguments, &format!("made {name} for {} keys", grouped(capacity.into())), capacity, expected);
    sink.facts()?.ok_or_else(|| format!("the filter {name} is gone again").into())
}

/// Looks whether the filter is large enough, gives it its size, or says what to do.
fn check_room(
    arguments: &Arguments,
    facts: &Facts,
    expected: Option<u64>,
    sink: &ServerSink,
) -> Result<(), Box<dyn Error>> {
    let name = &arguments.filter;
    let Some(keys) = expected else { return Ok(()) };
    let about = grouped(keys.into());
    match size::room(facts, keys) {
        Room::Enough => {}
        Room::TooSmall { offer } if arguments.resize => {
            sink.resize(offer)?;
            tell(
                arguments,
                &format!("{name} has room for {} keys now", grouped(offer.into())),
                offer,
                expected,
            );
        }
        Room::Grows { offer } => {
            // In one step, instead of several while keys come.
            let resized = if arguments.anyway { None } else { Some(sink.resize(offer)) };
            let text = match resized {
                Some(Ok(())) => {
                    let larger = grouped(offer.into());
                    format!("{name} has room for {larger} keys now: about {about} are to come")
                }
                refused => {
                    let why = refused.and_then(Result::err).map_or(String::new(), |why| format!(" ({why})"));
                    let room = grouped(facts.capacity.into());
                    format!(
                        "about {about} keys for {name}, which has room for {room}: it grows meanwhile{why}"
                    )
                }
            };
            tell(arguments, &text, offer, expected);
        }
        Room::TooSmall { offer } if !arguments.anyway => {
            let larger = grouped(offer.into());
            return Err(format!(
                "about {about} keys are too many for {name}, which has room for {} and does not grow: \
                 --resize gives it room for {larger}, --anyway begins as it is",
                grouped(facts.capacity.into())
            )
            .into());
        }
        Room::TooSmall { offer } => {
            let text = match forecast(facts, keys) {
                Some(error) => format!("with {about} keys {name} would err at a rate of {error:.2e}"),
                None => format!("{name} is too small for {about} keys"),
            };
            tell(arguments, &text, offer, expected);
        }
    }
    Ok(())
}

/// The error rate that the filter would have with so many keys.
fn forecast(facts: &Facts, keys: u64) -> Option<f64> {
    let spec = match facts.counts {
        true => Spec::counting(facts.capacity, facts.error),
        false => Spec::bloom(facts.capacity, facts.error),
    };
    let geometry = Geometry::for_spec(&spec, 1).ok()?;
    Some(geometry.error_with(facts.items.max(keys) as f64))
}

fn tell(arguments: &Arguments, text: &str, capacity: u64, expected: Option<u64>) {
    match arguments.reading.json {
        true => event(
            &json!({ "event": "size", "message": text, "capacity": capacity, "expected_keys": expected }),
        ),
        false => eprintln!("umbel: {text}"),
    }
}

fn report(arguments: &Arguments, source: &dyn Source, counts: &Counts, seconds: f64, rate: f64) {
    if arguments.reading.json {
        let mut told = counted(counts);
        told["event"] = "done".into();
        told["seconds"] = seconds.into();
        told["keys_per_second"] = (rate.round() as u64).into();
        event(&told);
        return;
    }
    let number = |number: u64| grouped(number.into());
    let nulls = match counts.nulls {
        0 => String::new(),
        nulls => format!(", {} rows without a key passed over", number(nulls)),
    };
    println!(
        "{} keys from {} into {}: {} were new{nulls}; {seconds:.1} s, {} a second",
        number(counts.keys),
        source.name(),
        arguments.filter,
        number(counts.added),
        grouped(rate as u128)
    );
}

fn count(arguments: &Arguments, source: &dyn Source) -> Result<ExitCode, Box<dyn Error>> {
    let progress = Progress::default();
    let mut show =
        Show::new(&source.parts(arguments.reading.lanes)?, Counts::default(), arguments.reading.json);
    let counted = watched(&progress, &mut show, || {
        umbel_load::count(source, arguments.reading.lanes, arguments.reading.patience, &progress)
    })?;
    let (counts, distinct, capacity) = (counted.counts, counted.distinct, counted.capacity);
    if arguments.reading.json {
        let mut told = show::counted(&counts);
        told["event"] = "count".into();
        told["distinct"] = distinct.into();
        told["capacity"] = capacity.into();
        event(&told);
        return Ok(ExitCode::SUCCESS);
    }
    let number = |number: u64| grouped(number.into());
    println!("keys      {}", number(counts.keys));
    println!("distinct  about {}", number(distinct));
    println!("no key    {} rows", number(counts.nulls));
    println!("capacity  {} (half as many more, so that it does not grow at once)", number(capacity));
    println!("          umbel plan --capacity {capacity} --error {} says what that takes", arguments.error);
    Ok(ExitCode::SUCCESS)
}
