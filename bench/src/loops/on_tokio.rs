//! The loop that Umbel's server has: a runtime for the thread, a task for each connection, buffers of the loop.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::TcpStream;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::LocalSet;

use super::frames::{BUFFER_BYTES, Frames};

/// Buffers of the loop: who waits holds none.
#[derive(Default)]
struct Local {
    buffers: RefCell<Vec<Vec<u8>>>,
    outputs: RefCell<Vec<Vec<u8>>>,
}

pub(super) fn serve(streams: Vec<TcpStream>) -> io::Result<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = Rc::new(Local::default());
    LocalSet::new().block_on(&runtime, async {
        let mut tasks = Vec::new();
        for stream in streams {
            stream.set_nonblocking(true)?;
            let stream = tokio::net::TcpStream::from_std(stream)?;
            tasks.push(tokio::task::spawn_local(connection(stream, Rc::clone(&local))));
        }
        let mut served = 0;
        for task in tasks {
            served += task.await.map_err(io::Error::other)??;
        }
        Ok(served)
    })
}

async fn connection(mut stream: tokio::net::TcpStream, local: Rc<Local>) -> io::Result<u64> {
    let mut frames = Frames::default();
    loop {
        let (buffer, bytes) = read(&mut stream, &local).await?;
        if bytes == 0 {
            return Ok(frames.whole());
        }
        let mut replies = local.outputs.borrow_mut().pop().unwrap_or_default();
        frames.answer(&buffer[..bytes], &mut replies);
        local.buffers.borrow_mut().push(buffer);
        write(&mut stream, &replies).await?;
        replies.clear();
        local.outputs.borrow_mut().push(replies);
    }
}

async fn read(stream: &mut tokio::net::TcpStream, local: &Local) -> io::Result<(Vec<u8>, usize)> {
    poll_fn(|context| {
        let mut buffer = local.buffers.borrow_mut().pop().unwrap_or_else(|| vec![0; BUFFER_BYTES]);
        let mut into = ReadBuf::new(&mut buffer);
        match Pin::new(&mut *stream).poll_read(context, &mut into) {
            Poll::Ready(Ok(())) => {
                let bytes = into.filled().len();
                Poll::Ready(Ok((buffer, bytes)))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                local.buffers.borrow_mut().push(buffer);
                Poll::Pending
            }
        }
    })
    .await
}

async fn write(stream: &mut tokio::net::TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    poll_fn(|context| {
        while sent < bytes.len() {
            match Pin::new(&mut *stream).poll_write(context, &bytes[sent..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(more)) => sent += more,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Pin::new(&mut *stream).poll_flush(context)
    })
    .await
}
