//! What is done beside the event loops: HTTP, and a look around every second.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::MissedTickBehavior;
use umbel_core::engine::ClockSteps;

use crate::acceptor::listen;
use crate::metrics::{Collect, Kind, Page, Registry};
use crate::node::{Node, Stop};
use crate::sync::{self, rollout, schedule};
use crate::tls::Tls;
use crate::{api, console, http};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Threads for requests.
const HTTP_THREADS: usize = 2;

/// A thread that tells health and metrics, from before the engine is there until after the server has ended.
#[derive(Debug)]
pub struct Chores {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    node: OnceLock<Arc<Node>>,
    tls: OnceLock<Arc<Tls>>,
    stop: Stop,
}

impl Chores {
    /// Begins to tell that the server is not ready yet.
    pub fn start(addresses: &[SocketAddr]) -> io::Result<Self> {
        Self::start_with(addresses, None)
    }

    /// The same, and for those who want it over TLS at some more addresses.
    pub fn start_with(
        addresses: &[SocketAddr],
        secure: Option<(&[SocketAddr], Arc<Tls>)>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(HTTP_THREADS)
            .thread_name("http")
            .enable_all()
            .build()?;
        let registry = Arc::new(Registry::default().with(Arc::clone(&shared)));
        let mut bound = Vec::new();
        let plain = addresses.iter().map(|address| (address, None));
        let (secure, tls) = secure.map_or((&[][..], None), |(addresses, tls)| (addresses, Some(tls)));
        for (address, tls) in plain.chain(secure.iter().map(|address| (address, tls.clone()))) {
            let listener = listen(*address, "HTTP")?;
            bound.push(listener.local_addr()?);
            let nodes = Arc::clone(&shared) as Arc<dyn api::Nodes>;
            let router = http::router(Arc::clone(&shared) as Arc<dyn http::Node>)
                .merge(api::metrics_router(Arc::clone(&nodes), Arc::clone(&registry)))
                .merge(api::router(Arc::clone(&nodes)))
                .merge(console::router());
            let router = console::guarded(router, nodes);
            let stopped = Arc::clone(&shared);
            let listener = {
                let _inside = runtime.enter();
                TcpListener::from_std(listener)?
            };
            runtime.spawn(async move {
                let stop = async { stopped.stop.stopped().await };
                if let Err(error) = http::serve(listener, tls, router, http::Limits::default(), stop).await {
                    tracing::error!(%error, "HTTP ended");
                }
            });
        }
        let watched = Arc::clone(&shared);
        let life = move || runtime.block_on(look_around(&watched));
        let thread = std::thread::Builder::new().name("chores".into()).spawn(life)?;
        Ok(Self { shared, addresses: bound, thread: Some(thread) })
    }

    /// Where HTTP is served, and then where it is served over TLS.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The server is ready.
    pub fn watch(&self, node: &Arc<Node>, tls: Option<&Arc<Tls>>) {
        // There is one server in a process; a second one is not watched.
        let _ = self.shared.node.set(Arc::clone(node));
        if let Some(tls) = tls {
            let _ = self.shared.tls.set(Arc::clone(tls));
        }
    }
}

impl Drop for Chores {
    fn drop(&mut self) {
        self.shared.stop.stop();
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

async fn look_around(shared: &Shared) {
    let (mut rollouts, mut steps) = (None, ClockSteps::default());
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stopped = std::pin::pin!(shared.stop.stopped());
    loop {
        tokio::select! {
            () = &mut stopped => return,
            _ = ticks.tick() => {}
        }
        let Some(node) = shared.node.get() else { continue };
        // It ends with the server, as the threads of this do.
        rollouts.get_or_insert_with(|| tokio::spawn(rollout::look_after(Arc::clone(node))));
        if let Err(error) = schedule::look(node).await {
            tracing::error!(%error, "no look at what is to be rebuilt");
        }
        warn_of_steps(node, &mut steps);
        node.rates.look(node);
        node.growths.look(node).await;
        node.monitor.look(node);
        end_idle(node);
        sync::sweep(node);
        if let Some(tls) = shared.tls.get() {
            match tls.reload_if_changed() {
                Ok(true) => tracing::info!("certificates were read again"),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "certificates are as they were"),
            }
        }
        if let Some(error @ umbel_core::Error::Closed(_)) = node.engine.failure() {
            node.fail(error.to_string());
        }
    }
}

/// Says in the server's log that the time of day was set.
fn warn_of_steps(node: &Node, known: &mut ClockSteps) {
    let steps = node.engine.clock_steps();
    if steps.back > known.back {
        tracing::warn!(
            millis = steps.last_ms,
            "the time of day went back: windows go on by the clock that does not, and filters that expire stay longer"
        );
    }
    if steps.forward > known.forward {
        tracing::warn!(
            millis = steps.last_ms,
            "the time of day went forward by more than passed: windows do not follow it, and expiries do in ten minutes"
        );
    }
    *known = steps;
}

fn end_idle(node: &Node) {
    let most = node.config.load().idle_timeout;
    if most.is_zero() {
        return;
    }
    let now = node.now();
    let idle = |client: &&Arc<crate::clients::Client>| client.idle(now) > most && !client.is_watching();
    node.clients.all().iter().filter(idle).for_each(|client| client.kill());
}

impl api::Nodes for Shared {
    fn node(&self) -> Result<Arc<Node>, String> {
        self.node.get().cloned().ok_or_else(|| "recovering".to_owned())
    }
}

impl http::Node for Shared {
    fn ready(&self) -> Result<(), String> {
        match self.node.get() {
            None => Err("recovering".into()),
            Some(node) => match (node.failure(), &node.cluster) {
                (Some(why), _) => Err(why.to_owned()),
                (None, Some(nodes)) => nodes.ready(),
                (None, None) => Ok(()),
            },
        }
    }
}

impl http::Node for Arc<Shared> {
    fn ready(&self) -> Result<(), String> {
        (**self).ready()
    }
}

impl Collect for Shared {
    fn collect(&self, page: &mut Page) {
        let Some(node) = self.node.get() else { return };
        node.metrics.collect(page);
        if let Some(nodes) = &node.cluster {
            nodes.collect(page);
        }
        let used = node.engine.budget().used();
        page.family("umbel_memory_bytes", Kind::Gauge, "Memory of all arrays.").sample(&[], used);
        let limit = node.engine.budget().limit();
        page.family("umbel_memory_limit_bytes", Kind::Gauge, "Memory that arrays may take.")
            .sample(&[], limit);
        let help = "Replies that wait for clients to read.";
        page.family("umbel_unread_reply_bytes", Kind::Gauge, help).sample(&[], node.clients.unread());
        let help = "Connections that were closed because all together left too many replies unread.";
        let overrun = node.clients.overrun.load(Ordering::Relaxed);
        page.family("umbel_connections_overrun_total", Kind::Counter, help).sample(&[], overrun);
        let uptime = node.started.elapsed().as_secs_f64();
        page.family("umbel_uptime_seconds", Kind::Gauge, "Time since the start.").sample(&[], uptime);
        let mut family =
            page.family("umbel_log_position", Kind::Gauge, "How far each partition of the log is folded.");
        for (partition, position) in node.engine.token().positions() {
            family.sample(&[("partition", &partition.to_string())], position.number() as f64);
        }
    }
}
