//! What a cluster stands on: which engine has which plane, how each is started on its machine, and what can be done to it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::machine::Machine;
use crate::network::Network;
use crate::nodes::at;

/// Partitions of the log.
const PARTITIONS: u32 = 8;
const BUCKET: &str = "umbel";
const ENSEMBLE: [Engine; 3] = [Engine::Zookeeper(1), Engine::Zookeeper(2), Engine::Zookeeper(3)];
/// A request of ZooKeeper's protocol that opens a session of one second: length, version, last transaction, timeout, no session's number,
/// and a password of 16 bytes.
const OPEN_SESSION: [u8; 48] = {
    let mut request = [0; 48];
    (request[3], request[18], request[19], request[31]) = (44, 3, 232, 16);
    request
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Redis,
    Kafka,
    S3,
    Etcd,
    /// A server of the ensemble, by its number from 1 on.
    Zookeeper(u8),
}

/// The engines of log, blobs and registry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engines {
    log: Engine,
    blobs: Engine,
    /// The servers of the registry.
    pub(crate) registry: &'static [Engine],
}

impl Engines {
    /// Those that somebody chose.
    pub(crate) fn named(name: &str) -> Self {
        let (log, blobs, registry): (_, _, &'static [Engine]) = match name {
            "redis" => (Engine::Redis, Engine::Redis, &[Engine::Redis]),
            "kafka" => (Engine::Kafka, Engine::S3, &[Engine::Etcd]),
            "zookeeper" => (Engine::Redis, Engine::Redis, &ENSEMBLE),
            _ => panic!("UMBEL_SCHEDULE_ENGINES is {name}, neither redis nor kafka nor zookeeper"),
        };
        Self { log, blobs, registry }
    }

    /// Each of them once.
    pub(crate) fn all(self) -> Vec<Engine> {
        let mut all = vec![self.log, self.blobs];
        all.extend_from_slice(self.registry);
        all.dedup();
        all
    }

    /// How a node is told where its planes are, with the addresses at which it reaches the registry. An engine that does not answer is
    /// given up soon: leases are short.
    pub(crate) fn planes(self, address: impl Fn(Engine) -> String, registry: &[String]) -> Vec<String> {
        let url = |engine: Engine, more: &str| {
            let at = format!("{}:{}", address(engine), engine.port());
            format!("{}{}{more}", engine.url(&at), if engine == Engine::S3 { '&' } else { '?' })
        };
        vec![
            "--log".into(),
            url(self.log, &format!("partitions={PARTITIONS}&timeout_ms=2000")),
            "--blobs".into(),
            url(self.blobs, "timeout_ms=2000"),
            "--registry".into(),
            format!("{}?timeout_ms=1000", self.registry[0].url(&registry.join(","))),
        ]
    }
}

impl Engine {
    pub(crate) fn port(self) -> u16 {
        match self {
            Self::Redis => 6379,
            Self::Kafka => 9092,
            Self::S3 => 9000,
            Self::Etcd => 2379,
            Self::Zookeeper(_) => 2181,
        }
    }

    /// Its address with ports, as a plane.
    fn url(self, at: &str) -> String {
        match self {
            Self::Redis => format!("redis://{at}/umbel"),
            Self::Kafka => format!("kafka://{at}/umbel"),
            Self::S3 => format!("s3://{BUCKET}/umbel?endpoint=http://{at}&region=us-east-1"),
            Self::Etcd => format!("etcd://{at}/umbel"),
            Self::Zookeeper(_) => format!("zookeeper://{at}/umbel"),
        }
    }

    /// Whether it has its data when it was killed. The server that stands for S3 has objects in memory only, and real ones do not lose
    /// them: so it sleeps and is cut off, and is not killed.
    pub(crate) fn keeps_data(self) -> bool {
        self != Self::S3
    }

    /// Whether it acknowledges nothing before the disk has it, so that a slow disk matters.
    pub(crate) fn waits_for_disk(self) -> bool {
        self != Self::S3
    }

    /// Whether its clock may jump. Kafka's own timers count by the time of day, so a jump may stop it for as long, which says nothing of
    /// a cluster; etcd is written in a language that asks the kernel for the time; ZooKeeper's sessions count by the time since the start;
    /// S3's server uses none.
    pub(crate) fn has_clock(self) -> bool {
        self == Self::Redis
    }

    /// Whether it is one of several servers that follow a leader.
    pub(crate) fn has_followers(self) -> bool {
        matches!(self, Self::Zookeeper(_))
    }

