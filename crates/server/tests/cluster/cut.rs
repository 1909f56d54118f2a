//! Nodes that are cut off: from each other, though all reach the engines, or from the engines, though all reach each other.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;
use umbel_core::log::{Appended, Bounds, Log, Record};
use umbel_core::registry::{Change, Expected, Lease, Listing, Registry, Versioned};
use umbel_core::{Position, Result};

use super::{Running, World, all_there, insist, keys, many};

/// What lies between a node and the rest, and can be cut.
#[derive(Debug)]
pub(super) struct Cuts {
    /// The address that other nodes know, which leads to the node's own.
    proxy: Option<Proxy>,
    engines: Gate,
}

impl Drop for Cuts {
    /// What waits for the engines goes on, so that the node can end.
    fn drop(&mut self) {
        self.engines.open(true);
    }
}

impl Cuts {
    fn new(proxy: Option<Proxy>) -> Self {
        Self { proxy, engines: Gate(watch::Sender::new(true)) }
    }

    pub(super) fn advertised(&self, own: SocketAddr) -> SocketAddr {
        let Some(proxy) = &self.proxy else { return own };
        proxy.lead_to(own);
        proxy.address
    }

    pub(super) fn log(&self, inner: &Arc<dyn Log>) -> Arc<dyn Log> {
        Arc::new(GatedLog { inner: Arc::clone(inner), gate: self.engines.clone() })
    }

    pub(super) fn registry(&self, inner: &Arc<dyn Registry>) -> Arc<dyn Registry> {
        Arc::new(GatedRegistry { inner: Arc::clone(inner), gate: self.engines.clone() })
    }
}

/// Calls wait before it while it is closed.
#[derive(Clone, Debug)]
struct Gate(watch::Sender<bool>);

impl Gate {
    fn open(&self, is_open: bool) {
        self.0.send_replace(is_open);
    }

    async fn pass(&self) {
        let _ = self.0.subscribe().wait_for(|is_open| *is_open).await;
    }
}

#[derive(Debug)]
struct GatedLog {
    inner: Arc<dyn Log>,
    gate: Gate,
}

#[async_trait]
impl Log for GatedLog {
    fn partitions(&self) -> u32 {
        self.inner.partitions()
    }

    async fn append_after(&self, partition: u32, entries: Vec<Bytes>, read: Position) -> Result<Appended> {
        self.gate.pass().await;
        self.inner.append_after(partition, entries, read).await
    }

    async fn read(&self, partition: u32, after: Position, bytes_max: usize) -> Result<Vec<Record>> {
        self.gate.pass().await;
        self.inner.read(partition, after, bytes_max).await
    }

    async fn bounds(&self, partition: u32) -> Result<Bounds> {
        self.gate.pass().await;
        self.inner.bounds(partition).await
    }

    async fn trim(&self, partition: u32, upto: Position) -> Result<()> {
        self.gate.pass().await;
        self.inner.trim(partition, upto).await
    }
}

#[derive(Debug)]
struct GatedRegistry {
    inner: Arc<dyn Registry>,
    gate: Gate,
}

#[async_trait]
impl Registry for GatedRegistry {
    async fn get(&self, name: &str) -> Result<Option<Versioned>> {
        self.gate.pass().await;
        self.inner.get(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Listing> {
        self.gate.pass().await;
        self.inner.list(prefix).await
    }

    async fn put(
        &self,
        name: &str,
        value: Bytes,
        expected: Expected,
        lease: Option<Lease>,
    ) -> Result<Change> {
        self.gate.pass().await;
        self.inner.put(name, value, expected, lease).await
    }

    async fn delete(&self, name: &str, expected: Expected) -> Result<Change> {
        self.gate.pass().await;
        self.inner.delete(name, expected).await
    }

    async fn changed(&self, prefix: &str, after: u64) -> Result<()> {
        self.gate.pass().await;
        self.inner.changed(prefix, after).await
    }

    async fn grant(&self, time: Duration) -> Result<Lease> {
        self.gate.pass().await;
        self.inner.grant(time).await
    }

    async fn keep_alive(&self, lease: Lease) -> Result<bool> {
        self.gate.pass().await;
        self.inner.keep_alive(lease).await
    }

    async fn revoke(&self, lease: Lease) -> Result<()> {
        self.gate.pass().await;
        self.inner.revoke(lease).await
    }
}

/// A way to a node that swallows everything while it is cut, as a network without a route does.
#[derive(Debug)]
struct Proxy {
    address: SocketAddr,
    to: watch::Sender<Option<SocketAddr>>,
    is_cut: Arc<AtomicBool>,
}

impl Proxy {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (to, is_cut) = (watch::Sender::new(None), Arc::new(AtomicBool::new(false)));
        let (leads, cut) = (to.subscribe(), Arc::clone(&is_cut));
        // It ends with the process of the tests.
        spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(to) = *leads.borrow() else { continue };
                let Ok(other) = TcpStream::connect(to) else { continue };
                for (from, to) in [(&stream, &other), (&other, &stream)] {
                    let ends = from.try_clone().and_then(|from| Ok((from, to.try_clone()?)));
                    let (from, to) = ends.expect("descriptors");
                    let cut = Arc::clone(&cut);
                    spawn(move || pass_on(from, to, &cut));
                }
            }
        });
        Self { address, to, is_cut }
    }

    fn lead_to(&self, address: SocketAddr) {
        self.to.send_replace(Some(address));
    }

    fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        while is_cut.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(5));
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn start_behind_proxy(world: &World, name: &str) -> Running {
    world.start_with(name, Some(Cuts::new(Some(Proxy::new()))))
}

