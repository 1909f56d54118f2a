//! The thread that accepts connections and deals them to the event loops.
//!
//! There is one listening socket for each address, without `SO_REUSEPORT`. The kernel then refuses a second listener on the address
//! to every process, of any user, whether that one sets the option or not. With the option, each process of the same user could join
//! the group, and the kernel would deal connections to all of them: clients would talk to two servers with different data.
//! `SO_REUSEADDR` stays: on Linux it permits a bind while connections of the previous process are in TIME_WAIT, and never a second
//! listener.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::mpsc;

use crate::logging::OncePerMinute;
use crate::node::Node;
use crate::tls::Tls;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Connections that wait for one event loop.
const DEALT_MAX: usize = 1024;
/// Pause after a failed accept: descriptors come back as clients leave.
const PAUSE: Duration = Duration::from_millis(50);

/// A listening socket, and the certificates for what arrives there.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) tls: Option<Arc<Tls>>,
}

/// A connection on its way to an event loop.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) stream: std::net::TcpStream,
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<Arc<Tls>>,
    /// Held as long as the connection is open.
    pub(crate) counted: Counted,
}

/// Counts one connection of an event loop until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The acceptor's side of one event loop.
#[derive(Debug)]
pub(crate) struct Share {
    arrivals: mpsc::Sender<Arrival>,
    /// Connections that are open, or on their way to the loop.
    open: Arc<AtomicUsize>,
}

/// Returns both ends of the queues to so many event loops.
pub(crate) fn shares(loops: usize) -> (Vec<Share>, Vec<mpsc::Receiver<Arrival>>) {
    let share = |_| {
        let (arrivals, receiver) = mpsc::channel(DEALT_MAX);
        (Share { arrivals, open: Arc::default() }, receiver)
    };
    (0..loops).map(share).unzip()
}

/// An error of a listener that names its address, and what to do if another process has it.
fn cannot_listen(address: SocketAddr, what: &str, error: &io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another process, perhaps another umbel serve, listens there: end it or choose another port"
        }
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot listen on {address} for {what}: {error}{advice}"))
}

/// Binds an address and listens there. `what` names the service in errors.
pub(crate) fn listen(address: SocketAddr, what: &str) -> io::Result<TcpListener> {
    let named = |error: io::Error| cannot_listen(address, what, &error);
    let socket =
        Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)).map_err(named)?;
    socket.set_reuse_address(true).map_err(named)?;
    if address.is_ipv6() {
        socket.set_only_v6(true).map_err(named)?;
    }
    socket.bind(&address.into()).map_err(named)?;
    // Two processes may both have bound the address before one of them listens: then the second one is refused here.
    socket.listen(BACKLOG).map_err(named)?;
    socket.set_nonblocking(true).map_err(named)?;
    Ok(socket.into())
}

/// Accepts on all doors until the node stops.
pub(crate) fn run(node: &Arc<Node>, doors: Vec<Door>, shares: &[Share]) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut listening = Vec::new();
        for Door { listener, tls } in doors {
            listening.push((tokio::net::TcpListener::from_std(listener)?, tls));
        }
        let accepting = listening.iter().map(|(listener, tls)| accept(listener, tls.as_ref(), shares));
        tokio::select! {
            _ = futures_util::future::join_all(accepting) => {}
            () = node.stop.stopped() => {}
        }
        Ok(())
    })
}

