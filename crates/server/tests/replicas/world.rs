//! A server that can go away and come back, and what tests ask of replicas.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use umbel_client::{Answer, Error, Options, Replica, Strategy};
use umbel_core::engine::{Engine, Handle, NewFilter, Refill, Token};
use umbel_core::entry::Request;
use umbel_filter::{Fingerprint, Spec};
use umbel_server::chores::Chores;

use crate::common::{Running, new_folder, start_in, start_with_small_log};

/// How long anything may take on a machine with much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// All strategies, at a pace that tests can wait for.
pub(crate) fn strategies() -> [Strategy; 4] {
    let interval = Duration::from_millis(200);
    [Strategy::pull(interval), Strategy::delta(), Strategy::push(), Strategy::notify()]
}

/// The server. It keeps its folder and its address when it is stopped.
pub(crate) struct Centre {
    running: Option<(Running, Chores)>,
    address: SocketAddr,
    folder: PathBuf,
    start: fn(PathBuf) -> Running,
}

impl Centre {
    pub(crate) fn start() -> Self {
        Self::starting(start_in)
    }

    /// One that forgets its log sooner.
    pub(crate) fn start_with_small_log() -> Self {
        Self::starting(start_with_small_log)
    }

    fn starting(start: fn(PathBuf) -> Running) -> Self {
        let address = ([127, 0, 0, 1], 0).into();
        let mut centre = Self { running: None, address, folder: new_folder(), start };
        centre.start_again();
        centre
    }

    pub(crate) fn start_again(&mut self) {
        self.start_at(self.address);
        self.address = self.running.as_ref().expect("it runs").1.addresses()[0];
    }

    /// Starts it where nobody looks for it: what is done until it is started again, replicas do not see.
    pub(crate) fn start_unseen(&mut self) {
        self.start_at(([127, 0, 0, 1], 0).into());
    }

    /// Starts another deployment at the address of this one, which was stopped; gives the folder of this one.
    pub(crate) fn start_other(&mut self) -> PathBuf {
        let folder = std::mem::replace(&mut self.folder, new_folder());
        self.start_again();
        folder
    }

    /// Starts the deployment of a folder in place of the one that was stopped.
    pub(crate) fn start_first(&mut self, folder: PathBuf) {
        let other = std::mem::replace(&mut self.folder, folder);
        let _ = std::fs::remove_dir_all(other);
        self.start_again();
    }

    fn start_at(&mut self, address: SocketAddr) {
        let (folder, start) = (self.folder.clone(), self.start);
        let (running, chores) = apart(move || {
            let running = start(folder);
            let chores = Chores::start(&[address]).expect("the port");
            chores.watch(&running.node, None);
            (running, chores)
        });
        self.running = Some((running, chores));
    }

