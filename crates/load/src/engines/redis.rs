//! Redis: names of keys by SCAN, members of a set by SSCAN.
//!
//! A cursor of SCAN is a place in the server's table of keys: it stays good over connections and while the table changes, and whatever
//! is there from the first page to the last is seen. It is worth nothing to a server that was started anew, which orders its table in
//! another way, so a bookmark has the number of the run that it is from. A key may come twice while the server moves its table.

use std::time::Duration;

use redis::{Connection, ErrorKind, FromRedisValue, RedisError, ServerErrorKind};
use umbel_core::url::Url;

use super::{Names, of_engine};
use crate::limits::BATCH_KEYS_MAX;
use crate::{Batch, Bookmark, Cursor, Error, Part, Result, Source};

/// About how many keys the server looks at for a page: few enough that others hardly wait.
const PAGE_KEYS: usize = 1000;
/// Pages after which a bookmark is given even if none of them had a key that fits.
const PAGES_MAX: usize = 200;
/// The bookmark behind the last page.
const END: &str = "end";

/// Keys of one server, or of the masters of a cluster.
pub(super) struct Keys {
    url: Url,
    hosts: Vec<String>,
    database: u32,
    timeout: Duration,
    names: Names,
}

impl Keys {
    /// Connects, and finds out whether all keys would be read.
    pub(super) fn open(url: Url, names: Names) -> Result<Self> {
        url.allow(&["ca", "cert", "key", "timeout_ms", "tls"]).map_err(of_engine)?;
        let database = url.path_or("0");
        let wrong = || Error::Invalid(format!("{url}: {database:?} is no number of a database"));
        let database = database.parse().map_err(|_| wrong())?;
        let (hosts, timeout) = (url.hosts_with_port(6379), url.timeout().map_err(of_engine)?);
        let keys = Self { url, hosts, database, timeout, names };
        match &keys.names.set {
            Some(set) => keys.check_set(set)?,
            None => keys.check_masters()?,
        }
        Ok(keys)
    }

    fn connect(&self, host: &str) -> Result<Server> {
        let client = umbel_adapters::connect::redis(&self.url, host, self.database).map_err(of_engine)?;
        let wrong = |error: RedisError| sorted(host, &error);
        let connection = client.get_connection_with_timeout(self.timeout).map_err(wrong)?;
        connection.set_read_timeout(Some(self.timeout)).map_err(wrong)?;
        connection.set_write_timeout(Some(self.timeout)).map_err(wrong)?;
        Ok(Server { connection, host: host.to_owned() })
    }

    fn check_set(&self, set: &str) -> Result<()> {
        let [host] = &self.hosts[..] else {
            return Err(Error::Invalid(format!("{}: a set is on one server; name that one", self.url)));
        };
        let kind: String = self.connect(host)?.ask(redis::cmd("TYPE").arg(set))?;
        match &*kind {
            "set" => Ok(()),
            "none" => Err(Error::Invalid(format!("{}: there is no set {set:?}", self.url))),
            other => Err(Error::Invalid(format!("{}: {set:?} is no set, but a {other}", self.url))),
        }
    }

    /// A node of a cluster has a part of the keys only.
    fn check_masters(&self) -> Result<()> {
        let Some(host) = self.hosts.first() else { return Ok(()) };
        let mut server = self.connect(host)?;
        if server.told("cluster", "cluster_enabled")? != "1" {
            return match self.hosts.len() {
                1 => Ok(()),
                hosts => Err(Error::Invalid(format!(
                    "{}: {hosts} servers that are no cluster; load from one after the other",
                    self.url
                ))),
            };
        }
        let nodes: String = server.ask(redis::cmd("CLUSTER").arg("NODES"))?;
        let masters = masters(&nodes);
        if masters != self.hosts.len() {
            return Err(Error::Invalid(format!(
                "{}: a cluster whose keys are on {masters} masters; name all of them: redis://host,host,host",
                self.url
            )));
        }
        Ok(())
    }

