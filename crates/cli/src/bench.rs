//! `umbel bench`: what a server with bloom commands takes for an item, alone or against another.

mod chart;
mod control;
mod cpu;
mod growing;
mod histogram;
mod link;
mod load;
mod open;
mod reply;
mod request;
mod side;
mod source;
mod table;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::resp::Address;
use crate::units::{grouped, parse_count};
use control::Commands;
use link::Faults;
use open::Schedule;
use request::{Case, Operation, Target};
use side::{Pace, Side};
use table::{Column, Row};

/// Keys are numbers of ten digits, and twice the capacity of them are used.
const CAPACITY_MAX: u64 = 4_000_000_000;

/// Measures a RESP server with bloom commands, alone or against another: throughput, latency, processor time of an item
#[derive(clap::Args)]
#[command(after_help = "Examples:
  umbel bench --url redis://127.0.0.1:6380 --peer redis://127.0.0.1:6379
  umbel bench --url redis://127.0.0.1:6380 --capacity 10M --cases exists,mexists --pipeline 1,64 --json
  umbel bench --url redis://127.0.0.1:6380 --peer redis://127.0.0.1:6379 --svg cpu.svg
  umbel bench --url redis://127.0.0.1:6380 --capacity 10M --rate 500 --seconds 60
  umbel bench --url redis://127.0.0.1:6380 --capacity 100M --fill 1 --growing

The filters umbel-bench:CAPACITY are made, filled, and removed at the end; nothing else is touched.
Half of the lookups are for keys that were added, and adds are for keys up to the capacity, some of which were there:
\"ones %\" says how many answers were 1 (of an add: it was new; of SETBIT, the other way round). Every reply is checked:
an error, or a wrong answer for a key that had been added, makes the command fail. \"generator %\" is the processor time
of the generator, where 100 is one core: near 100 for each thread, the server could do more, but its CPU an item is right.")]
pub(crate) struct Arguments {
    /// The server, A: `redis://host:port`, with `user:password@` before the host and `/database` behind it if need be
    #[arg(long, value_parser = parse_plain)]
    url: Address,
    /// A second server, B: both are measured in turns
    #[arg(long, value_parser = parse_plain)]
    peer: Option<Address>,
    /// Process of the server; asked from a server on this machine
    #[arg(long)]
    pid: Option<u32>,
    /// Process of the peer
    #[arg(long, requires = "peer")]
    peer_pid: Option<u32>,
    /// User for both servers, where the URL has none
    #[arg(long, requires = "password")]
    user: Option<String>,
    /// Password for both servers, where the URL has none
    #[arg(long)]
    password: Option<String>,
    /// Capacities of the filters
    #[arg(long, value_delimiter = ',', default_value = "10M,100M", value_parser = parse_count)]
    capacity: Vec<u64>,
    /// Error rate of the filters
    #[arg(long, default_value_t = 0.001)]
    error: f64,
    /// Share of the capacity that is filled before anything is measured
    #[arg(long, default_value_t = 0.5)]
    fill: f64,
    /// Most keys that a filter is filled with, whatever its capacity
    #[arg(long, value_parser = parse_count)]
    fill_items: Option<u64>,
    /// What is measured: all of it if nothing is said; with --rate, exists and add
    #[arg(long, value_enum, value_delimiter = ',')]
    cases: Option<Vec<Operation>>,
    /// Requests that a connection sends before it waits, for exists and add
    #[arg(long, value_delimiter = ',', default_value = "1,16,64", value_parser = parse_depth)]
    pipeline: Vec<usize>,
    /// Commands that the servers are asked with
    #[arg(long, value_enum, default_value_t = Commands::Auto)]
    commands: Commands,
    /// Connections to each server
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: u16,
    /// Threads that send requests
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256), conflicts_with = "rate")]
    threads: u16,
    /// Rounds, of which the medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Seconds for each case and round, 2 by default; with --rate, for each case in all its rounds, 60 by default
    #[arg(long)]
    seconds: Option<f64>,
    /// Sends so many requests a second, whatever the replies do; latency counts from the time a request was due
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000), conflicts_with = "pipeline")]
    rate: Option<u32>,
    /// Measures EXISTS at rest and while the filter doubles and goes back to its size, in turns; for servers with UMBEL.RESIZE
    #[arg(long, conflicts_with_all = ["cases", "pipeline", "rate", "svg", "peer"])]
    growing: bool,
    /// Writes a chart of the processor time of an item
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// An address that is not encrypted: sockets are driven by hand here.
fn parse_plain(text: &str) -> Result<Address, String> {
    let address: Address = text.parse()?;
    if address.tls.is_some() { Err("TLS is not measured; use redis://".to_owned()) } else { Ok(address) }
}

