//! `umbel replica`: a copy of a filter in this process, asked line by line. It shows what each strategy does, and serves scripts.

use std::error::Error;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use umbel_client::blocking::Replica;
use umbel_client::{Options, Server, Status};

use crate::remote::{Remote, parse_label, parse_time, runtime, time};
use crate::units::grouped;

/// How long the last adds may take on their way, beside the window that they are gathered in.
const SENT_WITHIN: Duration = Duration::from_secs(10);

/// Keeps a copy of a filter and answers keys from standard input, one a line: absent, maybe or unknown
#[derive(clap::Args)]
#[command(
    after_help = "A line that begins with + adds the rest of it, one with - takes it out; an empty line shows how the copy is.
Examples:
  echo https://example.com/ | umbel replica urls
  umbel replica urls --strategy pull --interval 10s --folder /var/lib/urls < keys
  umbel replica urls --strategy delta --stale-after 30s
  umbel replica urls --strategy strong --label region=eu --positions
  umbel replica urls --forget 5f0c6b1d9a3e47f2a1b8c9d0e1f20345"
)]
pub(crate) struct Arguments {
    /// The filter
    filter: String,
    #[command(flatten)]
    remote: Remote,
    /// Another server to go on with, such as another node of a cluster; may be given several times
    #[arg(long, value_name = "URL")]
    or_server: Vec<String>,
    /// How the copy follows
    #[arg(long, default_value = "delta", value_parser = Options::STRATEGIES)]
    strategy: String,
    /// How often pull asks, and how long window gathers own adds
    #[arg(long, default_value = "5s", value_parser = parse_time)]
    interval: Duration,
    /// Where the copy and unsent adds survive a restart; a folder belongs to one filter of one deployment
    #[arg(long)]
    folder: Option<PathBuf>,
    /// A copy that was not confirmed for so long answers unknown instead of absent
    #[arg(long, value_parser = parse_time)]
    stale_after: Option<Duration>,
    /// Something that the server tells of this replica; may be given several times
    #[arg(long, value_parser = parse_label, value_name = "NAME=VALUE")]
    label: Vec<(String, String)>,
    /// Chunks come as they are
    #[arg(long)]
    no_compression: bool,
    /// Says with each answer up to which position of the log it holds
    #[arg(long)]
    positions: bool,
    /// Keeps following after the last line
    #[arg(long)]
    stay: bool,
    /// Opens no copy, but lets the server forget the replica of this name, which is gone for good: a strong one counts for a majority
    /// until then
    #[arg(long, value_name = "REPLICA")]
    forget: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if let Some(name) = &arguments.forget {
        let path = Server::path(&arguments.filter, &format!("replicas/{}", umbel_client::escaped(name)));
        runtime()?.block_on(arguments.remote.open()?.delete(path))?;
        println!("replica {name} is forgotten; if it runs, it is known again within five seconds");
        return Ok(());
    }
    let replica = Replica::open(options(arguments)?)?;
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    if std::io::stdin().is_terminal() {
        eprintln!("A key a line; +key adds, -key takes out, an empty line shows how the copy is.");
    }
    for line in input.split(b'\n') {
        let line = line?;
        match line.strip_suffix(b"\r").unwrap_or(&line) {
            [] => eprintln!("{}", describe(&replica)),
            [b'+', key @ ..] => replica.add(&[key])?,
            [b'-', key @ ..] => replica.remove(&[key])?,
            key if arguments.positions => {
                let (answer, position) = replica.contains_with_position(key);
                let position = position.map_or_else(|| "-".to_owned(), |position| position.to_string());
                writeln!(output, "{} {position}", answer.word())?;
            }
            key => writeln!(output, "{}", replica.contains(key).word())?,
        }
        output.flush()?;
    }
    if arguments.stay {
        loop {
            std::thread::sleep(Duration::from_secs(5));
            eprintln!("{}", describe(&replica));
        }
    }
    finish(&replica, arguments)
}

/// Gives own adds the time to reach the centre. Without a folder they would be gone.
fn finish(replica: &Replica, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let (end, is_kept) = (Instant::now() + arguments.interval + SENT_WITHIN, arguments.folder.is_some());
    while replica.status().spooled_keys > 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    let unsent = replica.status().spooled_keys;
    replica.close()?;
    match unsent {
        0 => Ok(()),
        unsent if is_kept => {
            eprintln!("umbel: {unsent} keys wait in the folder for the server");
            Ok(())
        }
        unsent => {
            Err(format!("{unsent} keys did not reach the server, and there is no folder that keeps them")
                .into())
        }
    }
}

fn options(arguments: &Arguments) -> umbel_client::Result<Options> {
    let Arguments { remote, filter, strategy, interval, .. } = arguments;
    let mut options = Options::named(&remote.server, filter, strategy, *interval)?;
    options = arguments.or_server.iter().fold(options, Options::or_server);
    if let Some(token) = &arguments.remote.token {
        options = options.token(token);
    }
    if let Some(path) = &arguments.remote.ca {
        options = options.ca_file(path);
    }
    if arguments.no_compression {
        options = options.compression(false);
    }
    if let Some(folder) = &arguments.folder {
        options = options.folder(folder);
    }
    if let Some(time) = arguments.stale_after {
        options = options.stale_after(time);
    }
    Ok(arguments.label.iter().fold(options, |options, (name, value)| options.label(name, value)))
}

/// Where the server holds it, with what is newer, and which version a rollout took back.
fn held(status: &Status) -> String {
    let newest = status.centre.as_ref().map(|centre| format!(", the log is at {centre}"));
    let pinned = status.pinned.map(|pinned| match status.version {
        Some(version) if version == pinned => format!(" (pinned{})", newest.unwrap_or_default()),
        _ => format!(" (moving to {pinned}, which is pinned)"),
    });
    let refused = status
        .refused
        .as_ref()
        .map(|refused| format!("; version {} was taken back: {}", refused.version, refused.why));
    [pinned, refused].into_iter().flatten().collect()
}

fn describe(replica: &Replica) -> String {
    let status = replica.status();
    let age = status.age.map_or(u64::MAX, |age| age.as_millis() as u64);
    format!(
        "version {}{}, {} items, confirmed {}, {} chunks fetched, {} reused, {} changes, {} keys to send{}",
        status.version.map_or("none".to_owned(), |number| number.to_string()),
        held(&status),
        grouped(status.items.into()),
        if age == u64::MAX { "never".to_owned() } else { format!("{} ago", time(age)) },
        status.chunks_fetched,
        status.chunks_reused,
        status.records_taken,
        status.spooled_keys,
        status.last_error.map(|error| format!("; last trouble: {error}")).unwrap_or_default()
    )
}
