//! `umbel publish` and `umbel rollback`: which version of a filter replicas have.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use serde_json::{Value, json};
use umbel_client::Server;

use crate::remote::{Remote, parse_label, parse_time, runtime};

/// Publishes a filter as it is now
#[derive(clap::Args)]
#[command(after_help = "Examples:
  umbel publish urls
  umbel publish urls --strong
  umbel publish urls --strong --group region=eu --timeout 2m")]
pub(crate) struct Arguments {
    /// The filter
    filter: String,
    #[command(flatten)]
    remote: Remote,
    /// All strong replicas switch to it together, once a majority has it; it is pinned, and pull and notify follow the pin
    #[arg(long)]
    strong: bool,
    /// A majority of those with this label is enough; may be given several times
    #[arg(long, value_parser = parse_label, requires = "strong", value_name = "NAME=VALUE")]
    group: Vec<(String, String)>,
    /// How long the majority may take
    #[arg(long, default_value = "30s", value_parser = parse_time, requires = "strong")]
    timeout: Duration,
    /// JSON
    #[arg(long)]
    json: bool,
}

/// Makes an older version the current one
#[derive(clap::Args)]
#[command(
    after_help = "Replicas that follow the log (delta, push) are not affected: they have what the server has.
Examples:
  umbel rollback urls --to 7
  umbel rollback urls --newest"
)]
pub(crate) struct Rollback {
    /// The filter
    filter: String,
    #[command(flatten)]
    remote: Remote,
    /// The version
    #[arg(long, required_unless_present = "newest")]
    to: Option<u64>,
    /// Follow the newest version again
    #[arg(long, conflicts_with = "to")]
    newest: bool,
    /// JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let server = arguments.remote.open()?;
    let group: BTreeMap<_, _> = arguments.group.iter().cloned().collect();
    let asked = async {
        if !arguments.strong {
            let path = Server::path(&arguments.filter, "versions");
            return server.post(path, &json!({}), Duration::from_secs(600)).await;
        }
        let body = json!({ "group": group, "timeout_ms": arguments.timeout.as_millis() as u64 });
        // It also waits for leases to end.
        let patience = arguments.timeout + Duration::from_secs(60);
        server.post(Server::path(&arguments.filter, "switch"), &body, patience).await
    };
    let made = runtime()?.block_on(asked)?;
    if arguments.json {
        println!("{made}");
        return Ok(());
    }
    println!("version {} with digest {}", made["number"], made["digest"].as_str().unwrap_or_default());
    if arguments.strong {
        println!("{} of {} replicas had it when all switched", made["acknowledged"], made["registered"]);
    }
    Ok(())
}

pub(crate) fn roll_back(arguments: &Rollback) -> Result<(), Box<dyn Error>> {
    let server = arguments.remote.open()?;
    let path = Server::path(&arguments.filter, "current");
    let set: Value = runtime()?.block_on(server.put(path, &json!({ "version": arguments.to })))?;
    if arguments.json {
        println!("{set}");
        return Ok(());
    }
    match arguments.to {
        Some(number) => println!("version {number} is the current one"),
        None => println!("the newest version is the current one"),
    }
    Ok(())
}
