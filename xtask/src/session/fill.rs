//! A table of PostgreSQL, an application that inserts rows all the while and adds their keys to a filter, and two rebuilds of that filter
//! from the table. In the first one the loader is killed in the middle, in the second one the server. In the end every row of the table is
//! looked for.

mod application;
mod table;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::Story;
use super::link::Link;
use crate::server::Server;
use crate::services;
use crate::step::{Failure, output};
use application::Application;
use table::Table;

const FILTER: &str = "links";
/// Keys that the server is asked for at once.
const TOGETHER: usize = 1000;
/// Keys that nobody added, to see how often the filter is wrong.
const STRANGERS: u64 = 100_000;
/// How often a rebuild that was killed is begun again.
const ATTEMPTS: usize = 5;
/// A rebuild that is to be killed takes at least so many seconds, however few rows there are.
const SECONDS_MIN: u64 = 8;

pub(super) fn run(umbel: &Path, rows: u64) -> Result<(), Failure> {
    services::start(&["postgres".to_owned()])?;
    fill(umbel, rows, &services::address("postgres")?)
}

fn fill(umbel: &Path, rows: u64, address: &str) -> Result<(), Failure> {
    let story = Story::begin();
    let table = Table::make(address, rows)?;
    story.tell(&format!("a table of {rows} rows is there, {}", table.url()));
    let mut server = Server::start(umbel, &[])?;
    Link::open(server.port)?.ask(&["BF.RESERVE", FILTER, "0.001", &(rows / 10).to_string()])?;
    story.tell("a server is there, with an empty filter for a tenth of the rows");
    let application = Application::start(&table, server.port)?;
    story.tell("an application inserts rows, and adds each to the filter when it is in the table");

    let rebuild = Rebuild { umbel, server: format!("http://127.0.0.1:{}", server.http_port), table: &table };
    let mut loader = rebuild.start(Some(rows / SECONDS_MIN))?;
    let keys = until(&mut loader, rows / 3)?;
    loader.kill()?;
    loader.wait()?;
    story.tell(&format!("the first rebuild has read {keys} rows; the loader is killed (kill -9)"));
    story.tell(&format!("the filter that answers has {} items", items(&server)?));
    story.tell(&rebuild.to_its_end()?);
    story.tell(&format!(
        "the filter has {} items; the application has inserted {}",
        items(&server)?,
        application.inserted()
    ));

    let mut loader = rebuild.start(Some(rows / SECONDS_MIN))?;
    let keys = until(&mut loader, rows / 3)?;
    server.kill()?;
    story.tell(&format!("the second rebuild has sent {keys} rows; the server is killed (kill -9)"));
    server.start_again()?;
    story.tell(&format!("it is back, and its filter has {} items", items(&server)?));
    let ended = loader.wait()?;
    match ended.success() {
        true => story.tell("the loader went on by itself, and the new filter has taken the old one's place"),
        false => story.tell(&format!("the loader had ended ({ended}); {}", rebuild.to_its_end()?)),
    }

    let inserted = application.stop()?;
    story.tell(&format!("the application ends; it has inserted {inserted} rows"));
    let mut link = Link::open(server.port)?;
    let (mut looked_for, mut lost) = (0, 0);
    table.each(TOGETHER, |keys| {
        looked_for += keys.len() as u64;
        lost += link.missing(FILTER, keys)?;
        Ok(())
    })?;
    story.tell(&format!("{looked_for} rows of the table were looked for, {lost} are not in the filter"));
    let strangers: Vec<String> =
        (0..STRANGERS).map(|number| format!("https://elsewhere.example/{number}")).collect();
    let mut mistaken = STRANGERS;
    for keys in strangers.chunks(TOGETHER) {
        mistaken -= link.missing(FILTER, keys)?;
    }
    story.tell(&format!("of {STRANGERS} keys that nobody added, it takes {mistaken} for its own"));
    let status = output(Command::new(umbel).args(["status", FILTER, "--server", &rebuild.server]))?;
    println!("{}", String::from_utf8_lossy(&status));
    if looked_for != rows + inserted {
        return Err(format!("{looked_for} rows were looked for, of {rows} and {inserted}").into());
    }
    if lost > 0 { Err(format!("{lost} rows are not in the filter").into()) } else { Ok(()) }
}

/// `umbel rebuild` from the table.
struct Rebuild<'a> {
    umbel: &'a Path,
    server: String,
    table: &'a Table,
}

impl Rebuild<'_> {
    /// Begins it, or goes on with it; with so many keys a second at most.
    fn start(&self, rate: Option<u64>) -> Result<Child, Failure> {
        let mut command = Command::new(self.umbel);
        command.args(["rebuild", FILTER, self.table.url(), "--json", "--server", &self.server]);
        command.args(["--table", table::NAME, "--column", table::COLUMN]);
        command.args(rate.iter().flat_map(|rate| ["--rate".to_owned(), rate.to_string()]));
        Ok(command.stdout(Stdio::piped()).spawn()?)
    }

    /// The same command again, until it has done it; what it says.
    fn to_its_end(&self) -> Result<String, Failure> {
        for attempt in 1..=ATTEMPTS {
            let mut loader = self.start(None)?;
            let output = BufReader::new(loader.stdout.take().ok_or("no output")?);
            let last = output.lines().map_while(Result::ok).last().unwrap_or_default();
            if loader.wait()?.success() {
                return Ok(format!("the same command again (attempt {attempt}) ends: {last}"));
            }
        }
        Err(format!("the rebuild failed {ATTEMPTS} times").into())
    }
}

/// Waits until a loader has done so many keys. What it says after that is thrown away, so that it does not wait for somebody to read it.
fn until(loader: &mut Child, keys: u64) -> Result<u64, Failure> {
    let mut output = BufReader::new(loader.stdout.take().ok_or("no output")?).lines();
    for line in output.by_ref() {
        let told: Value = serde_json::from_str(&line?)?;
        let done = told["keys"].as_u64().unwrap_or(0);
        if told["event"] == "progress" && done >= keys {
            std::thread::spawn(move || output.map_while(Result::ok).for_each(drop));
            return Ok(done);
        }
    }
    Err("the loader ended before it could be killed; use more rows".into())
}

fn items(server: &Server) -> Result<i64, Failure> {
    let told = Link::open(server.port)?.ask(&["BF.CARD", FILTER])?;
    told.number().ok_or_else(|| format!("no number of items: {told:?}").into())
}
