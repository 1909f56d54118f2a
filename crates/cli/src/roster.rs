//! `umbel domains`: which domains there are, as the registry has it, and how one goes for good.

use std::error::Error;
use std::time::Duration;

use serde_json::json;
use umbel_adapters::open_registry;
use umbel_core::url::Url;
use umbel_domains::roster::{Roster, forget};

use crate::remote::table;

/// How often a roster looks by itself; this one looks once.
const NEVER: Duration = Duration::from_secs(3_600);

/// Lists the domains of a registry, and forgets one that is none any more
#[derive(clap::Args)]
#[command(
    after_help = "A domain that is only down stays: lookups say that nothing is known of it. One that is gone for good has to be forgotten.
Examples:
  umbel domains --domain-registry etcd://h1,h2/archives
  umbel domains --domain-registry etcd://h1,h2/archives --forget south"
)]
pub(crate) struct Arguments {
    /// Where domains find each other, as `umbel serve` has it
    #[arg(long, env = "UMBEL_DOMAIN_REGISTRY", hide_env_values = true, value_name = "URL")]
    domain_registry: String,
    /// The domain that is none any more; one that somebody runs is not forgotten
    #[arg(long, value_name = "NAME")]
    forget: Option<String>,
    /// JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let url = Url::parse(&arguments.domain_registry)?;
    let runtime = crate::planes::runtime()?;
    runtime.block_on(async {
        let registry = open_registry(&url).await?.plane;
        if let Some(name) = &arguments.forget {
            if !forget(&*registry, name).await? {
                return Err(format!("there is no domain {name:?}").into());
            }
            return Ok(());
        }
        let mut roster = Roster::new(registry, NEVER);
        roster.look().await?;
        let filters = |filters: &[umbel_domains::roster::Published]| {
            filters.iter().map(|filter| filter.name.clone()).collect::<Vec<_>>()
        };
        if arguments.json {
            for (domain, is_alive) in roster.domains() {
                println!("{}", json!({ "name": domain.name, "address": domain.address, "alive": is_alive, "filters": filters(&domain.filters) }));
            }
            return Ok(());
        }
        let rows: Vec<_> = roster
            .domains()
            .map(|(domain, is_alive)| {
                let state = if is_alive { "runs" } else { "nobody runs it" };
                vec![domain.name.clone(), domain.address.clone(), state.to_owned(), filters(&domain.filters).join(" ")]
            })
            .collect();
        table(&["domain", "address", "state", "filters"], &rows);
        Ok(())
    })
}
