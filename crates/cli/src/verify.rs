//! `umbel verify`: whether two filters give the same answers.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use umbel_filter::format::redisson::read;
use umbel_filter::{Filter, Limits};
use umbel_load::files::{Files, Format};
use umbel_load::{Batch, Source};

use crate::import::is_address;
use crate::inspect;
use crate::resp::{Address, Connection, Value};
use crate::transfer::chunks::{Kind, type_of};
use crate::transfer::{PATIENCE, Show, outside, redisson};
use crate::units::{grouped, parse_bytes};

/// The exit status when answers differ.
pub(crate) const DIFFERENT: u8 = 3;
/// Keys that a server is asked for at once.
const ASKED_KEYS: usize = 1_000;
/// Keys that are shown of those that were answered otherwise.
const EXAMPLES: usize = 10;

/// Compares the answers of two filters for the keys of a file
///
/// Each of the two is a server or a file: RedisBloom, Umbel, a filter of Redisson's in Redis (which is read into memory), and files of ours, of
/// Guava or of recorded chunks. The exit status is 0 if all answers are the same, 3 if any differs, and 1 if they could not be compared.
#[derive(clap::Args)]
#[command(after_help = "The password of the first may also be in REDISCLI_AUTH.
Examples:
  umbel verify redis://old:6379 redis://new:6380 urls --keys keys.txt
  umbel verify redis://old:6379 redis://new:6380 urls --as urls-imported --keys 'keys/*.gz'
  umbel verify urls.bin redis://127.0.0.1:6380 urls --keys keys.txt --json")]
pub(crate) struct Arguments {
    /// The one: `redis://[user:password@]host[:port][/database]`, or a file
    a: String,
    /// The other
    b: String,
    /// The filter, where it is on a server
    filter: Option<String>,
    /// What it is called at the other, if not the same
    #[arg(long = "as", value_name = "NAME")]
    rename: Option<String>,
    /// Files with a key in each line, packed with gzip or zstd if need be; - for standard input
    #[arg(long, required = true, value_name = "FILE")]
    keys: Vec<String>,
    /// Most memory that a filter may take that is read from a file, or from Redisson
    #[arg(long, default_value = "64GiB", value_parser = parse_bytes)]
    memory: u64,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Who answers.
enum Place {
    Server { connection: Box<Connection>, words: Vec<Vec<u8>> },
    Here(Box<Filter>),
}

impl Place {
    fn open(
        place: &str,
        name: Option<&str>,
        limits: &Limits,
        connect: fn(&Address) -> Result<Connection, String>,
    ) -> Result<Self, Box<dyn Error>> {
        if !is_address(place) {
            let filter =
                inspect::read(Path::new(place), limits).map_err(|error| format!("{place}: {error}"))?;
            return Ok(Self::Here(Box::new(filter)));
        }
        let address: Address = place.parse()?;
        let name = name.ok_or_else(|| format!("{address}: which filter?"))?;
        let mut connection = connect(&address)?;
        let told = type_of(&mut connection, name)?;
        if let Some(kind) = Kind::named(&told) {
            let words = vec![kind.command("MEXISTS").into_bytes(), name.as_bytes().to_vec()];
            return Ok(Self::Server { connection: Box::new(connection), words });
        }
        if told != "string" {
            return Err(format!("{}: there is no filter {name}", connection.address).into());
        }
        let config = redisson::config(&mut connection, name)?;
        let show = Show::new(true);
        let bitmap = redisson::Bitmap::open(&mut connection, name, &show)?;
        Ok(Self::Here(Box::new(read(&config, bitmap, limits)?)))
    }

