//! A door in front of the old server. What clients send goes there as it is, and what it says goes back to them; both are looked at on the way,
//! so that the new server can be sent the same.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use umbel_client::Trust;

use super::compare::{Wanted, name};
use super::frames::{Frame, Frames, words};
use super::shadow::{Queue, Seen};
use crate::resp::{Address, Value, reply, request};

/// Longest command, and longest reply, that is compared.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// Commands of one client whose replies are awaited, and bytes of them; more are not compared.
const AWAITED_MAX: usize = 1024;
const AWAITED_BYTES_MAX: usize = 8 << 20;
const PIECE_BYTES: usize = 64 << 10;
/// How long the old server may take to let a client in.
const PATIENCE: Duration = Duration::from_secs(10);
/// After these, replies do not follow one another as requests do.
const ENDLESS: [&str; 7] = ["MONITOR", "PSUBSCRIBE", "PSYNC", "SSUBSCRIBE", "SUBSCRIBE", "SYNC", "REPLICAOF"];

/// What clients get, and where it comes from.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) listener: TcpListener,
    pub(crate) old: Address,
    pub(crate) wanted: Wanted,
    pub(crate) queue: Queue,
}

impl Proxy {
    /// Lets clients in, for as long as nobody ends it.
    pub(crate) async fn serve(self) -> String {
        let shared = Arc::new(self);
        loop {
            match shared.listener.accept().await {
                Ok((client, from)) => drop(tokio::spawn(attend(Arc::clone(&shared), client, from))),
                Err(error) if error.raw_os_error().is_some() => {
                    // Mostly too many open files: some of them will be closed.
                    eprintln!("umbel: nobody is let in for a moment: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => return error.to_string(),
            }
        }
    }
}

async fn attend(proxy: Arc<Proxy>, client: TcpStream, from: SocketAddr) {
    let outcome = match tokio::time::timeout(PATIENCE, connect(&proxy.old)).await {
        Err(_) => Err(format!("{}: it does not answer", proxy.old)),
        Ok(Err(why)) => Err(why),
        Ok(Ok(Old::Plain(old))) => {
            let (input, output) = old.into_split();
            pass(&proxy, client, input, output).await
        }
        Ok(Ok(Old::Secure(old))) => {
            let (input, output) = tokio::io::split(*old);
            pass(&proxy, client, input, output).await
        }
    };
    if let Err(why) = outcome {
        eprintln!("umbel: client {from}: {why}");
    }
}

enum Old {
    Plain(TcpStream),
    Secure(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

/// A connection to the old server that has introduced itself as the address says; clients may do it again.
async fn connect(address: &Address) -> Result<Old, String> {
    let told = |error: std::io::Error| format!("{address}: {error}");
    let socket = TcpStream::connect(&address.resolve()?[..]).await.map_err(told)?;
    socket.set_nodelay(true).map_err(told)?;
    let mut words = Vec::new();
    match (&address.user, &address.password) {
        (Some(user), Some(password)) => words.push(vec!["AUTH".to_owned(), user.clone(), password.clone()]),
        (None, Some(password)) => words.push(vec!["AUTH".to_owned(), password.clone()]),
        _ => {}
    }
    if address.database != 0 {
        words.push(vec!["SELECT".to_owned(), address.database.to_string()]);
    }
    match &address.tls {
        None => {
            let mut socket = socket;
            introduce(&mut socket, &words).await.map_err(|why| format!("{address}: {why}"))?;
            Ok(Old::Plain(socket))
        }
        Some(trust) => {
            let refused = |error: umbel_client::Error| format!("{address}: {error}");
            let connector = TlsConnector::from(trust.config().map_err(refused)?);
            let name = Trust::name(&address.host).map_err(refused)?;
            let mut stream = connector.connect(name, socket).await.map_err(told)?;
            introduce(&mut stream, &words).await.map_err(|why| format!("{address}: {why}"))?;
            Ok(Old::Secure(Box::new(stream)))
        }
    }
}

async fn introduce(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    commands: &[Vec<String>],
) -> Result<(), String> {
    for words in commands {
        stream.write_all(&request(words, None)).await.map_err(|error| error.to_string())?;
        let mut said = Vec::new();
        while !said.ends_with(b"\r\n") {
            said.push(stream.read_u8().await.map_err(|error| error.to_string())?);
            if said.len() > PIECE_BYTES {
                return Err("a line that does not end".to_owned());
            }
        }
        if !said.starts_with(b"+") {
            return Err(crate::resp::shown(said.trim_ascii_end()));
        }
    }
    Ok(())
}

/// Passes bytes both ways until either side has no more.
async fn pass(
    proxy: &Proxy,
    client: TcpStream,
    mut old_input: impl AsyncRead + Unpin,
    mut old_output: impl AsyncWrite + Unpin,
) -> Result<(), String> {
    client.set_nodelay(true).map_err(|error| error.to_string())?;
    let (mut input, mut output) = client.into_split();
    let watch = Mutex::new(Watch::default());
    let lock = || watch.lock().unwrap_or_else(PoisonError::into_inner);
    let requests = async {
        let mut frames = Frames::new(KEPT_BYTES_MAX);
        copy(&mut input, &mut old_output, |bytes| {
            let mut watch: MutexGuard<'_, Watch> = lock();
            if !watch.is_blind {
                let taken = frames.take(bytes, |frame| watch.request(&frame, &proxy.wanted, &proxy.queue));
                if taken.is_err() {
                    watch.end(&proxy.queue);
                }
            }
        })
        .await?;
        old_output.shutdown().await
    };
    let replies = async {
        let mut frames = Frames::new(KEPT_BYTES_MAX);
        copy(&mut old_input, &mut output, |bytes| {
            let mut watch = lock();
            if !watch.is_blind {
                let taken = frames.take(bytes, |frame| watch.reply(frame, &proxy.queue));
                if taken.is_err() {
                    watch.end(&proxy.queue);
                }
            }
        })
        .await?;
        output.shutdown().await
    };
    // When the old server has said its last, whatever the client still wants goes nowhere.
    tokio::select! {
        outcome = replies => outcome,
        outcome = async { requests.await?; std::future::pending().await } => outcome,
    }
    .or_else(|error| match error.kind() {
        // Clients go as they like.
        std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error.to_string()),
    })
}

async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    mut look: impl FnMut(&[u8]),
) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return Ok(());
        }
        // Before they are passed on: a reply must not come before its request was noted.
        look(&piece[..length]);
        to.write_all(&piece[..length]).await?;
        to.flush().await?;
    }
}

