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
  umbel publish urls --pin
  umbel publish urls --strong
  umbel publish urls --strong --group region=eu --timeout 2m")]
pub(crate) struct Arguments {
    /// The filter
    filter: String,
    #[command(flatten)]
    remote: Remote,
    /// All strong replicas switch to it together, once a majority of those that are registered has it; other replicas are not held at it
    #[arg(long)]
    strong: bool,
    /// Pins it: all replicas but strong ones stay at it until `umbel rollback NAME --newest`
    #[arg(long)]
    pin: bool,
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

/// Pins an older version: all replicas go back to it and stay there
#[derive(clap::Args)]
#[command(
    after_help = "Replicas of every strategy go back: pull and notify take the version, push, delta and window load it and stop following,
and strong ones switch to it together. They stay until --newest releases the pin; strong ones until the next `umbel publish --strong`.
The server's own answers (BF.EXISTS and the like) follow the log and are not rolled back.
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
    /// Releases the pin: replicas follow the newest version or the log again
    #[arg(long, conflicts_with = "to")]
    newest: bool,
    /// How long a majority of strong replicas may take, if there are some
    #[arg(long, default_value = "30s", value_parser = parse_time, requires = "to")]
    timeout: Duration,
    /// JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let server = arguments.remote.open()?;
    let group: BTreeMap<_, _> = arguments.group.iter().cloned().collect();
    let (made, pinned) = runtime()?.block_on(async {
        let made = if arguments.strong {
            switch(&server, &arguments.filter, &json!({ "group": group }), arguments.timeout).await?
        } else {
            let path = Server::path(&arguments.filter, "versions");
            server.post(path, &json!({}), Duration::from_secs(600)).await?
        };
        if !arguments.pin {
            return Ok::<_, umbel_client::Error>((made, Value::Null));
        }
        let path = Server::path(&arguments.filter, "current");
        let pinned = server.put(path, &json!({ "version": made["number"] })).await?;
        Ok((made, pinned))
    })?;
    if arguments.json {
        let mut made = made;
        if arguments.pin {
            made["pinned"] = pinned["current"].clone();
        }
        println!("{made}");
        return Ok(());
    }
    println!("version {} with digest {}", made["number"], made["digest"].as_str().unwrap_or_default());
    if arguments.strong {
        print_switched(&made);
    }
    let filter = &arguments.filter;
    match (arguments.pin, made["pinned"].as_u64()) {
        (true, _) => println!(
            "it is pinned: pull, notify, push, delta and window replicas stay at it until `umbel rollback {filter} --newest`"
        ),
        (false, Some(pinned)) => println!(
            "version {pinned} stays pinned for all other replicas; `umbel rollback {filter} --newest` lets them follow"
        ),
        (false, None) => {}
    }
    Ok(())
}

/// Lets strong replicas switch together.
async fn switch(
    server: &Server,
    filter: &str,
    what: &Value,
    timeout: Duration,
) -> umbel_client::Result<Value> {
    let mut body = what.clone();
    body["timeout_ms"] = json!(timeout.as_millis() as u64);
    // It also waits for leases to end.
    server.post(Server::path(filter, "switch"), &body, timeout + Duration::from_secs(60)).await
}

fn print_switched(switched: &Value) {
    println!(
        "{} of {} registered strong replicas had it when all switched; other replicas are not held at it",
        switched["acknowledged"], switched["registered"]
    );
}

pub(crate) fn roll_back(arguments: &Rollback) -> Result<(), Box<dyn Error>> {
    let server = arguments.remote.open()?;
    let path = Server::path(&arguments.filter, "current");
    let (mut set, switched) = runtime()?.block_on(async {
        let set = server.put(path, &json!({ "version": arguments.to })).await?;
        // Strong replicas have a version of their own, which changes for all of them together.
        let strong = set["strong"].as_u64();
        let switched = match arguments.to {
            Some(to) if strong.is_some_and(|strong| strong != to) => {
                switch(&server, &arguments.filter, &json!({ "version": to }), arguments.timeout)
                    .await
                    .map_err(|error| {
                        format!(
                            "version {to} is pinned, but strong replicas stay at {}: {error}",
                            set["strong"]
                        )
                    })?
            }
            _ => Value::Null,
        };
        Ok::<_, Box<dyn Error>>((set, switched))
    })?;
    if arguments.json {
        if !switched.is_null() {
            (set["strong"], set["switched"]) = (switched["number"].clone(), switched);
        }
        println!("{set}");
        return Ok(());
    }
    match arguments.to {
        Some(number) => {
            println!(
                "version {number} is the current one: it is pinned, and replicas go back to it and stay there"
            );
            if !switched.is_null() {
                let (ready, all) = (&switched["acknowledged"], &switched["registered"]);
                println!("strong replicas switched to it together; {ready} of {all} had it then");
            }
            println!("the server's own answers follow the log and are not rolled back");
        }
        None => {
            println!("the newest version is the current one: replicas follow again");
            if let Some(strong) = set["strong"].as_u64() {
                println!(
                    "strong replicas stay at version {strong} until `umbel publish {} --strong`",
                    arguments.filter
                );
            }
        }
    }
    Ok(())
}
