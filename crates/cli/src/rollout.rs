//! `umbel rollout`: a version that goes out group by group.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use umbel_client::Server;

use crate::remote::{Remote, parse_time, runtime};

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Rolls a version out to replicas group by group, and back if it is not well there
#[derive(clap::Args)]
#[command(after_help = "Examples:
  umbel rollout start urls --percent 10,50,100 --pause 5m --follow
  umbel rollout start urls --by region --order eu,us --probe-present https://example.com/
  umbel rollout status urls --follow
  umbel rollout pause urls
  umbel rollout resume urls
  umbel rollout abort urls")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Begins one
    Start(Box<Start>),
    /// Shows how far it is
    Status(Status),
    /// Holds it at the group that it is at; if a replica is ill, it goes back all the same
    Pause(Change),
    /// Lets it go on
    Resume(Change),
    /// Ends it: all replicas go back to the version before
    Abort(Change),
}

#[derive(clap::Args)]
struct Start {
    /// The filter
    filter: String,
    #[command(flatten)]
    remote: Remote,
    /// The version; one is published if left out
    #[arg(long)]
    version: Option<u64>,
    /// Groups by the values of a label, such as region
    #[arg(long, conflicts_with_all = ["percent", "batch"])]
    by: Option<String>,
    /// The values in their order; all others come last
    #[arg(long, value_delimiter = ',', requires = "by")]
    order: Vec<String>,
    /// Shares of all replicas, such as 10,50,100
    #[arg(long, value_delimiter = ',', conflicts_with = "batch")]
    percent: Vec<u8>,
    /// So many replicas more each time
    #[arg(long)]
    batch: Option<u32>,
    /// What is waited between groups
    #[arg(long, default_value = "0s", value_parser = parse_time)]
    pause: Duration,
    /// How long a group may take before all go back
    #[arg(long, default_value = "60s", value_parser = parse_time)]
    timeout: Duration,
    /// Replicas that may fail before all go back
    #[arg(long, default_value_t = 0)]
    error_budget: u32,
    /// A key that must be there; may be given several times
    #[arg(long)]
    probe_present: Vec<String>,
    /// A key that must not be there; may be given several times. One that was added is always found out. One that was not may be there
    /// by the filter's error rate: that is no failure if the log tells that it was not added, or if there are many
    #[arg(long)]
    probe_absent: Vec<String>,
    /// Shows how it goes until it ends
    #[arg(long)]
    follow: bool,
    /// JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Status {
    /// The filter
    filter: String,
    #[command(flatten)]
    remote: Remote,
    /// Until it ends; fails if it was rolled back
    #[arg(long)]
    follow: bool,
    /// JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Change {
    /// The filter
    filter: String,
    #[command(flatten)]
    remote: Remote,
    /// JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    runtime()?.block_on(async {
        match &arguments.what {
            What::Start(start) => begin(start).await,
            What::Status(status) => {
                let server = status.remote.open()?;
                follow(&server, &status.filter, status.follow, status.json).await
            }
            What::Pause(change) => hold(change, true).await,
            What::Resume(change) => hold(change, false).await,
            What::Abort(change) => {
                let server = change.remote.open()?;
                server.delete(Server::path(&change.filter, "rollout")).await?;
                // It has gone back when no replica has the version any more, and that is what was asked for.
                follow(&server, &change.filter, true, change.json).await?;
                Ok(ExitCode::SUCCESS)
            }
        }
    })
}

async fn hold(change: &Change, paused: bool) -> Result<ExitCode, Box<dyn Error>> {
    let path = Server::path(&change.filter, "rollout");
    let held = change.remote.open()?.put(path, &json!({ "paused": paused })).await?;
    tell(&change.filter, &held, change.json);
    Ok(ExitCode::SUCCESS)
}

async fn begin(start: &Start) -> Result<ExitCode, Box<dyn Error>> {
    let server = start.remote.open()?;
    let plan = json!({
        "by": start.by,
        "order": start.order,
        "percent": start.percent,
        "batch": start.batch,
        "pause_ms": start.pause.as_millis() as u64,
        "timeout_ms": start.timeout.as_millis() as u64,
        "error_budget": start.error_budget,
        "probe_present": start.probe_present,
        "probe_absent": start.probe_absent,
    });
    let path = Server::path(&start.filter, "rollout");
    let body = json!({ "version": start.version, "plan": plan });
    let begun = server.post(path, &body, Duration::from_secs(600)).await?;
    let apart: Vec<&str> =
        begun["apart"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !apart.is_empty() {
        let (count, filter) = (apart.len(), &start.filter);
        eprintln!(
            "umbel: {count} strong replicas have no part in it ({}): they switch by `umbel publish {filter} --strong`",
            apart.join(", ")
        );
    }
    if start.follow {
        return follow(&server, &start.filter, true, start.json).await;
    }
    tell(&start.filter, &begun, start.json);
    Ok(ExitCode::SUCCESS)
}

async fn follow(
    server: &Server,
    filter: &str,
    to_the_end: bool,
    as_json: bool,
) -> Result<ExitCode, Box<dyn Error>> {
    let mut last = Value::Null;
    loop {
        let rollout = server.get(Server::path(filter, "rollout")).await?;
        if rollout != last {
            tell(filter, &rollout, as_json);
        }
        let is_over = rollout["state"] != "running" && rollout["state"] != "rolling_back";
        if !to_the_end || is_over {
            let went_back = to_the_end && rollout["state"] == "rolled_back";
            return Ok(if went_back { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
        last = rollout;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn tell(filter: &str, rollout: &Value, as_json: bool) {
    if as_json {
        println!("{rollout}");
        return;
    }
    let number = |name: &str| rollout[name].as_u64().unwrap_or(0);
    let why = rollout["why"].as_str().filter(|why| !why.is_empty());
    let state = rollout["state"].as_str().unwrap_or_default().replace('_', " ");
    let is_held = rollout["state"] == "running" && rollout["paused"] == true;
    let missing: Vec<&str> =
        rollout["missing"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let missing = match missing.len() {
        0 => String::new(),
        _ => format!("; not confirmed by {}", missing.join(", ")),
    };
    println!(
        "version {} {}: group {} of {}{}{missing}",
        number("target"),
        if is_held { "paused" } else { &state },
        number("stage") + 1,
        number("stages"),
        why.map(|why| format!("; {why}")).unwrap_or_default()
    );
    if rollout["state"] == "done" {
        println!("it is pinned: replicas stay at it until `umbel rollback {filter} --newest`");
    }
}
