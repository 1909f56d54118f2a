//! Engines that want passwords and certificates, and show some, looked at with `umbel doctor`.

#[path = "../../adapters/tests/common/mod.rs"]
mod common;

#[path = "common/certificates.rs"]
mod certificates;

use std::process::Command;
use std::time::{Duration, Instant};

use certificates::certificates;

use common::own::{self, Own};
use common::{fresh, passed, service};
use serde_json::Value;

const PASSWORD: &str = "hunter2";
const MISTAKEN: &str = "hunter3";

/// Starts a server with certificates and what other files it needs.
fn start(script: &str, more: &[(&str, &str)]) -> Own {
    let certificates = certificates();
    let mut files: Vec<_> = certificates.iter().map(|(name, text)| (*name, &**text)).collect();
    files.extend(more);
    own::start(script, &files)
}

/// What the doctor says of a plane, and that it says no secret.
fn doctor(plane: &str, url: &str, variables: &[(&str, String)]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
    command.args(["doctor", "--json", plane, url]).env_remove("SSL_CERT_FILE");
    command.env("AWS_ACCESS_KEY_ID", "umbel").env("AWS_SECRET_ACCESS_KEY", PASSWORD);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let output = command.output().unwrap();
    let said = [output.stdout.clone(), output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert!(!said.contains(PASSWORD) && !said.contains(MISTAKEN), "{said}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(output.status.code(), Some(i32::from(found["usable"] == false)), "{found}");
    found
}

/// A server that listens may yet need seconds for its first handshake, so it is asked until it can be used. What is set up wrongly never can.
fn assert_usable(plane: &str, url: &str, variables: &[(&str, String)]) {
    let end = Instant::now() + Duration::from_secs(60);
    let mut found = doctor(plane, url, variables);
    while found["usable"] == false && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(500));
        found = doctor(plane, url, variables);
    }
    assert_eq!(found["usable"], true, "{found}");
    assert!(found["holds"].as_array().unwrap().len() > 2, "{found}");
}

/// Why a plane cannot be used.
fn refusal(plane: &str, url: &str, variables: &[(&str, String)]) -> String {
    let found = doctor(plane, url, variables);
    assert_eq!(found["usable"], false, "{found}");
    found["why"].as_str().unwrap().to_owned()
}

/// The right password with the right authority and our certificate, and none of them without the others.
fn knows_whom_to_trust(plane: &str, server: &Own, url: impl Fn(&str) -> String) -> String {
    let authority = format!("&ca={}", server.file("ca.pem"));
    let identity = format!("&cert={}&key={}", server.file("client.pem"), server.file("client.key"));
    let right = url(PASSWORD);
    assert_usable(plane, &format!("{right}{authority}{identity}"), &[]);
    let system = [("SSL_CERT_FILE", server.file("ca.pem"))];
    assert_usable(plane, &format!("{right}{identity}"), &system);
    refusal(plane, &format!("{right}{identity}"), &[]);
    refusal(plane, &format!("{right}{authority}"), &[]);
    let wrong = refusal(plane, &format!("{}{authority}{identity}", url(MISTAKEN)), &[]);
    format!("with our certificate, and not without; a wrong password: \"{wrong}\"")
}

#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn redis() {
    let Some(service) = service("redis") else { return };
    let server = start(
        "exec redis-server --port 0 --tls-port {port} --bind 127.0.0.1 --dir {folder} --save '' --appendonly yes \
         --requirepass hunter2 --tls-cert-file {folder}/cert.pem --tls-key-file {folder}/key.pem \
         --tls-ca-cert-file {folder}/ca.pem --tls-auth-clients yes",
        &[],
    );
    let url =
        |password: &str| format!("redis://:{password}@localhost:{}/a?tls=true&timeout_ms=3000", server.port);
    let said = knows_whom_to_trust("--registry", &server, url);
    passed(&service, "registry", "password and TLS", said);
    // As redis-cli is told.
    let (authority, identity) =
        (server.file("ca.pem"), [server.file("client.pem"), server.file("client.key")]);
    let [cert, key] = identity;
    let url = format!("redis://localhost:{}/a?tls=true&ca={authority}&cert={cert}&key={key}", server.port);
    assert_usable("--blobs", &url, &[("REDISCLI_AUTH", PASSWORD.to_owned())]);
    passed(&service, "blobs", "password and TLS", "the password from REDISCLI_AUTH");
}

