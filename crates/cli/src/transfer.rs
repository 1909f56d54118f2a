//! Filters on their way from one system to another.
//!
//! ```text
//!  RedisBloom, Umbel --chunks--.
//!  Redisson ---------bitmap----+--> a server, under a name that is seen when all has come
//!  files ------------bytes-----'
//! ```

pub(crate) mod chunks;
pub(crate) mod redisson;

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::resp::{Address, Connection, Value};
use crate::units::bytes;

/// How long a server may take for a part of a filter; the last one makes it whole.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
/// Where `umbel serve` is, if nobody says.
pub(crate) const HERE: &str = "redis://127.0.0.1:6380";

/// What became of a filter.
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    /// Whether it was added to while it was read, so that something may be missing.
    pub(crate) has_changed: bool,
}

/// A server that others wrote, with the password that its own tools take from the environment.
pub(crate) fn outside(address: &Address) -> Result<Connection, String> {
    let mut address = address.clone();
    if address.password.is_none() {
        address.password = std::env::var("REDISCLI_AUTH").ok().filter(|password| !password.is_empty());
    }
    Connection::open(&address, PATIENCE)
}

/// Whether a server has something under this name.
pub(crate) fn is_there(connection: &mut Connection, name: &str) -> Result<bool, String> {
    Ok(connection.demand(&["EXISTS", name])? != Value::Integer(0))
}

/// Lets a filter live no longer than the one that it comes from.
pub(crate) fn expire_alike(
    (from, key): (&mut Connection, &str),
    (to, name): (&mut Connection, &str),
) -> Result<(), String> {
    match from.demand(&["PTTL", key])?.integer() {
        Some(left @ 1..) => to.demand(&["PEXPIRE", name, &left.to_string()]).map(drop),
        _ => Ok(()),
    }
}

/// A name that a cluster of Redis keeps where it keeps this one, as Redisson makes them.
pub(crate) fn beside(name: &str, what: &str) -> String {
    if name.contains('{') { format!("{name}:{what}") } else { format!("{{{name}}}:{what}") }
}

/// When a server shows a filter that is brought to it in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    WhenWhole,
    /// So it answers "absent" for keys that are still to come.
    FromTheFirstPiece,
}

/// Lets `bring` put a filter under a name. Whoever looks sees what was there before, if anything, until the new one is whole.
pub(crate) fn settle<T>(
    to: &mut Connection,
    name: &str,
    replace: bool,
    shown: Shown,
    bring: impl FnOnce(&mut Connection, &str) -> Result<T, String>,
) -> Result<T, String> {
    let is_there = is_there(to, name)?;
    let taken = |to: &Connection| {
        format!("{}: {name} is there already; --replace puts another in its place", to.address)
    };
    if is_there && !replace {
        return Err(taken(to));
    }
    if !is_there && shown == Shown::WhenWhole {
        return bring(to, name);
    }
    let new = beside(name, &format!("new-{}", std::process::id()));
    let rename = if replace { "RENAME" } else { "RENAMENX" };
    let brought = bring(to, &new).and_then(|brought| match to.demand(&[rename, &new, name])? {
        Value::Integer(0) => Err(taken(to)),
        _ => Ok(brought),
    });
    if brought.is_err() {
        // What is not there need not be removed, and why it is not there is said already.
        let _ = to.ask(&["DEL", &new]);
    }
    brought
}

/// Tells how filters move: a bar for people, events for machines.
pub(crate) struct Show {
    bar: ProgressBar,
    is_json: bool,
    begun: Instant,
}

impl Show {
    pub(crate) fn new(is_json: bool) -> Self {
        let style = ProgressStyle::with_template("{wide_bar} {percent} %, {bytes} of {total_bytes}, {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = if is_json { ProgressBar::hidden() } else { ProgressBar::no_length().with_style(style) };
        Self { bar, is_json, begun: Instant::now() }
    }

    /// A filter begins to move.
    pub(crate) fn begin(&mut self, name: &str) {
        self.begun = Instant::now();
        self.bar.reset();
        self.bar.unset_length();
        self.bar.set_message(name.to_owned());
    }

    /// How much there is of it.
    pub(crate) fn whole(&self, bytes: u64) {
        self.bar.set_length(bytes);
    }

    /// So much more of it has moved.
    pub(crate) fn moved(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// All of it has.
    pub(crate) fn done(&self, from: &str, to: &str, moved: &Moved) {
        self.clear();
        let (seconds, changed) = (self.begun.elapsed().as_secs_f64(), moved.has_changed);
        if self.is_json {
            println!(
                "{}",
                json!({ "event": "done", "from": from, "to": to, "bytes": moved.bytes, "seconds": seconds,
                    "changed": changed })
            );
            return;
        }
        println!("{from} is {to}: {} in {seconds:.1} s", bytes(moved.bytes.into()));
        if changed {
            eprintln!(
                "umbel: {from} was added to meanwhile, and what was may be missing: once new keys go to both, bring it again \
                 with --replace; umbel verify compares them"
            );
        }
    }

    /// Nothing is shown any more.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// It did not arrive.
    pub(crate) fn failed(&self, from: &str, why: &str) {
        self.clear();
        match self.is_json {
            true => println!("{}", json!({ "event": "error", "from": from, "message": why })),
            false => eprintln!("umbel: {from}: {why}"),
        }
    }
}
