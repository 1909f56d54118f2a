//! `umbel ping`: whether a server answers, for health checks.

use std::error::Error;

use serde_json::json;

use crate::resp::{Address, Connection, SILENCE_MAX, Value};

/// Asks a server whether it is there; fails if it does not answer
#[derive(clap::Args)]
#[command(after_help = "Examples:
  umbel ping
  umbel ping --url redis://:password@10.0.0.1:6380")]
pub(crate) struct Arguments {
    /// The server
    #[arg(long, default_value = "redis://127.0.0.1:6380")]
    url: Address,
    /// JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    match Connection::open(&arguments.url, SILENCE_MAX)?.ask(&["PING"])? {
        // Whoever is asked for a password is answered.
        Value::Error(error) if !error.starts_with("NOAUTH") => Err(error.into()),
        _ => {
            match arguments.json {
                true => println!("{}", json!({ "url": arguments.url.to_string(), "answers": true })),
                false => println!("{} answers", arguments.url),
            }
            Ok(())
        }
    }
}
