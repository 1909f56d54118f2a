//! `umbel status`: filters, their versions, and who has a copy.

use std::error::Error;
use std::time::Duration;

use serde_json::{Value, json};
use umbel_client::Server;
use umbel_server::node::unix_time;

use crate::remote::{Remote, runtime, table, time};
use crate::ring::node_state;
use crate::units::grouped;

/// Shows filters and their replicas: strategy, version, lag and whether checksums agree
#[derive(clap::Args)]
#[command(after_help = "Examples:
  umbel status
  umbel status urls
  umbel status urls --watch
  umbel status urls --json | jq '.replicas[] | select(.agrees == false)'")]
pub(crate) struct Arguments {
    /// One filter, with its replicas; all of them if left out
    filter: Option<String>,
    #[command(flatten)]
    remote: Remote,
    /// Again every second, until it is ended
    #[arg(long)]
    watch: bool,
    /// JSON, one line for each look
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let server = arguments.remote.open()?;
    runtime()?.block_on(async {
        loop {
            match &arguments.filter {
                Some(filter) => one(&server, filter, arguments.json).await?,
                None => all(&server, arguments.json).await?,
            }
            if !arguments.watch {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            if !arguments.json {
                println!();
            }
        }
    })
}

async fn all(server: &Server, as_json: bool) -> Result<(), Box<dyn Error>> {
    // A server by itself has none.
    let cluster = server.get("/v1/cluster".to_owned()).await.ok();
    let (mut filters, mut after) = (Vec::new(), String::new());
    loop {
        let page = server.get(format!("/v1/filters?limit=1000{after}")).await?;
        filters.extend(page["filters"].as_array().into_iter().flatten().cloned());
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={}", Server::path(next, "").trim_start_matches("/v1/filters/"));
    }
    let mut shown = Vec::new();
    for filter in filters {
        let name = text(&filter["name"]);
        let replicas = server.get(Server::path(&name, "replicas")).await?;
        shown.push(json!({ "filter": filter, "replicas": replicas["replicas"] }));
    }
    if as_json {
        println!("{}", json!({ "filters": shown, "cluster": cluster }));
        return Ok(());
    }
    if let Some(cluster) = &cluster {
        print_nodes(cluster);
    }
    let row = |entry: &Value| {
        let replicas = entry["replicas"].as_array().map_or(&[][..], Vec::as_slice);
        let differ = replicas.iter().filter(|replica| replica["agrees"] == false).count();
        let oldest = replicas.iter().filter_map(|replica| replica["age_ms"].as_u64()).max();
        vec![
            text(&entry["filter"]["name"]),
            text(&entry["filter"]["kind"]),
            grouped(entry["filter"]["items"].as_u64().unwrap_or(0).into()),
            replicas.len().to_string(),
            oldest.map(time).unwrap_or_default(),
            if differ == 0 { String::new() } else { differ.to_string() },
        ]
    };
    let rows: Vec<_> = shown.iter().map(row).collect();
    table(&["filter", "kind", "items", "replicas", "oldest", "differ"], &rows);
    Ok(())
}

fn print_nodes(cluster: &Value) {
    let row = |node: &Value| {
        let fields = ["name", "address", "zone", "serves", "first", "wanted"].map(|field| text(&node[field]));
        let state = node_state(node["leaving"] == true, node["isolated"] == true);
        fields.into_iter().chain([state.to_owned()]).collect::<Vec<_>>()
    };
    let settled = if cluster["settled"] == true { "all nodes know it" } else { "not all nodes know it yet" };
    println!("cluster {}: {} partitions; {settled}", text(&cluster["cluster"]), text(&cluster["partitions"]));
    let rows: Vec<_> = cluster["nodes"].as_array().into_iter().flatten().map(row).collect();
    table(&["node", "address", "zone", "serves", "first", "wanted", ""], &rows);
    println!();
}

async fn one(server: &Server, filter: &str, as_json: bool) -> Result<(), Box<dyn Error>> {
    let described = server.get(Server::path(filter, "")).await?;
    let versions = server.get(Server::path(filter, "versions")).await?;
    let replicas = server.get(Server::path(filter, "replicas")).await?;
    let growth = server.get(Server::path(filter, "growth")).await?;
    if as_json {
        let all = json!({
            "filter": described,
            "growth": growth,
            "versions": versions,
            "replicas": replicas["replicas"],
            "registered": replicas["registered"],
        });
        println!("{all}");
        return Ok(());
    }
    let items = grouped(described["items"].as_u64().unwrap_or(0).into());
    let newest = versions["versions"].as_array().and_then(|all| all.last());
    let is_pinned = versions["pinned"] == true;
    let pinned = if is_pinned { " (pinned)" } else { "" };
    println!(
        "{filter}: {}, {items} items, position {}",
        text(&described["kind"]),
        text(&replicas["position"])
    );
    print_growth(&growth);
    match newest {
        Some(newest) => println!(
            "versions: newest {}, current {}{pinned}, strong {}",
            text(&newest["number"]),
            text(&versions["current"]),
            text(&versions["strong"])
        ),
        None => println!("versions: none"),
    }
    if is_pinned {
        println!(
            "          replicas stay at version {} until `umbel rollback {filter} --newest`; the server's own answers follow the log",
            text(&versions["current"])
        );
    }
    if let Ok(rollout) = server.get(Server::path(filter, "rollout")).await
        && let state @ ("running" | "rolling_back" | "rolled_back") =
            rollout["state"].as_str().unwrap_or_default()
    {
        let (state, target, why) = (state.replace('_', " "), text(&rollout["target"]), text(&rollout["why"]));
        println!("rollout:  version {target} {state}; {why}");
    }
    let row = |replica: &Value| {
        vec![
            text(&replica["id"]),
            text(&replica["strategy"]),
            text(&replica["version"]),
            replica["age_ms"].as_u64().map(time).unwrap_or_default(),
            state(replica),
            grouped(replica["lag_bytes"].as_u64().unwrap_or(0).into()),
            checksum(replica),
            grouped(replica["spooled"].as_u64().unwrap_or(0).into()),
            labels(&replica["labels"]),
        ]
    };
    let rows: Vec<_> = replicas["replicas"].as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        println!("no replicas");
    } else {
        table(
            &["replica", "strategy", "version", "age", "state", "lag bytes", "checksum", "spooled", "labels"],
            &rows,
        );
    }
    Ok(())
}

