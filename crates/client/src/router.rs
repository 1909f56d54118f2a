//! A client of a cluster that asks, for each item, the node that has it.
//!
//! What it knows of who has what is a hint: a node that is asked for items of others passes the question on. So an old table costs time,
//! and never an answer.

mod routes;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::Instant;

use crate::{Answer, Error, Result};
use routes::{Routes, field};

/// How long what is known of a filter is believed. It is asked for again beside the request that finds it older.
const FRESH: Duration = Duration::from_secs(1);
/// How long a node may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(15);
const CONNECT_TIME: Duration = Duration::from_secs(2);
/// How long a request is tried again while nodes come and go.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause before that.
const RETRY: Duration = Duration::from_millis(50);

/// A cluster, or a single server, over Redis's protocol.
///
/// ```no_run
/// # async fn example() -> umbel_client::Result<()> {
/// use umbel_client::{Answer, Router};
///
/// let router = Router::new(&["redis://10.0.0.1:6380", "redis://10.0.0.2:6380"])?; // some of the nodes
/// router.add("urls", &["https://example.org/"]).await?;
/// let answers = router.contains("urls", &["https://example.org/", "https://example.org/other"]).await?;
/// assert_eq!(answers[0], Answer::Maybe);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Router(Arc<Shared>);

struct Shared {
    /// The nodes that the user named.
    named: Vec<Node>,
    /// Where the next one is asked of those, if nobody knows better.
    turn: AtomicUsize,
    links: Mutex<HashMap<Node, MultiplexedConnection>>,
    filters: Mutex<HashMap<String, Known>>,
    /// With user, password and TLS as the first address has them: nodes are alike.
    like: Client,
}

/// Where a node is: host and port.
type Node = (String, u16);

/// What is known of a filter, and since when.
#[derive(Clone)]
struct Known {
    routes: Arc<Routes>,
    since: Instant,
    /// Whether somebody is asking for a newer one.
    asking: Arc<AtomicBool>,
}

/// Why there is no answer.
enum Failure {
    /// The request had no effect.
    Unsent(String),
    /// It may have had one.
    Lost(String),
    Refused(Error),
}

/// What is asked about items.
#[derive(Clone, Copy)]
struct Question {
    command: &'static str,
    /// Whether it may be asked twice.
    repeats: bool,
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client holds the password.
        f.debug_struct("Router").field("named", &self.0.named).finish_non_exhaustive()
    }
}