fn parse_depth(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(depth @ 1..=10_000) => Ok(depth),
        _ => Err("a depth is a number from 1 to 10000".to_owned()),
    }
}

/// What is to be done, checked.
struct Run {
    cases: Vec<Case>,
    targets: Vec<Target>,
    columns: &'static [Column],
    pace: Pace,
    rounds: u32,
    /// Most keys that a filter is filled with.
    fill_items: u64,
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let run = Run::new(arguments)?;
    let mut sides = connect(arguments)?;
    if !run.json {
        introduce(arguments, &sides);
    }
    let (mut rows, mut faults) = (Vec::new(), Faults::default());
    let mut outcome = Ok(());
    for target in &run.targets {
        outcome = if arguments.growing {
            run.measure_growing(target, &mut sides[0], &mut faults)
        } else {
            run.measure(target, &mut sides, &mut rows, &mut faults)
        };
        // Whatever happened, the servers get their memory back.
        for side in &mut sides {
            let removed = side.remove(target);
            outcome = outcome.and(removed);
        }
        if outcome.is_err() {
            break;
        }
    }
    outcome?;
    if run.json && !arguments.growing {
        println!("{}", report(arguments, &run, &sides, &rows, &faults));
    }
    if let Some(file) = &arguments.svg {
        let svg = picture(&run, &sides, &rows);
        std::fs::write(file, svg).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    match faults.first {
        Some(first) => {
            Err(format!("{} replies were errors or wrong; the first: {first}", grouped(faults.count.into()))
                .into())
        }
        None => Ok(()),
    }
}

impl Run {
    fn new(arguments: &Arguments) -> Result<Self, String> {
        let Arguments { error, fill, .. } = *arguments;
        if !(error > 0.0 && error < 1.0) {
            return Err(format!("invalid error rate: {error}; it must be between 0 and 1"));
        }
        if !(0.0..=1.0).contains(&fill) {
            return Err(format!("invalid fill: {fill}; it is a share of the capacity, from 0 to 1"));
        }
        if arguments.threads > arguments.connections {
            return Err(format!("{} threads have no connections", arguments.threads - arguments.connections));
        }
        let seconds = arguments.seconds.unwrap_or(if arguments.rate.is_some() { 60.0 } else { 2.0 });
        if !(0.001..=86_400.0).contains(&seconds) {
            return Err(format!("invalid seconds: {seconds}; at least 0.001 and at most a day"));
        }
        let fill_items = arguments.fill_items.unwrap_or(u64::MAX);
        let targets = arguments.capacity.iter().map(|capacity| match *capacity {
            1..=CAPACITY_MAX => {
                let filled = ((*capacity as f64 * fill) as u64).min(fill_items);
                Ok(Target { name: format!("umbel-bench:{capacity}"), capacity: *capacity, filled, error })
            }
            _ => Err(format!("invalid capacity: {capacity}; it is measured from 1 to {CAPACITY_MAX}")),
        });
        let duration = Duration::from_secs_f64(seconds);
        let all = [Operation::Exists, Operation::Add, Operation::Mexists, Operation::Madd];
        let operations = |default: &[Operation]| arguments.cases.clone().unwrap_or_else(|| default.to_vec());
        let (cases, columns, pace) = match arguments.rate {
            None => {
                (Case::list(&operations(&all), &arguments.pipeline), table::CLOSED, Pace::Closed(duration))
            }
            Some(rate) => {
                let schedule = Schedule { rate, duration: duration / arguments.rounds };
                (Case::list(&operations(&all[..2]), &[1]), table::OPEN, Pace::Open(schedule))
            }
        };
        let targets = targets.collect::<Result<_, _>>()?;
        Ok(Self { cases, targets, columns, pace, rounds: arguments.rounds, fill_items, json: arguments.json })
    }

