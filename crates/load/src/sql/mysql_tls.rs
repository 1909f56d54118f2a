//! MySQL and MariaDB over TLS.
//!
//! Their client's own TLS trusts a list of authorities that it brings along, whatever it is told, and knows nothing of the system's. So it
//! is given a socket of ours instead of the server's address, and a thread behind it encrypts what passes, trusting as all else does here.
//!
//! ```text
//!  client             thread               server
//!     |                  |<---- greeting ----|
//!     |<---- greeting ---|                   |
//!     |----- answer ---->|                   |
//!     |                  |- answer's start ->|    asks for TLS
//!     |                  |<===== TLS =======>|
//!     |                  |----- answer ----->|    from here to "welcome", numbers of packets differ by one
//! ```

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use umbel_client::Trust;
use umbel_core::random::{Random, SystemRandom};

use super::mysql::CONNECT;
use crate::{Error, Result};

/// Longest packet before both know each other.
const PACKET_BYTES_MAX: usize = 64 << 10;
/// The only version of the greeting.
const VERSION: u8 = 10;
/// How packets begin that end the acquaintance: welcome, and an error.
const LAST: [u8; 2] = [0x00, 0xff];
/// What both say who can have TLS, in the second byte of their abilities.
const CAN_TLS: u8 = 0x08;
/// The beginning of an answer: abilities, sizes, character set. It is all that is sent in the clear.
const BEGINNING: usize = 32;

/// How to speak to one server.
#[derive(Clone)]
pub(super) struct Tls {
    config: Arc<ClientConfig>,
    host: String,
    port: u16,
    name: ServerName<'static>,
}

impl Tls {
    pub(super) fn new(trust: &Trust, host: &str, port: u16) -> Result<Self> {
        let wrong = |error: umbel_client::Error| Error::Invalid(format!("MySQL: {error}"));
        // Addresses of six bytes stand in brackets.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let (config, name) = (trust.config().map_err(wrong)?, Trust::name(host).map_err(wrong)?);
        Ok(Self { config, host: host.to_owned(), port, name })
    }

    /// A socket for one client, who is then as good as connected to the server.
    pub(super) fn open(&self) -> Result<Tunnel> {
        let wrong = |error: io::Error| Error::Retry(format!("MySQL: a socket for TLS: {error}"));
        let folder = Folder::new().map_err(wrong)?;
        let socket = folder.0.join("s");
        let listener = std::os::unix::net::UnixListener::bind(&socket).map_err(wrong)?;
        listener.set_nonblocking(true).map_err(wrong)?;
        let why = Arc::new(Mutex::new(None));
        let (tls, told) = (self.clone(), Arc::clone(&why));
        let work = move || {
            if let Err(error) = tls.attend(listener, folder, &told) {
                tell(&told, &error);
            }
        };
        std::thread::Builder::new().name("mysql tls".into()).spawn(work).map_err(wrong)?;
        Ok(Tunnel { socket, why })
    }

    /// Lets one client in, and passes on what it and the server say to each other.
    fn attend(
        &self,
        listener: std::os::unix::net::UnixListener,
        folder: Folder,
        why: &Mutex<Option<Error>>,
    ) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = UnixListener::from_std(listener)?;
            let (mut client, _) = in_time(listener.accept()).await?;
            drop((listener, folder));
            let served = self.serve(&mut client).await;
            if let Err(error) = &served {
                // Before the client is cut off, who will ask.
                tell(why, error);
            }
            served
        })
    }

    async fn serve(&self, client: &mut UnixStream) -> io::Result<()> {
        let Some((server, mut answer)) = in_time(self.greet(client)).await? else { return Ok(()) };
        let mut server =
            in_time(TlsConnector::from(Arc::clone(&self.config)).connect(self.name.clone(), server)).await?;
        answer.number = answer.number.wrapping_add(1);
        answer.write(&mut server).await?;
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = split(&mut server);
        let is_new = Cell::new(true);
        tokio::select! {
            up = upwards(&mut from_client, &mut to_server, &is_new) => up,
            down = downwards(&mut from_server, &mut to_client, &is_new) => down,
        }
    }

    /// Asks the server for TLS with the beginning of the client's answer; none if it wants to speak to nobody.
    async fn greet(&self, client: &mut UnixStream) -> io::Result<Option<(TcpStream, Packet)>> {
        let mut server = TcpStream::connect((&*self.host, self.port)).await?;
        server.set_nodelay(true)?;
        let greeting = Packet::read(&mut server).await?;
        let is_refusal = greeting.payload.first() != Some(&VERSION);
        if !is_refusal && !can_tls(&greeting.payload) {
            return Err(io::Error::new(ErrorKind::InvalidData, "the server has no TLS"));
        }
        greeting.write(client).await?;
        if is_refusal {
            return Ok(None);
        }
        let mut answer = Packet::read(client).await?;
        let wrong = || io::Error::new(ErrorKind::InvalidData, "an answer without abilities");
        *answer.payload.get_mut(1).ok_or_else(wrong)? |= CAN_TLS;
        let beginning = answer.payload.get(..BEGINNING).ok_or_else(wrong)?;
        Packet { number: answer.number, payload: beginning.to_vec() }.write(&mut server).await?;
        Ok(Some((server, answer)))
    }
}

