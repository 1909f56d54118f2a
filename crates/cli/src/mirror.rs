//! `umbel mirror`: a move that is rehearsed. A new server is sent what an old one is, and their replies are compared.
//!
//! ```text
//!  clients --> proxy <--> old server          clients <--> old server --MONITOR--> follow
//!                |                                             ^                     |
//!                '--> queue --> shadow --> new server          '----- shadow <-- queue
//! ```

mod chance;
mod compare;
mod follow;
mod frames;
mod proxy;
mod shadow;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::load::show::event;
use crate::remote::{parse_time, runtime, table};
use crate::resp::Address;
use crate::transfer::{HERE, outside};
use crate::units::grouped;
use crate::verify::DIFFERENT;
use compare::{Count, Tally, Wanted};
use proxy::Proxy;
use shadow::{Queue, Shared};

/// How often something is shown.
const SHOW_EVERY: Duration = Duration::from_millis(100);
/// How often machines are told.
const EVENT_EVERY: Duration = Duration::from_secs(1);
/// How long the new server has, in the end, for what it was not sent yet.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// Differences that are shown in the end.
const EXAMPLES: usize = 10;

/// Sends a new server what an old one is sent, and compares their replies
///
/// With --listen, clients talk to that address instead of the old server: they get its replies, and BF and CF commands go to the new one too,
/// in the order in which they were answered. Without, the old server's MONITOR is followed; it shows no replies, so both servers
/// are asked afterwards for the items that a command named. A new server that is slow or away holds nobody up: what does not
/// fit into a queue of 65,536 commands is missed, and counted. A lookup that differs is asked for once more, half a second later, before it counts.
///
/// A filter takes some keys for its own that nobody added, and two filters of other sizes, or that grew at other moments, mistake different ones. Such
/// differences of BF commands are counted by themselves, as chance, as long as they are not more than the error rates of both filters explain and
/// every key that was added is there on both sides.
///
/// Ends with Ctrl-C or after --for. The exit status is 0 if no replies differed but by chance, 3 if any did, and 1 if they could not be compared.
#[derive(clap::Args)]
#[command(
    after_help = "The password of the old server may also be in REDISCLI_AUTH. Certificates: rediss://host?ca=FILE&cert=FILE&key=FILE
