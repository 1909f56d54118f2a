//! `umbel top`: a server while it works, a look a second.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{IsTerminal, Read};
use std::time::Duration;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use serde_json::Value;
use tokio::sync::oneshot;
use umbel_client::Server;

use crate::remote::{Remote, columns, parse_time, runtime, time};
use crate::units::{bytes, grouped};

/// Rows that are shown where the height of the terminal is not known.
const ROWS: usize = 20;
/// Lines above the filters, and one below.
const OTHER_LINES: usize = 6;
/// A screen of its own, which goes with the command and leaves what was there before.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const CLEAR: &str = "\x1b[H\x1b[J";

/// Shows what a server does, once a second: commands, keys, memory, what needs attention, and the busiest filters
#[derive(clap::Args)]
#[command(after_help = "q ends it, and so does Ctrl-C.
Examples:
  umbel top
  umbel top --every 5s --server https://umbel.internal:6382
  umbel top --once
  umbel top --json | jq .operations_per_second")]
pub(crate) struct Arguments {
    #[command(flatten)]
    remote: Remote,
    /// Time between two looks
    #[arg(long, default_value = "1s", value_parser = parse_time)]
    every: Duration,
    /// One look, and the end
    #[arg(long)]
    once: bool,
    /// JSON, one line for each look
    #[arg(long)]
    json: bool,
}

/// The terminal's own screen for as long as it lives.
struct Screen {
    /// How the keyboard was before its keys came one by one, and without being shown; none if there is no keyboard.
    keyboard: Option<Termios>,
}