/// What is known of one client's requests that were not answered yet.
#[derive(Debug, Default)]
struct Watch {
    awaited: VecDeque<Awaited>,
    compared: usize,
    compared_bytes: usize,
    /// Commands of a transaction that were queued.
    transaction: Option<Vec<Option<Vec<Vec<u8>>>>>,
    /// Replies are not told apart any more: bytes only pass.
    is_blind: bool,
}

#[derive(Debug)]
enum Awaited {
    /// So many replies that nobody compares.
    Others(u64),
    Compared(Vec<Vec<u8>>),
    Multi,
    Exec,
    Discard,
}

impl Watch {
    fn request(&mut self, frame: &Frame, wanted: &Wanted, queue: &Queue) {
        if frame.kind != b'*' {
            // An empty line is no request; any other is one, as people type them.
            if frame.bytes.as_ref().is_none_or(|line| !line.trim_ascii().is_empty()) {
                self.other();
            }
            return;
        }
        let Some(words) = frame.bytes.as_deref().map(words) else {
            // Too long to be looked at: it may be a chunk of a filter, or a very large batch.
            queue.missed(1);
            return self.other();
        };
        let words = words.unwrap_or_default();
        let command = name(&words);
        if words.is_empty() {
            // `*0` has no reply.
            return;
        }
        let turns_replies_off =
            command == "CLIENT" && words.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"REPLY"));
        if ENDLESS.contains(&command.as_str()) || turns_replies_off {
            return self.end(queue);
        }
        match command.as_str() {
            "MULTI" => self.awaited.push_back(Awaited::Multi),
            "EXEC" => self.awaited.push_back(Awaited::Exec),
            "DISCARD" => self.awaited.push_back(Awaited::Discard),
            _ if wanted.has(&command) => {
                let bytes: usize = words.iter().map(Vec::len).sum();
                if self.compared >= AWAITED_MAX || self.compared_bytes + bytes > AWAITED_BYTES_MAX {
                    queue.missed(1);
                    return self.other();
                }
                self.compared += 1;
                self.compared_bytes += bytes;
                self.awaited.push_back(Awaited::Compared(words));
            }
            _ => self.other(),
        }
    }

    /// From here on, bytes only pass.
    fn end(&mut self, queue: &Queue) {
        queue.missed(self.compared as u64);
        *self = Self { is_blind: true, ..Self::default() };
    }

    fn other(&mut self) {
        match self.awaited.back_mut() {
            Some(Awaited::Others(count)) => *count += 1,
            _ => self.awaited.push_back(Awaited::Others(1)),
        }
    }

    fn reply(&mut self, frame: Frame, queue: &Queue) {
        if frame.kind == b'>' {
            // A message that answers nothing.
            return;
        }
        if let Some(Awaited::Others(count)) = self.awaited.front_mut()
            && *count > 1
        {
            *count -= 1;
            return self.queued(None, queue);
        }
        match self.awaited.pop_front() {
            None => self.end(queue),
            Some(Awaited::Others(_)) => self.queued(None, queue),
            Some(Awaited::Compared(words)) => {
                self.compared -= 1;
                self.compared_bytes -= words.iter().map(Vec::len).sum::<usize>();
                if self.transaction.is_some() {
                    return self.queued(Some(words), queue);
                }
                match frame.bytes.and_then(|bytes| reply(&mut &bytes[..], 0).ok()) {
                    Some(reply) => queue.push(Seen { words, reply: Some(reply) }),
                    None => queue.missed(1),
                }
            }
            Some(Awaited::Multi) => self.transaction = (frame.kind == b'+').then(Vec::new),
            Some(Awaited::Discard) => self.transaction = None,
            Some(Awaited::Exec) => self.executed(frame, queue),
        }
    }

    /// Notes a command of a transaction, if there is one.
    fn queued(&mut self, words: Option<Vec<Vec<u8>>>, queue: &Queue) {
        let Some(commands) = &mut self.transaction else { return };
        if commands.len() < AWAITED_MAX {
            commands.push(words);
        } else {
            // Too many to be remembered, so none of them is compared.
            queue.missed(commands.iter().flatten().count() as u64);
            self.end(queue);
        }
    }

    /// The replies of a transaction come in one.
    fn executed(&mut self, frame: Frame, queue: &Queue) {
        let commands = self.transaction.take().unwrap_or_default();
        let compared = commands.iter().flatten().count() as u64;
        let replies = frame.bytes.and_then(|bytes| reply(&mut &bytes[..], 0).ok());
        match replies {
            Some(Value::Array(replies)) if replies.len() == commands.len() => {
                for (words, reply) in commands.into_iter().zip(replies) {
                    if let Some(words) = words {
                        queue.push(Seen { words, reply: Some(reply) });
                    }
                }
            }
            // It was not done.
            Some(Value::Null | Value::Error(_)) => {}
            _ => queue.missed(compared),
        }
    }
}
