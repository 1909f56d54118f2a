//! HTTP over TLS: whom a replica believes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use umbel_client::{Error, Options, Replica, Server, Strategy};
use umbel_server::chores::Chores;
use umbel_server::config::ClientAuth;
use umbel_server::tls::{Files, Tls};

use crate::common::{new_folder, start_in};
use crate::world::{Folder, PATIENCE, all_maybe, apart, keys, mostly_absent, open, reached};

/// An authority and a certificate of this machine that it vouches for, as files.
fn certify(folder: &Folder, name: &str) -> PathBuf {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    std::fs::write(folder.path().join("cert.pem"), certificate.pem()).unwrap();
    std::fs::write(folder.path().join("key.pem"), key.serialize_pem()).unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, authority.pem()).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_follows_over_tls_and_believes_nobody_else() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path()).unwrap();
    let authority = certify(&folder, "first.pem");
    let files = Files {
        cert: folder.path().join("cert.pem"),
        key: folder.path().join("key.pem"),
        client_ca: None,
        client_auth: ClientAuth::Off,
    };
    let tls = Arc::new(Tls::open(files).unwrap());
    let reloaded = Arc::clone(&tls);
    let running = apart(move || {
        let running = start_in(new_folder());
        let anywhere: SocketAddr = ([127, 0, 0, 1], 0).into();
        let chores = Chores::start_with(&[anywhere], Some((&[anywhere], Arc::clone(&tls)))).unwrap();
        chores.watch(&running.node, Some(&tls));
        (chores, running)
    });
    let [plain, secure] = running.0.addresses() else { panic!("two doors") };
    let (plain, secure, port) = (format!("http://{plain}"), format!("https://{secure}"), secure.port());

    // What is done at one door is seen at the other.
    let server = Server::trusting(&secure, None, Some(&authority)).unwrap();
    let new = json!({ "name": "f", "capacity": 100_000, "error": 0.001 });
    server.post("/v1/filters", &new, PATIENCE).await.unwrap();
    assert_eq!(Server::new(&plain, None).unwrap().get("/v1/filters/f").await.unwrap()["name"], "f");
    let options = |url: &str| Options::new(url, "f", Strategy::delta());
    let replica = open(options(&secure).ca_file(&authority)).await;
    let other = open(options(&format!("https://localhost:{port}/")).ca_file(&authority)).await;
    replica.add(&keys(0..5_000)).await.unwrap();
    let token = replica.flush().await.unwrap();
    reached(&other, &token).await;
    all_maybe(&other, 0..5_000);
    mostly_absent(&other, 1_000_000..1_010_000);

    // An authority that the server's certificate is not from; no TLS where TLS is spoken; files that are none.
    let stranger = Replica::open(options(&secure)).await;
    assert!(matches!(stranger, Err(Error::Unreachable(_) | Error::Invalid(_))), "{stranger:?}");
    let unsecured = Replica::open(options(&format!("http://127.0.0.1:{port}"))).await;
    assert!(matches!(unsecured, Err(Error::Unreachable(_))), "{unsecured:?}");
    for (path, word) in [("nothing.pem", "nothing.pem"), ("key.pem", "no certificate")] {
        let refused = Replica::open(options(&secure).ca_file(folder.path().join(path))).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)) && refused.to_string().contains(word), "{refused:?}");
    }

    // A certificate of another authority takes the place of the first while the server runs.
    let renewed = certify(&folder, "second.pem");
    reloaded.reload().unwrap();
    let old = Replica::open(options(&secure).ca_file(&authority)).await;
    assert!(matches!(&old, Err(Error::Unreachable(why)) if why.contains("certificate")), "{old:?}");
    let fresh = open(options(&secure).ca_file(&renewed)).await;
    reached(&fresh, &token).await;
    all_maybe(&fresh, 0..5_000);
    for replica in [replica, other, fresh] {
        replica.close().await.unwrap();
    }
    apart(move || drop(running));
}
