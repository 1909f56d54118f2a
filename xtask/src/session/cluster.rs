//! A cluster as somebody meets it who tries it for the first time: `redis-cli` at each node, then clients that write and read all the while,
//! a node that is killed, and another one that is added. In the end every key that was acknowledged is looked for at every node that lives.

mod traffic;
mod verdict;

use std::path::Path;
use std::time::{Duration, Instant};

use super::Story;
use super::link::Link;
use crate::cluster::{self, Engines, PARTITIONS, Setup, Up};
use crate::step::{Failure, root};
use traffic::{Stop, Traffic};

const FILTER: &str = "seen";
/// It is wrong so rarely that it hides no key that was lost, and so large that its shards are on all nodes.
const ERROR: &str = "0.000001";
const CAPACITY: &str = "20000000";
/// How long clients are at work before, between and after what happens to the nodes.
const AT_WORK: Duration = Duration::from_secs(5);
/// How long anything may take until it is as it should be.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a client waits for an answer before it asks another node.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// The node that is killed.
const VICTIM: u16 = 2;

pub(super) fn run(engines: Engines, nodes: u16, umbel: Option<&Path>) -> Result<(), Failure> {
    let story = Story::begin();
    let up = Up::new(&Setup { nodes, engines, partitions: PARTITIONS, umbel })?;
    story.tell(&format!("{nodes} nodes serve; any of them answers for all"));
    by_hand(&story, nodes)?;

    let traffic = Traffic::new((1..=nodes).map(cluster::port).collect());
    let newcomer = nodes + 1;
    std::thread::scope(|scope| {
        traffic.start(scope);
        let _stop = Stop(&traffic);
        happenings(&story, &traffic, newcomer)
    })?;
    traffic.failure()?;
    story.tell("the clients end");

    let living: Vec<u16> = (1..=newcomer).filter(|number| *number != VICTIM).collect();
    let outcome = verdict::reach(&story, &traffic, &living);
    let picture = root().join("target/session-cluster.svg");
    let (registry, picture) = (cluster::registry()?, picture.to_string_lossy());
    story.show(&cluster::umbel_command()?, &["ring", "--registry", &registry, "--svg", &picture])?;
    let drawn = std::fs::read_to_string(&*picture)?;
    if !drawn.trim_start().starts_with("<svg") {
        return Err(format!("{picture} is no picture").into());
    }
    story.tell(&format!("its picture is {picture}"));
    drop(up);
    story.tell("all is taken down");
    outcome
}

/// The first steps, at three nodes.
fn by_hand(story: &Story, nodes: u16) -> Result<(), Failure> {
    let steps: [(u16, &[&str], &str); 4] = [
        (1, &["BF.RESERVE", FILTER, ERROR, CAPACITY], "OK"),
        (2, &["BF.ADD", FILTER, "https://example.org/"], "1"),
        (nodes, &["BF.EXISTS", FILTER, "https://example.org/"], "1"),
        (nodes, &["BF.EXISTS", FILTER, "https://example.org/other"], "0"),
    ];
    for (number, words, expected) in steps {
        let port = cluster::port(number).to_string();
        let said = story.show(Path::new("redis-cli"), &[&["-p", port.as_str()], words].concat())?;
        if said != expected {
            return Err(format!("{words:?} at node {number}: {said:?} instead of {expected:?}").into());
        }
    }
    Ok(())
}

/// What happens to the nodes while clients are at work.
fn happenings(story: &Story, traffic: &Traffic, newcomer: u16) -> Result<(), Failure> {
    story.tell(&format!("{} write and {} read", traffic::WRITERS, traffic::READERS));
    at_work(story, traffic)?;
    let before = traffic.refused();
    cluster::kill(VICTIM)?;
    let killed = Instant::now();
    story.tell(&format!("{} is killed (kill -9)", cluster::name(VICTIM)));
    let living: Vec<u16> = (1..newcomer).filter(|number| *number != VICTIM).collect();
    let (reads, writes) = until_all_answer(traffic, &living, killed)?;
    story.tell(&format!(
        "all nodes that live answer for all keys again {:.1} s after the kill, and take all keys after {:.1} s",
        reads.as_secs_f64(),
        writes.as_secs_f64()
    ));
    at_work(story, traffic)?;
    story.tell(&format!(
        "{} requests were refused by nodes that live since the kill",
        traffic.refused() - before
    ));

    let (before, begun) = (traffic.refused(), Instant::now());
    cluster::add(newcomer)?;
    traffic.knows(cluster::port(newcomer));
    story.tell(&format!(
        "{} is added; it serves {:.1} s after its start, and clients ask it too",
        cluster::name(newcomer),
        begun.elapsed().as_secs_f64()
    ));
    at_work(story, traffic)?;
    story.tell(&format!("{} requests were refused since its start", traffic.refused() - before));
    Ok(())
}

/// Lets clients work for a while, and says how it goes.
fn at_work(story: &Story, traffic: &Traffic) -> Result<(), Failure> {
    let (keys, looks) = (traffic.keys(), traffic.looks());
    std::thread::sleep(AT_WORK);
    traffic.failure()?;
    let each = |now: u64, before: u64| ((now - before) as f64 / AT_WORK.as_secs_f64()) as u64;
    story.tell(&format!(
        "{} keys are acknowledged ({} a second); readers had {} answers ({} a second)",
        traffic.keys(),
        each(traffic.keys(), keys),
        traffic.looks(),
        each(traffic.looks(), looks)
    ));
    Ok(())
}

/// How long after a kill each node has answered for keys of all partitions, and how long after it each has taken them.
fn until_all_answer(
    traffic: &Traffic,
    living: &[u16],
    killed: Instant,
) -> Result<(Duration, Duration), Failure> {
    let keys = traffic.first_keys();
    let once = |number: u16, command: &str| -> Result<Duration, Failure> {
        let port = cluster::port(number);
        loop {
            let asked =
                Link::patient(port, ANSWER_TIME).and_then(|mut link| link.each(&[command, FILTER], &keys));
            match asked {
                Ok(_) => return Ok(killed.elapsed()),
                Err(trouble) if trouble.is_passing() && killed.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(trouble) => return Err(format!("node {number}: {trouble}").into()),
            }
        }
    };
    let last = |command: &str| -> Result<Duration, Failure> {
        let all: Vec<Result<Duration, String>> = std::thread::scope(|scope| {
            let asked = |number: &u16| {
                let (number, once) = (*number, &once);
                scope.spawn(move || once(number, command).map_err(|error| error.to_string()))
            };
            let threads: Vec<_> = living.iter().map(asked).collect();
            let ended = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|_| Err("a client died".to_owned()))
            };
            threads.into_iter().map(ended).collect()
        });
        Ok(all.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().max().unwrap_or_default())
    };
    Ok((last("BF.MEXISTS")?, last("BF.MADD")?))
}