    /// Keys that a server has, if it knows without looking at each of them.
    fn rows(&self, server: &mut Server) -> Result<Option<u64>> {
        match (&self.names.pattern, &self.names.set) {
            (Some(_), _) => Ok(None),
            (None, Some(set)) => server.ask(redis::cmd("SCARD").arg(set)).map(Some),
            (None, None) => server.ask(&redis::cmd("DBSIZE")).map(Some),
        }
    }
}

/// Nodes that have slots, as CLUSTER NODES tells them: a line for each, with its slots behind eight fields.
fn masters(nodes: &str) -> usize {
    let has_slots = |line: &&str| {
        let mut fields = line.split_ascii_whitespace();
        let is_master = fields.nth(2).is_some_and(|flags| flags.split(',').any(|flag| flag == "master"));
        is_master && fields.nth(5).is_some()
    };
    nodes.lines().filter(has_slots).count()
}

/// What the caller can do about it.
fn sorted(host: &str, error: &RedisError) -> Error {
    let message = format!("Redis at {host}: {error}");
    match error.kind() {
        ErrorKind::Io => Error::Retry(message),
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown,
        ) => Error::Retry(message),
        _ if error.is_timeout() || error.is_connection_dropped() => Error::Retry(message),
        _ => Error::Invalid(message),
    }
}

struct Server {
    connection: Connection,
    host: String,
}

impl Server {
    fn ask<T: FromRedisValue>(&mut self, command: &redis::Cmd) -> Result<T> {
        command.query(&mut self.connection).map_err(|error| sorted(&self.host, &error))
    }

    /// A field of a section of INFO; empty if it does not say.
    fn told(&mut self, section: &str, field: &str) -> Result<String> {
        let info: String = self.ask(redis::cmd("INFO").arg(section))?;
        let found = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(found.unwrap_or_default().trim().to_owned())
    }
}

impl Source for Keys {
    fn name(&self) -> String {
        let what = self.names.set.as_deref().unwrap_or("keys");
        match &self.names.pattern {
            Some(pattern) => format!("{what} like {pattern} of {}", self.url),
            None => format!("{what} of {}", self.url),
        }
    }

    fn identity(&self) -> String {
        format!("{} {:?}", self.url, self.names)
    }

    fn parts(&self, _: usize) -> Result<Vec<Part>> {
        let part = |host: &String| {
            let name = if self.hosts.len() == 1 { self.name() } else { format!("{} [{host}]", self.name()) };
            let rows = self.rows(&mut self.connect(host)?)?;
            Ok(Part { name, bounds: host.clone(), bytes: None, rows })
        };
        self.hosts.iter().map(part).collect()
    }

    fn open(&self, part: &Part, after: Option<&Bookmark>) -> Result<Box<dyn Cursor>> {
        if !self.hosts.contains(&part.bounds) {
            return Err(Error::Corrupt(format!("{} names no host {:?}", self.url, part.bounds)));
        }
        let mut server = self.connect(&part.bounds)?;
        let run = server.told("server", "run_id")?;
        let place = match after {
            None => Place::Cursor(0),
            Some(bookmark) => Place::after(bookmark, &run).ok_or_else(|| {
                Error::Corrupt(format!(
                    "Redis at {} is not the one that was begun with, or was started anew since: begin anew",
                    part.bounds
                ))
            })?,
        };
        let names = self.names.clone();
        Ok(Box::new(Pages { server, names, run, next: place, kept: place, held: Vec::new() }))
    }
}

/// Where pages go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Cursor(u64),
    End,
}

impl Place {
    fn bookmark(self, run: &str) -> Result<Bookmark> {
        match self {
            Self::Cursor(cursor) => Bookmark::new(format!("{run} {cursor}")),
            Self::End => Bookmark::new(format!("{run} {END}")),
        }
    }

