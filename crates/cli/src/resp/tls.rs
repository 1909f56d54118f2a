//! A connection that is encrypted, or not: whoever talks over it does not see which.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use rustls::{ClientConnection, StreamOwned};
use umbel_client::Trust;

/// Bytes to and from a server.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Secure(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Speaks TLS over a connection, to whoever proves to be the host.
    pub(crate) fn secure(socket: TcpStream, host: &str, trust: &Trust) -> Result<Self, String> {
        let told = |error: umbel_client::Error| error.to_string();
        let connection =
            ClientConnection::new(trust.config().map_err(told)?, Trust::name(host).map_err(told)?);
        let mut stream = StreamOwned::new(connection.map_err(|error| error.to_string())?, socket);
        // Whom one talks to is known before anything is said.
        stream.conn.complete_io(&mut stream.sock).map_err(|error| error.to_string())?;
        Ok(Self::Secure(Box::new(stream)))
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Secure(stream) => &stream.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Secure(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Secure(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Secure(stream) => stream.flush(),
        }
    }
}
