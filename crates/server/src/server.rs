//! Sockets and threads around a node.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use socket2::{Domain, Protocol, Socket, Type};

use crate::event_loop;
use crate::node::{Facts, Node};
use crate::tls::Tls;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    loops: Vec<JoinHandle<io::Result<()>>>,
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

/// A socket that an event loop accepts connections from.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) tls: Option<Arc<Tls>>,
}

impl Server {
    /// Listens on addresses for RESP.
    pub fn start(node: &Arc<Node>, addresses: &[SocketAddr], threads: usize) -> io::Result<Self> {
        Self::open(node, &Doors { plain: addresses.to_vec(), ..Doors::default() }, threads)
    }

    /// Listens on all addresses with so many event loops. Every loop has its own socket for each address, and the system spreads connections
    /// over them.
    pub fn open(node: &Arc<Node>, doors: &Doors, threads: usize) -> io::Result<Self> {
        let mut bound = Vec::new();
        let mut by_loop: Vec<Vec<Door>> = (0..threads.max(1)).map(|_| Vec::new()).collect();
        let plain = doors.plain.iter().map(|address| (*address, None));
        let secure = doors.secure.iter().map(|address| (*address, doors.tls.clone()));
        for (mut address, tls) in plain.chain(secure) {
            for doors in &mut by_loop {
                let listener = listen(address)?;
                // The first socket finds a free port, if any will do; the others share it.
                address = listener.local_addr()?;
                doors.push(Door { listener, tls: tls.clone() });
            }
            bound.push(address);
        }
        let config = node.config.load();
        node.describe(Facts {
            port: bound.first().map_or(0, SocketAddr::port),
            durability: node.durability.clone(),
            config_file: config.file().map(|path| path.display().to_string()).unwrap_or_default(),
        });
        let mut loops = Vec::new();
        for (number, doors) in by_loop.into_iter().enumerate() {
            let node = Arc::clone(node);
            let body = move || event_loop::run(&node, doors, number);
            loops.push(std::thread::Builder::new().name(format!("loop-{number}")).spawn(body)?);
        }
        Ok(Self { addresses: bound, loops })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Waits until all loops have ended, which they do when the node stops.
    pub fn join(self) -> io::Result<()> {
        for running in self.loops {
            running.join().map_err(|_| io::Error::other("an event loop panicked"))??;
        }
        Ok(())
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
    let socket =
        Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)).map_err(named)?;
    socket.set_reuse_address(true).map_err(named)?;
    socket.set_reuse_port(true).map_err(named)?;
    if address.is_ipv6() {
        socket.set_only_v6(true).map_err(named)?;
    }
    socket.bind(&address.into()).map_err(named)?;
    socket.listen(BACKLOG).map_err(named)?;
    socket.set_nonblocking(true).map_err(named)?;
    Ok(socket.into())
}
