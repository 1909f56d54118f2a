//! `umbel serve`: the server, from its settings to its end.

use std::error::Error;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use umbel_core::clock::{Clock, SystemClock};
use umbel_core::engine::Engine;
use umbel_server::chores::Chores;
use umbel_server::cluster::{self, Nodes};
use umbel_server::config::{Config, Format};
use umbel_server::logging;
use umbel_server::node::Node;
use umbel_server::server::{Doors, Server};
use umbel_server::tls::{self, Tls};

use umbel::domains::{self, Domains};

use crate::config::Flags;
use crate::planes::{self, Planes};
use crate::sole::Sole;
use crate::units::bytes;

/// What a supervisor sees if the server cannot go on and must not simply be started again: `EX_SOFTWARE` of sysexits.
const CANNOT_GO_ON: u8 = 70;
/// How long a node that ends waits until others serve what it does.
const LEAVE_TIME: Duration = Duration::from_secs(30);
/// Descriptors besides those of clients: the log, blobs, sockets.
const OWN_DESCRIPTORS: u64 = 512;

/// Runs the server: RESP for every Redis client, HTTP for health and metrics
#[derive(clap::Args)]
#[command(
    after_help = "Every setting can also stand in a TOML file (--config) or in the environment (UMBEL_PORT, UMBEL_MEMORY, ...); flags win.
`umbel config` shows what is in force and where it came from.
Examples:
  umbel serve
  umbel serve --data /var/lib/umbel --memory 16GiB
  umbel serve --bind 0.0.0.0 --password-file /etc/umbel/password
  umbel serve --log kafka://h1,h2/umbel?partitions=64 --blobs s3://bucket/umbel --registry etcd://h1,h2
  umbel serve --cluster orders --node a --cluster-secret-file secret --log kafka://h1,h2/umbel --blobs s3://bucket/umbel --registry etcd://h1,h2
  redis-cli -p 6380 bf.add urls https://example.com/"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    flags: Flags,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let config = arguments.flags.load()?;
    log_to_stderr(&config);
    raise_descriptors(u64::from(config.max_clients) + OWN_DESCRIPTORS);
    let tls = tls::Files::of(&config).map(Tls::open).transpose()?.map(Arc::new);
    let (http, https) = (config.addresses(config.http_port), config.addresses(config.tls_http_port));
    // What engines say comes in until nobody asks any more: this ends last.
    let is_elsewhere = [&config.log, &config.blobs, &config.registry].iter().any(|url| url.is_some());
    let planes = is_elsewhere.then(planes::runtime).transpose()?;
    let domains = (!config.domain.is_empty()).then(domains::runtime).transpose()?;
    let chores = Chores::start_with(&http, tls.clone().map(|tls| (&https[..], tls)))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handles = [&planes, &domains].map(|runtime| runtime.as_ref().map(Runtime::handle));
    runtime.block_on(serve(config, tls, &chores, handles))
}