Bring the filters over first (umbel import), or begin with empty ones on both sides. A filter that was imported answers as the old one does, without chance.
Error rates are asked for with BF.DEBUG; where a server does not tell, and for CF commands, whatever differs is different.
Examples:
  umbel mirror --from redis://old:6379 --to redis://new:6380 --listen 127.0.0.1:6400
  umbel mirror --from redis://old:6379 --to redis://new:6380 --for 10m --json"
)]
pub(crate) struct Arguments {
    /// The old server: `redis://[user:password@]host[:port][/database]`, or `rediss://`
    #[arg(long)]
    from: Address,
    /// The new server
    #[arg(long, default_value = HERE)]
    to: Address,
    /// Where clients are let in; without it, MONITOR is followed
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Beginnings of the commands that go to both
    #[arg(long, value_delimiter = ',', default_value = "BF.,CF.", value_name = "TEXT")]
    commands: Vec<String>,
    /// Ends by itself after so long, such as 10m
    #[arg(long = "for", value_parser = parse_time, value_name = "TIME")]
    time: Option<Duration>,
    /// Events as JSON, one a line, instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let mut from = arguments.from.clone();
    if from.password.is_none() {
        from.password = std::env::var("REDISCLI_AUTH").ok().filter(|password| !password.is_empty());
    }
    // A mistaken address, or a wrong password, is told before anybody relies on it.
    outside(&from)?.demand(&["PING"])?;
    let (queue, shadow) = Queue::new(from.clone(), arguments.to.clone());
    let shared = Arc::clone(&queue.shared);
    let (is_over, is_late) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let late = Arc::clone(&is_late);
    let worker = std::thread::spawn(move || shadow.run(|| late.load(Ordering::Relaxed)));
    let mut show = Show::new(&shared, arguments.json);
    let runtime = runtime()?;
    let ended = runtime.block_on(attend(arguments, from, queue, &is_over, &mut show));
    // Clients go with it, and the queue with them.
    drop(runtime);
    let late_at = Instant::now() + DRAIN_MAX;
    while !worker.is_finished() {
        is_late.store(Instant::now() >= late_at, Ordering::Relaxed);
        show.look();
        std::thread::sleep(SHOW_EVERY);
    }
    worker.join().map_err(|_| "the comparison failed")?;
    show.end();
    ended?;
    let all = shared.tally().all();
    if all.compared() == 0 && shared.tally().missed > 0 {
        return Err("nothing was compared".into());
    }
    Ok(if all.different == 0 { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
}

/// Works until a signal comes, the time is over, or it cannot go on.
async fn attend(
    arguments: &Arguments,
    old: Address,
    queue: Queue,
    is_over: &Arc<AtomicBool>,
    show: &mut Show<'_>,
) -> Result<(), Box<dyn Error>> {
    let wanted = Wanted::new(&arguments.commands);
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut follower = None;
    let work = async {
        if let Some(address) = arguments.listen {
            let listener = TcpListener::bind(address).await.map_err(|error| format!("{address}: {error}"))?;
            let bound = listener.local_addr().map_err(|error| error.to_string())?;
            let told = json!({ "event": "listening", "address": bound });
            begins(arguments.json, &format!("listening on {bound}"), &told);
            let proxy = Proxy { listener, old, wanted, queue };
            let show = async {
                loop {
                    show.look();
                    tokio::time::sleep(SHOW_EVERY).await;
                }
            };
            return tokio::select! {
                why = proxy.serve() => Err(why),
                () = show => Ok(()),
            };
        }
        let name = old.to_string();
        let (over, is_json) = (Arc::clone(is_over), arguments.json);
        let begun = move || {
            let told = json!({ "event": "following", "address": name });
            begins(is_json, &format!("following {name}"), &told);
        };
        let follow = move || follow::follow(&old, &wanted, &queue, begun, || over.load(Ordering::Relaxed));
        let follower = follower.insert(std::thread::spawn(follow));
        while !follower.is_finished() {
            show.look();
            tokio::time::sleep(SHOW_EVERY).await;
        }
        Ok::<(), String>(())
    };
    let time = async {
        match arguments.time {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        () = time => Ok(()),
    };
    is_over.store(true, Ordering::Relaxed);
    if let Some(follower) = follower {
        follower.join().map_err(|_| "following failed")??;
    }
    Ok(outcome?)
}

/// Says that commands are seen from here on.
fn begins(is_json: bool, words: &str, told: &serde_json::Value) {
    match is_json {
        true => event(told),
        false => println!("{words}"),
    }
}

/// What is said while it goes on: a line for people, events for machines.
struct Show<'a> {
    shared: &'a Shared,
    bar: ProgressBar,
    is_json: bool,
    begun: Instant,
    next_event: Instant,
}

impl<'a> Show<'a> {
    fn new(shared: &'a Shared, is_json: bool) -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = if is_json { ProgressBar::hidden() } else { ProgressBar::no_length().with_style(style) };
        let begun = Instant::now();
        Self { shared, bar, is_json, begun, next_event: begun + EVENT_EVERY }
    }

    fn look(&mut self) {
        for difference in self.shared.take_news() {
            match self.is_json {
                true => event(&difference.json()),
                // There are many of these, and each by itself says nothing.
                false if difference.is_chance => {}
                false => self.bar.println(format!(
                    "different: {}: {} and {}",
                    difference.command, difference.old, difference.new
                )),
            }
        }
        if let Some(why) = self.shared.take_trouble() {
            match self.is_json {
                true => event(&json!({ "event": "missed", "why": why })),
                false => self.bar.println(format!("umbel: {why}")),
            }
        }
        let tally = self.shared.tally();
        if self.is_json {
            if Instant::now() >= self.next_event {
                self.next_event += EVENT_EVERY;
                let mut told = tally.json();
                told["event"] = "progress".into();
                event(&told);
            }
            return;
        }
        let all = tally.all();
        let (compared, different) = (grouped(all.compared().into()), all.different);
        let missed = if tally.missed == 0 { String::new() } else { format!(", {} missed", tally.missed) };
        self.bar.set_message(format!("{compared} compared, {different} different{missed}"));
        self.bar.tick();
    }

    fn end(&mut self) {
        self.look();
        self.bar.finish_and_clear();
        let (tally, seconds) = (self.shared.tally(), self.begun.elapsed().as_secs_f64());
        if !self.is_json {
            return print(&tally, seconds);
        }
        let by_command = tally.by_command().into_iter().map(|(command, count)| (command, count.json()));
        let mut told = tally.json();
        told["event"] = "summary".into();
        told["seconds"] = seconds.into();
        told["commands"] = by_command.collect::<serde_json::Map<_, _>>().into();
        event(&told);
    }
}

fn print(tally: &Tally, seconds: f64) {
    let number = |number: u64| grouped(number.into());
    let row = |(command, count): (&str, Count)| {
        let counts = [count.compared(), count.same, count.chance, count.different].map(number);
        [command.to_owned()].into_iter().chain(counts).collect::<Vec<_>>()
    };
    let by_command = tally.by_command();
    let all = by_command.iter().map(|(command, count)| row((command, *count)));
    let rows: Vec<_> = all.chain([row(("all", tally.all()))]).collect();
    table(&["command", "compared", "same", "by chance", "different"], &rows);
    println!("in {seconds:.1} s");
    for (count, what) in [
        (tally.raced, "lookups differed at first and not when both were asked again"),
        (tally.missed, "commands were missed: the new server has not had them, or has not answered"),
        (tally.unchecked, "commands were sent to the new server and not compared"),
    ] {
        if count > 0 {
            println!("{} {what}", number(count));
        }
    }
    for (filter, keys) in tally.chance.improbable() {
        println!(
            "different: filter {filter}: {} keys, more than its error rate explains",
            number(keys as u64)
        );
    }
    for difference in tally.differences.iter().rev().take(EXAMPLES) {
        println!("different: {}: {} and {}", difference.command, difference.old, difference.new);
    }
}
