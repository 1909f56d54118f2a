//! The ring of a cluster that is there.

use std::error::Error;
use std::fs;

use serde_json::{Value, json};
use umbel_adapters::open_registry;
use umbel_core::agreement::Agreement;
use umbel_core::cluster::{Table, View, inspect};
use umbel_core::url::Url;

use super::{Arguments, picture};
use crate::remote::{runtime, table};

pub(super) fn run(registry: &str, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let (view, left, cluster) = runtime()?.block_on(async {
        let registry = open_registry(&Url::parse(registry)?).await?.plane;
        let agreed = Agreement::read(&*registry).await?.ok_or("no node ever started here")?;
        let (cluster, copies) = agreed.cluster().ok_or("one server has this deployment; it is no cluster")?;
        let (view, left) = inspect(&*registry, agreed.partitions, copies).await?;
        Ok::<_, Box<dyn Error>>((view, left, cluster.to_owned()))
    })?;
    if let (Some(file), Some(ring)) = (&arguments.svg, view.ring()) {
        fs::write(file, picture::draw(ring)).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    if arguments.json {
        println!("{}", as_json(&view, left.as_ref(), &cluster));
    } else {
        print(&view, left.as_ref(), &cluster, arguments.table);
    }
    Ok(())
}

fn first(view: &View, name: &str) -> usize {
    let is_first = |partition: &u32| view.first(*partition).is_some_and(|node| node.name == name);
    (0..view.partitions()).filter(is_first).count()
}

fn hosts(view: &View, partition: u32) -> Vec<&str> {
    view.hosts(partition).map(|node| node.name.as_str()).collect()
}

/// What people see of a node that is not simply there.
pub(crate) fn node_state(is_leaving: bool, is_isolated: bool) -> &'static str {
    match (is_leaving, is_isolated) {
        (_, true) => "isolated",
        (true, false) => "leaving",
        (false, false) => "",
    }
}

fn print(view: &View, left: Option<&Table>, cluster: &str, all: bool) {
    let row = |node: &umbel_core::cluster::Record| {
        vec![
            node.name.clone(),
            node.address.clone(),
            node.weight.to_string(),
            node.serves.len().to_string(),
            first(view, &node.name).to_string(),
            view.wanted(&node.name).len().to_string(),
            node.zone.clone(),
            node_state(node.leaving, view.is_isolated(&node.name)).to_owned(),
        ]
    };
    let rows: Vec<_> = view.nodes().iter().map(row).collect();
    table(&["node", "address", "weight", "serves", "first", "wanted", "zone", ""], &rows);
    let epoch = left.map_or(0, |left| left.epoch);
    let settled = if view.is_settled() { "all nodes know it" } else { "not all nodes know it yet" };
    println!(
        "cluster {cluster}, epoch {epoch}: {} partitions with {} hosts each; {settled}",
        view.partitions(),
        view.copies()
    );
    if all {
        println!();
        for partition in 0..view.partitions() {
            let should: Vec<&str> = view.ring_hosts(partition).collect();
            let now = hosts(view, partition);
            let soon =
                if now == should { String::new() } else { format!("  (should be {})", should.join(" ")) };
            println!("{partition:>4}  {}{soon}", now.join(" "));
        }
    }
}

fn as_json(view: &View, left: Option<&Table>, cluster: &str) -> Value {
    let nodes = view.nodes().iter().map(|node| {
        json!({
            "name": node.name, "address": node.address, "zone": node.zone, "weight": node.weight,
            "leaving": node.leaving, "isolated": view.is_isolated(&node.name), "serves": node.serves.len(), "first": first(view, &node.name),
            "wanted": view.wanted(&node.name).len(),
        })
    });
    let nodes: Vec<Value> = nodes.collect();
    let hosts: Vec<Vec<&str>> = (0..view.partitions()).map(|partition| hosts(view, partition)).collect();
    json!({
        "cluster": cluster, "epoch": left.map(|left| left.epoch), "settled": view.is_settled(),
        "nodes": nodes, "partitions": hosts,
    })
}
