//! A proxy that cuts, delays and truncates what goes through it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// All are cut, and no new ones are made.
    Cut,
    /// Everything comes so much later.
    Delay(Duration),
    /// Connections end after so many bytes of answers, in the middle of whatever they carry.
    Truncate(u64),
}

pub(crate) struct Proxy {
    port: u16,
    trouble: watch::Sender<Trouble>,
    cuts: Arc<AtomicU64>,
}

impl Proxy {
    pub(crate) async fn start(to: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let trouble = watch::Sender::new(Trouble::None);
        let cuts = Arc::new(AtomicU64::new(0));
        let (changes, counted) = (trouble.subscribe(), Arc::clone(&cuts));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, to, changes.clone(), Arc::clone(&counted)));
            }
        });
        Self { port, trouble, cuts }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn make(&self, trouble: Trouble) {
        self.trouble.send_replace(trouble);
    }

    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }
}

async fn carry(client: TcpStream, to: u16, mut trouble: watch::Receiver<Trouble>, cuts: Arc<AtomicU64>) {
    if *trouble.borrow() == Trouble::Cut {
        cuts.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    let ((mut client_reads, mut client_writes), (mut server_reads, mut server_writes)) =
        (client.into_split(), server.into_split());
    let changes = trouble.clone();
    let answers = async {
        let mut carried = 0;
        let mut buffer = vec![0; 16 << 10];
        while let Ok(length @ 1..) = server_reads.read(&mut buffer).await {
            let now = *changes.borrow();
            let mut part = &buffer[..length];
            match now {
                Trouble::Delay(time) => tokio::time::sleep(time).await,
                Trouble::Truncate(most) if carried + length as u64 > most => {
                    part = &part[..(most.saturating_sub(carried) as usize).min(length)];
                }
                _ => {}
            }
            if client_writes.write_all(part).await.is_err() || part.len() < length {
                break;
            }
            carried += length as u64;
        }
    };
    let questions = async { tokio::io::copy(&mut client_reads, &mut server_writes).await };
    let is_cut = trouble.wait_for(|trouble| *trouble == Trouble::Cut);
    tokio::select! {
        () = answers => {}
        _ = questions => {}
        _ = is_cut => {}
    }
    cuts.fetch_add(1, Ordering::Relaxed);
}
