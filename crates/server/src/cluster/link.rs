//! One connection to another node: requests go out as they come, all that wait in one write; answers come back in their order.
//!
//! It runs by itself on a runtime that has sockets and timers, so whoever asks may be anywhere. It ends when anything goes wrong, and tells
//! those who wait whether the other node may have seen their request.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Sleep, timeout};
use umbel_core::Error;

use super::wire;
use asked::{Asked, Expected, Who};

mod asked;

/// How long a node may take to accept a connection and to know who comes.
const CONNECT_TIME: Duration = Duration::from_secs(1);
/// Requests that wait for their turn.
const WAITING_MAX: usize = 16 << 10;
/// Requests that go out in one write.
const TOGETHER_MAX: usize = 256;
/// Longest line of an answer.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// The other node has not seen the request.
    Unsent(String),
    /// It may have.
    Lost(String),
    /// It has answered that it will not do it.
    Refused(Error),
}

/// What came of a request.
pub(super) type Outcome = Result<Bytes, Failure>;

/// A request, and who waits for its answer.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) time: Duration,
    pub(super) answer: oneshot::Sender<Outcome>,
}

/// What goes out.
#[derive(Debug)]
pub(super) enum Request {
    /// A frame of its own.
    Frame(Vec<u8>),
    /// Keys of a filter that are looked up. Those of all requests that wait go as one question, and each gets its part of the answer.
    Keys { filter: u64, keys: Vec<u8> },
}

impl Request {
    /// How many bytes it has.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Frame(frame) => frame.len(),
            Self::Keys { keys, .. } => keys.len(),
        }
    }
}

/// A connection that is there, or is being made.
#[derive(Clone, Debug)]
pub(super) struct Link(mpsc::Sender<Call>);

impl Link {
    /// Begins to connect. `hello` is what the other node has to accept before anything else.
    pub(super) fn open(runtime: &Handle, address: Arc<str>, hello: Vec<u8>) -> Self {
        let (calls, queue) = mpsc::channel(WAITING_MAX);
        runtime.spawn(live(address, hello, queue));
        Self(calls)
    }

    /// Whether it has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Hands a request over, or gives it back.
    pub(super) fn send(&self, call: Call) -> Result<(), Call> {
        self.0.try_send(call).map_err(mpsc::error::TrySendError::into_inner)
    }
}

async fn live(address: Arc<str>, hello: Vec<u8>, mut queue: mpsc::Receiver<Call>) {
    let why = match timeout(CONNECT_TIME, connect(&address, &hello)).await {
        Ok(Ok((stream, buffer))) => exchange(stream, buffer, &mut queue).await.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it does not answer".to_owned(),
    };
    queue.close();
    while let Some(call) = queue.recv().await {
        // Nobody may be waiting any more.
        let _ = call.answer.send(Err(Failure::Unsent(format!("{address}: {why}"))));
    }
}