    /// The program on its machine, with the files that it has there.
    pub(crate) fn command(self, network: &Network, machine: &Machine) -> Command {
        let (address, port, folder) = (&machine.address, self.port(), machine.folder.display());
        let at = format!("{address}:{port}");
        let script = match self {
            Self::Redis => format!(
                "exec redis-server --bind {address} --port {port} --protected-mode no --dir {folder} --save '' --appendonly yes \
                 --appendfsync always"
            ),
            Self::Kafka => {
                std::fs::write(machine.folder.join("server.properties"), kafka_settings(machine, port))
                    .unwrap();
                // It is one of several programs here: little memory, and no time to get faster.
                let java = format!(
                    "java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp '{}/kafka-jars/*'",
                    services()
                );
                format!(
                    "test -e {folder}/log/meta.properties || {java} kafka.tools.StorageTool format --standalone \
                     -t dW1iZWx1bWJlbHVtYmVsdQ -c {folder}/server.properties\n\
                     exec {java} kafka.Kafka {folder}/server.properties"
                )
            }
            Self::S3 => {
                format!("exec {0}/python/bin/python {0}/in_turn.py -H {address} -p {port}", services())
            }
            Self::Etcd => format!(
                "exec etcd --name one --data-dir {folder}/data --listen-client-urls http://{at} --advertise-client-urls http://{at} \
                 --listen-peer-urls http://{address}:2380 --initial-advertise-peer-urls http://{address}:2380 \
                 --initial-cluster one=http://{address}:2380 --log-level warn"
            ),
            Self::Zookeeper(member) => {
                let data = machine.folder.join("data");
                std::fs::create_dir_all(&data).unwrap();
                std::fs::write(data.join("myid"), member.to_string()).unwrap();
                let first = machine.number - member;
                let servers: String = (1..=ENSEMBLE.len() as u8)
                    .map(|other| format!("server.{other}={}:2888:3888\n", network.address(first + other)))
                    .collect();
                let settings = format!(
                    "tickTime=500\ninitLimit=20\nsyncLimit=4\ndataDir={}\nclientPort={port}\nclientPortAddress={address}\n\
                     admin.enableServer=false\n4lw.commands.whitelist=*\n{servers}",
                    data.display()
                );
                std::fs::write(machine.folder.join("zoo.cfg"), settings).unwrap();
                format!(
                    "exec java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dzookeeper.cnxTimeout=1000 \
                     -cp '/etc/zookeeper/conf:/usr/share/java/*' org.apache.zookeeper.server.quorum.QuorumPeerMain {folder}/zoo.cfg"
                )
            }
        };
        let mut command = network.command(machine.number, "sh");
        command.args(["-c", &script]);
        command
    }

    /// Whether it listens, and has what nodes do not make themselves.
    pub(crate) fn is_there(self, address: &str) -> bool {
        let at = at(address, self.port());
        let Ok(mut socket) = TcpStream::connect_timeout(&at, Duration::from_millis(200)) else {
            return false;
        };
        let _ = socket.set_read_timeout(Some(Duration::from_secs(5)));
        let mut answer = String::new();
        if let Self::Zookeeper(_) = self {
            // One that belongs to no majority listens, and has no mode.
            return socket.write_all(b"srvr").is_ok()
                && socket.read_to_string(&mut answer).is_ok()
                && answer.contains("Mode:");
        }
        if self != Self::S3 {
            return true;
        }
        let bucket =
            format!("PUT /{BUCKET} HTTP/1.1\r\nhost: {at}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        socket.write_all(bucket.as_bytes()).is_ok()
            && socket.read_to_string(&mut answer).is_ok()
            && answer.starts_with("HTTP/1.1 200")
    }

    /// Makes it write to its disk, if nodes that add keys do not.
    pub(crate) fn write(self, address: &str) {
        if let Self::Zookeeper(_) = self {
            let mut socket = TcpStream::connect(at(address, self.port())).unwrap();
            let _ = socket.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = socket.write_all(&OPEN_SESSION).and_then(|()| socket.read(&mut [0]));
        }
    }
}

/// One broker, which tells clients its machine's address, and acknowledges what its disk has.
fn kafka_settings(machine: &Machine, port: u16) -> String {
    let (address, folder) = (&machine.address, machine.folder.display());
    format!(
        "process.roles=broker,controller\nnode.id=1\n\
         listeners=PLAINTEXT://{address}:{port},CONTROLLER://{address}:9093\nadvertised.listeners=PLAINTEXT://{address}:{port}\n\
         controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers={address}:9093\n\
         inter.broker.listener.name=PLAINTEXT\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n\
         log.dirs={folder}/log\nlog.flush.interval.messages=1\noffsets.topic.replication.factor=1\n\
         transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\noffsets.topic.num.partitions=1\n\
         broker.heartbeat.interval.ms=500\nbroker.session.timeout.ms=3000\n"
    )
}

/// Where servers are that no package brings.
fn services() -> String {
    std::env::var("UMBEL_SERVICES").expect("`cargo xtask schedules` says where servers are")
}
