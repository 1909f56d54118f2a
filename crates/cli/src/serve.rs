//! `umbel serve`: the server, from its settings to its end.

use std::error::Error;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use umbel_core::engine::Engine;
use umbel_server::chores::Chores;
use umbel_server::config::{Config, Format};
use umbel_server::logging;
use umbel_server::node::Node;
use umbel_server::server::{Doors, Server};
use umbel_server::tls::{self, Tls};

use crate::config::Flags;
use crate::planes::{self, Planes};
use crate::sole::Sole;
use crate::units::bytes;

/// What a supervisor sees if the server cannot go on and must not simply be started again: `EX_SOFTWARE` of sysexits.
const CANNOT_GO_ON: u8 = 70;
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
    let (http, https) = (addresses(&config, config.http_port), addresses(&config, config.tls_http_port));
    // What engines say comes in until nobody asks any more: this ends last.
    let is_elsewhere = [&config.log, &config.blobs, &config.registry].iter().any(|url| url.is_some());
    let planes = is_elsewhere.then(planes::runtime).transpose()?;
    let chores = Chores::start_with(&http, tls.clone().map(|tls| (&https[..], tls)))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(config, tls, &chores, planes.as_ref().map(Runtime::handle)))
}

async fn serve(
    config: Config,
    tls: Option<Arc<Tls>>,
    chores: &Chores,
    planes: Option<&Handle>,
) -> Result<ExitCode, Box<dyn Error>> {
    let doors = Doors {
        plain: addresses(&config, config.port),
        secure: addresses(&config, config.tls_port),
        tls: tls.clone(),
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let loops = if config.threads == 0 { cores } else { config.threads as usize };
    let begun = tokio::time::Instant::now();
    // Asked to end while it recovers, it ends: nothing was promised to anybody yet.
    let mut ended = std::pin::pin!(asked_to_end());
    let (engine, mut planes, config) = tokio::select! {
        opened = open(config, planes) => opened?,
        signal = &mut ended => {
            tracing::info!("{} while recovering", signal?);
            return Ok(ExitCode::SUCCESS);
        }
    };
    engine.start()?;
    let mut node = Node::new(engine, config, loops)?.with_registry(planes.registry);
    if let Some((_, _, about)) = planes.engines.iter().find(|(plane, _, _)| *plane == "log") {
        node.durability = about.durability.to_string();
    }
    let node = Arc::new(node);
    let server = Server::open(&node, &doors, loops)?;
    chores.watch(&node, tls.as_ref());
    banner(&node, &server, chores, loops, begun.elapsed());
    for (plane, url, about) in &planes.engines {
        tracing::info!("  {plane}  {url}  ({about})");
    }

    tokio::select! {
        signal = ended => {
            tracing::info!("{}: ending with a checkpoint", signal?);
            node.stop.stop();
        }
        () = node.stop.stopped() => {}
        why = lost(&mut planes.sole) => node.fail(why),
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

async fn open(
    mut config: Config,
    runtime: Option<&Handle>,
) -> Result<(Engine, Planes, Config), Box<dyn Error>> {
    let mut settings = config.engine()?;
    let opening = async move {
        let planes = Planes::open(&mut config, &mut settings).await?;
        let builder = Engine::builder(settings);
        let builder = builder.with_log(Arc::clone(&planes.log)).with_blobs(Arc::clone(&planes.blobs));
        Ok::<_, umbel_core::Error>((builder.open().await?, planes, config))
    };
    match runtime {
        Some(runtime) => Ok(runtime.spawn(opening).await??),
        None => Ok(apart(opening).await??),
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

fn addresses(config: &Config, port: u16) -> Vec<SocketAddr> {
    if port == 0 { Vec::new() } else { config.bind.iter().map(|address| (*address, port).into()).collect() }
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