    /// Whether it takes each of the keys for one that it has.
    fn answers(&mut self, keys: &[&[u8]]) -> Result<Vec<bool>, String> {
        match self {
            Self::Here(filter) => {
                let mut answers = Vec::with_capacity(keys.len());
                filter.contains_batch(keys, &mut answers);
                Ok(answers)
            }
            Self::Server { connection, words } => {
                let asked: Vec<&[u8]> = words.iter().map(Vec::as_slice).chain(keys.iter().copied()).collect();
                let replies = connection.demand(&asked)?.array().unwrap_or_default();
                let answer = |reply: &Value| match reply {
                    Value::Integer(0) => Some(false),
                    Value::Integer(1) => Some(true),
                    _ => None,
                };
                let answers: Option<Vec<bool>> = replies.iter().map(answer).collect();
                answers.filter(|answers| answers.len() == keys.len()).ok_or_else(|| {
                    let why = replies.iter().find_map(|reply| match reply {
                        Value::Error(error) => Some(error.clone()),
                        _ => None,
                    });
                    let why =
                        why.unwrap_or_else(|| format!("{} answers for {} keys", replies.len(), keys.len()));
                    format!("{}: {why}", connection.address)
                })
            }
        }
    }
}

/// What came of a comparison.
#[derive(Debug, Default, PartialEq)]
struct Tally {
    maybe: u64,
    absent: u64,
    only_a: u64,
    only_b: u64,
    examples: Vec<String>,
}

impl Tally {
    fn take(&mut self, keys: &[&[u8]], a: &[bool], b: &[bool]) {
        for ((key, a), b) in keys.iter().zip(a).zip(b) {
            let count = match (a, b) {
                (true, true) => &mut self.maybe,
                (false, false) => &mut self.absent,
                (true, false) => &mut self.only_a,
                (false, true) => &mut self.only_b,
            };
            *count += 1;
            if a != b && self.examples.len() < EXAMPLES {
                self.examples.push(String::from_utf8_lossy(key).into_owned());
            }
        }
    }

    fn same(&self) -> u64 {
        self.maybe + self.absent
    }

    fn different(&self) -> u64 {
        self.only_a + self.only_b
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let limits = Limits { filter_bytes_max: arguments.memory, ..Limits::default() };
    let name = arguments.filter.as_deref();
    let mut a = Place::open(&arguments.a, name, &limits, outside)?;
    let other = arguments.rename.as_deref().or(name);
    let mut b = Place::open(&arguments.b, other, &limits, |address| Connection::open(address, PATIENCE))?;
    let source = Files::new(&arguments.keys, Format::Lines)?;
    let begun = Instant::now();
    let tally = compare(&source, &mut a, &mut b, arguments.json)?;
    if tally.same() + tally.different() == 0 {
        return Err(format!("{}: no keys in it", source.name()).into());
    }
    report(arguments, &tally, begun.elapsed().as_secs_f64());
    Ok(if tally.different() == 0 { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
}

fn compare(
    source: &dyn Source,
    a: &mut Place,
    b: &mut Place,
    is_quiet: bool,
) -> Result<Tally, Box<dyn Error>> {
    let style = ProgressStyle::with_template("{spinner} {human_pos} keys, {per_sec}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    let bar = if is_quiet { ProgressBar::hidden() } else { ProgressBar::no_length().with_style(style) };
    let (mut tally, mut batch) = (Tally::default(), Batch::default());
    for part in source.parts(1)? {
        let mut cursor = source.open(&part, None)?;
        while cursor.next(&mut batch)?.is_some() {
            let keys: Vec<&[u8]> = batch.keys().collect();
            for keys in keys.chunks(ASKED_KEYS) {
                tally.take(keys, &a.answers(keys)?, &b.answers(keys)?);
                bar.inc(keys.len() as u64);
            }
            batch.clear();
        }
    }
    bar.finish_and_clear();
    Ok(tally)
}

fn report(arguments: &Arguments, tally: &Tally, seconds: f64) {
    let Tally { maybe, absent, only_a, only_b, examples } = tally;
    let (same, different) = (tally.same(), tally.different());
    if arguments.json {
        println!(
            "{}",
            json!({ "keys": same + different, "same": same, "maybe": maybe, "absent": absent, "different": different,
                "only_a": only_a, "only_b": only_b, "examples": examples, "seconds": seconds })
        );
        return;
    }
    let number = |number: u64| grouped(number.into());
    println!("keys       {} in {seconds:.1} s", number(same + different));
    println!("same       {}: {} maybe, {} absent", number(same), number(*maybe), number(*absent));
    println!(
        "different  {}: {} only in the first, {} only in the second",
        number(different),
        number(*only_a),
        number(*only_b)
    );
    examples.iter().for_each(|key| println!("           {}", key.escape_debug()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_who_gave_them() {
        let (mut tally, keys) = (Tally::default(), [&b"a"[..], b"b", b"c", b"\xff"]);
        tally.take(&keys, &[true, false, true, false], &[true, false, false, true]);
        let expected = Tally {
            maybe: 1,
            absent: 1,
            only_a: 1,
            only_b: 1,
            examples: vec!["c".into(), "\u{fffd}".into()],
        };
        assert_eq!(tally, expected);
        assert_eq!((tally.same(), tally.different()), (2, 2));
    }
}
