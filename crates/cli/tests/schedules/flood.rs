//! A node that sleeps with full sockets: clients have sent adds that it has not read. What it acknowledges when it wakes is asked of the
//! other nodes at once.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread::Scope;
use std::time::{Duration, Instant};

use crate::history::{Change, History, Look, Read};
use crate::nodes::{Connection, LEASE, Node, Nodes, PORT, Place, Value, at, request, words};

const CLIENTS: usize = 24;
/// Adds that each client sends before the node sleeps, and in all. The others follow while it sleeps.
const BEFORE: usize = 1;
const ADDS: usize = 3;
/// How long a client waits for a reply.
const REPLY: Duration = Duration::from_secs(20);
/// How long a key that is answered absent is asked for again, to see for how long.
const AGAIN: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(5);

/// What became of the adds.
#[derive(Default)]
pub(crate) struct Flooded {
    pub(crate) acknowledged: usize,
    /// Keys without an acknowledgement, and when they were begun. Their adds may have happened.
    pub(crate) open: Vec<(String, Duration)>,
}

/// Stops a node for longer than its lease while clients write into its sockets, and lets it go on. All that is acknowledged and answered
/// goes into the history.
pub(crate) fn flood(
    all: &mut Nodes,
    node: Node,
    prefix: &str,
    sleep: Duration,
    history: &History,
) -> Flooded {
    let address = |machine: usize| at(&all.nodes[machine].address, PORT);
    let door = address(node.0);
    let others: Vec<SocketAddr> =
        (0..all.nodes.len()).filter(|other| *other != node.0).map(address).collect();
    let (others, flooded, begun) = (&others, Mutex::new(Flooded::default()), history.now());
    std::thread::scope(|scope| {
        let mut senders = Vec::new();
        for client in 0..CLIENTS {
            // A node that was killed meanwhile has no sockets.
            let Ok(connection) = Connection::open(door, REPLY) else { continue };
            let keys: Vec<String> = (0..ADDS).map(|number| format!("{prefix}:{client}:{number}")).collect();
            history.knows(&keys);
            senders.push((connection.sender(), keys.clone()));
            let (flooded, is_plain) = (&flooded, client % 2 == 0);
            scope.spawn(move || {
                let mut client = Client { history, begun, is_plain, connection, others: ask_at(others) };
                let open = client.receive(scope, keys.clone());
                let mut flooded = flooded.lock().unwrap();
                flooded.acknowledged += keys.len() - open.len();
                flooded.open.extend(open.into_iter().map(|key| (key, begun)));
            });
        }
        let send = |from: usize, to: usize| {
            for (client, (socket, keys)) in senders.iter().enumerate() {
                let adds = keys[from..to].iter().flat_map(|key| request(&add(client % 2 == 0, key)));
                // A connection that ended shows where replies are read.
                let _ = (&*socket).write_all(&adds.collect::<Vec<u8>>());
            }
        };
        send(0, BEFORE);
        all.machine(Place::Node(node)).signal("-STOP");
        let asleep = Instant::now();
        send(BEFORE, ADDS);
        std::thread::sleep((LEASE + sleep).saturating_sub(asleep.elapsed()));
        all.machine(Place::Node(node)).signal("-CONT");
    });
    flooded.into_inner().unwrap()
}

/// Half of the clients speak as those of RedisBloom do.
fn add(is_plain: bool, key: &str) -> Vec<String> {
    words(&if is_plain { format!("BF.ADD seen {key}") } else { format!("UMBEL.ADD seen ITEMS {key}") })
}

fn lookup(is_plain: bool, key: &str) -> Vec<String> {
    words(&if is_plain {
        format!("BF.EXISTS seen {key}")
    } else {
        format!("UMBEL.EXISTS seen READ current ITEMS {key}")
    })
}

/// Whether an answer says that a key is there, if it says either.
fn is_there(answer: &Value) -> Option<bool> {
    match answer {
        Value::Number(number) => Some(*number == 1),
        answer => match answer.field("answers").list().first()?.text() {
            "maybe" => Some(true),
            "absent" => Some(false),
            _ => None,
        },
    }
}

/// A connection to a node that is asked, opened again if it broke.
struct Other(SocketAddr, Option<Connection>);

fn ask_at(others: &[SocketAddr]) -> Vec<Other> {
    others.iter().map(|address| Other(*address, Connection::open(*address, REPLY).ok())).collect()
}

impl Other {
    fn send(&mut self, words: &[String]) {
        if self.1.as_mut().is_none_or(|open| open.send(words).is_err()) {
            self.1 = Connection::open(self.0, REPLY).ok();
            let _ = self.1.as_mut().map(|open| open.send(words));
        }
    }

    fn receive(&mut self) -> Option<bool> {
        let answer = self.1.as_mut()?.receive();
        if answer.as_ref().is_err_and(|why| !why.starts_with('-')) {
            self.1 = None;
        }
        is_there(&answer.ok()?)
    }
}

struct Client<'a> {
    history: &'a History,
    begun: Duration,
    is_plain: bool,
    connection: Connection,
    others: Vec<Other>,
}

impl<'a> Client<'a> {
    /// Reads the replies to adds, and asks the other nodes for each key as soon as it is acknowledged; returns those that are not.
    fn receive<'s>(&mut self, scope: &'s Scope<'s, 'a>, keys: Vec<String>) -> Vec<String>
    where
        'a: 's,
    {
        let (history, is_plain) = (self.history, self.is_plain);
        let mut open = Vec::new();
        for key in keys {
            let Ok(reply) = self.connection.receive() else {
                history.refused();
                open.push(key);
                continue;
            };
            let done = history.now();
            let question = lookup(is_plain, &key);
            self.others.iter_mut().for_each(|other| other.send(&question));
            let position = reply.field("position").text().parse().unwrap_or_default();
            history.changed(
                [Change { key: key.clone(), adds: true, begun: self.begun, done, position }].into_iter(),
            );
            for other in &mut self.others {
                // The question was sent after the acknowledgement, and that is what counts.
                if !ask(history, other, &key, done) {
                    let (mut again, key) = (Other(other.0, None), key.clone());
                    scope.spawn(move || {
                        let end = Instant::now() + AGAIN;
                        let mut begun = history.now();
                        again.send(&lookup(is_plain, &key));
                        while !ask(history, &mut again, &key, begun) && Instant::now() < end {
                            std::thread::sleep(PAUSE);
                            begun = history.now();
                            again.send(&lookup(is_plain, &key));
                        }
                    });
                }
            }
        }
        open
    }
}

/// Notes the answer to a question that was sent; returns whether it was anything but "absent".
fn ask(history: &History, other: &mut Other, key: &str, begun: Duration) -> bool {
    let Some(is_there) = other.receive() else {
        history.refused();
        return true;
    };
    // No change of the key is done at the very moment when the question begins.
    let begun = begun + Duration::from_nanos(1);
    let look = Look {
        key: key.to_owned(),
        read: Read::Current,
        begun,
        done: history.now(),
        is_there,
        position: umbel_core::engine::Token::default(),
    };
    history.looked([look].into_iter());
    is_there
}