impl Router {
    /// A client of the nodes at these addresses, `redis://user:password@host:port` or `rediss://` for TLS, and of all others that they
    /// know. One address is enough; more help when that node is away. User, password and TLS are those of the first.
    pub fn new(addresses: &[&str]) -> Result<Self> {
        let mut clients = Vec::new();
        for address in addresses {
            // What the library says may have the password in it.
            let client = Client::open(*address);
            clients.push(
                client.map_err(|_| Error::Invalid("redis://host:port is the form of an address".into()))?,
            );
        }
        let node = |client: &Client| match client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Ok((host.clone(), *port))
            }
            _ => Err(Error::Invalid("a node is at a host and a port".into())),
        };
        let named = clients.iter().map(node).collect::<Result<Vec<_>>>()?;
        let like = clients.into_iter().next().ok_or_else(|| Error::Invalid("no node is named".into()))?;
        let (links, filters) = (Mutex::default(), Mutex::default());
        Ok(Self(Arc::new(Shared { named, turn: AtomicUsize::new(0), links, filters, like })))
    }

    /// Whether items may be in a filter. If there is no such filter, all are unknown.
    pub async fn contains<K: AsRef<[u8]>>(&self, filter: &str, items: &[K]) -> Result<Vec<Answer>> {
        let question = Question { command: "UMBEL.EXISTS", repeats: true };
        let answers = self.ask(question, filter, items).await?;
        answers.iter().map(answer).collect()
    }

    /// Adds items, and says which of them were new. If it fails half-way, some may be added. An add that nobody answered is sent again
    /// where that is harmless: not to a counting filter.
    pub async fn add<K: AsRef<[u8]>>(&self, filter: &str, items: &[K]) -> Result<Vec<bool>> {
        let repeats = self.0.routes(filter).await?.is_none_or(|routes| !routes.is_erasable);
        let answers = self.ask(Question { command: "UMBEL.ADD", repeats }, filter, items).await?;
        answers.iter().map(yes_or_no).collect()
    }

    /// Takes items out of a counting filter, each once, and says which of them were there. It is never sent again by itself.
    pub async fn remove<K: AsRef<[u8]>>(&self, filter: &str, items: &[K]) -> Result<Vec<bool>> {
        let answers = self.ask(Question { command: "UMBEL.REMOVE", repeats: false }, filter, items).await?;
        answers.iter().map(yes_or_no).collect()
    }

    /// Asks about items where they are, all nodes at once, until each has an answer or time is over.
    async fn ask<K: AsRef<[u8]>>(&self, question: Question, filter: &str, items: &[K]) -> Result<Vec<Value>> {
        let end = Instant::now() + PATIENCE;
        let mut answers = vec![Value::Nil; items.len()];
        let mut left: Vec<usize> = (0..items.len()).collect();
        loop {
            let routes = self.0.routes(filter).await?;
            let mut groups: HashMap<Node, Vec<usize>> = HashMap::new();
            let anybody = self.0.anybody();
            for number in left.drain(..) {
                let node = routes.as_ref().and_then(|routes| routes.node(items[number].as_ref()));
                groups.entry(node.unwrap_or(&anybody).clone()).or_default().push(number);
            }
            let asked = groups.into_iter().map(|(node, numbers)| async move {
                let asked: Vec<&[u8]> = numbers.iter().map(|number| items[*number].as_ref()).collect();
                let outcome = self.0.ask(&node, question, filter, &asked).await;
                (numbers, outcome)
            });
            let mut why = None;
            for (numbers, outcome) in join_all(asked).await {
                match outcome {
                    Ok(some) => {
                        numbers.iter().zip(some).for_each(|(number, answer)| answers[*number] = answer);
                    }
                    Err(Failure::Refused(error)) => return Err(error),
                    Err(Failure::Lost(why)) if !question.repeats => {
                        let why = format!("{why}; it may have been done, or not");
                        return Err(Error::Unreachable(why));
                    }
                    Err(Failure::Unsent(said) | Failure::Lost(said)) => {
                        left.extend(numbers);
                        why = Some(said);
                    }
                }
            }
            let Some(why) = why else { return Ok(answers) };
            if Instant::now() >= end {
                return Err(Error::Unreachable(why));
            }
            self.0.forget(filter);
            tokio::time::sleep(RETRY).await;
        }
    }
}

impl Shared {
    /// One of the named nodes, another one each time.
    fn anybody(&self) -> Node {
        self.named[self.turn.fetch_add(1, Ordering::Relaxed) % self.named.len()].clone()
    }

    fn forget(&self, filter: &str) {
        lock(&self.filters).remove(filter);
    }

    /// Where the items of a filter are; nothing if there is no such filter, or if nobody tells.
    async fn routes(self: &Arc<Self>, filter: &str) -> Result<Option<Arc<Routes>>> {
        let known = lock(&self.filters).get(filter).cloned();
        let Some(known) = known else { return self.learn(filter).await };
        if known.since.elapsed() > FRESH && !known.asking.swap(true, Ordering::Relaxed) {
            let (shared, filter) = (Arc::clone(self), filter.to_owned());
            tokio::spawn(async move {
                // Until somebody answers, what is known is better than nothing.
                if shared.learn(&filter).await.is_err() {
                    known.asking.store(false, Ordering::Relaxed);
                }
            });
        }
        Ok(Some(known.routes))
    }