    pub(crate) fn stop(&mut self) {
        let (running, chores) = self.running.take().expect("it runs");
        apart(move || {
            drop(chores);
            running.stop();
        });
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn options(&self, strategy: Strategy) -> Options {
        Options::new(self.url(), "f", strategy)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.running.as_ref().expect("it runs").0.node.engine
    }

    pub(crate) fn filter(&self) -> Arc<Handle> {
        self.engine().filter("f").expect("it was made")
    }

    pub(crate) async fn create(&self, spec: Spec) {
        self.engine().create(NewFilter::new("f", spec)).await.expect("a filter");
    }

    /// Adds keys, as somebody else does.
    pub(crate) async fn add(&self, numbers: Range<u64>) -> Token {
        let filter = self.filter();
        self.engine().add(&filter, &self.hashed(numbers)).await.expect("added").token
    }

    pub(crate) async fn remove(&self, numbers: Range<u64>) -> Token {
        let filter = self.filter();
        self.engine().remove(&filter, &self.hashed(numbers)).await.expect("removed").token
    }

    /// Fills it anew with these keys and lets what came of it take its place.
    pub(crate) async fn rebuild(&self, numbers: Range<u64>) {
        self.begin_rebuild(numbers).await;
        self.finish_rebuild().await;
    }

    pub(crate) async fn begin_rebuild(&self, numbers: Range<u64>) {
        let (next, _) = self.engine().begin_rebuild(&self.filter(), &Refill::default()).await.expect("begun");
        self.engine().fill(&next, &self.hashed(numbers), Request::default()).await.expect("filled");
    }

    pub(crate) async fn finish_rebuild(&self) {
        self.engine().finish_rebuild(&self.filter(), true).await.expect("finished");
    }

    /// Gives its name to a filter that was made beside it.
    pub(crate) async fn replace(&self, spec: Spec) {
        let other = self.engine().create(NewFilter::new("other", spec)).await.expect("a filter");
        self.engine().rename(&other, "f", true).await.expect("renamed");
    }

    /// How often the centre counts each key.
    pub(crate) async fn counts(&self, numbers: Range<u64>) -> Vec<u64> {
        let filter = self.filter();
        self.engine().verify(&filter, &self.hashed(numbers)).await.expect("counts")
    }

    fn hashed(&self, numbers: Range<u64>) -> Vec<Fingerprint> {
        let filter = self.filter();
        keys(numbers).iter().map(|key| filter.hasher().fingerprint(key.as_bytes())).collect()
    }
}

impl Drop for Centre {
    fn drop(&mut self) {
        let running = self.running.take();
        apart(move || drop(running));
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Does something on a thread that belongs to no runtime: the server brings its own.
pub(crate) fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::spawn(work).join().expect("it went well")
}

pub(crate) fn keys(numbers: Range<u64>) -> Vec<String> {
    numbers.map(|number| format!("key {number}")).collect()
}

/// A folder that is removed in the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(new_folder())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// All files below it.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let (mut files, mut folders) = (Vec::new(), vec![self.0.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Opens a replica, or says why not in time.
pub(crate) async fn open(options: Options) -> Replica {
    timeout(PATIENCE, Replica::open(options)).await.expect("in time").expect("a replica")
}

/// Opens a replica on a folder whose last user was dropped just now, and has it until its tasks are gone.
pub(crate) async fn open_after_drop(options: &Options) -> Replica {
    let begin = Instant::now();
    loop {
        match Replica::open(options.clone()).await {
            Err(Error::Disk(_)) if begin.elapsed() < PATIENCE => sleep(Duration::from_millis(5)).await,
            replica => return replica.expect("a replica"),
        }
    }
}

/// Waits until the replica includes a position.
pub(crate) async fn reached(replica: &Replica, token: &Token) {
    let reached = timeout(PATIENCE, replica.reached(token)).await;
    let Ok(reached) = reached else { panic!("{token} is not reached: {:#?}", replica.status()) };
    reached.expect("it runs");
}

/// Waits until something is so.
pub(crate) async fn until(replica: &Replica, what: &str, so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < PATIENCE, "not so: {what}: {:#?}", replica.status());
        sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn all_maybe(replica: &Replica, numbers: Range<u64>) {
    let keys = keys(numbers);
    for (key, answer) in keys.iter().zip(replica.contains_batch(&keys)) {
        assert_eq!(answer, Answer::Maybe, "{key}: {:#?}", replica.status());
        assert_eq!(replica.contains(key), Answer::Maybe, "{key}");
    }
}

/// Of keys that nobody added, at most a few are there.
pub(crate) fn mostly_absent(replica: &Replica, numbers: Range<u64>) {
    let keys = keys(numbers);
    let answers = replica.contains_batch(&keys);
    let absent = answers.iter().filter(|answer| **answer == Answer::Absent).count();
    assert!(
        absent * 100 >= keys.len() * 95,
        "{absent} of {} are absent: {:#?}",
        keys.len(),
        replica.status()
    );
}

/// What the server answers to a GET.
pub(crate) fn get(centre: &Centre, path: &str) -> serde_json::Value {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(centre.address).expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).expect("JSON")
}