    /// The place of a bookmark, if it is of this run. One that nobody knows the run of leads nowhere.
    fn after(bookmark: &Bookmark, run: &str) -> Option<Self> {
        let (_, place) = bookmark.as_str().split_once(' ').filter(|(of, _)| !of.is_empty() && *of == run)?;
        if place == END { Some(Self::End) } else { place.parse().ok().map(Self::Cursor) }
    }
}

/// Reads the keys of a server, a page with each request.
struct Pages {
    server: Server,
    names: Names,
    run: String,
    /// The page that is asked for next.
    next: Place,
    /// Everything before it is in batches.
    kept: Place,
    /// What came with the last page and did not fit into a batch.
    held: Vec<Vec<u8>>,
}

impl Pages {
    fn page(&mut self, cursor: u64) -> Result<()> {
        let mut command = redis::cmd(if self.names.set.is_some() { "SSCAN" } else { "SCAN" });
        command.arg(self.names.set.as_deref()).arg(cursor);
        if let Some(pattern) = &self.names.pattern {
            command.arg("MATCH").arg(pattern);
        }
        let (next, keys): (u64, Vec<Vec<u8>>) = self.server.ask(command.arg("COUNT").arg(PAGE_KEYS))?;
        self.next = if next == 0 { Place::End } else { Place::Cursor(next) };
        self.held = keys;
        Ok(())
    }

    /// Puts what is held into a batch, as far as it fits.
    fn hand_over(&mut self, batch: &mut Batch) -> Result<()> {
        while !batch.is_full() {
            let Some(key) = self.held.pop() else { break };
            let wrong = |error| Error::Invalid(format!("Redis at {}: {error}", self.server.host));
            batch.push(&key).map_err(wrong)?;
        }
        Ok(())
    }
}

impl Cursor for Pages {
    fn next(&mut self, batch: &mut Batch) -> Result<Option<Bookmark>> {
        self.hand_over(batch)?;
        for _ in 0..PAGES_MAX {
            // A page that does not fit as a whole is read again after a kill, which a filter that counts would notice.
            let has_room = batch.len() + PAGE_KEYS <= BATCH_KEYS_MAX && !batch.is_full();
            let Place::Cursor(cursor) = self.next else { break };
            if !has_room || !self.held.is_empty() {
                break;
            }
            self.kept = self.next;
            self.page(cursor)?;
            self.hand_over(batch)?;
        }
        if self.held.is_empty() {
            self.kept = self.next;
        }
        if batch.is_empty() && self.kept == Place::End {
            Ok(None)
        } else {
            self.kept.bookmark(&self.run).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookmarks_lead_on_in_the_run_that_they_are_of() {
        for place in [Place::Cursor(0), Place::Cursor(u64::MAX), Place::End] {
            let bookmark = place.bookmark("abc").unwrap();
            assert_eq!(Place::after(&bookmark, "abc"), Some(place));
            assert_eq!(Place::after(&bookmark, "abd"), None);
        }
        assert_eq!(Place::after(&Place::End.bookmark("").unwrap(), ""), None, "nobody knows the run");
        for bad in ["", "abc", "abc ", "abc x", "abc -1", "abc 99999999999999999999"] {
            assert_eq!(Place::after(&Bookmark::new(bad).unwrap(), "abc"), None, "{bad}");
        }
    }

    #[test]
    fn masters_without_slots_have_no_keys() {
        let nodes = "\
07c3 127.0.0.1:30004@31004 slave e7d1 0 1426238317239 4 connected\n\
67ed 127.0.0.1:30002@31002 master - 0 1426238316232 2 connected 5461-10922\n\
e7d1 127.0.0.1:30001@31001 myself,master - 0 0 1 connected 0-5460 [1->-67ed]\n\
292f 127.0.0.1:30003@31003 master - 0 1426238318243 3 connected\n";
        assert_eq!(masters(nodes), 2);
        assert_eq!(masters(""), 0);
    }
}
