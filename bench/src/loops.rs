//! Event loops: what the runtime below a server costs.
//!
//! Servers that do nothing but count requests and answer them run in one process, a thread and a loop each. Each is
//! asked in turn by the same load, round by round, so that what disturbs the machine disturbs them alike. What counts
//! is the processor time of the server's thread; requests a second depend on the load as well.
//!
//! To fall asleep and be woken is dear, and a loop that is ahead of its load does so more often. So the figures say
//! how many requests came between two sleeps.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `frames` | requests, replies, and how a server counts them |
//! | `on_tokio`, `on_epoll`, `on_uring` | the servers |
//! | `load` | the client: connections that ask without a pause, and check every reply |
//! | `thread` | processor time and sleeps of a thread |

mod frames;
mod load;
mod on_epoll;
mod on_tokio;
#[cfg(target_os = "linux")]
mod on_uring;
mod thread;

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use clap::Args;

use crate::How;
use crate::measure::{Progress, median};
use crate::report::{Figure, Report};
use load::Load;
use thread::Thread;

pub(crate) const EXAMPLES: &str = "Examples:
  bench loops                      every runtime with pipelines of 1, 16 and 64, a minute
  taskset -c 0 bench loops         load and server share a core, and nobody is woken across cores
  bench loops --pipeline 1,4       other pipelines";

const CONNECTIONS: usize = 50;

/// What `loops` is to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Requests that a connection sends before it waits for replies.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    pipeline: Vec<u16>,
}

/// What a server stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runtime {
    Tokio,
    Epoll,
    #[cfg(target_os = "linux")]
    Uring,
}

impl Runtime {
    fn name(self) -> &'static str {
        match self {
            Self::Tokio => "tokio",
            Self::Epoll => "epoll",
            #[cfg(target_os = "linux")]
            Self::Uring => "io_uring",
        }
    }

    /// Serves until all connections are closed, and says how many requests it were.
    fn serve(self, streams: Vec<TcpStream>) -> io::Result<u64> {
        match self {
            Self::Tokio => on_tokio::serve(streams),
            Self::Epoll => on_epoll::serve(streams),
            #[cfg(target_os = "linux")]
            Self::Uring => on_uring::serve(&streams),
        }
    }
}

/// Those that this machine has; tokio, with which the others are compared, comes first.
fn runtimes() -> Vec<Runtime> {
    let mut found = vec![Runtime::Tokio, Runtime::Epoll];
    #[cfg(target_os = "linux")]
    match on_uring::probe() {
        Ok(()) => found.push(Runtime::Uring),
        Err(error) => eprintln!("io_uring is left out, the system refuses it: {error}"),
    }
    #[cfg(not(target_os = "linux"))]
    eprintln!("io_uring is left out, it is Linux's");
    found
}

/// One round of one server.
#[derive(Clone, Copy)]
struct Sample {
    micros: f64,
    requests_a_sleep: f64,
    rate: f64,
}

pub(crate) fn run(options: &Options, how: How) -> Result<(), Box<dyn Error>> {
    // Many short rounds: neighbours in time are compared, and a disturbance spoils few of them.
    let (rounds, time) =
        if how.quick { (5, Duration::from_millis(100)) } else { (25, Duration::from_millis(200)) };
    let mut progress = Progress::start();
    let mut report = Report::new(how.json);
    let runtimes = runtimes();
    let mut servers =
        runtimes.iter().map(|runtime| Server::start(*runtime)).collect::<Result<Vec<_>, _>>()?;
    // By pipeline, then by server, then by round.
    let mut samples = vec![vec![Vec::new(); servers.len()]; options.pipeline.len()];
    for round in 0..rounds {
        progress.step(format!("loops, round {} of {rounds}", round + 1));
        for (&pipeline, samples) in options.pipeline.iter().zip(&mut samples) {
            // Nobody always comes first.
            for index in (0..runtimes.len()).map(|index| (index + round) % runtimes.len()) {
                samples[index].push(servers[index].sample(pipeline, time)?);
            }
        }
    }
    for server in servers {
        server.finish()?;
    }
    progress.pause();
    let mut times = Vec::new();
    let mut sleeps = Vec::new();
    let mut rates = Vec::new();
    for (&pipeline, samples) in options.pipeline.iter().zip(&samples) {
        let micros = |index: usize| samples[index].iter().map(|sample: &Sample| sample.micros);
        for (index, runtime) in runtimes.iter().enumerate() {
            let figure = |value, unit| {
                Figure::new("loops", format!("{}, pipeline of {pipeline}", runtime.name()), value, unit)
            };
            let of =
                |field: fn(&Sample) -> f64| median(&samples[index].iter().map(field).collect::<Vec<_>>());
            let time = figure(of(|sample| sample.micros), "us/request");
            // Rounds are compared with their neighbours: what drifts from round to round falls out.
            let ratios: Vec<_> = micros(index).zip(micros(0)).map(|(ours, tokio)| ours / tokio).collect();
            times.push(if index == 0 { time } else { time.against(median(&ratios), "tokio") });
            sleeps.push(figure(of(|sample| sample.requests_a_sleep), "requests a sleep"));
            rates.push(figure(of(|sample| sample.rate) / 1e3, "k requests/s"));
        }
    }
    for figures in [times, sleeps, rates] {
        report.figures(&figures)?;
    }
    progress.step("done".to_owned());
    Ok(())
}

/// A server with its load.
struct Server {
    runtime: Runtime,
    thread: Thread,
    running: JoinHandle<io::Result<u64>>,
    load: Load,
    asked: u64,
}

impl Server {
    fn start(runtime: Runtime) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (tell, told) = mpsc::channel();
        // All connections are there before the loop begins, so nobody has to accept any meanwhile.
        let body = move || {
            let _ = tell.send(Thread::own());
            let accept = |_| {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(stream)
            };
            runtime.serve((0..CONNECTIONS).map(accept).collect::<io::Result<_>>()?)
        };
        let running = std::thread::Builder::new().name(runtime.name().to_owned()).spawn(body)?;
        let thread = told.recv().map_err(io::Error::other)??;
        Ok(Self { runtime, thread, running, load: Load::connect(address, CONNECTIONS)?, asked: 0 })
    }

    /// Asks for some time, and says what each request took.
    fn sample(&mut self, pipeline: u16, time: Duration) -> Result<Sample, String> {
        let told = |error: io::Error| format!("{}: {error}", self.runtime.name());
        let before = self.thread.spent().map_err(told)?;
        let (requests, elapsed) = self.load.run(usize::from(pipeline), time).map_err(told)?;
        let after = self.thread.spent().map_err(told)?;
        self.asked += requests;
        let requests = requests as f64;
        Ok(Sample {
            micros: (after.time - before.time).as_secs_f64() * 1e6 / requests,
            requests_a_sleep: requests / (after.sleeps - before.sleeps).max(1) as f64,
            rate: requests / elapsed.as_secs_f64(),
        })
    }

    /// Hangs up, and compares what the server has counted with what it was asked.
    fn finish(self) -> Result<(), String> {
        let name = self.runtime.name();
        drop(self.load);
        let served = self.running.join().map_err(|_| format!("{name}: the server panicked"))?;
        let served = served.map_err(|error| format!("{name}: {error}"))?;
        if served == self.asked {
            Ok(())
        } else {
            Err(format!("{name}: {} requests were sent, and the server counted {served}", self.asked))
        }
    }
}
