//! Bytes of one connection, in and out.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clients::Client;
use crate::event_loop::{BUFFER_BYTES, Local};
use crate::logging::OncePerMinute;
use crate::resp::Parser;
use crate::session::Session;

/// Bytes of replies after which they are sent although more commands wait.
const SEND_AT_BYTES: usize = 64 << 10;

/// What there is to do.
enum Woken {
    /// So many bytes are in a buffer.
    Read(Vec<u8>, usize),
    /// Lines for one who watches.
    Watched,
    Killed,
}

/// Serves a client until it goes.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    mut session: Session,
) -> io::Result<()> {
    let local = session.local.clone();
    let mut parser = Parser::default();
    // Bytes of a command that is not whole yet. While there is none, an idle connection holds no buffer.
    let mut held: Vec<u8> = Vec::new();
    while !session.is_closing {
        let (buffer, bytes) = match read(&mut stream, &local, &session.client, &held).await? {
            Woken::Read(buffer, bytes) => (buffer, bytes),
            Woken::Watched => {
                let lines = session.client.take_watched();
                write(&mut stream, &session, &lines).await?;
                continue;
            }
            Woken::Killed => break,
        };
        if bytes == held.len() {
            local.give(buffer);
            break;
        }
        local.metrics(&session.node).received(bytes - held.len());
        session.look_at_clock();
        session.client.is_active(session.now);
        let input = if held.len() > BUFFER_BYTES / 2 {
            held.extend_from_slice(&buffer[..bytes - held.len()]);
            &held[..]
        } else {
            &buffer[..bytes]
        };
        let taken = take_commands(&mut stream, &mut session, &mut parser, input).await;
        let taken = taken?;
        if input.as_ptr() == held.as_ptr() {
            held.drain(..taken);
        } else {
            let rest = &buffer[taken..bytes];
            held.clear();
            held.extend_from_slice(rest);
        }
        if held.is_empty() {
            held = Vec::new();
        }
        local.give(buffer);
        send(&mut stream, &mut session).await?;
    }
    send(&mut stream, &mut session).await
}

/// Runs all commands that are whole, and gives how many bytes they had.
async fn take_commands<S: AsyncWrite + Unpin>(
    stream: &mut S,
    session: &mut Session,
    parser: &mut Parser,
    input: &[u8],
) -> io::Result<usize> {
    let mut start = 0;
    let mut limits = session.limits();
    session.reply.give(session.local.take_output());
    while start < input.len() && !session.is_closing {
        let rest = &input[start..];
        if let Some(bytes) = session.go_on_alike(parser, rest, &limits) {
            start += bytes;
            continue;
        }
        match parser.next(rest, &limits) {
            Ok(Some(bytes)) => {
                let command = parser.command(rest);
                if !session.take_at_once(command) {
                    // Boxed: a connection would have room for the largest of all commands as long as it stands.
                    Box::pin(session.take(command)).await;
                    limits = session.limits();
                }
                start += bytes;
            }
            Ok(None) => {
                start += parser.pass_over();
                break;
            }
            Err(error) => {
                Box::pin(session.finish_run()).await;
                if error.is_http() {
                    log_http(&session.client);
                }
                session.refuse(&error.to_string().into());
                session.is_closing = true;
                return Ok(input.len());
            }
        }
        if session.reply.len() >= SEND_AT_BYTES {
            send(stream, session).await?;
            // What the client took to read is no part of its next command.
            session.look_at_clock();
        }
    }
    if session.finish_at_once() {
        return Ok(start);
    }
    match session.add_run() {
        Some(part) => {
            part.known().await;
            match part.is_gone() {
                false => session.finish_adds(&part),
                true => Box::pin(session.add_again()).await,
            }
        }
        None => Box::pin(session.finish_run()).await,
    }
    Ok(start)
}

/// A web page makes the browsers of its readers send such requests.
fn log_http(client: &Client) {
    static LINES: OncePerMinute = OncePerMinute::new();
    if let Some(left_out) = LINES.event(Instant::now()) {
        let from = client.address;
        tracing::warn!(
            %from,
            left_out,
            "an HTTP request on the RESP port: its connection was closed. A web page may have sent it, to run commands through a browser"
        );
    }
}

/// Sends all replies. A client that does not read them is not read from meanwhile, so nothing piles up.
async fn send<S: AsyncWrite + Unpin>(stream: &mut S, session: &mut Session) -> io::Result<()> {
    // The limit is never lower than what replies are sent at.
    let is_long = session.reply.len() > SEND_AT_BYTES;
    if is_long && session.reply.len() > session.node.config.load().output_bytes_max as usize {
        return Err(io::Error::other("a reply is longer than the limit for replies"));
    }
    let mut bytes = session.reply.take();
    if !bytes.is_empty() {
        session.local.metrics(&session.node).sent(bytes.len());
        write(stream, session, &bytes).await?;
    }
    bytes.clear();
    session.local.give_output(bytes);
    Ok(())
}

async fn read<S: AsyncRead + Unpin>(
    stream: &mut S,
    local: &Local,
    client: &Arc<Client>,
    held: &[u8],
) -> io::Result<Woken> {
    let called = || {
        if client.is_killed() { Some(Woken::Killed) } else { client.has_watched().then_some(Woken::Watched) }
    };
    poll_fn(|context| {
        if let Some(woken) = called() {
            return Poll::Ready(Ok(woken));
        }
        let mut buffer = local.take();
        // A little that is held goes to the front, much stays where it is.
        let start = if held.len() > BUFFER_BYTES / 2 { 0 } else { held.len() };
        buffer[..start].copy_from_slice(&held[..start]);
        let mut into = ReadBuf::new(&mut buffer[start..]);
        match Pin::new(&mut *stream).poll_read(context, &mut into) {
            Poll::Ready(Ok(())) => {
                let read = into.filled().len();
                Poll::Ready(Ok(Woken::Read(buffer, held.len() + read)))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                local.give(buffer);
                client.register(context.waker());
                // Whoever called before that woke nobody.
                called().map_or(Poll::Pending, |woken| Poll::Ready(Ok(woken)))
            }
        }
    })
    .await
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, session: &Session, bytes: &[u8]) -> io::Result<()> {
    let (node, client) = (&session.node, &session.client);
    let (mut sent, mut unread) = (0, None);
    poll_fn(|context| {
        while sent < bytes.len() {
            match Pin::new(&mut *stream).poll_write(context, &bytes[sent..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(more)) => sent += more,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    client.register(context.waker());
                    if unread.is_none() {
                        let most = node.config.load().all_output_bytes_max;
                        unread = Some(node.clients.hold_unread(client, bytes.len(), most, node.now()));
                    }
                    if client.is_killed() {
                        return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                    }
                    return Poll::Pending;
                }
            }
        }
        Pin::new(&mut *stream).poll_flush(context)
    })
    .await
}