    /// All cases on one filter. The servers take turns, so that a change of the machine's mood meets both.
    fn measure(
        &self,
        target: &Target,
        sides: &mut [Side],
        rows: &mut Vec<Row>,
        faults: &mut Faults,
    ) -> Result<(), String> {
        for side in sides.iter_mut() {
            let progress = bar(target.filled, "{msg} {wide_bar} {human_pos} of {human_len}, {eta} left");
            progress.set_message(format!("filling {}", side.label));
            side.prepare(target, &progress)?;
            progress.finish_and_clear();
        }
        let runs = self.cases.len() * self.rounds as usize * sides.len();
        let progress = bar(runs as u64, "{msg} {wide_bar} {pos} of {len}, {eta} left");
        if !self.json {
            progress.suspend(|| print!("\n{}{}", self.title(target), table::head(self.columns)));
        }
        for (index, case) in self.cases.iter().enumerate() {
            let mut samples: Vec<Vec<_>> = sides.iter().map(|_| Vec::new()).collect();
            for round in 0..self.rounds {
                for (side, samples) in sides.iter_mut().zip(&mut samples) {
                    progress.set_message(format!("{case}, round {}, {}", round + 1, side.label));
                    // Other keys in every case, or an add would find all of them added by the case before.
                    let seed = ((index as u64) << 16) + u64::from(round);
                    let sample = side.measure(case, target, self.pace, seed)?;
                    faults.merge(&sample.tally.faults);
                    samples.push(sample);
                    progress.inc(1);
                }
            }
            let figures = samples.into_iter().map(|samples| match self.pace {
                Pace::Closed(_) => table::medians(self.columns, &samples),
                Pace::Open(_) => table::totals(self.columns, samples),
            });
            let figures = sides.iter().map(|side| side.label).zip(figures).collect();
            let row = Row { capacity: target.capacity, filled: target.filled, case: *case, figures };
            if !self.json {
                progress.suspend(|| print!("{}", row.lines(self.columns)));
            }
            rows.push(row);
        }
        progress.finish_and_clear();
        Ok(())
    }

    /// Lookups while the filter changes its size.
    fn measure_growing(&self, target: &Target, side: &mut Side, faults: &mut Faults) -> Result<(), String> {
        let Pace::Closed(at_rest) = self.pace else { return Err("--growing has no schedule".to_owned()) };
        let progress = bar(target.filled, "{msg} {wide_bar} {human_pos} of {human_len}, {eta} left");
        progress.set_message(format!("filling {}", side.label));
        side.prepare(target, &progress)?;
        progress.finish_and_clear();
        let found = growing::measure(side, target, self.rounds, at_rest)?;
        faults.merge(&found.at_rest.tally.faults);
        faults.merge(&found.growing.tally.faults);
        if self.json {
            let figures = found.figures().into_iter().map(|(name, rest, growing)| {
                json!({ "name": name, "at_rest": rest, "growing": growing, "ratio": growing / rest })
            });
            let took: Vec<f64> = found.took.iter().map(Duration::as_secs_f64).collect();
            let figures: Vec<_> = figures.collect();
            println!(
                "{}",
                json!({ "capacity": target.capacity, "filled": target.filled, "took_seconds": took, "figures": figures })
            );
        } else {
            print!("\n{}{}", self.title(target), found.lines(side.label));
        }
        Ok(())
    }

