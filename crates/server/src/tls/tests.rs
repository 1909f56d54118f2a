use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio_rustls::TlsConnector;

use super::*;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key.
fn issue(authority: &Authority, name: &str) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.signed_by(&key, authority).unwrap(), key)
}

struct World {
    folder: PathBuf,
    authority: Authority,
}

impl World {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("umbel-tls-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let world = Self { folder, authority: authority() };
        fs::write(world.folder.join("ca.pem"), world.authority.pem()).unwrap();
        world.renew();
        world
    }

    fn renew(&self) -> rcgen::Certificate {
        let (cert, key) = issue(&self.authority, "localhost");
        fs::write(self.folder.join("cert.pem"), cert.pem()).unwrap();
        fs::write(self.folder.join("key.pem"), key.serialize_pem()).unwrap();
        cert
    }

    fn files(&self, client_auth: ClientAuth) -> Files {
        let path = |name| self.folder.join(name);
        Files { cert: path("cert.pem"), key: path("key.pem"), client_ca: Some(path("ca.pem")), client_auth }
    }

    /// Sends a word there and back; gives the server's certificate, or what went wrong on either side.
    async fn talk(
        &self,
        tls: &Tls,
        own: Option<(rcgen::Certificate, KeyPair)>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Result<CertificateDer<'static>, String> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let builder = builder.with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
                builder.with_client_auth_cert(vec![cert.der().clone()], key).unwrap()
            }
        };
        let (near, far) = duplex(1 << 16);
        let acceptor = tls.acceptor();
        let server = tokio::spawn(async move {
            let mut stream = acceptor.accept(far).await.map_err(|error| error.to_string())?;
            let mut word = [0; 4];
            stream.read_exact(&mut word).await.map_err(|error| error.to_string())?;
            stream.write_all(&word).await.map_err(|error| error.to_string())
        });
        let name = ServerName::try_from("localhost").unwrap();
        let client = async {
            let mut stream = TlsConnector::from(Arc::new(config)).connect(name, near).await?;
            stream.write_all(b"PING").await?;
            let mut word = [0; 4];
            stream.read_exact(&mut word).await?;
            assert_eq!(&word, b"PING");
            Ok(stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned())
        };
        let outcome: std::io::Result<CertificateDer<'static>> = client.await;
        server.await.unwrap()?;
        outcome.map_err(|error| error.to_string())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

const BOTH: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];

#[tokio::test]
async fn words_go_there_and_back() {
    let world = World::new("words");
    let tls = Tls::open(world.files(ClientAuth::Off)).unwrap();
    for versions in [&[&version::TLS12][..], &[&version::TLS13], BOTH] {
        world.talk(&tls, None, versions).await.unwrap();
    }
}

#[tokio::test]
async fn clients_show_certificates() {
    let world = World::new("clients");
    let (good, bad) = (|| issue(&world.authority, "alice"), || issue(&authority(), "mallory"));
    let required = Tls::open(world.files(ClientAuth::Required)).unwrap();
    world.talk(&required, Some(good()), BOTH).await.unwrap();
    let error = world.talk(&required, None, BOTH).await.unwrap_err();
    assert!(error.contains("no certificates"), "{error}");
    let error = world.talk(&required, Some(bad()), BOTH).await.unwrap_err();
    assert!(error.contains("UnknownIssuer") || error.contains("BadSignature"), "{error}");
    let optional = Tls::open(world.files(ClientAuth::Optional)).unwrap();
    world.talk(&optional, None, BOTH).await.unwrap();
    world.talk(&optional, Some(good()), BOTH).await.unwrap();
    world.talk(&optional, Some(bad()), BOTH).await.unwrap_err();
}

#[tokio::test]
async fn certificates_are_renewed() {
    let world = World::new("renewal");
    let tls = Tls::open(world.files(ClientAuth::Off)).unwrap();
    let first = world.talk(&tls, None, BOTH).await.unwrap();
    assert!(!tls.reload_if_changed().unwrap());

    // The length alone may stay, so the time is moved on for sure.
    let touch = |name: &str, seconds: u64| {
        let file = fs::File::options().write(true).open(world.folder.join(name)).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(seconds)).unwrap();
    };
    let second = world.renew();
    touch("cert.pem", 10);
    assert!(tls.reload_if_changed().unwrap());
    assert_eq!(world.talk(&tls, None, BOTH).await.unwrap(), *second.der());
    assert_ne!(first, *second.der());

    for (name, text, expected) in [
        ("cert.pem", "nothing", "no certificate"),
        ("key.pem", "nothing", "key.pem"),
        ("cert.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cert.pem"),
    ] {
        let good = fs::read(world.folder.join(name)).unwrap();
        fs::write(world.folder.join(name), text).unwrap();
        let error = tls.reload_if_changed().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!tls.reload_if_changed().unwrap(), "told once");
        assert_eq!(world.talk(&tls, None, BOTH).await.unwrap(), *second.der(), "the old one stays");
        fs::write(world.folder.join(name), good).unwrap();
        tls.reload().unwrap();
    }
    // A key of another certificate.
    fs::write(world.folder.join("key.pem"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    assert!(tls.reload().unwrap_err().to_string().contains("cert.pem"));
    fs::remove_file(world.folder.join("key.pem")).unwrap();
    assert!(tls.reload().unwrap_err().to_string().contains("key.pem"));
    assert_eq!(world.talk(&tls, None, BOTH).await.unwrap(), *second.der());
}

#[test]
fn files_come_from_the_settings() {
    let mut config = Config::default();
    assert!(Files::of(&config).is_none());
    (config.tls_port, config.tls_cert, config.tls_key) = (1, Some("c".into()), Some("k".into()));
    assert_eq!(Files::of(&config).unwrap().cert, PathBuf::from("c"));
    let error = Tls::open(Files::of(&config).unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("c: "), "{error}");
}
