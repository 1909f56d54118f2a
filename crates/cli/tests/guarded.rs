//! Engines that want passwords and show certificates, looked at with `umbel doctor`.

#[path = "../../adapters/tests/common/mod.rs"]
mod common;

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{fresh, passed, service};
use serde_json::Value;

const PASSWORD: &str = "hunter2";
const MISTAKEN: &str = "hunter3";

/// A server of one test, with a folder; both go with it.
struct Server {
    process: Child,
    folder: PathBuf,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Starts a server with a certificate for this machine. In its arguments, `PORT`, `NEXT` and `FOLDER` are replaced.
fn start(program: &str, arguments: &[&str]) -> Server {
    let folder = std::env::temp_dir().join(fresh("umbel-guarded"));
    std::fs::create_dir_all(&folder).unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let authority_cert = authority.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let cert = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    std::fs::write(folder.join("ca.pem"), authority_cert.pem()).unwrap();
    std::fs::write(folder.join("cert.pem"), cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let first = 18_000 + (std::process::id() % 1000) as u16;
    let port = (first..20_000).find(|port| is_free(*port) && is_free(*port + 1)).unwrap();
    let filled = |argument: &&str| {
        let argument = argument.replace("PORT", &port.to_string()).replace("NEXT", &(port + 1).to_string());
        argument.replace("FOLDER", folder.to_str().unwrap())
    };
    let mut command = Command::new(program);
    command.args(arguments.iter().map(filled)).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Server { process: command.spawn().unwrap(), folder, port };
    let end = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < end, "{program} does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    server
}

/// What the doctor says of a plane, and that it says no secret.
fn doctor(plane: &str, url: &str, authority: Option<&Path>) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
    command.args(["doctor", "--json", plane, url]);
    if let Some(authority) = authority {
        command.env("SSL_CERT_FILE", authority);
    }
    let output = command.output().unwrap();
    let said = [output.stdout.clone(), output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert!(!said.contains(PASSWORD) && !said.contains(MISTAKEN), "{said}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(output.status.code(), Some(i32::from(found["usable"] == false)), "{found}");
    found
}

/// The right password with the right authority, and neither without the other.
fn knows_whom_to_trust(plane: &str, server: &Server, url: impl Fn(&str) -> String) -> String {
    let authority = server.folder.join("ca.pem");
    let found = doctor(plane, &url(PASSWORD), Some(&authority));
    assert_eq!(found["usable"], true, "{found}");
    assert!(found["holds"].as_array().unwrap().len() > 3 && found["url"].as_str().unwrap().contains("***@"));
    let wrong = doctor(plane, &url(MISTAKEN), Some(&authority));
    assert_eq!(wrong["usable"], false, "{wrong}");
    let stranger = doctor(plane, &url(PASSWORD), None);
    assert_eq!(stranger["usable"], false, "{stranger}");
    wrong["why"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn redis() {
    let Some(service) = service("redis") else { return };
    let server = start(
        "redis-server",
        &[
            "--port",
            "0",
            "--tls-port",
            "PORT",
            "--bind",
            "127.0.0.1",
            "--dir",
            "FOLDER",
            "--save",
            "",
            "--appendonly",
            "yes",
            "--requirepass",
            PASSWORD,
            "--tls-cert-file",
            "FOLDER/cert.pem",
            "--tls-key-file",
            "FOLDER/key.pem",
            "--tls-ca-cert-file",
            "FOLDER/ca.pem",
            "--tls-auth-clients",
            "no",
        ],
    );
    let url =
        |password: &str| format!("redis://:{password}@localhost:{}/a?tls=true&timeout_ms=3000", server.port);
    let why = knows_whom_to_trust("--registry", &server, url);
    passed(&service, "registry", "password and TLS", format!("a wrong password: \"{why}\""));
}

#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn etcd() {
    let Some(service) = service("etcd") else { return };
    let server = start(
        "etcd",
        &[
            "--name",
            "t1",
            "--data-dir",
            "FOLDER/data",
            "--cert-file",
            "FOLDER/cert.pem",
            "--key-file",
            "FOLDER/key.pem",
            "--listen-client-urls",
            "https://127.0.0.1:PORT",
            "--advertise-client-urls",
            "https://127.0.0.1:PORT",
            "--listen-peer-urls",
            "http://127.0.0.1:NEXT",
            "--initial-advertise-peer-urls",
            "http://127.0.0.1:NEXT",
            "--initial-cluster",
            "t1=http://127.0.0.1:NEXT",
        ],
    );
    let user = format!("root:{PASSWORD}");
    for words in [&["user", "add", &user][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]] {
        let mut control = Command::new("etcdctl");
        control.env("ETCDCTL_API", "3").arg("--cacert").arg(server.folder.join("ca.pem"));
        control.args(["--endpoints", &format!("https://127.0.0.1:{}", server.port)]).args(words);
        let output = control.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let url = |password: &str| {
        format!("etcd://root:{password}@localhost:{}/a?tls=true&timeout_ms=3000", server.port)
    };
    let why = knows_whom_to_trust("--registry", &server, url);
    passed(&service, "registry", "password and TLS", format!("a wrong password: \"{why}\""));
}

/// The broker has a port for users with passwords. TLS is not in this client.
#[test]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
fn kafka() {
    let Some(service) = service("kafka") else { return };
    let (address, name) = (service.address_behind(4), fresh("guarded"));
    let url = |password: &str, more: &str| {
        format!("kafka://umbel:{password}@{address}/{name}?partitions=2&timeout_ms=4000{more}")
    };
    let found = doctor("--log", &url(PASSWORD, ""), None);
    assert_eq!(found["usable"], true, "{found}");
    let wrong = doctor("--log", &url(MISTAKEN, ""), None);
    assert_eq!(wrong["usable"], false, "{wrong}");
    let secure = doctor("--log", &url(PASSWORD, "&tls=true"), None);
    assert!(secure["why"].as_str().unwrap().contains("no TLS"), "{secure}");
    passed(&service, "log", "password (SASL PLAIN)", "a wrong one is refused; TLS is not in this client");
}
