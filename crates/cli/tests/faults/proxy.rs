//! A proxy that cuts, delays, truncates, doubles and damages what goes through it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::Chance;

/// How long the answer to the second of two equal requests is waited for: streams would never end.
const AGAIN_FOR: Duration = Duration::from_millis(200);

/// What happens to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// All are cut, and no new ones are made.
    Cut,
    /// Nothing goes on, and nobody is told.
    Hold,
    /// Everything comes so much later.
    Delay(Duration),
    /// Connections end after so many bytes of answers, in the middle of whatever they carry.
    Truncate(u64),
    /// Every so many requests, one is sent to the server a second time, and one piece of a stream comes twice.
    Double(u64),
    /// Every so many pieces, in either direction, one has a bit flipped.
    Flip(u64),
    /// A bit is flipped in the head of every stream, so that it says that this is no success.
    Deny,
}

/// What was done, by what it was done to.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    cuts: AtomicU64,
    doubled_requests: AtomicU64,
    doubled_pieces: AtomicU64,
    denials: AtomicU64,
    flips: Mutex<BTreeMap<&'static str, u64>>,
}

pub(crate) struct Proxy {
    port: u16,
    trouble: watch::Sender<Trouble>,
    counts: Arc<Counts>,
}

impl Proxy {
    pub(crate) async fn start(to: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let trouble = watch::Sender::new(Trouble::None);
        let counts = Arc::new(Counts::default());
        let (changes, counted) = (trouble.subscribe(), Arc::clone(&counts));
        tokio::spawn(async move {
            for number in 0.. {
                let Ok((client, _)) = listener.accept().await else { return };
                let way = Way { to, trouble: changes.clone(), counts: Arc::clone(&counted), number };
                tokio::spawn(way.carry(client));
            }
        });
        Self { port, trouble, counts }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn make(&self, trouble: Trouble) {
        self.trouble.send_replace(trouble);
    }

    pub(crate) fn cuts(&self) -> u64 {
        self.counts.cuts.load(Ordering::Relaxed)
    }

    pub(crate) fn doubled_requests(&self) -> u64 {
        self.counts.doubled_requests.load(Ordering::Relaxed)
    }

    pub(crate) fn doubled_pieces(&self) -> u64 {
        self.counts.doubled_pieces.load(Ordering::Relaxed)
    }

    pub(crate) fn denials(&self) -> u64 {
        self.counts.denials.load(Ordering::Relaxed)
    }

    /// Bits that were flipped, by what they were a part of.
    pub(crate) fn flips(&self) -> BTreeMap<&'static str, u64> {
        self.counts.flips.lock().unwrap().clone()
    }
}

/// One connection.
struct Way {
    to: u16,
    trouble: watch::Receiver<Trouble>,
    counts: Arc<Counts>,
    number: u64,
}

impl Way {
    async fn carry(self, client: TcpStream) {
        let Self { to, mut trouble, counts, number } = self;
        if *trouble.borrow() == Trouble::Cut {
            counts.cuts.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let changes = trouble.clone();
        // What the last request asked for is what the next answer is about.
        let asked = Mutex::new(String::new());
        let (seeds, is_cut) =
            ((number * 2, number * 2 + 1), trouble.wait_for(|trouble| *trouble == Trouble::Cut));
        tokio::select! {
            () = questions(from_client, to_server, to, changes.clone(), &counts, &asked, Chance(seeds.0)) => {}
            () = answers(from_server, to_client, changes, &counts, &asked, Chance(seeds.1)) => {}
            _ = is_cut => {}
        }
        counts.cuts.fetch_add(1, Ordering::Relaxed);
    }
}

/// What happens to the next piece, once anything does.
async fn unheld(trouble: &mut watch::Receiver<Trouble>) -> Trouble {
    trouble.wait_for(|trouble| *trouble != Trouble::Hold).await.map_or(Trouble::Cut, |trouble| *trouble)
}

/// Flips a bit, and counts it.
fn flip(bytes: &mut [u8], what: &'static str, counts: &Counts, chance: &mut Chance) {
    let at = chance.below(bytes.len() as u64 * 8) as usize;
    bytes[at / 8] ^= 1 << (at % 8);
    *counts.flips.lock().unwrap().entry(what).or_default() += 1;
}

/// What a request is about.
fn subject(head: &str) -> &'static str {
    let line = head.lines().next().unwrap_or_default();
    let subjects = [
        ("/chunks/", "chunks"),
        ("/versions/", "versions"),
        ("/feed", "feed"),
        ("/notices", "notices"),
        ("/replicas/", "heartbeats"),
        ("/add", "adds"),
    ];
    subjects.into_iter().find(|(part, _)| line.contains(part)).map_or("others", |(_, name)| name)
}