    fn title(&self, target: &Target) -> String {
        let (capacity, filled) = (grouped(target.capacity.into()), grouped(target.filled.into()));
        let share = target.filled as f64 * 100.0 / target.capacity as f64;
        let limit = if target.filled == self.fill_items { ", limited by --fill-items" } else { "" };
        let error = target.error;
        format!(
            "filter of {capacity} keys at an error rate of {error}, filled with {filled} ({share:.1} %{limit})\n"
        )
    }
}

fn connect(arguments: &Arguments) -> Result<Vec<Side>, String> {
    let servers =
        [("A", Some(&arguments.url), arguments.pid), ("B", arguments.peer.as_ref(), arguments.peer_pid)];
    let servers =
        servers.into_iter().filter_map(|(label, address, pid)| Some((label, address?.clone(), pid)));
    let sides = servers.map(|(label, mut address, pid)| {
        if address.password.is_none() {
            address.user.clone_from(&arguments.user);
            address.password.clone_from(&arguments.password);
        }
        let (connections, threads) = (arguments.connections.into(), arguments.threads.into());
        Side::connect(label, &address, pid, arguments.commands, connections, threads)
    });
    sides.collect()
}

/// Shown on a terminal only.
fn bar(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}

fn describe(side: &Side) -> String {
    let product = side.product.as_deref().unwrap_or("a server that does not say what it is");
    let process = match side.process {
        Some(process) => format!("process {}", process.0),
        None => "its process is not known here, so its CPU is not either".to_owned(),
    };
    format!("{}: {product}, {process}; {}", side.address, side.dialect.describe())
}

fn introduce(arguments: &Arguments, sides: &[Side]) {
    for side in sides {
        println!("{}  {}", side.label, describe(side));
    }
    let Arguments { connections, threads, rounds, .. } = arguments;
    match arguments.rate {
        None => {
            let seconds = arguments.seconds.unwrap_or(2.0);
            println!(
                "{connections} connections, generator threads: {threads}; medians of {rounds} rounds of {seconds} s"
            );
        }
        Some(rate) => {
            let seconds = arguments.seconds.unwrap_or(60.0);
            println!(
                "{rate} requests/s on {connections} connections for {seconds} s in {rounds} rounds; latency from the time a \
                 request was due"
            );
        }
    }
}

fn report(
    arguments: &Arguments,
    run: &Run,
    sides: &[Side],
    rows: &[Row],
    faults: &Faults,
) -> serde_json::Value {
    let servers = sides.iter().map(|side| {
        json!({
            "label": side.label.to_lowercase(),
            "url": side.address.to_string(),
            "product": side.product,
            "pid": side.process.map(|process| process.0),
            "commands": if side.dialect == request::Dialect::Bloom { "bf" } else { "bits" },
        })
    });
    json!({
        "servers": servers.collect::<Vec<_>>(),
        "error": arguments.error,
        "connections": arguments.connections,
        "threads": arguments.threads,
        "rounds": run.rounds,
        "rate": arguments.rate,
        "fill_items": arguments.fill_items,
        "results": rows.iter().map(|row| row.json(run.columns)).collect::<Vec<_>>(),
        "faults": faults.count,
        "first_fault": faults.first,
    })
}

fn picture(run: &Run, sides: &[Side], rows: &[Row]) -> String {
    let servers: Vec<_> = sides
        .iter()
        .map(|side| {
            let commands =
                if side.dialect == request::Dialect::Bloom { "BF commands" } else { "bits, no filter" };
            let product = side.product.as_deref().unwrap_or("unknown");
            format!("{}  {product} at {} ({commands})", side.label, side.address)
        })
        .collect();
    let panels: Vec<_> = run
        .targets
        .iter()
        .map(|target| chart::Panel {
            title: format!("Filter of {} keys", grouped(target.capacity.into())),
            cases: rows
                .iter()
                .filter(|row| row.capacity == target.capacity)
                .map(|row| (row.case.to_string(), row.cpu(run.columns)))
                .collect(),
        })
        .collect();
    chart::draw("Server CPU, microseconds an item (less is better)", &servers, &panels)
}
