//! Every log against its real server: the contract, crashes, pauses, and answers that never come.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::proxy::Proxy;
use common::{Service, elsewhere, fresh, passed, service};
use umbel_adapters::{Durability, Url};
use umbel_core::budget::Budget;
use umbel_core::definition::Definition;
use umbel_core::entry::{Entry, Operation, Request};
use umbel_core::fold::{Archived, Means, State};
use umbel_core::log::{Log, Record, suite};
use umbel_core::{Error, Position};
use umbel_filter::{Family, Fingerprint, Hasher, Spec};

const FILTER: u64 = 1;
const SLOT: u16 = 0;
const SESSION: u64 = 77;
/// Entries of a batch.
const BATCH: u64 = 5;

async fn open_log(url: &str) -> Result<umbel_adapters::Opened<dyn Log>, Error> {
    umbel_adapters::open_log(&Url::parse(url)?).await
}

async fn open(service: &Service, address: &str, name: &str, more: &str) -> Arc<dyn Log> {
    let url = format!("{}://{}{address}/{name}?partitions=2{more}", service.name, service.login());
    let opened = open_log(&url).await.unwrap();
    println!("{}", opened.about);
    opened.plane
}

fn key(number: u64) -> Fingerprint {
    Hasher::new(Family::Murmur3, None).unwrap().fingerprint(&number.to_le_bytes())
}

fn add(sequence: u64) -> Bytes {
    let request = Request { session: SESSION, sequence };
    let operation = Operation::Add(vec![key(sequence)]);
    Entry { filter: FILTER, slot: SLOT, request, operation }.encode().unwrap()
}

fn define() -> Bytes {
    let definition = Definition::new("keys", Spec::counting(100_000, 0.001)).encode().unwrap();
    let operation = Operation::Define(definition);
    Entry { filter: FILTER, slot: SLOT, request: Request::default(), operation }.encode().unwrap()
}

/// One writer that tries every batch until it is acknowledged, as a client with a session does.
struct Writer {
    log: Arc<dyn Log>,
    next: u64,
    acknowledged: BTreeMap<Position, Bytes>,
    failures: u64,
}

impl Writer {
    async fn new(log: Arc<dyn Log>) -> Self {
        log.append(0, vec![define()]).await.unwrap();
        Self { log, next: 1, acknowledged: BTreeMap::new(), failures: 0 }
    }