async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(CONNECT, work).await.map_err(|_| io::Error::from(ErrorKind::TimedOut))?
}

/// A certificate that is not to be trusted will not be later; whatever else goes wrong may.
fn tell(why: &Mutex<Option<Error>>, error: &io::Error) {
    let message = format!("MySQL: {error}");
    let error = match error.kind() {
        ErrorKind::InvalidData => Error::Invalid(message),
        _ => Error::Retry(message),
    };
    why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
}

/// Whether a greeting offers TLS: its abilities stand behind the version's text, a number, half of a nonce and a zero.
fn can_tls(greeting: &[u8]) -> bool {
    let version = greeting.iter().skip(1).position(|byte| *byte == 0);
    version
        .and_then(|length| greeting.get(1 + length + 1 + 4 + 8 + 1 + 1))
        .is_some_and(|byte| byte & CAN_TLS != 0)
}

/// What the client says, until the server welcomed it and ever after.
async fn upwards(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    is_new: &Cell<bool>,
) -> io::Result<()> {
    loop {
        let mut header = [0; 4];
        from.read_exact(&mut header).await?;
        if !is_new.get() {
            to.write_all(&header).await?;
            return copy(from, to).await.map(drop);
        }
        let mut packet = Packet::behind(header, from).await?;
        packet.number = packet.number.wrapping_add(1);
        packet.write(to).await?;
    }
}

/// What the server says.
async fn downwards(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    is_new: &Cell<bool>,
) -> io::Result<()> {
    while is_new.get() {
        let mut packet = Packet::read(from).await?;
        packet.number = packet.number.wrapping_sub(1);
        is_new.set(!packet.payload.first().is_some_and(|first| LAST.contains(first)));
        packet.write(to).await?;
    }
    copy(from, to).await.map(drop)
}

/// What both send to each other: its length in three bytes, its number in one, and the rest.
struct Packet {
    number: u8,
    payload: Vec<u8>,
}

impl Packet {
    async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut header = [0; 4];
        from.read_exact(&mut header).await?;
        Self::behind(header, from).await
    }

    async fn behind([a, b, c, number]: [u8; 4], from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let length = u32::from_le_bytes([a, b, c, 0]) as usize;
        if length > PACKET_BYTES_MAX {
            let what = format!("a packet of {length} bytes; at most {PACKET_BYTES_MAX}");
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        let mut payload = vec![0; length];
        from.read_exact(&mut payload).await?;
        Ok(Self { number, payload })
    }

    async fn write(&self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let [a, b, c, _] = (self.payload.len() as u32).to_le_bytes();
        to.write_all(&[&[a, b, c, self.number], &*self.payload].concat()).await?;
        to.flush().await
    }
}

/// Where the client finds the server.
pub(super) struct Tunnel {
    socket: PathBuf,
    why: Arc<Mutex<Option<Error>>>,
}

impl Tunnel {
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Why nothing came of it, if it did not.
    pub(super) fn failure(&self) -> Option<Error> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A folder that nobody else may look into, and that is gone as soon as the client is in.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let random = SystemRandom::default();
        let path = std::env::temp_dir().join(format!("umbel-{:016x}{:016x}", random.next(), random.next()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is empty but for a socket that nobody listens to.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_says_whether_there_is_tls() {
        let greeting = |abilities: [u8; 2]| {
            [&[VERSION][..], b"11.8.2-MariaDB\0", &[1, 0, 0, 0], b"12345678", &[0], &abilities].concat()
        };
        assert!(can_tls(&greeting([0xff, 0x08])) && can_tls(&greeting([0x00, 0xff])));
        assert!(!can_tls(&greeting([0xff, 0xf7])));
        let whole = greeting([0xff, 0xff]);
        assert!((0..whole.len()).all(|length| !can_tls(&whole[..length])));
    }
}