#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn etcd() {
    let Some(service) = service("etcd") else { return };
    let server = start(
        "exec etcd --name t1 --data-dir {folder}/data --cert-file {folder}/cert.pem --key-file {folder}/key.pem \
         --client-cert-auth --trusted-ca-file {folder}/ca.pem \
         --listen-client-urls https://127.0.0.1:{port} --advertise-client-urls https://127.0.0.1:{port} \
         --listen-peer-urls http://127.0.0.1:{port1} --initial-advertise-peer-urls http://127.0.0.1:{port1} \
         --initial-cluster t1=http://127.0.0.1:{port1}",
        &[],
    );
    let files = [("--cacert", "ca.pem"), ("--cert", "client.pem"), ("--key", "client.key")];
    let user = format!("root:{PASSWORD}");
    for words in [&["user", "add", &user][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]] {
        let mut control = Command::new("etcdctl");
        control.env("ETCDCTL_API", "3");
        for (flag, file) in files {
            control.args([flag, &server.file(file)]);
        }
        control.args(["--endpoints", &format!("https://127.0.0.1:{}", server.port)]).args(words);
        let output = control.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let url = |password: &str| {
        format!("etcd://root:{password}@localhost:{}/a?tls=true&timeout_ms=3000", server.port)
    };
    let said = knows_whom_to_trust("--registry", &server, url);
    passed(&service, "registry", "password and TLS", said);
    // As etcdctl is told.
    let mut variables: Vec<_> = ["ETCDCTL_CACERT", "ETCDCTL_CERT", "ETCDCTL_KEY"]
        .into_iter()
        .zip(files.map(|(_, file)| server.file(file)))
        .collect();
    variables.push(("ETCDCTL_USER", user));
    let url = format!("etcd://localhost:{}/a?tls=true&timeout_ms=3000", server.port);
    assert_usable("--registry", &url, &variables);
    passed(&service, "registry", "its own convention", "all of it from ETCDCTL_...");
}

#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn nats() {
    let Some(service) = service("nats") else { return };
    let program = std::env::var("UMBEL_SERVICES").unwrap() + "/python/bin/nats-server";
    let settings = "host: 127.0.0.1\nport: {port}\njetstream { store_dir: \"{folder}/data\" }\n\
        authorization { user: umbel, password: hunter2 }\n\
        tls { cert_file: \"{folder}/cert.pem\", key_file: \"{folder}/key.pem\", ca_file: \"{folder}/ca.pem\", verify: true }\n";
    let server = start(&format!("exec {program} -c {{folder}}/nats.conf"), &[("nats.conf", settings)]);
    let url = |password: &str| {
        let port = server.port;
        format!("nats://umbel:{password}@localhost:{port}/a?partitions=2&tls=true&timeout_ms=3000")
    };
    let said = knows_whom_to_trust("--log", &server, url);
    passed(&service, "log", "password and TLS", said);
    // As NATS's own command is told.
    let variables = [
        ("NATS_CA", server.file("ca.pem")),
        ("NATS_CERT", server.file("client.pem")),
        ("NATS_KEY", server.file("client.key")),
        ("NATS_USER", "umbel".to_owned()),
        ("NATS_PASSWORD", PASSWORD.to_owned()),
    ];
    let url = format!("nats://localhost:{}/a?partitions=2&tls=true&timeout_ms=3000", server.port);
    assert_usable("--log", &url, &variables);
    passed(&service, "log", "its own convention", "all of it from NATS_...");
}

#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn rabbitmq() {
    let Some(service) = service("rabbitmq") else { return };
    let settings = "listeners.tcp = none\nlisteners.ssl.1 = 127.0.0.1:{port}\n\
        ssl_options.cacertfile = {folder}/ca.pem\nssl_options.certfile = {folder}/cert.pem\n\
        ssl_options.keyfile = {folder}/key.pem\nssl_options.verify = verify_peer\n\
        ssl_options.fail_if_no_peer_cert = true\ndefault_user = umbel\ndefault_pass = hunter2\n";
    let server = start(&own::rabbitmq(""), &[("rabbitmq.conf", settings), ("plugins", "[].\n")]);
    let url = |password: &str| {
        let port = server.port;
        format!("rabbitmq://umbel:{password}@localhost:{port}/a?partitions=2&tls=true&timeout_ms=5000")
    };
    let said = knows_whom_to_trust("--log", &server, url);
    passed(&service, "log", "password and TLS", said);
}