    async fn batch(&mut self) {
        let entries: Vec<_> = (self.next..self.next + BATCH).map(add).collect();
        let end = Instant::now() + Duration::from_secs(90);
        let positions = loop {
            match self.log.append(0, entries.clone()).await {
                Ok(appended) => break appended.positions,
                Err(Error::Retry(why)) => {
                    assert!(Instant::now() < end, "it does not come back: {why}");
                    self.failures += 1;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("{error}"),
            }
        };
        let last = self.acknowledged.keys().last().copied().unwrap_or(Position::START);
        assert!(positions[0] > last && positions.is_sorted(), "positions grow");
        self.acknowledged.extend(positions.into_iter().zip(entries));
        self.next += BATCH;
    }

    /// Everything acknowledged is read back where it was said to be, and folds to every key once.
    async fn check(&self) -> String {
        let read = at_last_read(&*self.log).await;
        let found: BTreeMap<_, _> = read.iter().cloned().collect();
        for (position, entry) in &self.acknowledged {
            assert_eq!(found.get(position), Some(entry), "an acknowledged entry is not there");
        }
        let mut state = State::new(SLOT, 1, Means::new(Budget::new(u64::MAX)));
        for (position, entry) in &read {
            let record = Record { position: *position, entry: entry.clone() };
            state.apply_record(&record, &Archived::none()).unwrap();
        }
        let held = state.shard(FILTER).unwrap().projection().unwrap().counts().held;
        assert_eq!(held, self.next - 1, "every key has one effect");
        let doubled = read.len() - 1 - self.acknowledged.len();
        format!(
            "{} acknowledged, {} failed appends, {doubled} doubled entries, {held} keys folded",
            self.acknowledged.len(),
            self.failures
        )
    }
}

async fn at_last_read(log: &dyn Log) -> Vec<(Position, Bytes)> {
    let end = Instant::now() + Duration::from_secs(60);
    let mut all = Vec::new();
    let mut after = Position::START;
    loop {
        match log.read(0, after, 1 << 16).await {
            Ok(records) if records.is_empty() => return all,
            Ok(records) => {
                assert!(records[0].position > after);
                all.extend(records.into_iter().map(|record| (record.position, record.entry)));
                after = all.last().unwrap().0;
            }
            Err(Error::Retry(_)) if Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn contract(service: &Service) {
    let name = fresh("suite");
    let log = open(service, &service.address(), &name, "").await;
    let begin = Instant::now();
    suite::all(&*log).await;
    // Who opens it later finds it as it is, and is told if it expects another number of partitions.
    let again = open(service, &service.address(), &name, "").await;
    assert_eq!(again.bounds(1).await.unwrap(), log.bounds(1).await.unwrap());
    let url = format!("{}://{}{}/{name}?partitions=3", service.name, service.login(), service.address());
    assert!(matches!(open_log(&url).await, Err(Error::Invalid(_))));
    let called = Arc::clone(&log);
    elsewhere(async move {
        let before = called.bounds(1).await.unwrap().tail;
        let entry = vec![Bytes::from_static(b"elsewhere")];
        let appended = called.append_after(1, entry, before).await.unwrap();
        assert!(appended.is_next, "nothing was missed, and every engine can tell");
        let read = called.read(1, before, 1 << 16).await.unwrap();
        assert_eq!(
            (read.len(), read[0].position, &*read[0].entry),
            (1, appended.positions[0], &b"elsewhere"[..])
        );
    });
    suite::reads_reach_the_end(&*log, &*again, 0).await;
    passed(service, "log", "reads reach the end", "100 of 100 entries of another one are there at once");
    passed(service, "log", "other runtimes", "appended and read under one without timers and sockets");
    for case in suite::CASES {
        passed(service, "log", case, format!("contract, all in {:.1} s", begin.elapsed().as_secs_f64()));
    }
}

/// Several writers: each one's batches stand together and in order.
async fn many_writers(service: &Service) {
    let name = fresh("writers");
    let mut tasks = Vec::new();
    for writer in 0..4_u64 {
        let log = open(service, &service.address(), &name, "").await;
        tasks.push(tokio::spawn(async move {
            for batch in 0..25_u64 {
                let entry = |number: u64| Bytes::from(format!("{writer} {batch} {number}"));
                log.append(0, (0..3).map(entry).collect()).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let log = open(service, &service.address(), &name, "").await;
    let texts: Vec<_> = suite::read_all(&*log, 0, Position::START)
        .await
        .into_iter()
        .map(|(_, entry)| String::from_utf8(entry.to_vec()).unwrap())
        .collect();
    assert_eq!(texts.len(), 300);
    let mut next = [0; 4];
    for batch in texts.chunks(3) {
        let writer: usize = batch[0].split(' ').next().unwrap().parse().unwrap();
        for (number, text) in batch.iter().enumerate() {
            assert_eq!(*text, format!("{writer} {} {number}", next[writer]));
        }
        next[writer] += 1;
    }
    passed(service, "log", "writers at once", "4 writers, 100 batches of 3 stand together");
}

/// The server crashes while somebody writes, again and again.
async fn restarts(service: &Service) {
    let log = open(service, &service.address(), &fresh("restart"), "&timeout_ms=2000").await;
    let mut writer = Writer::new(log).await;
    let stop = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicU64::new(0));
    let task = tokio::spawn({
        let (stop, written) = (Arc::clone(&stop), Arc::clone(&written));
        async move {
            while !stop.load(Ordering::Relaxed) {
                writer.batch().await;
                written.fetch_add(1, Ordering::Relaxed);
            }
            writer
        }
    });
    for _ in 0..3 {
        let goal = written.load(Ordering::Relaxed) + 50;
        while written.load(Ordering::Relaxed) < goal && !task.is_finished() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::task::block_in_place(|| {
            service.kill();
            service.start();
        });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.store(true, Ordering::Relaxed);
    let writer = task.await.unwrap();
    let said = writer.check().await;
    assert!(writer.failures > 0, "no append met a crash");
    passed(service, "log", "restarts", format!("3 kills: {said}"));
}

/// The server stops answering; appends say so in time, and what they sent may come into the log later.
async fn pauses(service: &Service, length: Duration) {
    let log = open(service, &service.address(), &fresh("pause"), "&timeout_ms=1500").await;
    let mut writer = Writer::new(log).await;
    for _ in 0..20 {
        writer.batch().await;
    }
    service.pause();
    let begin = Instant::now();
    let outcome = writer.log.append(0, (writer.next..writer.next + BATCH).map(add).collect()).await;
    let took = begin.elapsed();
    tokio::time::sleep(length.saturating_sub(took)).await;
    service.resume();
    assert!(matches!(outcome, Err(Error::Retry(_))), "{outcome:?}");
    assert!(took < Duration::from_secs(6), "{took:?}");
    for _ in 0..20 {
        writer.batch().await;
    }
    let said = writer.check().await;
    passed(service, "log", "pause", format!("{} s: {said}", length.as_secs()));
}

/// What tells a process of this test's that it is the producer that is to be paused.
const PRODUCER: &str = "UMBEL_TEST_PRODUCER";

/// Writes what is acknowledged to standard output, a line for each batch, until nobody reads it any more.
async fn produce(url: &str) {
    use std::io::Write;
    let mut writer = Writer::new(open_log(url).await.unwrap().plane).await;
    loop {
        let first = writer.next;
        writer.batch().await;
        let position = *writer.acknowledged.keys().nth_back(BATCH as usize - 1).unwrap();
        if writeln!(std::io::stdout(), "acknowledged|{first}|{}", position.number()).is_err() {
            return;
        }
    }
}

/// A process that appends is paused for so long that everybody has given it up, while another one appends; then it goes on. Nothing
/// that either was promised is lost or doubled.
async fn paused_producer(service: &Service, test: &str, length: Duration) {
    use std::io::{BufRead, BufReader};
    let name = fresh("producer");
    let url = format!(
        "{}://{}{}/{name}?partitions=2&timeout_ms=3000",
        service.name,
        service.login(),
        service.address()
    );
    let mut producer = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", test])
        .env(PRODUCER, &url)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(producer.stdout.take().unwrap());
    let acknowledged = Arc::new(std::sync::Mutex::new(BTreeMap::new()));
    let reader = std::thread::spawn({
        let acknowledged = Arc::clone(&acknowledged);
        move || {
            for line in output.lines().map_while(Result::ok) {
                // The harness writes into the first of them.
                let Some((_, numbers)) = line.split_once("acknowledged|") else { continue };
                let (first, position) = numbers.split_once('|').unwrap();
                let (first, position): (u64, u128) = (first.parse().unwrap(), position.parse().unwrap());
                acknowledged.lock().unwrap().insert(first, Position::from_number(position));
            }
        }
    });
    let count = || acknowledged.lock().unwrap().len();
    let reaches = async |goal: usize| {
        let end = Instant::now() + Duration::from_secs(60);
        while count() < goal {
            assert!(Instant::now() < end, "the producer does not go on after {} batches", count());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let signal = |signal: &str| {
        let sent = std::process::Command::new("kill").args([signal, &producer.id().to_string()]).status();
        assert!(sent.unwrap().success());
    };
    reaches(40).await;
    signal("-STOP");
    let begin = Instant::now();
    let log = open_log(&url).await.unwrap().plane;
    // Another one goes on: keys of the same filter in a session of its own.
    let other = |sequence: u64| {
        let request = Request { session: SESSION + 1, sequence };
        let operation = Operation::Add(vec![key(1_000_000 + sequence)]);
        Entry { filter: FILTER, slot: SLOT, request, operation }.encode().unwrap()
    };
    let mut others = 0;
    while begin.elapsed() < length {
        others += 1;
        log.append(0, vec![other(others)]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let before = count();
    signal("-CONT");
    reaches(before + 40).await;
    producer.kill().unwrap();
    producer.wait().unwrap();
    reader.join().unwrap();

    let read = at_last_read(&*log).await;
    let found: BTreeMap<_, _> = read.iter().cloned().collect();
    let acknowledged = std::mem::take(&mut *acknowledged.lock().unwrap());
    for (first, position) in &acknowledged {
        let entries: Vec<_> =
            found.range(position..).map(|(_, entry)| entry.clone()).take(BATCH as usize).collect();
        let batch: Vec<_> = (*first..first + BATCH).map(add).collect();
        assert_eq!(entries, batch, "an acknowledged batch is not where it was said to be");
    }
    assert!(acknowledged.values().is_sorted(), "positions grow");
    let mut state = State::new(SLOT, 1, Means::new(Budget::new(u64::MAX)));
    for (position, entry) in &read {
        let record = Record { position: *position, entry: entry.clone() };
        state.apply_record(&record, &Archived::none()).unwrap();
    }
    let held = state.shard(FILTER).unwrap().projection().unwrap().counts().held;
    let promised = acknowledged.len() as u64 * BATCH + others;
    // It was killed at last: one batch may be in the log and not acknowledged.
    assert!((promised..=promised + BATCH).contains(&held), "{held} keys, {promised} promised");
    let (seconds, batches) = (length.as_secs(), acknowledged.len());
    let said = format!("{seconds} s: {batches} batches and {others} of another one, {held} keys folded");
    passed(service, "log", "paused producer", said);
}

/// The connection is cut after an append was sent and before it is answered.
async fn cuts(service: &Service) {
    // Kafka's clients go to the address that the broker names. It has one that names a proxy in front of it.
    let proxy = match service.name {
        "kafka" => Proxy::at(&service.address_behind(3), service.address_behind(2)).await,
        _ => Proxy::at("127.0.0.1:0", service.address()).await,
    };
    let log = open(service, &proxy.address, &fresh("cut"), "&timeout_ms=2000").await;
    let mut writer = Writer::new(log).await;
    for _ in 0..8 {
        for _ in 0..5 {
            writer.batch().await;
        }
        // Answers are held back from now on; what is sent arrives. Then the connection is gone.
        proxy.swallow_answers();
        let cutter = tokio::spawn({
            let proxy = proxy.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                proxy.cut();
            }
        });
        let begin = Instant::now();
        writer.batch().await;
        assert!(
            begin.elapsed() >= Duration::from_millis(290),
            "answered through a connection that gave no answers"
        );
        cutter.await.unwrap();
    }
    let said = writer.check().await;
    // Kafka's client sends a batch again by itself, under the same number, and the broker takes it once.
    assert!(writer.failures >= 8 || service.name == "kafka", "an append without an answer did not fail");
    passed(service, "log", "cut before the answer", format!("8 cuts: {said}"));
}

/// RabbitMQ's own retention takes the beginning of a stream away: that is seen, and said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn rabbitmq_retention_is_seen() {
    const BATCHES: u32 = 16;
    let Some(service) = service("rabbitmq") else { return };
    let name = fresh("retention");
    let definition = r#"{"max-length-bytes": 2000000, "stream-max-segment-size-bytes": 1000000}"#;
    service.control_rabbitmq(&[
        "set_policy",
        &name,
        &format!("^{name}\\."),
        definition,
        "--apply-to",
        "queues",
    ]);
    let log = open(&service, &service.address(), &name, "").await;
    for number in 0..BATCHES {
        log.append(0, vec![Bytes::from(vec![number as u8; 500_000])]).await.unwrap();
    }
    let bounds = log.bounds(0).await.unwrap();
    assert!(bounds.oldest > Position::START && bounds.oldest < bounds.tail, "{bounds:?}");
    let outcome = log.read(0, Position::START, 1).await;
    assert!(matches!(outcome, Err(Error::Trimmed { oldest }) if oldest == bounds.oldest), "{outcome:?}");
    let rest = suite::read_all(&*log, 0, bounds.oldest).await;
    let last = rest.last().unwrap();
    assert!(last.0 == bounds.tail && last.1[0] == BATCHES as u8 - 1);
    assert!(rest.is_sorted_by(|one, other| one.1[0] + 1 == other.1[0]), "nothing is missing in between");
    // Who comes later sees the same.
    let again = open(&service, &service.address(), &name, "").await;
    assert_eq!(again.bounds(0).await.unwrap(), bounds);
    let row = format!("{} of {BATCHES} entries are left, and the rest is said to be trimmed", rest.len());
    passed(&service, "log", "retention by policy", row);
}

/// Enough to be read for seconds.
#[cfg(feature = "rabbitmq")]
const MARKS: i64 = 100_000;

/// Another client of RabbitMQ, which does to streams what ours never would.
#[cfg(feature = "rabbitmq")]
async fn stranger(service: &Service) -> lapin::Channel {
    let uri = format!("amqp://{}{}/%2f", service.login(), service.address());
    let builder = lapin::DefaultConnectionBuilder::new().unwrap().with_uri(uri.parse().unwrap());
    builder.connect().await.unwrap().create_channel().await.unwrap()
}

/// Puts marks into a stream, as they are left where nothing is added for long: behind a message with entries, of which they tell, or such
/// that say nothing, as of those who begin to read it.
#[cfg(feature = "rabbitmq")]
async fn put_marks(channel: &lapin::Channel, queue: &str, behind: Option<Position>) {
    use lapin::types::AMQPValue::LongLongInt;
    channel.confirm_select(Default::default()).await.unwrap();
    let mut last = None;
    for upto in 0..MARKS {
        let mut properties = lapin::BasicProperties::default().with_type("mark".into());
        if let Some(behind) = behind {
            let message = (behind.number() >> 32) as i64;
            let mut headers = lapin::types::FieldTable::default();
            headers.insert("tail".into(), LongLongInt(message));
            headers.insert("upto".into(), LongLongInt(message + upto));
            properties = properties.with_headers(headers);
        }
        let sent = channel.basic_publish("".into(), queue.into(), Default::default(), b"mark", properties);
        last = Some(sent.await.unwrap());
    }
    assert!(matches!(last.unwrap().await.unwrap(), lapin::Confirmation::Ack(None)));
}

/// Connections that this process has to a server.
#[cfg(feature = "rabbitmq")]
fn connections_to(service: &Service) -> usize {
    let port: u16 = service.address().rsplit_once(':').unwrap().1.parse().unwrap();
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let ours: Vec<_> = links.filter_map(|link| std::fs::read_link(link.path()).ok()).collect();
    let all = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let is_one = |line: &&str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let socket = std::path::PathBuf::from(format!("socket:[{}]", fields[9]));
        fields[2].ends_with(&format!(":{port:04X}")) && fields[3] == "01" && ours.contains(&socket)
    };
    all.lines().skip(1).filter(is_one).count()
}

/// A stream that goes away while it is read is no log that ends there; and the connection goes with what was done over it.
#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn rabbitmq_streams_that_are_cut_off_have_not_ended() {
    let Some(service) = service("rabbitmq") else { return };
    let name = fresh("cancel");
    // The follower has to come past all marks before an append is answered.
    let log = open(&service, &service.address(), &name, "&timeout_ms=60000").await;
    log.append(1, vec![Bytes::from_static(b"another partition")]).await.unwrap();
    log.bounds(0).await.unwrap();
    let (stranger, queue) = (stranger(&service).await, format!("{name}.0"));
    put_marks(&stranger, &queue, None).await;
    log.append(0, vec![Bytes::from_static(b"behind them")]).await.unwrap();
    let before = connections_to(&service);
    let reading = tokio::spawn({
        let log = Arc::clone(&log);
        async move { log.read(0, Position::START, 1 << 16).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!reading.is_finished(), "it came to its end before it was cut off");
    stranger.queue_delete(queue.as_str().into(), Default::default()).await.unwrap();
    let outcome = reading.await.unwrap();
    assert!(matches!(outcome, Err(Error::Retry(_))), "{outcome:?}");
    // It goes on over another connection, and the old one is not kept.
    let read = suite::read_all(&*log, 1, Position::START).await;
    assert_eq!(read.len(), 1);
    let end = Instant::now() + Duration::from_secs(5);
    while connections_to(&service) > before {
        assert!(Instant::now() < end, "{} connections, {before} before", connections_to(&service));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    passed(&service, "log", "a stream that goes", "said to be cut off; the connection went with it");
}

/// A stream whose last messages do not say where its entries end is read as a whole, however long that takes, and is open then. Marks that
/// do are leapt over.
#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn rabbitmq_streams_open_however_long_they_are() {
    let Some(service) = service("rabbitmq") else { return };
    let name = fresh("long");
    let log = open(&service, &service.address(), &name, "").await;
    let appended = log.append(0, vec![Bytes::from_static(b"before them")]).await.unwrap();
    put_marks(&stranger(&service).await, &format!("{name}.0"), None).await;
    let log = open(&service, &service.address(), &name, "&timeout_ms=1000").await;
    let begin = Instant::now();
    let bounds = log.bounds(0).await.unwrap();
    let took = begin.elapsed();
    assert_eq!(bounds.tail, appended.positions[0]);
    assert!(took > Duration::from_secs(1), "it was read in {took:?}, within one answer's time");

    // Where they tell what was before them, nobody has to read them all.
    let log = open(&service, &service.address(), &name, "&timeout_ms=60000").await;
    let first = log.append(1, vec![Bytes::from_static(b"before them")]).await.unwrap().positions[0];
    put_marks(&stranger(&service).await, &format!("{name}.1"), Some(first)).await;
    let texts = ["behind them", "and the next"];
    for text in texts {
        log.append(1, vec![Bytes::from_static(text.as_bytes())]).await.unwrap();
    }
    let begin = Instant::now();
    let read = log.read(1, first, 1 << 16).await.unwrap();
    let leapt = begin.elapsed();
    assert!(read.iter().map(|record| &*record.entry).eq(texts.map(str::as_bytes)), "{read:?}");
    assert!(leapt < took / 2, "{leapt:?} for marks that tell, {took:?} for others");
    let row = format!("{MARKS} marks were read in {took:.1?}, and leapt over in {leapt:.1?}");
    passed(&service, "log", "a long stream", row);
}

/// The broker of a topic that was just made leads its partitions one after another. Whoever asks for them at once is not sent away, as a
/// node does that starts where nobody was before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn kafka_answers_for_new_partitions() {
    const PARTITIONS: u32 = 256;
    let Some(service) = service("kafka") else { return };
    let url = format!("kafka://{}/{}?partitions={PARTITIONS}", service.address(), fresh("new"));
    let log = open_log(&url).await.unwrap().plane;
    // The last ones first: they are led last.
    for partition in (0..PARTITIONS).rev() {
        let bounds = log.bounds(partition).await.unwrap();
        assert_eq!(bounds.oldest, bounds.tail, "partition {partition} is new");
    }
    passed(&service, "log", "new partitions", format!("all of {PARTITIONS} answer as soon as they are made"));
}

/// A broker of three goes, while somebody writes, and then another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real servers; `cargo xtask planes` starts them"]
async fn brokers_are_lost() {
    let Some(service) = service("brokers") else { return };
    let hosts: Vec<_> = (0..3).map(|broker| service.address_behind(broker)).collect();
    let url =
        format!("kafka://{}/{}?partitions=2&replicas=3&timeout_ms=10000", hosts.join(","), fresh("brokers"));
    // Brokers find each other after they answer; before that, there are not enough of them for a topic.
    let end = Instant::now() + Duration::from_secs(60);
    let opened = loop {
        match open_log(&url).await {
            Ok(opened) => break opened,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    assert_eq!(opened.about.durability, Durability::Replicated(2), "{}", opened.about);
    let mut writer = Writer::new(opened.plane).await;
    let mut started = Vec::new();
    for broker in [1, 2] {
        for _ in 0..50 {
            writer.batch().await;
        }
        service.kill_broker(broker);
        // With two of three left, all goes on.
        for _ in 0..50 {
            writer.batch().await;
        }
        started.push(service.start_broker(broker));
        // It has to catch up before another one may go.
        tokio::time::sleep(Duration::from_secs(15)).await;
    }
    let said = writer.check().await;
    passed(&service, "log", "lost brokers", format!("2 of 3, one after the other: {said}"));
}

macro_rules! logs {
    ($($name:ident),*) => {$(
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "needs real servers; `cargo xtask planes` starts them"]
            async fn keeps_the_contract() {
                let Some(service) = service(stringify!($name)) else { return };
                contract(&service).await;
                many_writers(&service).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "needs real servers; `cargo xtask planes` starts them"]
            async fn survives_faults() {
                let Some(service) = service(stringify!($name)) else { return };
                cuts(&service).await;
                restarts(&service).await;
                pauses(&service, Duration::from_secs(5)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "needs real servers; `cargo xtask planes` starts them"]
            async fn survives_a_long_pause() {
                let Some(service) = service(stringify!($name)) else { return };
                pauses(&service, Duration::from_secs(30)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "needs real servers; `cargo xtask planes` starts them"]
            async fn takes_back_a_paused_producer() {
                if let Ok(url) = std::env::var(PRODUCER) {
                    return produce(&url).await;
                }
                let Some(service) = service(stringify!($name)) else { return };
                let test = concat!(stringify!($name), "::takes_back_a_paused_producer");
                paused_producer(&service, test, Duration::from_secs(30)).await;
            }
        }
    )*};
}

logs!(kafka, nats, rabbitmq, redis);
