//! A TCP proxy that can be told to swallow answers, to cut, and to let nobody through.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

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