/// A port for passwords without TLS, as the brokers of the other tests have, and a broker with everything.
#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn kafka() {
    let Some(service) = service("kafka") else { return };
    let (address, name) = (service.address_behind(4), fresh("guarded"));
    let url =
        |password: &str| format!("kafka://umbel:{password}@{address}/{name}?partitions=2&timeout_ms=4000");
    assert_usable("--log", &url(PASSWORD), &[]);
    refusal("--log", &url(MISTAKEN), &[]);
    passed(&service, "log", "password (SASL PLAIN)", "a wrong one is refused");

    let settings = "process.roles=broker,controller\nnode.id=1\n\
        listeners=SECURE://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port1},INNER://127.0.0.1:{port2}\n\
        advertised.listeners=SECURE://localhost:{port},INNER://127.0.0.1:{port2}\n\
        controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=127.0.0.1:{port1}\n\
        inter.broker.listener.name=INNER\n\
        listener.security.protocol.map=CONTROLLER:PLAINTEXT,INNER:PLAINTEXT,SECURE:SASL_SSL\n\
        listener.name.secure.ssl.keystore.type=PEM\nlistener.name.secure.ssl.keystore.location={folder}/both.pem\n\
        listener.name.secure.ssl.truststore.type=PEM\nlistener.name.secure.ssl.truststore.location={folder}/ca.pem\n\
        listener.name.secure.ssl.client.auth=required\n\
        listener.name.secure.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256\n\
        listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
        required user_umbel=\"hunter2\";\n\
        listener.name.secure.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule \
        required;\n\
        log.dirs={folder}/data/log\noffsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n\
        transaction.state.log.min.isr=1\n";
    let jars = std::env::var("UMBEL_SERVICES").unwrap() + "/kafka-jars/*";
    let script = format!(
        "java() {{ command java -Xmx512m -cp '{jars}' \"$@\"; }}\n\
         java kafka.tools.StorageTool format --standalone -t dW1iZWx1bWJlbHVtYmVsdQ -c {{folder}}/server.properties \
         --add-scram 'SCRAM-SHA-256=[name=umbel,password=hunter2]'\n\
         exec java -Xmx512m -cp '{jars}' kafka.Kafka {{folder}}/server.properties"
    );
    let server = start(&script, &[("server.properties", settings)]);
    let place = format!("localhost:{}/guarded?partitions=2&timeout_ms=5000", server.port);
    let url = |password: &str| format!("kafka://umbel:{password}@{place}&tls=true");
    let said = knows_whom_to_trust("--log", &server, url);
    passed(&service, "log", "password and TLS", said);
    let files = format!(
        "&ca={}&cert={}&key={}",
        server.file("ca.pem"),
        server.file("client.pem"),
        server.file("client.key")
    );
    let scram = |password: &str| format!("{}{files}&sasl=SCRAM-SHA-256", url(password));
    assert_usable("--log", &scram(PASSWORD), &[]);
    refusal("--log", &scram(MISTAKEN), &[]);
    passed(&service, "log", "password (SASL SCRAM)", "a wrong one is refused");
    // As Kafka's own tools are told, which have no environment for it.
    let properties = format!(
        "# of a client\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=umbel\n\
         sasl.password={PASSWORD}\nssl.ca.location={}\nssl.certificate.location={}\nssl.key.location={}\n",
        server.file("ca.pem"),
        server.file("client.pem"),
        server.file("client.key")
    );
    let file = server.file("client.properties");
    std::fs::write(&file, &properties).unwrap();
    assert_usable("--log", &format!("kafka://{place}&config={file}"), &[]);
    for line in [
        format!("ssl.{PASSWORD}"),
        format!("acks={PASSWORD}"),
        format!("ssl.endpoint.identification.algorithm={PASSWORD}"),
    ] {
        std::fs::write(&file, format!("{properties}{line}\n")).unwrap();
        refusal("--log", &format!("kafka://{place}&config={file}"), &[]);
    }
    passed(&service, "log", "its own convention", "all of it from a file of properties");
}