/// Accepts on one door, for ever.
async fn accept(listener: &tokio::net::TcpListener, tls: Option<&Arc<Tls>>, shares: &[Share]) {
    loop {
        let accepted = listener.accept().await;
        let accepted = accepted.and_then(|(stream, address)| Ok((stream.into_std()?, address)));
        match accepted {
            Ok((stream, address)) => deal(shares, stream, address, tls.cloned()).await,
            Err(error) => {
                log_not_accepted(&error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Logs that a connection could not be accepted, which happens many times a second while the process is out of descriptors.
pub(crate) fn log_not_accepted(error: &io::Error) {
    static LINES: OncePerMinute = OncePerMinute::new();
    if let Some(left_out) = LINES.event(Instant::now()) {
        tracing::warn!(%error, left_out, "a connection could not be accepted");
    }
}

/// Hands a connection to the loop with the fewest. A loop that is slow to take them therefore gets no more than the others.
async fn deal(shares: &[Share], stream: std::net::TcpStream, address: SocketAddr, tls: Option<Arc<Tls>>) {
    let Some(share) = shares.iter().min_by_key(|share| share.open.load(Ordering::Relaxed)) else { return };
    share.open.fetch_add(1, Ordering::Relaxed);
    let counted = Counted(Arc::clone(&share.open));
    // A loop that has ended takes none: the server stops.
    let _ = share.arrivals.send(Arrival { stream, address, tls, counted }).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_listener_is_refused_with_address_and_advice() {
        for (first, second) in [
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.1", "0.0.0.0"),
            ("0.0.0.0", "127.0.0.1"),
            ("::1", "::1"),
            ("::1", "::"),
            ("::", "::1"),
        ] {
            let ip = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
            let held = match listen((ip(first), 0).into(), "RESP") {
                Err(error) if first.contains(':') && error.kind() != io::ErrorKind::AddrInUse => continue,
                held => held.unwrap(),
            };
            let port = held.local_addr().unwrap().port();
            let address = SocketAddr::from((ip(second), port));
            let error = listen(address, "RESP").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{first} then {second}");
            let text = error.to_string();
            assert!(text.contains(&address.to_string()) && text.contains("choose another port"), "{text}");
            // A process that sets SO_REUSEPORT does not get in either.
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket.set_reuse_port(true).unwrap();
            let joined = socket.bind(&address.into()).and_then(|()| socket.listen(1));
            assert_eq!(joined.unwrap_err().kind(), io::ErrorKind::AddrInUse, "{first} then {second}");
        }
    }

    #[test]
    fn listener_does_not_join_one_that_shares_its_port() {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.bind(&address.into()).unwrap();
        socket.listen(1).unwrap();
        let held = socket.local_addr().unwrap().as_socket().unwrap();
        assert_eq!(listen(held, "RESP").unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn address_is_free_again_while_connections_are_in_time_wait() {
        use std::io::Read;
        for _ in 0..20 {
            let held = listen(SocketAddr::from(([127, 0, 0, 1], 0)), "RESP").unwrap();
            held.set_nonblocking(false).unwrap();
            let address = held.local_addr().unwrap();
            let mut client = std::net::TcpStream::connect(address).unwrap();
            let (stream, _) = held.accept().unwrap();
            // The side that closes first has the TIME_WAIT: the server's.
            drop(stream);
            drop(held);
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
            drop(client);
            listen(address, "RESP").unwrap();
        }
    }

    #[tokio::test]
    async fn connections_are_dealt_to_the_loop_with_the_fewest() {
        let held = listen(SocketAddr::from(([127, 0, 0, 1], 0)), "RESP").unwrap();
        held.set_nonblocking(false).unwrap();
        let (shares, mut loops) = shares(3);
        let mut clients = Vec::new();
        let mut connect = async || {
            clients.push(std::net::TcpStream::connect(held.local_addr().unwrap()).unwrap());
            let (stream, address) = held.accept().unwrap();
            deal(&shares, stream, address, None).await;
        };
        for _ in 0..30 {
            connect().await;
        }
        let mut open: Vec<Vec<Arrival>> = Vec::new();
        for arrivals in &mut loops {
            let mut taken = Vec::new();
            while let Ok(arrival) = arrivals.try_recv() {
                taken.push(arrival);
            }
            open.push(taken);
        }
        assert_eq!(open.iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 10]);
        // Clients of one loop leave: the next ones take their places.
        open[1].truncate(4);
        for _ in 0..6 {
            connect().await;
        }
        assert_eq!([0, 1, 2].map(|number: usize| loops[number].len()), [0, 6, 0]);
    }
}
