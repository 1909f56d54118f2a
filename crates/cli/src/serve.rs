//! `umbel serve`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use umbel_core::disk::{Disk, RealDisk};
use umbel_core::engine::{Engine, Settings};
use umbel_core::log;
use umbel_server::node::Node;
use umbel_server::server::Server;

/// Run the server
#[derive(Args)]
pub(crate) struct Arguments {
    #[arg(long, default_value_t = 6380)]
    port: u16,
    #[arg(long, default_value = "umbel-data")]
    data: PathBuf,
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let engine = runtime.block_on(async {
        Engine::builder(Settings::default())
            .in_folder(&disk, &arguments.data, &log::Settings::new(&arguments.data))?
            .open()
            .await
    })?;
    engine.start()?;
    let node = Arc::new(Node::new(engine));
    let server = Server::start(&node, &[([127, 0, 0, 1], arguments.port).into()], arguments.threads)?;
    println!("listening on {:?}", server.addresses());
    server.join()?;
    Ok(())
}