#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn zookeeper() {
    let Some(service) = service("zookeeper") else { return };
    let script = "exec java -Xmx128m -cp '/etc/zookeeper/conf:/usr/share/java/*' \
        org.apache.zookeeper.server.quorum.QuorumPeerMain {folder}/zoo.cfg";
    let settings = |clients: &str| {
        format!(
            "tickTime=500\ndataDir={{folder}}/data\nsecureClientPort={{port}}\nsecureClientPortAddress=127.0.0.1\n\
             admin.enableServer=false\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={{folder}}/both.pem\nssl.keyStore.type=PEM\n\
             ssl.trustStore.location={{folder}}/ca.pem\nssl.trustStore.type=PEM\nssl.clientAuth={clients}\n"
        )
    };
    // To ZooKeeper, one of our certificates is as good as a password: so each is tried without the other.
    let server = start(script, &[("zoo.cfg", &settings("none"))]);
    let authority = format!("ca={}", server.file("ca.pem"));
    let url = |password: &str, more: &str| {
        let port = server.port;
        format!("zookeeper://umbel:{password}@localhost:{port}/a?tls=true&timeout_ms=3000&{more}")
    };
    assert_usable("--registry", &url(PASSWORD, &authority), &[]);
    assert_usable("--registry", &url(PASSWORD, ""), &[("SSL_CERT_FILE", server.file("ca.pem"))]);
    refusal("--registry", &url(PASSWORD, ""), &[]);
    let wrong = refusal("--registry", &url(MISTAKEN, &authority), &[]);
    passed(&service, "registry", "password and TLS", format!("a wrong password: \"{wrong}\""));

    let server = start(script, &[("zoo.cfg", &settings("need"))]);
    let authority = format!("ca={}", server.file("ca.pem"));
    let identity = format!("cert={}&key={}", server.file("client.pem"), server.file("client.key"));
    let url = |more: &str| format!("zookeeper://localhost:{}/a?tls=true&timeout_ms=3000&{more}", server.port);
    assert_usable("--registry", &url(&format!("{authority}&{identity}")), &[]);
    let why = refusal("--registry", &url(&authority), &[]);
    passed(&service, "registry", "certificates", format!("without ours: \"{why}\""));
}

#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn s3() {
    let Some(service) = service("s3") else { return };
    let program = std::env::var("UMBEL_SERVICES").unwrap() + "/python/bin/moto_server";
    let server = start(
        &format!("exec {program} -H 127.0.0.1 -p {{port}} -s -c {{folder}}/cert.pem -k {{folder}}/key.pem"),
        &[],
    );
    let authority = server.file("ca.pem");
    let endpoint = format!("https://localhost:{}", server.port);
    let made = Command::new("curl")
        .args(["-sS", "-f", "-X", "PUT", "--cacert", &authority, "--aws-sigv4", "aws:amz:us-east-1:s3"])
        .args(["--user", "umbel:hunter2", &format!("{endpoint}/guarded")])
        .status();
    assert!(made.unwrap().success(), "no bucket was made");
    let url = format!("s3://guarded/some?region=us-east-1&timeout_ms=3000&endpoint={endpoint}");
    assert_usable("--blobs", &format!("{url}&ca={authority}"), &[]);
    assert_usable("--blobs", &url, &[("AWS_CA_BUNDLE", authority.clone())]);
    assert_usable("--blobs", &url, &[("SSL_CERT_FILE", authority)]);
    let why = refusal("--blobs", &url, &[]);
    passed(&service, "blobs", "TLS", format!("an authority that nobody named: \"{why}\""));
}

/// What `umbel load --count` says of a thousand rows, and whether it could read them.
fn count(url: &str, variables: &[(&str, String)]) -> (bool, String) {
    let query = match url.starts_with("postgres") {
        true => "SELECT 'row ' || n AS k FROM generate_series(1, 1000) n",
        false => "SELECT CONCAT('row ', seq) AS k FROM seq_1_to_1000",
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
    command.args(["load", "f", url, "--query", query, "--key", "k", "--column", "k", "--count", "--json"]);
    command.env_remove("SSL_CERT_FILE").envs(variables.iter().map(|(name, value)| (name, value)));
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.success(), said)
}

