//! Other replicas: chunks come from them, and lies do not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use umbel_client::{Options, Strategy};
use umbel_filter::Spec;

use crate::world::{Centre, Folder, all_maybe, mostly_absent, open, until};

const NOBODYS: std::ops::Range<u64> = 1_000_000..1_010_000;

/// Answers every request with the same wrong bytes.
fn liar() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4_096]);
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nwrong");
        }
    });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_chunk_is_counted_and_fetched_elsewhere() {
    let centre = Centre::start();
    centre.create(Spec::bloom(1_000_000, 0.001)).await;
    centre.add(0..50_000).await;
    let nobody = "http://127.0.0.1:1";
    let replica = open(centre.options(Strategy::delta()).peer(nobody).peer(liar())).await;
    all_maybe(&replica, 0..50_000);
    mostly_absent(&replica, NOBODYS);
    assert!(replica.status().chunks_wrong > 0, "{:#?}", replica.status());
}

/// The way to a peer, on which the last bit of every answer is flipped.
fn damaging(peer: SocketAddr) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut client) = stream else { return };
            let mut request = vec![0; 4_096];
            let length = client.read(&mut request).unwrap_or(0);
            let head = String::from_utf8_lossy(&request[..length])
                .replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
            let mut server = TcpStream::connect(peer).unwrap();
            server.write_all(head.as_bytes()).unwrap();
            let mut answer = Vec::new();
            let _ = server.read_to_end(&mut answer);
            if let Some(last) = answer.last_mut() {
                *last ^= 1;
            }
            let _ = client.write_all(&answer);
        }
    });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_damaged_at_a_peer_or_on_the_way_from_it_is_not_taken() {
    let centre = Centre::start();
    centre.create(Spec::bloom(1_000_000, 0.001)).await;
    centre.add(0..50_000).await;
    let (folder, strategy) = (Folder::new(), Strategy::pull(Duration::from_secs(1)));
    let first = open(centre.options(strategy).folder(folder.path())).await;
    let address = first.serve(([127, 0, 0, 1], 0).into()).await.unwrap();

    let replica = open(centre.options(strategy).peer(damaging(address))).await;
    all_maybe(&replica, 0..50_000);
    mostly_absent(&replica, NOBODYS);
    let wrong = replica.status().chunks_wrong;
    assert!(wrong > 0, "{:#?}", replica.status());

    // Damaged on the peer's disk: it gives what it has in memory, or nothing.
    let mut damaged = 0;
    for path in folder.files().into_iter().filter(|path| path.to_string_lossy().contains("chunks")) {
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
        std::fs::write(&path, bytes).unwrap();
        damaged += 1;
    }
    assert!(damaged > 0);
    let replica = open(centre.options(strategy).peer(format!("http://{address}"))).await;
    all_maybe(&replica, 0..50_000);
    mostly_absent(&replica, NOBODYS);
    assert_eq!(replica.status().chunks_wrong, 0, "{:#?}", replica.status());
    println!("wrong chunks from the way {wrong}, chunks damaged on the peer's disk {damaged}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_serves_others_without_the_centre() {
    let mut centre = Centre::start();
    centre.create(Spec::bloom(1_000_000, 0.001)).await;
    centre.add(0..50_000).await;
    for with_folder in [true, false] {
        let folder = Folder::new();
        let strategy = Strategy::pull(Duration::from_secs(1));
        let mut options = centre.options(strategy);
        if with_folder {
            options = options.folder(folder.path());
        }
        let first = open(options).await;
        let address = first.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
        // The centre names it to the next one.
        let listed = || {
            let replicas = crate::world::get(&centre, "/v1/filters/f/replicas");
            let found = replicas["replicas"].as_array().unwrap().iter();
            found.filter(|replica| replica["address"] == format!("http://{address}")).count()
        };
        until(&first, "the centre knows it", || listed() == 1).await;
        centre.stop();
        let second = open(Options::new(format!("http://{address}"), "f", strategy)).await;
        all_maybe(&second, 0..50_000);
        mostly_absent(&second, NOBODYS);
        assert_eq!(second.status().digest, first.status().digest);
        centre.start_again();
    }
}
