//! `umbel node`: nodes of a cluster leave, or stay.

use std::error::Error;

use clap::Subcommand;
use serde_json::json;
use umbel_adapters::open_registry;
use umbel_core::cluster::set_leaving;
use umbel_core::url::Url;

use crate::remote::runtime;
use crate::resp::{Address, Connection, SILENCE_MAX};

/// Lets nodes of a cluster give their partitions away, before they are stopped
#[derive(clap::Args)]
#[command(after_help = "Examples:
  umbel node drain a
  umbel node drain a --url redis://:password@10.0.0.2:6380
  umbel node drain a --registry etcd://h1,h2
  umbel node undrain a

A node that leaves serves its partitions until others do; `umbel status` shows how many it has. It may be stopped when it has
no more than one, which every node has.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Lets a node give its partitions away
    Drain(Which),
    /// Lets it have partitions again
    Undrain(Which),
}

#[derive(clap::Args)]
struct Which {
    /// The node
    name: String,
    /// Any node of the cluster
    #[arg(long, default_value = "redis://127.0.0.1:6380")]
    url: Address,
    /// The registry of the cluster, instead of one of its nodes
    #[arg(long, env = "UMBEL_REGISTRY", hide_env_values = true, conflicts_with = "url")]
    registry: Option<String>,
    /// JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let (which, leaves) = match &arguments.action {
        Action::Drain(which) => (which, true),
        Action::Undrain(which) => (which, false),
    };
    match &which.registry {
        Some(registry) => runtime()?.block_on(async {
            let registry = open_registry(&Url::parse(registry)?).await?;
            set_leaving(&*registry.plane, &which.name, leaves).await
        })?,
        None => {
            let action = if leaves { "DRAIN" } else { "UNDRAIN" };
            Connection::open(&which.url, SILENCE_MAX)?.demand(&["UMBEL.NODE", action, &which.name])?;
        }
    }
    match which.json {
        true => println!("{}", json!({ "node": which.name, "leaves": leaves })),
        false => println!("{} {}", which.name, if leaves { "leaves" } else { "stays" }),
    }
    Ok(())
}
