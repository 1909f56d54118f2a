//! A server in this process, on real files.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::runtime::Runtime;
use umbel_client::Server as Api;
use umbel_core::definition::Growth;
use umbel_core::disk::{Disk, RealDisk};
use umbel_core::engine::{Engine, Handle, NewFilter, Settings};
use umbel_core::log;
use umbel_filter::Spec;
use umbel_server::chores::Chores;
use umbel_server::config::Config;
use umbel_server::node::Node;

use super::FILTER;

pub(super) struct Centre {
    pub(super) node: Arc<Node>,
    pub(super) filter: Arc<Handle>,
    chores: Chores,
    pub(super) runtime: Runtime,
    folder: PathBuf,
}

impl Centre {
    /// A server with one filter, which has so many keys.
    pub(super) fn open(spec: Spec, keys: u64) -> Result<Self, Box<dyn Error>> {
        let folder = std::env::temp_dir().join(format!("umbel-bench-sync-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let builder = Engine::builder(Settings::default());
        let builder = builder.in_folder(&disk, &folder, &log::Settings::new(&folder))?;
        let engine = runtime.block_on(builder.open())?;
        engine.start()?;
        // It is to become as full as it was made for, and not larger.
        let new = NewFilter { growth: Growth::Fixed, ..NewFilter::new(FILTER, spec) };
        let filter = runtime.block_on(engine.create(new))?;
        // Whoever waits for versions is to wait for them and not for the pause between two.
        let mut config = Config::default();
        config.publish_interval = Duration::from_millis(50);
        let node = Arc::new(Node::new(engine, config, 1)?);
        let chores = Chores::start(&[([127, 0, 0, 1], 0).into()])?;
        chores.watch(&node, None);
        let centre = Self { node, filter, chores, runtime, folder };
        for first in (0..keys).step_by(10_000) {
            centre.add(first..keys.min(first + 10_000))?;
        }
        Ok(centre)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.chores.addresses()[0])
    }

    pub(super) fn port(&self) -> u16 {
        self.chores.addresses()[0].port()
    }

    /// Adds keys, acknowledged when it returns.
    pub(super) fn add(&self, keys: std::ops::Range<u64>) -> Result<(), Box<dyn Error>> {
        let hasher = self.filter.hasher();
        let keys: Vec<_> = keys.map(|number| hasher.fingerprint(key(number).as_bytes())).collect();
        self.runtime.block_on(self.node.engine.add(&self.filter, &keys))?;
        Ok(())
    }

    /// Lets all strong replicas switch to what there is.
    pub(super) fn switch(&self) -> Result<(), Box<dyn Error>> {
        let api = Api::new(&self.url(), None)?;
        let body = json!({});
        self.runtime.block_on(api.post(Api::path(FILTER, "switch"), &body, Duration::from_secs(60)))?;
        Ok(())
    }
}

impl Drop for Centre {
    fn drop(&mut self) {
        // They are in the system's folder for temporary files: what stays goes with it.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The key of a number.
pub(super) fn key(number: u64) -> String {
    format!("https://example.com/{number}")
}