fn cut(node: &Running, is_cut: bool) {
    let proxy = node.cuts.as_ref().and_then(|cuts| cuts.proxy.as_ref());
    proxy.expect("it is behind a proxy").cut(is_cut);
}

#[test]
fn a_node_that_the_others_do_not_reach_is_replaced() {
    let world = World::new();
    let (a, b, c) = (world.start("a"), world.start("b"), start_behind_proxy(&world, "c"));
    world.settle(&[&a, &b, &c]);
    world.eventually("c leads partitions", || c.nodes.membership().first_count() > 0);
    let (mut on_a, mut on_b, mut on_c) = (a.connect(), b.connect(), c.connect());
    insist(&mut on_a, &["BF.RESERVE", "f", "0.001", "100000"]);
    let added = keys(0, 900);
    insist(&mut on_a, &many("BF.MADD", "f", &added[..300]));
    // c keeps its record in the registry for as long as it is cut off.
    cut(&c, true);
    for (client, part) in [&mut on_a, &mut on_b].into_iter().zip(added[300..].chunks(300)) {
        let answers = insist(client, &many("BF.MADD", "f", part));
        assert!(answers.error().is_none(), "{answers:?}");
    }
    world.eventually("c leads nothing", || c.nodes.membership().first_count() == 0);
    assert!(a.nodes.membership().view().is_isolated("c"));
    world.eventually("c is not ready", || c.nodes.ready().is_err_and(|why| why.contains("reach")));
    // c reaches the others all the same, so its door serves.
    for client in [&mut on_a, &mut on_b, &mut on_c] {
        all_there(client, "f", &added);
        assert_eq!(insist(client, &["BF.EXISTS", "f", "other"]), super::Value::Integer(0));
    }
    cut(&c, false);
    world.eventually("c leads again", || c.nodes.membership().first_count() > 0);
    world.settle(&[&a, &b, &c]);
    for client in [&mut on_a, &mut on_b, &mut on_c] {
        all_there(client, "f", &added);
    }
}

#[test]
fn a_door_that_reaches_no_other_node_says_so_at_once() {
    let world = World::new();
    let (a, b) = (start_behind_proxy(&world, "a"), start_behind_proxy(&world, "b"));
    world.settle(&[&a, &b]);
    insist(&mut a.connect(), &["BF.RESERVE", "f", "0.001", "100000"]);
    let added = keys(0, 400);
    cut(&a, true);
    cut(&b, true);
    world.eventually("a leads everything", || {
        let partitions = super::PARTITIONS as usize;
        a.nodes.membership().first_count() == partitions && b.nodes.membership().is_isolated()
    });
    let answers = insist(&mut a.connect(), &many("BF.MADD", "f", &added));
    assert!(answers.error().is_none(), "{answers:?}");
    let mut on_b = b.connect();
    let answer = on_b.call(&many("BF.MADD", "f", &keys(400, 800)));
    let error = answer.error().expect("b reaches no node that could take it");
    assert!(error.starts_with("TRYAGAIN") && error.contains("ask another node"), "{error}");
    // It may read the log, or refuse, but what a acknowledged is never absent.
    let answers = on_b.call(&many("BF.MEXISTS", "f", &added));
    if let super::Value::Array(answers) = &answers {
        assert!(answers.iter().all(|answer| *answer != super::Value::Integer(0)), "{answers:?}");
    }
    cut(&a, false);
    cut(&b, false);
    world.eventually("both are there again", || !b.nodes.membership().is_isolated());
    all_there(&mut on_b, "f", &added);
}

#[test]
fn a_node_that_is_cut_off_from_the_engines_passes_requests_on() {
    let world = World::new();
    let (a, b) = (world.start("a"), world.start("b"));
    let c = world.start_with("c", Some(Cuts::new(None)));
    world.settle(&[&a, &b, &c]);
    world.eventually("c leads partitions", || c.nodes.membership().first_count() > 0);
    insist(&mut a.connect(), &["BF.RESERVE", "f", "0.001", "100000"]);
    let added = keys(0, 900);
    insist(&mut c.connect(), &many("BF.MADD", "f", &added[..300]));
    let engines = &c.cuts.as_ref().expect("it can be cut off").engines;
    engines.open(false);
    // Some wait for the log when the lease ends. Each has an answer while the engines are still away: here the gate opens only after all.
    let mut waiting: Vec<_> = (0..20).map(|_| c.connect()).collect();
    for (client, key) in waiting.iter_mut().zip(keys(2000, 2020)) {
        client.write(format!("BF.ADD f {key}\r\n").as_bytes());
    }
    let mut on_c = c.connect();
    let answers = insist(&mut on_c, &many("BF.MADD", "f", &added[300..600]));
    assert!(answers.error().is_none(), "{answers:?}");
    all_there(&mut on_c, "f", &added[..600]);
    assert_eq!(insist(&mut on_c, &["BF.EXISTS", "f", "other"]), super::Value::Integer(0));
    for (client, key) in waiting.iter_mut().zip(keys(2000, 2020)) {
        let answer = client.value();
        let is_refused = answer.error().is_some_and(|error| error.starts_with("TRYAGAIN"));
        assert!(is_refused || answer == super::Value::Integer(1), "{key}: {answer:?}");
    }
    assert!(!c.nodes.membership().is_valid());
    engines.open(true);
    world.settle(&[&a, &b, &c]);
    insist(&mut on_c, &many("BF.MADD", "f", &added[600..]));
    for node in [&a, &b, &c] {
        all_there(&mut node.connect(), "f", &added);
    }
}
