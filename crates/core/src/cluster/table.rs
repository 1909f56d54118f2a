//! Members and hosts as people see them in the registry. Nobody acts on it.

use std::fmt::Write;

use bytes::Bytes;

use super::View;
use crate::{Error, Result};

const VERSION: u32 = 1; // persisted

/// Who hosts what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Grows by one with each change of the members.
    pub epoch: u64,
    /// The names of the members.
    pub members: Vec<String>,
    /// Of each partition, the numbers of the members that serve it, the first to ask first.
    pub hosts: Vec<Vec<u16>>,
}

impl Table {
    /// The table of a view, after another one.
    pub(super) fn after(before: Option<&Self>, view: &View) -> Self {
        let members: Vec<String> = view.nodes().iter().map(|node| node.name.clone()).collect();
        let number = |name: &str| members.iter().position(|member| member == name).map(|at| at as u16);
        let hosts = (0..view.partitions())
            .map(|partition| view.hosts(partition).filter_map(|node| number(&node.name)).collect())
            .collect();
        let epoch = before.map_or(1, |before| before.epoch + u64::from(before.members != members));
        Self { epoch, members, hosts }
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut text =
            format!("format {VERSION}\nepoch {}\nmembers {}\n", self.epoch, self.members.join(" "));
        for (partition, hosts) in self.hosts.iter().enumerate() {
            let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            // Writing into a string cannot fail.
            let _ = writeln!(text, "{partition} {}", hosts.join(" "));
        }
        text.into()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = || Error::Corrupt(format!("{} in the registry is no table of hosts", super::TABLE));
        let mut lines = std::str::from_utf8(bytes).map_err(|_| corrupt())?.lines();
        let mut head = |name: &str| {
            let value = lines.next().and_then(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.map(str::to_owned).ok_or_else(corrupt)
        };
        if head("format")? != VERSION.to_string() {
            return Err(corrupt());
        }
        let epoch = head("epoch")?.parse().map_err(|_| corrupt())?;
        let members: Vec<String> = head("members")?.split_whitespace().map(str::to_owned).collect();
        let mut hosts = Vec::new();
        for line in lines {
            let mut words = line.split_whitespace();
            let is_next = words.next().and_then(|word| word.parse().ok()) == Some(hosts.len());
            let numbers: Option<Vec<u16>> = words.map(|word| word.parse().ok()).collect();
            let known = numbers.filter(|all| all.iter().all(|one| usize::from(*one) < members.len()));
            hosts.push(known.filter(|_| is_next).ok_or_else(corrupt)?);
        }
        Ok(Self { epoch, members, hosts })
    }
}
