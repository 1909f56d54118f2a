//! Sockets and threads around a node.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::acceptor::{self, Door, listen};
use crate::event_loop;
use crate::node::{Facts, Node};
use crate::tls::Tls;

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// Where a server listens.
#[derive(Debug, Default)]
pub struct Doors {
    /// For RESP.
    pub plain: Vec<SocketAddr>,
    /// For RESP over TLS.
    pub secure: Vec<SocketAddr>,
    /// Certificates for that.
    pub tls: Option<Arc<Tls>>,
}

impl Server {
    /// Listens on addresses for RESP.
    pub fn start(node: &Arc<Node>, addresses: &[SocketAddr], threads: usize) -> io::Result<Self> {
        Self::open(node, &Doors { plain: addresses.to_vec(), ..Doors::default() }, threads)
    }

    /// Listens on all addresses with so many event loops. One thread accepts connections and deals them evenly to the loops.
    pub fn open(node: &Arc<Node>, doors: &Doors, threads: usize) -> io::Result<Self> {
        let (mut bound, mut listening) = (Vec::new(), Vec::new());
        let plain = doors.plain.iter().map(|address| (*address, None));
        let secure = doors.secure.iter().map(|address| (*address, doors.tls.clone()));
        for (address, tls) in plain.chain(secure) {
            let listener = listen(address, "RESP")?;
            bound.push(listener.local_addr()?);
            listening.push(Door { listener, tls });
        }
        let config = node.config.load();
        node.describe(Facts {
            port: bound.first().map_or(0, SocketAddr::port),
            durability: node.durability.clone(),
            config_file: config.file().map(|path| path.display().to_string()).unwrap_or_default(),
        });
        let (shares, arrivals) = acceptor::shares(threads.max(1));
        let mut running = Vec::new();
        for (number, arrivals) in arrivals.into_iter().enumerate() {
            let node = Arc::clone(node);
            let body = move || event_loop::run(&node, arrivals, number);
            running.push(std::thread::Builder::new().name(format!("loop-{number}")).spawn(body)?);
        }
        let accepting = Arc::clone(node);
        let body = move || acceptor::run(&accepting, listening, &shares);
        running.push(std::thread::Builder::new().name("acceptor".into()).spawn(body)?);
        Ok(Self { addresses: bound, threads: running })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Waits until all threads have ended, which they do when the node stops.
    pub fn join(self) -> io::Result<()> {
        for running in self.threads {
            running.join().map_err(|_| io::Error::other("an event loop panicked"))??;
        }
        Ok(())
    }
}
