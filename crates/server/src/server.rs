//! Sockets and threads around a node.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use socket2::{Domain, Protocol, Socket, Type};

use crate::event_loop;
use crate::metrics::LoopMetrics;
use crate::node::Node;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    loops: Vec<JoinHandle<io::Result<()>>>,
}

impl Server {
    /// Listens on all addresses with so many event loops. Every loop has its own socket for each address, and the system spreads connections
    /// over them.
    pub fn start(node: &Arc<Node>, addresses: &[SocketAddr], threads: usize) -> io::Result<Self> {
        let mut bound = Vec::new();
        let mut listeners: Vec<Vec<TcpListener>> = (0..threads.max(1)).map(|_| Vec::new()).collect();
        for address in addresses {
            let mut address = *address;
            for sockets in &mut listeners {
                let socket = listen(address)?;
                // The first socket finds a free port, if any will do; the others share it.
                address = socket.local_addr()?;
                sockets.push(socket);
            }
            bound.push(address);
        }
        node.listens_on(bound.first().map_or(0, SocketAddr::port));
        let mut loops = Vec::new();
        for (number, listeners) in listeners.into_iter().enumerate() {
            let node = Arc::clone(node);
            let body = move || event_loop::run(&node, listeners, Arc::new(LoopMetrics::default()));
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