async fn serve(
    config: Config,
    tls: Option<Arc<Tls>>,
    chores: &Chores,
    [planes, domains]: [Option<&Handle>; 2],
) -> Result<ExitCode, Box<dyn Error>> {
    let doors = Doors {
        plain: config.addresses(config.port),
        secure: config.addresses(config.tls_port),
        tls: tls.clone(),
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let loops = if config.threads == 0 { cores } else { config.threads as usize };
    let begun = tokio::time::Instant::now();
    // Asked to end while it recovers, it ends: nothing was promised to anybody yet.
    let mut ended = std::pin::pin!(asked_to_end());
    let runtime = planes;
    let Opened { engine, mut planes, config, mut place } = tokio::select! {
        opened = open(config, planes) => opened?,
        signal = &mut ended => {
            tracing::info!("{} while recovering", signal?);
            return Ok(ExitCode::SUCCESS);
        }
    };
    let mut node = Node::new(engine, config, loops)?.with_registry(planes.registry);
    if let Some((_, _, about)) = planes.engines.iter().find(|(plane, _, _)| *plane == "log") {
        node.durability = about.durability.to_string();
    }
    if let Some(place) = &place {
        node = node.with_cluster(Arc::clone(&place.nodes));
    }
    let node = Arc::new(node);
    node.engine.start()?;
    let domains = match domains {
        Some(runtime) => Some(domain(&node, runtime).await?),
        None => None,
    };
    let server = Server::open(&node, &doors, loops)?;
    chores.watch(&node, tls.as_ref());
    banner(&node, &server, chores, loops, begun.elapsed());
    if let (Some(place), Some(runtime)) = (&place, runtime) {
        let membership = place.nodes.membership();
        let (name, nodes) = (membership.name(), membership.view().nodes().len());
        tracing::info!("  node  {name} of the cluster {}, with {nodes} nodes now", place.nodes.cluster());
        runtime.spawn(cluster::host(Arc::clone(&node), Arc::clone(&place.nodes), Arc::clone(&place.clock)));
    }
    if let Some(domains) = &domains {
        tracing::info!("  domain  {domains}");
    }
    for (plane, url, about) in &planes.engines {
        tracing::info!("  {plane}  {url}  ({about})");
    }

    tokio::select! {
        signal = ended => {
            tracing::info!("{}: ending with a checkpoint", signal?);
            if let Some(place) = &place {
                // While it answers still, others take over what it has.
                if let Err(error) = cluster::leave(&place.nodes, LEAVE_TIME).await {
                    tracing::warn!(%error, "the lease of this node ends by itself");
                }
            }
            node.stop.stop();
        }
        () = node.stop.stopped() => {}
        why = lost(&mut planes.sole) => node.fail(why),
        why = displaced(&mut place) => node.fail(why),
    }
    if let Some(domains) = &domains
        && let Err(error) = domains.rest().await
    {
        tracing::warn!(%error, "others hear late that this domain has ended");
    }
    tokio::task::spawn_blocking(move || server.join()).await??;
    if let Some(why) = node.failure() {
        tracing::error!(
            "the server cannot go on: {why}. What was acknowledged is in the log; look at what it stands on, then start it again"
        );
        return Ok(CANNOT_GO_ON.into());
    }
    node.engine.close().await?;
    if let Some(sole) = planes.sole {
        sole.leave().await?;
    }
    tracing::info!("ended");
    Ok(ExitCode::SUCCESS)
}

/// Makes the server one of several domains.
async fn domain(node: &Arc<Node>, runtime: &Handle) -> Result<Arc<Domains>, Box<dyn Error>> {
    let config = node.config.load();
    let registry = match config.domain_registry.clone() {
        Some(url) => {
            let opened = runtime.spawn(async move { umbel_adapters::open_registry(&url).await }).await??;
            Some(opened.plane)
        }
        None => None,
    };
    let domains = Arc::new(Domains::open(&config, &node.engine, registry, runtime)?);
    // Nobody else sets it.
    let _ = node.lookups.set(Arc::clone(&domains) as _);
    Ok(domains)
}

/// What a server is made of.
struct Opened {
    engine: Engine,
    planes: Planes,
    config: Config,
    place: Option<Place>,
}

/// A node's place among others.
struct Place {
    nodes: Arc<Nodes>,
    clock: Arc<dyn Clock>,
    /// Comes back with the reason when the place is lost.
    kept: tokio::task::JoinHandle<String>,
}

async fn open(mut config: Config, runtime: Option<&Handle>) -> Result<Opened, Box<dyn Error>> {
    let mut settings = config.engine()?;
    let opening = async move {
        let planes = Planes::open(&mut config, &mut settings).await?;
        let place = join(&config, &planes).await?;
        let builder = Engine::builder(settings);
        let mut builder = builder.with_log(Arc::clone(&planes.log)).with_blobs(Arc::clone(&planes.blobs));
        if let Some(sole) = &planes.sole {
            builder = builder.with_claim(sole.claim());
        }
        if let Some(place) = &place {
            builder = builder.with_cluster(Arc::clone(&place.nodes) as _, Arc::clone(&planes.registry));
        }
        Ok::<_, umbel_core::Error>(Opened { engine: builder.open().await?, planes, config, place })
    };
    match runtime {
        Some(runtime) => Ok(runtime.spawn(opening).await??),
        None => Ok(apart(opening).await??),
    }
}

/// Takes a node's place, if the server is to be one. It is called where connections to other nodes are to live.
async fn join(config: &Config, planes: &Planes) -> umbel_core::Result<Option<Place>> {
    let Some(secret) = config.cluster_secret.as_ref().filter(|_| !config.cluster.is_empty()) else {
        return Ok(None);
    };
    let address = config.advertised().map_err(|error| umbel_core::Error::Invalid(error.to_string()))?;
    let settings = umbel_core::cluster::Settings {
        name: config.node.clone(),
        address,
        zone: config.zone.clone(),
        weight: config.weight,
        lease: config.cluster_lease,
        partitions: planes.log.partitions(),
        copies: config.copies,
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let membership = cluster::join(settings, Arc::clone(&planes.registry), Arc::clone(&clock)).await?;
    let kept = tokio::spawn(cluster::keep_place(Arc::clone(&membership)));
    let nodes =
        Nodes::new(membership, &config.cluster, secret.bytes(), Arc::clone(&clock), Handle::current());
    Ok(Some(Place { nodes: Arc::new(nodes), clock, kept }))
}

/// Waits until another node has the name of this one.
async fn displaced(place: &mut Option<Place>) -> String {
    match place {
        Some(place) => (&mut place.kept).await.unwrap_or_else(|error| error.to_string()),
        None => std::future::pending().await,
    }
}

/// What work comes to on a thread of its own: this one goes on to hear signals, and ends without waiting for it.
async fn apart<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> std::io::Result<T> {
    let (told, done) = tokio::sync::oneshot::channel();
    let runtime = Handle::current();
    let recovery = std::thread::Builder::new().name("recovery".into());
    // Nobody may be waiting any more.
    recovery.spawn(move || told.send(runtime.block_on(work)).is_ok())?;
    done.await.map_err(std::io::Error::other)
}

/// Waits until another server has the place of this one.
async fn lost(sole: &mut Option<Sole>) -> String {
    match sole {
        Some(sole) => sole.lost().await,
        None => std::future::pending().await,
    }
}

/// Waits for somebody to end the process; certificates are read again without being asked.
async fn asked_to_end() -> std::io::Result<&'static str> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hangup = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = interrupt.recv() => return Ok("interrupted"),
            _ = terminate.recv() => return Ok("terminated"),
            _ = hangup.recv() => {}
        }
    }
}

