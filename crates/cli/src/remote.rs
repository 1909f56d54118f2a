//! A server that a command talks to over HTTP.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use umbel_client::Server;

/// Which server, and who asks. Flatten it into a command's arguments.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Remote {
    /// The server's HTTP address
    #[arg(long, env = "UMBEL_SERVER", default_value = "http://127.0.0.1:6381", value_name = "URL")]
    pub(crate) server: String,
    /// Bearer token, if the server asks for one
    #[arg(long, env = "UMBEL_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// PEM file of the authorities that vouch for a server at https://, instead of the system's
    #[arg(long, env = "UMBEL_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
}

impl Remote {
    pub(crate) fn open(&self) -> Result<Server, Box<dyn Error>> {
        Ok(Server::trusting(&self.server, self.token.as_deref(), self.ca.as_deref())?)
    }
}

/// A runtime for a command that does one thing after another.
pub(crate) fn runtime() -> Result<Runtime, Box<dyn Error>> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Reads `500ms`, `30s`, `5m`, `2h` or a number of seconds.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time, such as 500ms, 30s, 5m or 2h");
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().map_err(|_| wrong())?;
    let milliseconds = match &text[end..] {
        "ms" => Some(number),
        "" | "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => None,
    };
    milliseconds.map(Duration::from_millis).ok_or_else(wrong)
}

/// Reads `region=eu`.
pub(crate) fn parse_label(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = pair.ok_or_else(|| format!("{text:?} is no label, such as region=eu"))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// `850 ms`, `12.3 s`, `5 min`, or nothing known.
pub(crate) fn time(milliseconds: u64) -> String {
    match milliseconds {
        u64::MAX => "never".to_owned(),
        0..1_000 => format!("{milliseconds} ms"),
        1_000..120_000 => format!("{:.1} s", milliseconds as f64 / 1e3),
        120_000..7_200_000 => format!("{} min", milliseconds / 60_000),
        _ => format!("{} h", milliseconds / 3_600_000),
    }
}

/// Prints rows under a head, each column as wide as it has to be.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) {
    print!("{}", columns(head, rows));
}

/// Rows under a head as lines of text.
pub(crate) fn columns(head: &[&str], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([head[column].len()]).max().unwrap_or(0)
        })
        .collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let head = line(&mut head.iter().copied());
    rows.iter().fold(head, |text, row| text + &line(&mut row.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_labels_are_read() {
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("2h"), Ok(Duration::from_secs(7200)));
        for bad in ["", "s", "-1s", "1d", "1.5s", "99999999999999999999s", "18446744073709551615h"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_label("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(parse_label("=x").is_err() && parse_label("x").is_err());
        assert_eq!(
            (time(999), time(1_500), time(u64::MAX)),
            ("999 ms".into(), "1.5 s".into(), "never".into())
        );
    }
}