#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn postgres() {
    let Some(service) = service("postgres") else { return };
    let server = start(
        "if test $(id -u) = 0; then\n\
         chown -R postgres {folder}\n\
         set -- setpriv --reuid postgres --regid postgres --init-groups\n\
         fi\n\
         chmod 600 {folder}/key.pem\n\
         programs=$(ls -d /usr/lib/postgresql/*/bin | tail -1)\n\
         \"$@\" $programs/initdb -D {folder}/data/rows -U umbel -A trust --encoding UTF8 --locale C\n\
         echo 'hostssl all all 127.0.0.1/32 trust clientcert=verify-ca' > {folder}/data/rows/pg_hba.conf\n\
         exec \"$@\" $programs/postgres -D {folder}/data/rows -h 127.0.0.1 -p {port} -k '' -c ssl=on \
         -c ssl_cert_file={folder}/cert.pem -c ssl_key_file={folder}/key.pem -c ssl_ca_file={folder}/ca.pem",
        &[],
    );
    let url = format!("postgres://umbel@localhost:{}/postgres", server.port);
    let identity = format!("cert={}&key={}", server.file("client.pem"), server.file("client.key"));
    let authority = format!("ca={}", server.file("ca.pem"));
    // It listens before it takes queries.
    let end = Instant::now() + Duration::from_secs(30);
    let (is_read, said) = loop {
        let (is_read, said) = count(&format!("{url}?tls=true&{authority}&{identity}"), &[]);
        if !said.contains("57P03") || Instant::now() >= end {
            break (is_read, said);
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(is_read && said.contains("1000"), "{said}");
    let system = [("SSL_CERT_FILE", server.file("ca.pem"))];
    let (is_read, said) = count(&format!("{url}?tls=true&{identity}"), &system);
    assert!(is_read && said.contains("1000"), "{said}");
    for (parameters, why) in [
        (format!("tls=true&{identity}"), "UnknownIssuer"),
        (format!("sslmode=require&tls=true&{identity}"), "UnknownIssuer"),
        (format!("tls=true&{authority}"), "certificate"),
        (String::new(), "pg_hba.conf"),
        (authority.clone(), "tls=true"),
    ] {
        let (is_read, said) = count(&format!("{url}?{parameters}"), &[]);
        assert!(!is_read && said.contains(why), "{parameters}: {said}");
    }
    passed(&service, "keys", "TLS", "with our certificate, and not without");
}

#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn mariadb() {
    let Some(service) = service("mariadb") else { return };
    let first = "CREATE USER umbel@'127.0.0.1' IDENTIFIED BY 'hunter2' REQUIRE X509;\n\
        CREATE USER stranger@'127.0.0.1' IDENTIFIED BY 'hunter2' REQUIRE SSL;\n\
        CREATE DATABASE shop;\nGRANT ALL ON shop.* TO umbel@'127.0.0.1';\nGRANT ALL ON shop.* TO stranger@'127.0.0.1';\n";
    let server = start(
        "if test $(id -u) = 0; then\n\
         chown -R mysql {folder}\n\
         set -- --user=mysql\n\
         fi\n\
         mariadb-install-db --no-defaults --datadir={folder}/data/rows --skip-test-db \
         --auth-root-authentication-method=normal \"$@\"\n\
         exec /usr/sbin/mariadbd --no-defaults --datadir={folder}/data/rows --bind-address=127.0.0.1 --port={port} \
         --socket={folder}/data/socket --pid-file={folder}/data/process --skip-name-resolve --init-file={folder}/first.sql \
         --ssl-cert={folder}/cert.pem --ssl-key={folder}/key.pem --ssl-ca={folder}/ca.pem \"$@\"",
        &[("first.sql", first)],
    );
    let url =
        |user: &str, password: &str| format!("mysql://{user}:{password}@localhost:{}/shop", server.port);
    let ours = url("umbel", PASSWORD);
    let identity = format!("cert={}&key={}", server.file("client.pem"), server.file("client.key"));
    let authority = format!("ca={}", server.file("ca.pem"));
    let system = [("SSL_CERT_FILE", server.file("ca.pem"))];
    for (address, variables) in [
        (format!("{ours}?tls=true&{authority}&{identity}"), &[][..]),
        (format!("{ours}?tls=true&{identity}"), &system[..]),
        (format!("{}?tls=true&{authority}", url("stranger", PASSWORD)), &[][..]),
        // Packets have other beginnings then.
        (format!("{ours}?compress=true&tls=true&{authority}&{identity}"), &[][..]),
    ] {
        let (is_read, said) = count(&address.replace("mysql://", "mariadb://"), variables);
        assert!(is_read && said.contains("1000"), "{said}");
    }
    for (address, why) in [
        (format!("{ours}?tls=true&{identity}"), "UnknownIssuer"),
        (format!("{ours}?tls=true&{authority}"), "Access denied"),
        (format!("{}?tls=true&{authority}&{identity}", url("umbel", MISTAKEN)), "Access denied"),
        (url("stranger", PASSWORD), "Access denied"),
        (format!("{ours}?{authority}"), "tls=true"),
    ] {
        let (is_read, said) = count(&address, &[]);
        assert!(!is_read && said.contains(why) && !said.contains(PASSWORD), "{why}: {said}");
    }
    // A server that cannot encrypt is not spoken to in the clear.
    let plain = format!("mysql://umbel@{}/mysql?tls=true&{authority}", service.address());
    let (is_read, said) = count(&plain, &[]);
    assert!(!is_read, "{said}");
    passed(&service, "keys", "TLS", "with our certificate, and not without");
}
