//! Event loops: a thread each, with connections that stay with it.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc;
use umbel_core::engine::{Answer, Written};
use umbel_filter::Fingerprint;

use crate::acceptor::Arrival;
use crate::batch::Batches;
use crate::connection;
use crate::metrics;
use crate::node::Node;
use crate::session::Session;
use crate::tls::Tls;

/// Bytes of a buffer that connections share.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;
/// A client that does not say hello by then is gone.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Buffers that a loop keeps.
const BUFFERS_KEPT: usize = 64;

/// Keys for which a room that is kept may be.
const ROOM_KEYS_MAX: usize = 1 << 16;

/// What the connections of one loop share, without any lock.
#[derive(Debug)]
pub struct Local {
    /// Adds of this turn.
    pub adds: Rc<Batches<Written>>,
    /// Lookups of this turn that could not be answered at once.
    pub lookups: Rc<Batches<Vec<Answer>>>,
    /// The number of the loop.
    number: usize,
    buffers: RefCell<Vec<Vec<u8>>>,
    outputs: RefCell<Vec<Vec<u8>>>,
    rooms: RefCell<Vec<Room>>,
}

/// Room for a run: its keys, how many each command has, and their answers.
#[derive(Debug, Default)]
pub struct Room {
    /// The keys of all commands.
    pub keys: Vec<Fingerprint>,
    /// How many keys each command has.
    pub lengths: Vec<u32>,
    /// The answers to all keys.
    pub answers: Vec<Answer>,
}

impl Local {
    fn new(number: usize) -> Self {
        Self {
            adds: Rc::default(),
            lookups: Rc::default(),
            number,
            buffers: RefCell::default(),
            outputs: RefCell::default(),
            rooms: RefCell::default(),
        }
    }

    /// What is counted here.
    pub fn metrics<'n>(&self, node: &'n Node) -> &'n metrics::Loop {
        node.metrics.of_loop(self.number)
    }

    /// A buffer of [`BUFFER_BYTES`] to read into.
    pub fn take(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    /// Gives a buffer back.
    pub fn give(&self, buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < BUFFERS_KEPT {
            buffers.push(buffer);
        }
    }

    /// An empty buffer to write into.
    pub fn take_output(&self) -> Vec<u8> {
        self.outputs.borrow_mut().pop().unwrap_or_default()
    }

    /// Gives it back.
    pub fn give_output(&self, buffer: Vec<u8>) {
        let mut outputs = self.outputs.borrow_mut();
        if outputs.len() < BUFFERS_KEPT && (1..=2 * BUFFER_BYTES).contains(&buffer.capacity()) {
            outputs.push(buffer);
        }
    }
}

/// Runs.
impl Local {
    /// Room for a run, empty.
    pub fn take_room(&self) -> Room {
        self.rooms.borrow_mut().pop().unwrap_or_default()
    }

    /// Gives it back: a connection that waits for its next run holds none, so thousands of them take little memory.
    pub fn give_room(&self, mut room: Room) {
        let mut rooms = self.rooms.borrow_mut();
        if rooms.len() < BUFFERS_KEPT && room.keys.capacity() <= ROOM_KEYS_MAX {
            room.keys.clear();
            room.lengths.clear();
            room.answers.clear();
            rooms.push(room);
        }
    }
}

/// Runs a loop on this thread until the node stops.
pub(crate) fn run(node: &Arc<Node>, arrivals: mpsc::Receiver<Arrival>, number: usize) -> io::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    let local = Rc::new(Local::new(number));
    runtime.block_on(async {
        let engine = Arc::clone(&node.engine);
        tokio::task::spawn_local(Rc::clone(&local.adds).drive(move |filter, keys| {
            let engine = Arc::clone(&engine);
            async move { engine.add(&filter, &keys).await }
        }));
        let engine = Arc::clone(&node.engine);
        tokio::task::spawn_local(Rc::clone(&local.lookups).drive(move |filter, keys| {
            let engine = Arc::clone(&engine);
            async move { engine.contains(&filter, &keys, None).await }
        }));
        tokio::task::spawn_local(welcome(Arc::clone(node), Rc::clone(&local), arrivals));
        node.stop.stopped().await;
        // Whoever is being served gets its reply.
        for _ in 0..100 {
            if node.clients.is_empty() {
                break;
            }
            node.clients.all().iter().for_each(|client| client.kill());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    })
}

/// Takes the connections that the acceptor deals to this loop.
async fn welcome(node: Arc<Node>, local: Rc<Local>, mut arrivals: mpsc::Receiver<Arrival>) {
    while let Some(arrival) = arrivals.recv().await {
        enter(&node, &local, arrival);
    }
}

fn enter(node: &Arc<Node>, local: &Rc<Local>, arrival: Arrival) {
    let Arrival { stream, address, tls, counted } = arrival;
    let stream = match TcpStream::from_std(stream) {
        Ok(stream) => stream,
        Err(error) => return tracing::warn!(%error, "a connection cannot be watched"),
    };
    let local_address = stream.local_addr().unwrap_or(address);
    if stream.set_nodelay(true).is_err() {
        return;
    }
    if let Some(why) = node.keeps_out(address) {
        turn_away(stream, why.as_bytes());
        return local.metrics(node).refused();
    }
    let Some(client) =
        node.clients.enter(address, local_address, node.now(), node.config.load().max_clients as usize)
    else {
        local.metrics(node).refused();
        return turn_away(stream, b"-ERR max number of clients reached\r\n");
    };
    let session = Session::new(Arc::clone(node), Rc::clone(local), Arc::clone(&client));
    let (node, local) = (Arc::clone(node), Rc::clone(local));
    let acceptor = tls.as_deref().map(Tls::acceptor);
    tokio::task::spawn_local(async move {
        let _counted = counted;
        local.metrics(&node).opened();
        let served = match acceptor {
            None => connection::serve(stream, session).await,
            Some(acceptor) => match tokio::time::timeout(HANDSHAKE_TIME, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => connection::serve(stream, session).await,
                Ok(Err(error)) => Err(error),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            },
        };
        if let Err(error) = served {
            tracing::debug!(%error, %address, "a connection ended");
        }
        local.metrics(&node).closed();
        node.clients.leave(&client);
    });
}

/// Says why a client may not come in, and closes its connection.
fn turn_away(stream: TcpStream, why: &[u8]) {
    // The runtime does not know yet that it can be written to; the system does. There is room for this in the socket's buffer.
    let _ = stream.into_std().and_then(|mut stream| stream.write_all(why));
}
