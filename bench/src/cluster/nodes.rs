//! The processes: the nodes of a cluster, and a server that is alone.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Options;
use crate::process::Server;

/// How long the others wait for a node that says nothing.
const LEASE: &str = "3s";
const SECRET: (&str, &str) = ("UMBEL_CLUSTER_SECRET", "known to the nodes of a benchmark");

pub(super) struct Nodes {
    folder: PathBuf,
    /// The server that is alone comes last.
    servers: Vec<Server>,
}

impl Nodes {
    pub(super) fn start(options: &Options) -> Result<Self, Box<dyn Error>> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let name = format!("umbel-bench-{time}");
        let folder = std::env::temp_dir().join(&name);
        let mut nodes = Self { folder, servers: Vec::new() };
        let log = named(&options.log, &name, &format!("partitions={}", options.partitions));
        let threads = ("--threads", "1".to_owned());
        let planes = [
            threads.clone(),
            ("--cluster", name.clone()),
            ("--cluster-lease", LEASE.to_owned()),
            ("--log", log),
            ("--blobs", named(&options.blobs, &name, "")),
            ("--registry", named(&options.registry, &name, "")),
        ];
        for number in 1..=options.nodes {
            let node = ("--node", format!("node{number}"));
            let arguments: Vec<_> = planes.iter().cloned().chain([node]).collect();
            let server = Server::start(&options.umbel, &nodes.folder, &arguments, Some(SECRET))?;
            nodes.servers.push(server);
        }
        let single = Server::start(&options.umbel, &nodes.folder, &[threads], None)?;
        nodes.servers.push(single);
        nodes.servers.iter_mut().try_for_each(Server::wait)?;
        Ok(nodes)
    }

    /// The ports of the nodes that live.
    pub(super) fn ring(&self) -> Vec<u16> {
        self.servers[..self.servers.len() - 1].iter().map(|server| server.port).collect()
    }

    /// The port of the server that is alone.
    pub(super) fn single(&self) -> u16 {
        self.servers[self.servers.len() - 1].port
    }

    /// What processor time the nodes have taken together, and what the server that is alone has.
    pub(super) fn processor_times(&self) -> (Duration, Duration) {
        let (single, ring) = self.servers.split_last().map_or((None, &[][..]), |(one, all)| (Some(one), all));
        let ring = ring.iter().map(Server::processor_time).sum();
        (ring, single.map(Server::processor_time).unwrap_or_default())
    }

    /// Kills the last node without a word to the others.
    pub(super) fn kill_one(&mut self) -> std::io::Result<()> {
        self.servers.remove(self.servers.len() - 2).kill()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.servers.clear();
        // What cannot be removed is in a folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// An address with a name behind it, and a parameter if there is one.
pub(super) fn named(url: &str, name: &str, parameter: &str) -> String {
    let (host, parameters) = url.split_once('?').unwrap_or((url, ""));
    let parameters: Vec<_> = [parameters, parameter].into_iter().filter(|text| !text.is_empty()).collect();
    let mark = if parameters.is_empty() { "" } else { "?" };
    format!("{}/{name}{mark}{}", host.trim_end_matches('/'), parameters.join("&"))
}