/// How a replica stands to what it is told: an age alone would call one fresh that is held at an old version.
fn state(replica: &Value) -> String {
    let (serve, lacks) = (text(&replica["serve"]), replica["lacks_items"].as_u64());
    let behind = match lacks {
        Some(items) if items > 0 => format!(", lacks {} items", grouped(items.into())),
        _ => String::new(),
    };
    match replica["state"].as_str().unwrap_or_default() {
        "held" => format!("pinned at {serve}{behind}"),
        "moving" => format!("moving to {serve}"),
        "cannot_be_held" => format!("NOT HELD at {serve}: its release follows the log"),
        "answers" => format!("strong at {serve}{behind}"),
        "waits" => "does not answer".to_owned(),
        "silent" => "SILENT, counts for the majority".to_owned(),
        // A version may lack what came after it, too.
        state => format!("{state}{behind}"),
    }
}

/// What its checksum was compared with. That of a replica which follows the log is of the version that it began with.
fn checksum(replica: &Value) -> String {
    let version = text(&replica["version"]);
    let is_base = replica["state"] == "follows"
        && matches!(replica["strategy"].as_str(), Some("push" | "delta" | "window"));
    match replica["agrees"].as_bool() {
        Some(true) if is_base => format!("base equal to {version}"),
        Some(true) => format!("equal to {version}"),
        Some(false) => "DIFFERS".to_owned(),
        None => "unknown".to_owned(),
    }
}

/// How it fills, when it will be full, and which sizes it had.
fn print_growth(growth: &Value) {
    let number = |value: &Value| grouped(value.as_u64().unwrap_or(0).into());
    let (items, capacity) = (growth["items"].as_u64().unwrap_or(0), growth["capacity"].as_u64().unwrap_or(0));
    let fill = items as f64 * 100.0 / capacity.max(1) as f64;
    let how = match growth["factor"].as_f64() {
        Some(1.0) => "takes no more when it is full".to_owned(),
        factor => {
            format!("grows {} times at {} %", factor.unwrap_or_default(), text(&growth["at_percent"]))
        }
    };
    println!("growth: {fill:.1} % of {}; {how}; {}", number(&growth["capacity"]), text(&growth["forecast"]));
    let error = growth["error_in_a_week"]
        .as_f64()
        .map(|error| format!("; error rate in a week {error:.2e}, if it did not grow"));
    if let Some(rate) = growth["items_per_second"].as_f64() {
        println!("        {rate:.1} items a second{}", error.unwrap_or_default());
    }
    let now_ms = unix_time().as_millis() as u64;
    let row = |step: &Value| {
        vec![
            step["began_ms"].as_u64().map(|began| time(now_ms.saturating_sub(began))).unwrap_or_default(),
            text(&step["generation"]),
            number(&step["from_capacity"]),
            number(&step["to_capacity"]),
            text(&step["why"]),
            step["took_ms"].as_u64().map_or_else(|| "-".to_owned(), time),
        ]
    };
    let rows: Vec<_> = growth["history"].as_array().into_iter().flatten().map(row).collect();
    if !rows.is_empty() {
        table(&["grown before", "size", "from", "to", "why", "took"], &rows);
    }
}

/// A value as people read it.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

fn labels(value: &Value) -> String {
    let all = value.as_object().into_iter().flatten();
    all.map(|(name, value)| format!("{name}={}", text(value))).collect::<Vec<_>>().join(" ")
}
