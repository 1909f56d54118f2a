//! What breaks, by chance, and how it is mended.

use std::time::{Duration, Instant};

use crate::doors::{door_answers, doors_work};
use crate::engines::{Engine, Engines};
use crate::flood::flood;
use crate::history::History;
use crate::nodes::{LEASE, Node, Nodes, PATIENCE, Place, call, words};
use crate::{Chance, finish};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
/// How long doors may take until they do what they are asked, while nodes are cut from each other. It is generous: a machine may be busy.
const BACK: Duration = Duration::from_secs(20);

/// Which packets are lost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Both,
    /// Those that come to it.
    In,
    /// Those that it sends.
    Out,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Without a word. A node is started again when all is mended, an engine after a moment.
    Killed(Place),
    /// A node for longer than the lease, an engine for a moment.
    Asleep(Place),
    /// Neither hears of the other.
    Apart(Place, Place),
    /// The second does not hear the first.
    Unheard(Place, Place),
    /// A node was killed, and comes back while an engine is away and starts.
    Rejoins(Node, Engine),
    /// Calls that wait for the disk take so many milliseconds longer. Only engines have disks: a node that stands on them makes no such call
    /// while it serves.
    SlowDisk(Engine, u64),
    /// The time of day is so many seconds ahead, or behind, until all is mended: then it jumps back.
    ClockJumps(Place, i64),
    /// Another machine says that it is this node.
    Twin(Node),
    Drained(Node),
    /// A node is cut off from both other nodes, and reaches all engines.
    Isolated(Node, Way),
    /// A node is cut off from all engines, and reaches both other nodes, for so many seconds.
    NoEngines(Node, u64),
    /// What passes between a node and the registry takes so many milliseconds longer, each way.
    SlowRegistry(Node, u64),
    /// A node sleeps while clients write into its sockets; its registry is slow meanwhile.
    FullSockets(Node, u64),
    /// The server of the registry's ensemble to which a node is connected is cut off from the other servers.
    FollowerCutOff(Node),
}

fn one_of<T: Copy>(chance: &mut Chance, all: &[T]) -> T {
    all[chance.below(all.len() as u64) as usize]
}

impl Fault {
    pub(crate) fn any(chance: &mut Chance, nodes: usize, engines: Engines) -> Self {
        let number = chance.below(nodes as u64) as usize;
        let other = Place::Node(Node((number + 1 + chance.below(nodes as u64 - 1) as usize) % nodes));
        let (number, node) = (Node(number), Place::Node(Node(number)));
        let engines = engines.all();
        let engine = Place::Engine(one_of(chance, &engines));
        let those = |can: fn(Engine) -> bool| engines.iter().copied().filter(move |engine| can(*engine));
        let lasting: Vec<Engine> = those(Engine::keeps_data).collect();
        let is_ensemble = those(Engine::has_followers).count() > 0;
        match chance.below(if is_ensemble { 23 } else { 21 }) {
            0 => Self::Killed(node),
            1 => Self::Asleep(node),
            2 => Self::Apart(node, other),
            3 => Self::Unheard(node, other),
            4 => Self::Apart(node, engine),
            5 => Self::Unheard(node, engine),
            6 => Self::Unheard(engine, node),
            7 => Self::Killed(Place::Engine(one_of(chance, &lasting))),
            8 => Self::Asleep(engine),
            9 => Self::Rejoins(number, one_of(chance, &lasting)),
            10 => {
                let slow: Vec<Engine> = those(Engine::waits_for_disk).collect();
                Self::SlowDisk(one_of(chance, &slow), 100 + chance.below(600))
            }
            11 | 12 => {
                let places: Vec<Place> =
                    std::iter::once(node).chain(those(Engine::has_clock).map(Place::Engine)).collect();
                Self::ClockJumps(one_of(chance, &places), one_of(chance, &[HOUR, -HOUR, DAY, -DAY]))
            }
            13 => Self::Twin(number),
            14 => Self::Drained(number),
            15 | 16 => Self::Isolated(number, one_of(chance, &[Way::Both, Way::In, Way::Out])),
            17 => Self::NoEngines(number, 15 + chance.below(25)),
            18 => Self::SlowRegistry(number, 25 + chance.below(275)),
            19 => Self::FullSockets(number, 0),
            20 => Self::FullSockets(number, 25 + chance.below(275)),
            _ => Self::FollowerCutOff(number),
        }
    }

    /// How long it lasts at least.
    fn lasts(self) -> Duration {
        match self {
            // Nodes notice each other's absence after a lease, and so do those that take over.
            Self::Isolated(..)
            | Self::FollowerCutOff(_)
            | Self::Apart(Place::Node(_), Place::Node(_))
            | Self::Unheard(Place::Node(_), Place::Node(_)) => 3 * LEASE,
            Self::NoEngines(_, seconds) => Duration::from_secs(seconds),
            _ => LEASE,
        }
    }

