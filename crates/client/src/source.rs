//! Where things come from: servers, one after another, and other replicas.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;
use hyper::header::HeaderValue;
use umbel_core::engine::DeploymentId;

use crate::http::{Ask, Base, DEPLOYMENT, Http, Reply, escaped};
use crate::limits::{PEER_TIMEOUT, PEERS_MAX};
use crate::options::Options;
use crate::{Error, Result};

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
    /// The deployment that the copy is of; none as long as no server told which.
    deployment: Mutex<Option<DeploymentId>>,
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
            deployment: Mutex::default(),
            path: format!("/v1/filters/{}", escaped(&options.filter)),
        })
    }

    /// The path of something that belongs to the filter.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("{}/{rest}", self.path)
    }

    /// The addresses of the servers.
    pub(crate) fn servers(&self) -> Vec<String> {
        self.servers.iter().map(ToString::to_string).collect()
    }

    /// The deployment that the copy is of, if it is known.
    pub(crate) fn deployment(&self) -> Option<DeploymentId> {
        *self.deployment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Believes servers of this deployment only; of the first one that answers, if it is none.
    pub(crate) fn expect(&self, deployment: Option<DeploymentId>) {
        *self.deployment.lock().unwrap_or_else(PoisonError::into_inner) = deployment;
    }

    /// Asks the servers one after another, beginning with the one that answered last. One of another deployment is passed over.
    pub(crate) async fn ask(&self, ask: &Ask) -> Result<Reply> {
        let first = self.preferred.load(Ordering::Relaxed);
        let (mut away, mut other) = (None, None);
        for number in 0..self.servers.len() {
            let at = (first + number) % self.servers.len();
            let reply = self.http.send(&self.servers[at], &self.addressed(ask), true).await;
            match reply.and_then(|reply| self.checked(reply)) {
                Err(error) if error.is_other_deployment() => other = Some(error),
                Err(error) if error.is_elsewhere() => away = Some(error),
                outcome => {
                    self.preferred.store(at, Ordering::Relaxed);
                    return outcome;
                }
            }
        }
        // One that is away may be of the right deployment.
        Err(away.or(other).unwrap_or_else(|| Error::Invalid("there is no server to ask".to_owned())))
    }

    /// A question for the deployment that the copy is of.
    fn addressed(&self, ask: &Ask) -> Ask {
        let mut ask = ask.clone();
        let deployment = self.deployment().map(|deployment| HeaderValue::from_str(&deployment.to_string()));
        if let Some(Ok(deployment)) = deployment {
            ask.head.push((DEPLOYMENT, deployment));
        }
        ask
    }

    /// Lets an answer pass that comes from the deployment which the copy is of.
    fn checked(&self, reply: Reply) -> Result<Reply> {
        // Servers that are older do not tell.
        let Some(told) = reply.field(DEPLOYMENT.as_str()) else { return Ok(reply) };
        let told: DeploymentId = told.parse()?;
        let mut known = self.deployment.lock().unwrap_or_else(PoisonError::into_inner);
        let known = *known.get_or_insert(told);
        if known != told {
            return Err(Error::OtherDeployment(format!(
                "{}: this is the deployment {told}; the copy is of the deployment {known}",
                reply.base()
            )));
        }
        Ok(reply)
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