impl Screen {
    fn enter() -> Self {
        print!("{ENTER}");
        let keyboard = tcgetattr(std::io::stdin()).ok();
        if let Some(mut each_key) = keyboard.clone() {
            each_key.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            // Without it, q wants a line's end behind it.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &each_key);
        }
        Self { keyboard }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        print!("{LEAVE}");
        if let Some(before) = &self.keyboard {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Comes to its end when somebody presses q, and never without a keyboard. The thread that waits for keys goes with the process.
async fn is_quit(pressed: &mut Option<oneshot::Receiver<()>>) {
    if let Some(key) = pressed {
        if key.await.is_ok() {
            return;
        }
        // Nobody is at the keyboard any more.
        *pressed = None;
    }
    std::future::pending::<()>().await;
}

fn keys() -> oneshot::Receiver<()> {
    let (quit, pressed) = oneshot::channel();
    std::thread::spawn(move || {
        if std::io::stdin().lock().bytes().map_while(Result::ok).any(|key| key == b'q') {
            // Whoever waited may have ended for another reason.
            let _ = quit.send(());
        }
    });
    pressed
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let server = arguments.remote.open()?;
    let is_screen = std::io::stdout().is_terminal() && !arguments.once && !arguments.json;
    runtime()?.block_on(async {
        // A server that is not there is said before the screen is taken.
        let mut sample = look(&server).await?;
        let screen = is_screen.then(Screen::enter);
        let mut pressed = screen.as_ref().filter(|screen| screen.keyboard.is_some()).map(|_| keys());
        loop {
            if arguments.json {
                println!("{sample}");
            } else {
                let start = if is_screen { CLEAR } else { "" };
                let rows = if is_screen { height().saturating_sub(OTHER_LINES).max(1) } else { ROWS };
                print!("{start}{}", page(&arguments.remote.server, &sample, rows));
            }
            if arguments.once {
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(arguments.every) => {}
                _ = tokio::signal::ctrl_c() => return Ok(()),
                () = is_quit(&mut pressed) => return Ok(()),
            }
            sample = look(&server).await?;
        }
    })
}

/// A sample without its past, which nobody sees here.
async fn look(server: &Server) -> Result<Value, Box<dyn Error>> {
    let mut sample = server.get("/v1/overview".to_owned()).await?;
    if let Some(fields) = sample.as_object_mut() {
        fields.remove("history");
        fields.remove("point");
    }
    Ok(sample)
}

fn height() -> usize {
    let size = tcgetwinsize(std::io::stdout());
    size.ok().map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0).unwrap_or(ROWS + OTHER_LINES)
}

/// What a person sees.
fn page(address: &str, sample: &Value, rows: usize) -> String {
    let number = |field: &str| sample[field].as_u64().unwrap_or(0);
    let rate = |of: &Value| grouped(of.as_f64().unwrap_or(0.0).round() as u128);
    let mut page = String::new();
    // Nothing can go wrong: it is written into memory.
    let _ = writeln!(
        page,
        "Umbel {} at {address}: {} for {}, {} connections",
        plain(&sample["version"]),
        plain(&sample["health"]),
        time(number("uptime_seconds").saturating_mul(1000)),
        grouped(number("connections").into()),
    );
    let _ = writeln!(
        page,
        "{} commands a second; {} keys new, {} asked for; {} keys in {} filters; memory {} of {}",
        rate(&sample["operations_per_second"]),
        rate(&sample["adds_per_second"]),
        rate(&sample["lookups_per_second"]),
        grouped(number("items").into()),
        grouped(number("filters").into()),
        bytes(number("memory_bytes").into()),
        bytes(number("memory_limit_bytes").into()),
    );
    let alerts: Vec<String> = listed(sample, "alerts").iter().map(|alert| plain(&alert["text"])).collect();
    let _ = writeln!(page, "{}\n", alerts.first().map_or("nothing needs attention", String::as_str));
    let busiest = listed(sample, "changed");
    if busiest.is_empty() {
        page.push_str("no filter has anything to do\n");
        return page;
    }
    let row = |filter: &Value| {
        let [items, capacity] = ["items", "capacity"].map(|field| filter[field].as_u64().unwrap_or(0));
        vec![
            plain(&filter["name"]),
            rate(&filter["adds_per_second"]),
            rate(&filter["lookups_per_second"]),
            grouped(items.into()),
            format!("{:.1} %", 100.0 * items as f64 / capacity.max(1) as f64),
            bytes(filter["bytes"].as_u64().unwrap_or(0).into()),
            if filter["is_growing"] == true { "grows".to_owned() } else { String::new() },
        ]
    };
    let all: Vec<_> = busiest.iter().take(rows).map(row).collect();
    page.push_str(&columns(&["filter", "new/s", "asked/s", "keys", "full", "memory", ""], &all));
    page
}

fn listed<'a>(sample: &'a Value, field: &str) -> &'a [Value] {
    sample[field].as_array().map_or(&[], Vec::as_slice)
}

/// Text of a server without what a terminal would obey.
fn plain(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_has_what_there_is_and_nothing_that_a_terminal_obeys() {
        let sample = json!({
            "version": "0.1.0", "health": "serving", "uptime_seconds": 98, "connections": 3,
            "operations_per_second": 790.4, "adds_per_second": 90.0, "lookups_per_second": 1700.0,
            "memory_bytes": 19 << 20, "memory_limit_bytes": 256 << 20, "filters": 3, "items": 7683,
            "alerts": [{ "level": "soon", "filter": "mails", "text": "mails will be full in 8 minutes" }],
            "changed": [
                { "name": "a\u{1b}[31m", "items": 50, "capacity": 200, "bytes": 2048, "adds_per_second": 90.0,
                  "lookups_per_second": 1700.0, "is_growing": true },
                { "name": "hidden", "items": 1, "capacity": 1, "bytes": 1, "adds_per_second": 0.0,
                  "lookups_per_second": 0.0, "is_growing": false },
            ],
        });
        let page = page("http://h:1", &sample, 1);
        assert!(!page.contains('\u{1b}') && !page.contains("hidden"), "{page}");
        for part in
            ["serving for 98.0 s", "790 commands", "1,700 asked", "mails will be full", "25.0 %", "grows"]
        {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        let idle = json!({ "health": "serving" });
        assert!(super::page("http://h:1", &idle, 1).ends_with("no filter has anything to do\n"));
    }
}