    /// The doors that reach a majority and all engines while nothing but this is broken.
    fn doors_that_work(self, nodes: usize) -> Vec<usize> {
        match self {
            Self::Isolated(Node(cut), _) => (0..nodes).filter(|node| *node != cut).collect(),
            Self::Apart(Place::Node(_), Place::Node(_)) | Self::Unheard(Place::Node(_), Place::Node(_)) => {
                (0..nodes).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Cuts a node off from the other nodes.
pub(crate) fn isolate(all: &mut Nodes, Node(node): Node, way: Way) {
    for other in (0..all.nodes.len()).filter(|other| *other != node) {
        let [node, other] = [node, other].map(|index| all.nodes[index].number);
        if !matches!(way, Way::In) {
            all.network.wall(node, other);
        }
        if !matches!(way, Way::Out) {
            all.network.wall(other, node);
        }
    }
}

/// Cuts a node off from all engines.
pub(crate) fn take_engines(all: &mut Nodes, node: Node) {
    let node = all.machine(Place::Node(node)).number;
    for engine in all.engines.all() {
        let engine = all.machine(Place::Engine(engine)).number;
        all.network.wall(node, engine);
        all.network.wall(engine, node);
    }
}

/// Cuts the server of the registry that a node uses off from the other servers; returns the server.
pub(crate) fn cut_follower(all: &mut Nodes, node: Node) -> Engine {
    let servers = all.engines.registry;
    let cut = all.registry_server(node).unwrap_or(servers[node.0 % servers.len()]);
    let number = all.machine(Place::Engine(cut)).number;
    for other in servers.iter().filter(|other| **other != cut) {
        let other = all.machine(Place::Engine(*other)).number;
        all.network.wall(number, other);
        all.network.wall(other, number);
    }
    cut
}

fn pause(chance: &mut Chance, millis: u64) {
    std::thread::sleep(Duration::from_millis(chance.below(millis)));
}

/// Lets faults happen, one after the other or at once, and mends all of them. Says how many calls were held up by slow disks.
pub(crate) fn break_things(
    all: &mut Nodes,
    faults: &[Fault],
    chance: &mut Chance,
    prefix: &str,
    history: &History,
) -> usize {
    let (mut twins, mut drained, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for (index, fault) in faults.iter().enumerate() {
        let mut wall = |from: Place, to: Place| {
            let [from, to] = [from, to].map(|place| all.machine(place).number);
            all.network.wall(from, to);
        };
        match *fault {
            Fault::Killed(place @ Place::Node(_)) => all.machine(place).kill(),
            Fault::Killed(place) => {
                all.machine(place).kill();
                pause(chance, 1500);
                all.launch(place);
            }
            Fault::Asleep(place @ Place::Node(_)) => all.machine(place).signal("-STOP"),
            Fault::Asleep(place) => {
                all.machine(place).signal("-STOP");
                pause(chance, 3000);
                all.machine(place).signal("-CONT");
            }
            Fault::Apart(one, other) => {
                wall(one, other);
                wall(other, one);
            }
            Fault::Unheard(from, to) => wall(from, to),
            Fault::Rejoins(node, engine) => {
                let [node, engine] = [Place::Node(node), Place::Engine(engine)];
                all.machine(node).kill();
                // It may be missed by then, or not.
                pause(chance, 2 * LEASE.as_millis() as u64);
                all.machine(engine).kill();
                all.launch(node);
                pause(chance, 2000);
                all.launch(engine);
                // A node that finds no engine ends. Whoever looks after it starts it again, until it comes by what is only half there.
                for _ in 0..20 {
                    std::thread::sleep(Duration::from_millis(100));
                    all.launch(node);
                }
            }
            Fault::SlowDisk(engine, millis) => {
                all.machine(Place::Engine(engine)).brake(Duration::from_millis(millis));
            }
            Fault::ClockJumps(place, seconds) => all.machine(place).set_clock(seconds),
            Fault::Twin(node) if twins.is_empty() => twins.push(all.start_twin(node)),
            Fault::Twin(_) => {}
            Fault::Drained(node) => {
                // A node that cannot be told goes on as it was.
                let _ = call(&all.nodes[node.0].address, &words("UMBEL.NODE DRAIN"));
                drained.push(node);
            }
            Fault::Isolated(node, way) => isolate(all, node, way),
            Fault::NoEngines(node, _) => take_engines(all, node),
            Fault::SlowRegistry(Node(node), millis) => {
                all.nodes[node].delay_registry(Duration::from_millis(millis));
            }
            Fault::FullSockets(node, millis) => {
                all.nodes[node.0].delay_registry(Duration::from_millis(millis));
                let sleep = Duration::from_millis(200 + chance.below(1500));
                open.extend(flood(all, node, &format!("{prefix}:flood{index}"), sleep, history).open);
            }
            Fault::FollowerCutOff(node) => drop(cut_follower(all, node)),
        }
        pause(chance, 1500);
    }
    let lasts = faults.iter().map(|fault| fault.lasts()).max().unwrap_or(LEASE);
    std::thread::sleep(lasts + Duration::from_millis(500 + chance.below(1500)));
    // What several faults leave of a cluster may be too little to do anything.
    if let [fault] = faults {
        let doors = fault.doors_that_work(all.nodes.len());
        open.extend(doors_work(all, &doors, &format!("{prefix}:door"), history, BACK));
        if let Fault::NoEngines(Node(node), _) = fault {
            door_answers(all, *node, history);
        }
    }
    drop(twins);
    let mut held_up = 0;
    for machine in all.all_machines() {
        held_up += machine.release().unwrap_or_default();
        machine.signal("-CONT");
        machine.set_clock(0);
        machine.delay_registry(Duration::ZERO);
    }
    all.network.heal();
    for node in drained {
        let back = words(&format!("UMBEL.NODE UNDRAIN {node:?}"));
        let told = |all: &Nodes| all.nodes.iter().any(|node| call(&node.address, &back).is_ok());
        let end = Instant::now() + PATIENCE;
        while !told(all) {
            // Nobody knows a node that is not there.
            all.launch(Place::Node(node));
            assert!(Instant::now() < end, "nobody takes the drain back");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    all.settle();
    if faults.iter().any(|fault| matches!(fault, Fault::Twin(_))) {
        // Whoever lost its place to a twin may not have heard of it yet, and ends when it does.
        std::thread::sleep(2 * LEASE);
        all.settle();
    }
    finish(all, &open, history);
    held_up
}
