//! Other replicas: chunks come from them, and lies do not.

use std::io::{Read, Write};
use std::net::TcpListener;
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