/// Whether the answer to a request goes on without end.
fn is_stream(head: &str) -> bool {
    subject(head) == "notices" || head.contains("follow=true")
}

/// Makes a 3 of the 2 that the status of an answer begins with, if this is its head.
fn deny(bytes: &mut [u8], counts: &Counts) {
    if bytes.starts_with(b"HTTP/1.1 2") {
        bytes[b"HTTP/1.1 ".len()] ^= 1;
        counts.denials.fetch_add(1, Ordering::Relaxed);
    }
}

/// The length of the request that some bytes begin with, if all of it is there.
fn whole_request(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    let whole = head + length.map_or(0, |length| length.trim().parse::<usize>().unwrap());
    (bytes.len() >= whole).then_some(whole)
}

/// Carries whole requests, so that each of them can be sent twice.
async fn questions(
    mut from: impl AsyncReadExt + Unpin,
    mut onward: impl AsyncWriteExt + Unpin,
    to: u16,
    mut trouble: watch::Receiver<Trouble>,
    counts: &Arc<Counts>,
    asked: &Mutex<String>,
    mut chance: Chance,
) {
    let (mut pending, mut buffer) = (Vec::new(), vec![0; 16 << 10]);
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        pending.extend_from_slice(&buffer[..length]);
        while let Some(length) = whole_request(&pending) {
            let mut request: Vec<u8> = pending.drain(..length).collect();
            let head = String::from_utf8_lossy(&request[..request.len().min(512)]).into_owned();
            let about = subject(&head);
            *asked.lock().unwrap() = head;
            let now = unheld(&mut trouble).await;
            match now {
                Trouble::Delay(time) => sleep(time).await,
                Trouble::Flip(every) if chance.below(every) == 0 => {
                    flip(&mut request, question_name(about), counts, &mut chance);
                }
                Trouble::Double(every) if chance.below(every) == 0 => {
                    counts.doubled_requests.fetch_add(1, Ordering::Relaxed);
                    // Before the one that is answered, about at the same time, or when others have come after it.
                    let again = send_again(to, request.clone(), Duration::from_millis(chance.below(60)));
                    if chance.below(3) == 0 { again.await } else { _ = tokio::spawn(again) }
                }
                _ => {}
            }
            if onward.write_all(&request).await.is_err() {
                return;
            }
        }
    }
}

fn question_name(about: &'static str) -> &'static str {
    match about {
        "adds" => "questions: adds",
        "heartbeats" => "questions: heartbeats",
        _ => "questions: others",
    }
}

/// Sends a request as a middlebox would that had no answer, and drops what comes back.
async fn send_again(to: u16, request: Vec<u8>, pause: Duration) {
    sleep(pause).await;
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    if server.write_all(&request).await.is_ok() {
        let mut answer = vec![0; 64 << 10];
        // Long enough that it was done, whatever it is.
        let _ended = timeout(AGAIN_FOR, server.read(&mut answer)).await;
    }
}

async fn answers(
    mut from: impl AsyncReadExt + Unpin,
    mut onward: impl AsyncWriteExt + Unpin,
    mut trouble: watch::Receiver<Trouble>,
    counts: &Counts,
    asked: &Mutex<String>,
    mut chance: Chance,
) {
    let (mut carried, mut buffer) = (0, vec![0; 16 << 10]);
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let now = unheld(&mut trouble).await;
        let head = asked.lock().unwrap().clone();
        let about = subject(&head);
        let (mut part, mut twice) = (&mut buffer[..length], false);
        match now {
            Trouble::Delay(time) => sleep(time).await,
            Trouble::Truncate(most) if carried + length as u64 > most => {
                part = &mut buffer[..(most.saturating_sub(carried) as usize).min(length)];
            }
            Trouble::Flip(every) if chance.below(every) == 0 => flip(part, about, counts, &mut chance),
            Trouble::Deny if is_stream(&head) => deny(part, counts),
            Trouble::Double(every) => {
                twice =
                    head.contains("follow=true") && !part.starts_with(b"HTTP/") && chance.below(every) == 0;
            }
            _ => {}
        }
        let mut sent = onward.write_all(part).await;
        if twice {
            counts.doubled_pieces.fetch_add(1, Ordering::Relaxed);
            sent = sent.and(onward.write_all(part).await);
        }
        if sent.is_err() || part.len() < length {
            break;
        }
        carried += length as u64;
    }
}