fn banner(node: &Node, server: &Server, chores: &Chores, loops: usize, took: Duration) {
    let config = node.config.load();
    let listed = |addresses: &[SocketAddr]| {
        let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        if texts.is_empty() { "none".to_owned() } else { texts.join(" ") }
    };
    let filters = node.engine.filters().len();
    let lines = [
        format!(
            "umbel {} is ready: {filters} filters, {} in memory, recovered in {took:.1?}",
            env!("CARGO_PKG_VERSION"),
            bytes(node.engine.budget().used().into())
        ),
        format!("  RESP  {}", listed(server.addresses())),
        format!("  HTTP  {}  (/v1, /healthz, /readyz, /metrics)", listed(chores.addresses())),
        format!(
            "  data  {}  (durability {}, memory {}, {loops} event loops)",
            config.data.display(),
            node.durability,
            bytes(config.memory.into())
        ),
    ];
    lines.iter().for_each(|line| tracing::info!("{line}"));
}

/// Structured logs: lines for people on a terminal, JSON where it is asked for.
fn log_to_stderr(config: &Config) {
    use tracing_subscriber::filter::filter_fn;
    use tracing_subscriber::layer::{Layer, SubscriberExt};
    use tracing_subscriber::util::SubscriberInitExt;
    logging::set_level(config.log_level);
    let enabled = filter_fn(|about| logging::is_enabled(*about.level()));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let started = match config.log_format {
        Format::Json => tracing_subscriber::registry().with(lines.json().with_filter(enabled)).try_init(),
        Format::Text => {
            let lines = lines.with_ansi(std::io::stderr().is_terminal());
            tracing_subscriber::registry().with(lines.with_filter(enabled)).try_init()
        }
    };
    if let Err(error) = started {
        eprintln!("umbel: no logs: {error}");
    }
}

/// Asks the system for as many descriptors as there may be clients.
fn raise_descriptors(wanted: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let most = now.maximum.map_or(wanted, |maximum| wanted.min(maximum));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..now });
    if raised.is_err() || most < wanted {
        tracing::warn!("{most} descriptors are all that the system gives; {wanted} would do for max_clients");
    }
}
