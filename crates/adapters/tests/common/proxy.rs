//! A TCP proxy that can be told to swallow answers, to cut, and to let nobody through.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// A proxy for a broker of Kafka, which can have it answer that there are no brokers. A broker says so for a moment after a pause, until
/// its controller takes it back.
#[derive(Clone)]
pub(crate) struct KafkaProxy {
    pub(crate) address: String,
    hides: Arc<AtomicBool>,
    /// How many answers came without the brokers.
    pub(crate) hidden: Arc<AtomicU64>,
}

impl KafkaProxy {
    pub(crate) async fn at(address: &str, server: String) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let proxy = Self { address, hides: Arc::default(), hidden: Arc::default() };
        let serving = proxy.clone();
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (proxy, server) = (serving.clone(), server.clone());
                tokio::spawn(async move { proxy.serve(client, server).await });
            }
        });
        proxy
    }

    /// Whether answers from now on come without the brokers.
    pub(crate) fn hide_brokers(&self, hides: bool) {
        self.hides.store(hides, Ordering::SeqCst);
    }

    async fn serve(self, client: TcpStream, server: String) {
        const METADATA: [u8; 2] = [0, 3];
        let Ok(server) = TcpStream::connect(server).await else { return };
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let asked = Mutex::new(HashSet::new());
        let requests = async {
            while let Some(frame) = frame(&mut from_client).await {
                // From version 9 on, an answer has the form that is known here.
                if frame[4..6] == METADATA && frame[7] >= 9 {
                    asked.lock().unwrap().insert(frame[8..12].to_vec());
                }
                if to_server.write_all(&frame).await.is_err() {
                    return;
                }
            }
        };
        let answers = async {
            while let Some(mut frame) = frame(&mut from_server).await {
                let is_metadata = asked.lock().unwrap().remove(&frame[4..8]);
                if is_metadata && self.hides.load(Ordering::SeqCst) {
                    without_brokers(&mut frame);
                    self.hidden.fetch_add(1, Ordering::SeqCst);
                }
                if to_client.write_all(&frame).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = requests => {}
            () = answers => {}
        }
    }
}

/// A request or an answer with its length; nothing when the connection ends.
async fn frame(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let mut frame = vec![0; 4];
    from.read_exact(&mut frame).await.ok()?;
    let length = u32::from_be_bytes(frame[..].try_into().unwrap()) as usize;
    frame.resize(4 + length, 0);
    from.read_exact(&mut frame[4..]).await.ok()?;
    Some(frame)
}

/// Takes the brokers out of an answer: its length, number, tags and throttle time come before them. Each has an id, a host, a port, a rack
/// and tags; lengths are one more than they are, and here below 128.
fn without_brokers(frame: &mut Vec<u8>) {
    const COUNT: usize = 4 + 4 + 1 + 4;
    let mut end = COUNT + 1;
    for _ in 1..frame[COUNT] {
        end += 4;
        end += usize::from(frame[end]).max(1);
        end += 4;
        end += usize::from(frame[end]).max(1);
        end += 1;
    }
    drop(frame.splice(COUNT..end, [1]));
    let length = frame.len() as u32 - 4;
    frame[..4].copy_from_slice(&length.to_be_bytes());
}

#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) address: String,
    state: Arc<State>,
}

struct State {
    server: Mutex<String>,
    swallows: AtomicBool,
    is_closed: AtomicBool,
    cut: Notify,
}

impl Proxy {
    /// A proxy at an address, for a server.
    pub(crate) async fn at(address: &str, server: String) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(State {
            server: Mutex::new(server),
            swallows: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            cut: Notify::new(),
        });
        let proxy = Self { address, state: Arc::clone(&state) };
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(client, Arc::clone(&state)));
            }
        });
        proxy
    }

    /// Where new connections go.
    pub(crate) fn server(&self) -> String {
        self.state.server.lock().unwrap().clone()
    }

    /// New connections go to another server.
    pub(crate) fn retarget(&self, server: String) {
        *self.state.server.lock().unwrap() = server;
    }

    /// From now on, nothing that the server says arrives.
    pub(crate) fn swallow_answers(&self) {
        self.state.swallows.store(true, Ordering::SeqCst);
    }

    /// From now on nobody gets through: connections end, and new ones end at once.
    pub(crate) fn close(&self) {
        self.state.is_closed.store(true, Ordering::SeqCst);
        self.state.cut.notify_waiters();
    }

    /// All is as it should be again.
    pub(crate) fn open(&self) {
        self.state.is_closed.store(false, Ordering::SeqCst);
    }

    /// Ends all connections; new ones work as they should.
    pub(crate) fn cut(&self) {
        self.state.swallows.store(false, Ordering::SeqCst);
        self.state.cut.notify_waiters();
    }
}

async fn serve(client: TcpStream, state: Arc<State>) {
    let cut = state.cut.notified();
    if state.is_closed.load(Ordering::SeqCst) {
        return;
    }
    let server = state.server.lock().unwrap().clone();
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = tokio::io::copy(&mut from_client, &mut to_server);
    let answers = async {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length) = from_server.read(&mut buffer).await {
            if length == 0 {
                break;
            }
            if !state.swallows.load(Ordering::SeqCst) && to_client.write_all(&buffer[..length]).await.is_err()
            {
                break;
            }
        }
    };
    tokio::select! {
        () = cut => {}
        _ = requests => {}
        () = answers => {}
    }
}