    async fn learn(&self, filter: &str) -> Result<Option<Arc<Routes>>> {
        let mut why = None;
        for _ in 0..self.named.len() {
            let node = self.anybody();
            match self.send(&node, redis::cmd("UMBEL.ROUTES").arg(filter)).await {
                Ok(said) => {
                    let routes = Arc::new(Routes::read(&said)?);
                    let (since, asking) = (Instant::now(), Arc::default());
                    let known = Known { routes: Arc::clone(&routes), since, asking };
                    lock(&self.filters).insert(filter.to_owned(), known);
                    return Ok(Some(routes));
                }
                Err(Failure::Refused(Error::Refused { status: 404, .. })) => {
                    self.forget(filter);
                    return Ok(None);
                }
                Err(Failure::Refused(error)) => return Err(error),
                Err(Failure::Unsent(said) | Failure::Lost(said)) => why = Some(said),
            }
        }
        why.map_or(Ok(None), |why| Err(Error::Unreachable(why)))
    }

    /// Asks one node about some items.
    async fn ask(
        &self,
        node: &Node,
        question: Question,
        filter: &str,
        items: &[&[u8]],
    ) -> Result<Vec<Value>, Failure> {
        let mut command = redis::cmd(question.command);
        command.arg(filter).arg("ITEMS").arg(items);
        let said = self.send(node, &command).await?;
        if let Some(Value::BulkString(why)) = field(&said, "refused") {
            return Err(Failure::Refused(Error::Full(String::from_utf8_lossy(why).into_owned())));
        }
        match field(&said, "answers") {
            Some(Value::Array(answers)) if answers.len() == items.len() => Ok(answers.clone()),
            _ => Err(Failure::Refused(Error::Corrupt("a node answered something else".into()))),
        }
    }

    async fn send(&self, node: &Node, command: &redis::Cmd) -> Result<Value, Failure> {
        let at = |error: &RedisError| format!("{}:{}: {error}", node.0, node.1);
        let mut link = match self.link(node).await {
            Ok(link) => link,
            Err(error) if error.kind() == ErrorKind::AuthenticationFailed => {
                return Err(Failure::Refused(Error::Invalid(at(&error))));
            }
            Err(error) => return Err(Failure::Unsent(at(&error))),
        };
        let error = match command.query_async(&mut link).await {
            Ok(said) => return Ok(said),
            Err(error) => error,
        };
        let ErrorKind::Server(kind) = error.kind() else {
            lock(&self.links).remove(node);
            return Err(Failure::Lost(at(&error)));
        };
        let said = error.detail().unwrap_or_default();
        match kind {
            // Of a request with many items, some may be done when it turns out that nobody has the others.
            ServerErrorKind::TryAgain | ServerErrorKind::BusyLoading | ServerErrorKind::ClusterDown => {
                Err(Failure::Lost(at(&error)))
            }
            _ => {
                let (status, code) = if said == "not found" { (404, "not_found") } else { (400, "invalid") };
                let (code, message) = (code.to_owned(), at(&error));
                Err(Failure::Refused(Error::Refused { status, code, message }))
            }
        }
    }

    /// The connection to a node, which all requests share.
    async fn link(&self, node: &Node) -> Result<MultiplexedConnection, RedisError> {
        if let Some(link) = lock(&self.links).get(node) {
            return Ok(link.clone());
        }
        let like = self.like.get_connection_info();
        let (host, port) = node.clone();
        let address = match like.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIME))
            .set_response_timeout(Some(ANSWER_TIME));
        let client = Client::open(like.clone().set_addr(address))?;
        let link = client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(lock(&self.links).entry(node.clone()).or_insert(link).clone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(value: &Value) -> Result<Answer> {
    let word = match value {
        Value::SimpleString(word) => word.as_str(),
        _ => "",
    };
    let all = [Answer::Absent, Answer::Maybe, Answer::Unknown];
    let found = all.into_iter().find(|answer| answer.word() == word);
    found.ok_or_else(|| Error::Corrupt("a node answered something else".into()))
}

fn yes_or_no(value: &Value) -> Result<bool> {
    match value {
        Value::Int(number) => Ok(*number != 0),
        Value::Boolean(yes) => Ok(*yes),
        _ => Err(Error::Corrupt("a node answered something else".into())),
    }
}
