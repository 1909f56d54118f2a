//! Which node has which items of a filter, as `UMBEL.ROUTES` tells it.

use redis::Value;
use umbel_filter::{Family, Hasher};

use super::Node;
use crate::{Error, Result};

/// More slots, partitions or nodes than any cluster has.
const MOST: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Routes {
    pub(super) is_erasable: bool,
    /// Nothing if items are hashed with a secret: then only nodes know where they are.
    hasher: Option<Hasher>,
    slots: u32,
    /// The slot that has all items.
    home: Option<u32>,
    nodes: Vec<Node>,
    /// Of each partition, the number of the node that is asked first.
    hosts: Vec<Option<usize>>,
}

impl Routes {
    pub(super) fn read(said: &Value) -> Result<Self> {
        Self::found(said).ok_or_else(|| Error::Corrupt("a node told routes that make no sense".into()))
    }

    fn found(said: &Value) -> Option<Self> {
        let family: Family = text(field(said, "family")?)?.parse().ok()?;
        let is_erasable = match field(said, "erasable")? {
            Value::Int(number) => *number != 0,
            Value::Boolean(yes) => *yes,
            _ => return None,
        };
        let slots = number(field(said, "slots")?).filter(|slots| (1..=MOST).contains(slots))? as u32;
        let home = match field(said, "home")? {
            Value::Nil => None,
            value => Some(number(value).filter(|home| *home < slots as usize)? as u32),
        };
        let nodes: Option<Vec<Node>> = list(field(said, "nodes")?)?.iter().map(node).collect();
        let nodes = nodes?;
        let host = |value: &Value| match value {
            Value::Nil => Some(None),
            value => number(value).filter(|host| *host < nodes.len()).map(Some),
        };
        let hosts: Option<Vec<_>> = list(field(said, "hosts")?)?.iter().map(host).collect();
        let hosts = hosts?;
        Some(Self { is_erasable, hasher: Hasher::new(family, None).ok(), slots, home, nodes, hosts })
    }

    /// The node that has an item, if that is known.
    pub(super) fn node(&self, item: &[u8]) -> Option<&Node> {
        let slot = match self.home {
            Some(home) => home,
            None => self.hasher.as_ref()?.fingerprint(item).slot(self.slots),
        };
        let partition = (slot as usize).checked_rem(self.hosts.len())?;
        self.hosts[partition].map(|number| &self.nodes[number])
    }
}

/// A field of a map, in either version of the protocol.
pub(super) fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let is_it = |key: &Value| text(key) == Some(name);
    match map {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value),
        Value::Array(flat) => flat.chunks_exact(2).find(|pair| is_it(&pair[0])).map(|pair| &pair[1]),
        _ => None,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::SimpleString(text) => Some(text),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

fn number(value: &Value) -> Option<usize> {
    match value {
        Value::Int(number) => usize::try_from(*number).ok(),
        _ => None,
    }
}

fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(all) if all.len() <= MOST => Some(all),
        _ => None,
    }
}

fn node(value: &Value) -> Option<Node> {
    let (host, port) = text(value)?.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Value {
        Value::SimpleString(text.to_owned())
    }

    fn said(changed: &str, to: &Value) -> Value {
        let fields = [
            ("family", word("murmur3")),
            ("erasable", Value::Int(0)),
            ("slots", Value::Int(4)),
            ("home", Value::Nil),
            ("nodes", Value::Array(vec![word("a:1"), word("[::1]:2")])),
            ("hosts", Value::Array(vec![Value::Int(0), Value::Int(1)])),
        ];
        let flat = fields.into_iter().flat_map(|(name, value)| {
            let value = if name == changed { to.clone() } else { value };
            [word(name), value]
        });
        Value::Array(flat.collect())
    }

    #[test]
    fn items_go_where_their_slots_are() {
        let routes = Routes::read(&said("", &Value::Nil)).unwrap();
        let hasher = Hasher::new(Family::Murmur3, None).unwrap();
        let nodes = [("a".to_owned(), 1), ("::1".to_owned(), 2)];
        for item in 0..100_u32 {
            let item = item.to_string();
            let slot = hasher.fingerprint(item.as_bytes()).slot(4);
            assert_eq!(routes.node(item.as_bytes()), Some(&nodes[slot as usize % 2]));
        }
        let small = Routes::read(&said("home", &Value::Int(3))).unwrap();
        assert!((0..100_u32).all(|item| small.node(&item.to_le_bytes()) == Some(&nodes[1])));
    }

    #[test]
    fn what_is_not_known_is_asked_of_anybody() {
        let with_secret = Routes::read(&said("family", &word("keyed"))).unwrap();
        let alone = Routes::read(&said("hosts", &Value::Array(Vec::new()))).unwrap();
        let nobody = Routes::read(&said("hosts", &Value::Array(vec![Value::Nil]))).unwrap();
        assert!([with_secret, alone, nobody].iter().all(|routes| routes.node(b"a").is_none()));
    }

    #[test]
    fn nonsense_is_refused() {
        let bad = [
            ("family", word("other")),
            ("erasable", Value::Nil),
            ("slots", Value::Int(0)),
            ("slots", Value::Int(-1)),
            ("home", Value::Int(4)),
            ("nodes", Value::Array(vec![word("nowhere")])),
            ("hosts", Value::Array(vec![Value::Int(2)])),
            ("hosts", Value::Nil),
        ];
        for (name, value) in bad {
            assert!(Routes::read(&said(name, &value)).is_err(), "{name} {value:?}");
        }
        assert!(Routes::read(&Value::Nil).is_err());
    }
}
