//! Where things come from: servers, one after another, and other replicas.

use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;

use crate::Result;
use crate::http::{Ask, Base, Http, Reply, escaped};
use crate::limits::{PEER_TIMEOUT, PEERS_MAX};
use crate::options::Options;

/// All of them.
#[derive(Debug)]
pub(crate) struct Sources {
    http: Http,
    servers: Vec<Base>,
    /// The server that answered last.
    preferred: AtomicUsize,
    /// Those that the user named.
    named: Vec<Base>,
    /// Those that the server named.
    told: ArcSwap<Vec<Base>>,
    /// `/v1/filters/{name}`
    path: String,
}

impl Sources {
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let parse = |texts: &[String]| texts.iter().map(|text| Base::parse(text)).collect::<Result<Vec<_>>>();
        let (servers, named) = (parse(&options.sources)?, parse(&options.peers)?);
        Ok(Self {
            http: Http::new(&servers, options.token.as_deref(), options.ca_file.as_deref())?,
            servers,
            preferred: AtomicUsize::new(0),
            named,
            told: ArcSwap::default(),
            path: format!("/v1/filters/{}", escaped(&options.filter)),
        })
    }

    /// The path of something that belongs to the filter.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("{}/{rest}", self.path)
    }

    /// Asks the servers one after another, beginning with the one that answered last.
    pub(crate) async fn ask(&self, ask: &Ask) -> Result<Reply> {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut outcome = Err(crate::Error::Invalid("there is no server to ask".to_owned()));
        for number in 0..self.servers.len() {
            let at = (first + number) % self.servers.len();
            outcome = self.http.send(&self.servers[at], ask, true).await;
            match &outcome {
                Err(error) if error.is_elsewhere() => {}
                _ => {
                    self.preferred.store(at, Ordering::Relaxed);
                    break;
                }
            }
        }
        outcome
    }

    /// Asks one other replica.
    pub(crate) async fn ask_peer(&self, peer: &Base, path: String) -> Result<Reply> {
        let ask = Ask { patience: PEER_TIMEOUT, ..Ask::get(path) };
        self.http.send(peer, &ask, false).await
    }

    /// Other replicas, nearest first.
    pub(crate) fn peers(&self) -> Vec<Base> {
        let mut peers = self.named.clone();
        peers.extend(self.told.load().iter().filter(|told| !self.named.contains(told)).cloned());
        peers
    }

    /// The server named these. What is no address is passed over.
    pub(crate) fn tell_peers<'a>(&self, peers: impl Iterator<Item = &'a str>) {
        let peers = peers.take(PEERS_MAX).filter_map(|peer| Base::parse(peer).ok());
        self.told.store(std::sync::Arc::new(peers.collect()));
    }
}
