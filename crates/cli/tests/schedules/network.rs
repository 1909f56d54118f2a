//! Machines on this one: a network namespace each, a bridge between them, and walls that let nothing through.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Machines by number, from 1 on. They go with this value.
pub(crate) struct Network {
    /// What all names begin with, so that several networks do not meet.
    name: String,
    /// The first three numbers of all addresses.
    prefix: String,
    machines: u8,
}

/// What each machine drops of what it sends.
const WALLS: &str = "add table ip walls
add set ip walls to { type ipv4_addr; }
add chain ip walls sent { type filter hook output priority 0; }
add rule ip walls sent ip daddr @to drop
";

fn run(line: &str) {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap();
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Network {
    pub(crate) fn new(machines: u8) -> Self {
        // The kernel removes what a network had after the call that removes its spaces: the next network of this process has other names.
        static NETWORKS: AtomicU32 = AtomicU32::new(0);
        let (id, number) = (std::process::id(), NETWORKS.fetch_add(1, Ordering::Relaxed));
        let name = format!("um{}{}", id % 100_000, char::from(b'a' + (number % 26) as u8));
        let prefix = format!("10.{}.{}", 100 + (id + number) % 100, id / 100 % 256);
        let network = Self { name, prefix, machines };
        let Self { name, prefix, .. } = &network;
        run(&format!("ip link add {name} type bridge"));
        run(&format!("ip addr add {prefix}.254/24 dev {name}"));
        run(&format!("ip link set {name} up"));
        for machine in 1..=machines {
            let space = network.space(machine);
            run(&format!("ip netns add {space}"));
            run(&format!("ip link add {space} type veth peer name eth0 netns {space}"));
            run(&format!("ip link set {space} master {name} up"));
            run(&format!("ip -n {space} addr add {}/24 dev eth0", network.address(machine)));
            run(&format!("ip -n {space} link set eth0 up"));
            run(&format!("ip -n {space} link set lo up"));
            network.rules(machine, WALLS);
        }
        network
    }

    fn space(&self, machine: u8) -> String {
        format!("{}n{machine}", self.name)
    }

    pub(crate) fn address(&self, machine: u8) -> String {
        format!("{}.{machine}", self.prefix)
    }

    /// A program on a machine.
    pub(crate) fn command(&self, machine: u8, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space(machine), program]);
        command
    }

    fn rules(&self, machine: u8, rules: &str) {
        let mut nft = self.command(machine, "nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
        assert!(nft.wait().unwrap().success(), "{rules}");
    }

    /// Nothing that one machine sends reaches the other from now on.
    pub(crate) fn wall(&self, from: u8, to: u8) {
        self.rules(from, &format!("add element ip walls to {{ {} }}\n", self.address(to)));
    }

    /// There are no walls any more.
    pub(crate) fn heal(&self) {
        (1..=self.machines).for_each(|machine| self.rules(machine, "flush set ip walls to\n"));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for machine in 1..=self.machines {
            let _ = Command::new("ip").args(["netns", "del", &self.space(machine)]).status();
        }
        let _ = Command::new("ip").args(["link", "del", &self.name]).status();
    }
}
