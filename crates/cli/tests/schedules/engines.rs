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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Redis,
    Kafka,
    S3,
    Etcd,
}

/// The engines of log, blobs and registry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engines([Engine; 3]);

impl Engines {
    /// Those that somebody chose.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "redis" => Self([Engine::Redis; 3]),
            "kafka" => Self([Engine::Kafka, Engine::S3, Engine::Etcd]),
            _ => panic!("UMBEL_SCHEDULE_ENGINES is {name}, neither redis nor kafka"),
        }
    }

    /// Each of them once.
    pub(crate) fn all(self) -> Vec<Engine> {
        let mut all = self.0.to_vec();
        all.dedup();
        all
    }

    /// How a node is told where its planes are. An engine that does not answer is given up soon: leases are short.
    pub(crate) fn planes(self, address: impl Fn(Engine) -> String) -> Vec<String> {
        let [log, blobs, registry] = self.0.map(|engine| (engine, engine.url(&address(engine))));
        let with = |(engine, url): &(Engine, String), more: &str| {
            format!("{url}{}{more}", if *engine == Engine::S3 { '&' } else { '?' })
        };
        vec![
            "--log".into(),
            with(&log, &format!("partitions={PARTITIONS}&timeout_ms=2000")),
            "--blobs".into(),
            with(&blobs, "timeout_ms=2000"),
            "--registry".into(),
            with(&registry, "timeout_ms=1000"),
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
        }
    }

    fn url(self, address: &str) -> String {
        let at = format!("{address}:{}", self.port());
        match self {
            Self::Redis => format!("redis://{at}/umbel"),
            Self::Kafka => format!("kafka://{at}/umbel"),
            Self::S3 => format!("s3://{BUCKET}/umbel?endpoint=http://{at}&region=us-east-1"),
            Self::Etcd => format!("etcd://{at}/umbel"),
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
    /// a cluster; etcd is written in a language that asks the kernel for the time; S3's server uses none.
    pub(crate) fn has_clock(self) -> bool {
        self == Self::Redis
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
        if self != Self::S3 {
            return true;
        }
        let _ = socket.set_read_timeout(Some(Duration::from_secs(5)));
        let bucket =
            format!("PUT /{BUCKET} HTTP/1.1\r\nhost: {at}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let mut answer = String::new();
        socket.write_all(bucket.as_bytes()).is_ok()
            && socket.read_to_string(&mut answer).is_ok()
            && answer.starts_with("HTTP/1.1 200")
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