async fn connect(address: &str, hello: &[u8]) -> io::Result<(TcpStream, BytesMut)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(hello).await?;
    let mut buffer = BytesMut::with_capacity(64 << 10);
    loop {
        if let Some(answer) = next(&mut buffer)? {
            return answer.map(|_| (stream, buffer)).map_err(io::Error::other);
        }
        if stream.read_buf(&mut buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Sends and receives until something goes wrong; gives what.
async fn exchange(stream: TcpStream, buffer: BytesMut, queue: &mut mpsc::Receiver<Call>) -> io::Error {
    let (read, write) = stream.into_split();
    let (sent, mut expected) = mpsc::unbounded_channel::<Expected>();
    let error = tokio::select! {
        error = receive(read, buffer, &mut expected) => error,
        error = send(write, queue, &sent) => error,
    };
    expected.close();
    while let Some(expected) = expected.recv().await {
        expected.tell(Err(Failure::Lost(error.to_string())));
    }
    error
}

async fn send(
    mut write: OwnedWriteHalf,
    queue: &mut mpsc::Receiver<Call>,
    sent: &mpsc::UnboundedSender<Expected>,
) -> io::Error {
    let (mut calls, mut out) = (Vec::new(), Vec::new());
    let mut questions: Vec<Asked> = Vec::new();
    loop {
        if queue.recv_many(&mut calls, TOGETHER_MAX).await == 0 {
            // Nobody has the link any more.
            return io::ErrorKind::NotConnected.into();
        }
        let now = Instant::now();
        for Call { request, time, answer } in calls.drain(..).filter(|call| !call.answer.is_closed()) {
            match request {
                Request::Frame(frame) => {
                    out.extend_from_slice(&frame);
                    // The receiver lives as long as this runs.
                    let _ = sent.send(Expected { who: Who::One(answer), end: now + time });
                }
                Request::Keys { filter, keys } => {
                    asked::put(&mut questions, filter, keys, answer, now + time);
                }
            }
        }
        for question in questions.drain(..) {
            let _ = sent.send(question.put_into(&mut out));
        }
        if let Err(error) = write.write_all(&out).await {
            return error;
        }
        out.clear();
        out.shrink_to(1 << 20);
    }
}

async fn receive(
    mut read: OwnedReadHalf,
    mut buffer: BytesMut,
    expected: &mut mpsc::UnboundedReceiver<Expected>,
) -> io::Error {
    let mut alarm = pin!(tokio::time::sleep(CONNECT_TIME));
    loop {
        // Whoever hangs up while nothing is expected is noticed before the next request goes there.
        let expected = tokio::select! {
            biased;
            call = expected.recv() => match call {
                Some(expected) => expected,
                None => return io::ErrorKind::NotConnected.into(),
            },
            read = read.read_buf(&mut buffer) => return match read {
                Ok(0) => io::ErrorKind::ConnectionReset.into(),
                Ok(_) => io::Error::other("it says what nobody asked for"),
                Err(error) => error,
            },
        };
        let one = async {
            loop {
                if let Some(answer) = next(&mut buffer)? {
                    return Ok(answer);
                }
                if read.read_buf(&mut buffer).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        };
        let outcome = tokio::select! {
            biased;
            outcome = one => outcome,
            () = until(expected.end, alarm.as_mut()) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer"))
            }
        };
        match outcome {
            Ok(Ok(bytes)) => expected.tell(Ok(bytes)),
            Ok(Err(line)) => expected.tell(Err(Failure::Refused(wire::error(&line)))),
            Err(error) => {
                expected.tell(Err(Failure::Lost(error.to_string())));
                return error;
            }
        }
    }
}

/// Waits until a time. The alarm stays set when an answer comes before it, and mostly rings in vain: to set another one for each answer would
/// cost more than many answers do.
async fn until(end: Instant, mut alarm: Pin<&mut Sleep>) {
    if end < alarm.deadline() {
        alarm.as_mut().reset(end);
    }
    loop {
        alarm.as_mut().await;
        if Instant::now() >= end {
            return;
        }
        alarm.as_mut().reset(end);
    }
}

/// The next answer, if it is whole: bytes, or the line of an error.
fn next(buffer: &mut BytesMut) -> io::Result<Option<Result<Bytes, String>>> {
    let wrong = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()));
    let Some(end) = buffer.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n') else {
        return if buffer.len() >= LINE_BYTES_MAX { wrong("an answer without an end") } else { Ok(None) };
    };
    let line = buffer[..end].strip_suffix(b"\r").unwrap_or_default();
    let text = String::from_utf8_lossy(line.get(1..).unwrap_or_default()).into_owned();
    match line.first() {
        Some(b'+') => {
            buffer.advance(end + 1);
            Ok(Some(Ok(Bytes::from(text))))
        }
        Some(b'-') => {
            buffer.advance(end + 1);
            Ok(Some(Err(text)))
        }
        Some(b'$') => {
            let Some(length) = text.parse::<usize>().ok().filter(|length| *length <= wire::MESSAGE_BYTES_MAX)
            else {
                return wrong("an answer that is too long");
            };
            if buffer.len() < end + 1 + length + 2 {
                return Ok(None);
            }
            buffer.advance(end + 1);
            let bytes = buffer.split_to(length).freeze();
            buffer.advance(2);
            Ok(Some(Ok(bytes)))
        }
        _ => wrong("an answer that is none"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn call(frame: &[u8], time: Duration) -> (Call, oneshot::Receiver<Outcome>) {
        let (answer, waits) = oneshot::channel();
        (Call { request: Request::Frame(frame.to_vec()), time, answer }, waits)
    }

    #[test]
    fn answers_are_found_when_they_are_whole() {
        let all = b"+OK\r\n-MOVED there\r\n$3\r\na\nb\r\n$0\r\n\r\n";
        let mut buffer = BytesMut::new();
        let mut found = Vec::new();
        for byte in all {
            buffer.extend_from_slice(&[*byte]);
            found.extend(next(&mut buffer).unwrap());
        }
        let expected = [Ok("OK".into()), Err("MOVED there".to_owned()), Ok("a\nb".into()), Ok("".into())];
        assert_eq!(found, expected);
        for wrong in ["*1\r\n", "$-1\r\n", "$99999999999\r\n", "\r\n"] {
            assert!(next(&mut BytesMut::from(wrong)).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn requests_are_answered_in_order_and_told_what_became_of_them() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: Arc<str> = listener.local_addr().unwrap().to_string().into();
        let link = Link::open(&Handle::current(), Arc::clone(&address), b"hello".to_vec());
        let long = Duration::from_secs(60);
        let (first, one) = call(b"one", long);
        let (second, two) = call(b"two", long);
        link.send(first).unwrap();
        link.send(second).unwrap();
        let (mut other, _) = listener.accept().await.unwrap();
        let mut seen = [0; 5];
        other.read_exact(&mut seen).await.unwrap();
        assert_eq!(&seen, b"hello");
        other.write_all(b"+OK\r\n").await.unwrap();
        other.read_exact(&mut seen).await.unwrap();
        assert_eq!(&seen, b"onetw");
        other.write_all(b"$1\r\n1\r\n-INVALID 2\r\n").await.unwrap();
        assert_eq!(one.await.unwrap().unwrap(), Bytes::from_static(b"1"));
        assert!(matches!(two.await.unwrap(), Err(Failure::Refused(Error::Invalid(why))) if why == "2"));

        // It hangs up with a request under way, and then nobody is there.
        let (third, three) = call(b"three", long);
        link.send(third).unwrap();
        let mut rest = [0; 6];
        other.read_exact(&mut rest).await.unwrap();
        drop((other, listener));
        assert!(matches!(three.await.unwrap(), Err(Failure::Lost(_))));
        let link = Link::open(&Handle::current(), address, b"hello".to_vec());
        let (fourth, four) = call(b"four", long);
        link.send(fourth).unwrap();
        assert!(matches!(four.await.unwrap(), Err(Failure::Unsent(_))));
    }

    #[tokio::test]
    async fn who_does_not_answer_in_time_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: Arc<str> = listener.local_addr().unwrap().to_string().into();
        let link = Link::open(&Handle::current(), address, b"h".to_vec());
        let (asked, waits) = call(b"x", Duration::from_millis(20));
        link.send(asked).unwrap();
        let (mut other, _) = listener.accept().await.unwrap();
        other.write_all(b"+OK\r\n").await.unwrap();
        assert!(matches!(waits.await.unwrap(), Err(Failure::Lost(_))));
        assert!(link.is_closed());
    }
}
