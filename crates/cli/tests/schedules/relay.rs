//! A relay on a node's machine through which the node reaches its registry: what passes it can be delayed, each way.
//!
//! The relay is a program of its own, because a program sees the network of its machine only. It is this test's binary, started again.

use std::io::{BufRead, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::network::Network;

/// Tells the program what to relay: `LISTEN=SERVER`, separated by commas.
const ROUTES: &str = "UMBEL_SCHEDULE_RELAY";
/// How long the relay tries to reach a server, before it closes the node's connection.
const CONNECT: Duration = Duration::from_secs(1);
const START: Duration = Duration::from_secs(10);

/// A relay that ends with this value.
pub(crate) struct Relay {
    process: Child,
    orders: ChildStdin,
}

impl Relay {
    /// Starts a relay on a machine; each route is an address on which it listens and the server's address.
    pub(crate) fn start(network: &Network, machine: u8, routes: &[(String, String)]) -> Self {
        let list: Vec<String> = routes.iter().map(|(listen, server)| format!("{listen}={server}")).collect();
        let program = std::env::current_exe().unwrap();
        let mut process = network
            .command(machine, program.to_str().unwrap())
            .args(["--ignored", "--exact", "relay::relay_program"])
            .env(ROUTES, list.join(","))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        let end = Instant::now() + START;
        for (listen, _) in routes {
            while TcpStream::connect(listen).is_err() {
                assert!(Instant::now() < end, "the relay does not listen on {listen}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Self { process, orders }
    }

    /// Delays what passes from now on, each way.
    pub(crate) fn delay(&mut self, delay: Duration) {
        writeln!(self.orders, "{}", delay.as_millis()).unwrap();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program. It takes delays, in milliseconds, from its input, and ends when the input ends.
#[test]
#[ignore = "the schedules start it on the machines of their nodes"]
fn relay_program() {
    let Ok(routes) = std::env::var(ROUTES) else { return };
    let delay = Arc::new(AtomicU64::new(0));
    for route in routes.split(',') {
        let (listen, server) = route.split_once('=').unwrap();
        let (listener, server, delay) =
            (TcpListener::bind(listen).unwrap(), server.to_owned(), Arc::clone(&delay));
        std::thread::spawn(move || {
            for node in listener.incoming().map_while(Result::ok) {
                let (server, delay) = (server.clone(), Arc::clone(&delay));
                std::thread::spawn(move || relay(&node, &server, &delay));
            }
        });
    }
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        delay.store(line.parse().unwrap(), Ordering::Relaxed);
    }
}

/// Relays one connection, until either side closes it.
fn relay(node: &TcpStream, server: &str, delay: &Arc<AtomicU64>) {
    // A server that cannot be reached shows as a connection that is closed.
    let Ok(server) = TcpStream::connect_timeout(&server.parse().unwrap(), CONNECT) else { return };
    for (from, to) in [(node, &server), (&server, node)] {
        let _ = to.set_nodelay(true);
        let (Ok(from), Ok(to), Ok(closed)) = (from.try_clone(), to.try_clone(), from.try_clone()) else {
            return;
        };
        let (passed, passes) = channel();
        let delay = Arc::clone(delay);
        std::thread::spawn(move || take(from, &passed, &delay));
        std::thread::spawn(move || give(to, &closed, &passes));
    }
}

fn take(mut from: TcpStream, passed: &Sender<(Instant, Vec<u8>)>, delay: &AtomicU64) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let due = Instant::now() + Duration::from_millis(delay.load(Ordering::Relaxed));
        if passed.send((due, bytes[..count].to_vec())).is_err() {
            return;
        }
    }
}

fn give(mut to: TcpStream, from: &TcpStream, passes: &Receiver<(Instant, Vec<u8>)>) {
    for (due, bytes) in passes {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // Both ways end together: no side waits for one that is gone.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
