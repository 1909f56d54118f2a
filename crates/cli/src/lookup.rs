//! `umbel lookup` and `umbel hottest`: keys of all domains.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use umbel_client::escaped;

use crate::remote::{Remote, parse_time, runtime, table, time};
use crate::units::grouped;

/// What a script sees if the key is surely nowhere: as grep says it.
const ABSENT: u8 = 1;
/// And if that is not known, because a domain or the server could not be asked.
const NOT_KNOWN: u8 = 3;
/// How long the answer may take on its way, beside the lookup.
const PATIENCE: Duration = Duration::from_secs(10);

/// Says which domains may have a key of a catalog, the likeliest first, or fetches its record
#[derive(clap::Args)]
#[command(
    after_help = "Ends with 0 if a domain may have the key (with --fetch: has it), with 1 if none has it as of the
ages that are shown (at most the catalog's stale_after), and with 3 if that is not known: a domain or the server could not be asked.
Examples:
  umbel lookup records 1984-0017
  umbel lookup records 1984-0017 --fetch
  umbel lookup records 1984-0017 --fetch --within 200ms --json | jq .record"
)]
pub(crate) struct Arguments {
    /// The catalog
    catalog: String,
    /// The key
    key: String,
    /// Fetches the record from the domain that has it
    #[arg(long)]
    fetch: bool,
    /// Asks the server's own domain only
    #[arg(long)]
    local: bool,
    /// How long it may take; as the catalog's settings say if left out
    #[arg(long, value_parser = parse_time)]
    within: Option<Duration>,
    #[command(flatten)]
    remote: Remote,
    /// JSON
    #[arg(long)]
    json: bool,
}

/// Shows the keys of a catalog that were asked for most often
#[derive(clap::Args)]
#[command(after_help = "Examples:
  umbel hottest records
  umbel hottest records --count 100 --json")]
pub(crate) struct Hottest {
    /// The catalog
    catalog: String,
    /// How many
    #[arg(long, default_value_t = 10)]
    count: u32,
    #[command(flatten)]
    remote: Remote,
    /// JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    ask(arguments).unwrap_or_else(|error| {
        eprintln!("umbel: {error}");
        NOT_KNOWN.into()
    })
}

fn ask(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let mut question = json!({ "key": arguments.key, "fetch": arguments.fetch, "local": arguments.local });
    if let Some(within) = arguments.within {
        question["within_ms"] = u64::try_from(within.as_millis())?.into();
    }
    let path = format!("/v1/lookup/{}", escaped(&arguments.catalog));
    let patience = arguments.within.unwrap_or_default() + PATIENCE;
    let told = runtime()?.block_on(arguments.remote.open()?.post(path, &question, patience))?;
    if arguments.json {
        println!("{told}");
    } else {
        print(&told);
    }
    let is_found = if arguments.fetch {
        !told["record"].is_null()
    } else {
        told["domains"].as_array().into_iter().flatten().any(|domain| domain["answer"] == "maybe")
    };
    // Each "absent" holds for a time that the domain told: without one it is not known what it is worth.
    let mut domains = told["domains"].as_array().into_iter().flatten();
    let is_absent = told["absent"] == true && domains.all(|domain| domain["age_ms"].is_u64());
    Ok(match (is_found, is_absent) {
        (true, _) => ExitCode::SUCCESS,
        (false, true) => ABSENT.into(),
        (false, false) => NOT_KNOWN.into(),
    })
}

fn print(told: &Value) {
    let row = |domain: &Value| {
        let age = domain["age_ms"].as_u64().map_or_else(|| "unknown".to_owned(), time);
        vec![word(&domain["domain"]), word(&domain["answer"]), age, word(&domain["from"])]
    };
    let rows: Vec<_> = told["domains"].as_array().into_iter().flatten().map(row).collect();
    table(&["domain", "answer", "age", "from"], &rows);
    for step in told["steps"].as_array().into_iter().flatten() {
        if let Some(why) = step["failed"].as_str() {
            println!("{} ({}): {why}", word(&step["domain"]), word(&step["asked"]));
        }
    }
    let ages = told["domains"].as_array().into_iter().flatten().map(|domain| domain["age_ms"].as_u64());
    let oldest = ages.collect::<Option<Vec<u64>>>().and_then(|ages| ages.into_iter().max());
    if let Some(oldest) = oldest.filter(|_| told["absent"] == true) {
        println!("absent everywhere, as of {} ago", time(oldest));
    }
    let record = &told["record"];
    if record.is_null() {
        return;
    }
    println!();
    let took = told["took_us"].as_u64().unwrap_or(0) as f64 / 1e3;
    println!("the record, from {} in {took:.1} ms:", word(&record["domain"]));
    match record["fields"].as_array() {
        Some(fields) => {
            let rows: Vec<_> =
                fields.iter().map(|field| vec![word(&field["column"]), word(&field["value"])]).collect();
            table(&["column", "value"], &rows);
        }
        None => println!("{}", word(&record["body"])),
    }
}

pub(crate) fn hottest(arguments: &Hottest) -> Result<(), Box<dyn Error>> {
    let (catalog, count) = (escaped(&arguments.catalog), arguments.count);
    let path = format!("/v1/lookup/{catalog}/hottest?count={count}");
    let told = runtime()?.block_on(arguments.remote.open()?.get(path))?;
    if arguments.json {
        println!("{told}");
        return Ok(());
    }
    let row = |hot: &Value| vec![word(&hot["key"]), grouped(hot["count"].as_u64().unwrap_or(0).into())];
    let rows: Vec<_> = told["keys"].as_array().into_iter().flatten().map(row).collect();
    table(&["key", "asked for"], &rows);
    println!("{} questions were counted", grouped(told["accesses"].as_u64().unwrap_or(0).into()));
    Ok(())
}

/// A value as people read it, on one line.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => {
            text.escape_debug().collect::<String>().replace("\\'", "'").replace("\\\"", "\"")
        }
        Value::Null => "-".to_owned(),
        Value::Object(bytes) => format!("base64 {}", word(&bytes["base64"])),
        other => other.to_string(),
    }
}
