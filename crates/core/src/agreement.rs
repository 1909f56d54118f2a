//! What all nodes of a deployment must agree on. It stands in the registry from the first start of the first of them.
//!
//! ```text
//! deployment     slots 256          for ever
//!                partitions 8       for ever
//!                secret 0f3a...     from the first node that has one; a fingerprint of it, from which nobody gets it back
//!                cluster orders     of which cluster they are nodes; nothing if one server has it all
//!                copies 2           hosts of each partition there
//!                entry 1            the newest format of each kind that somebody writes
//!                ...
//! ```
//!
//! It is text, because people look into registries. How keys are hashed is not in it: that is a filter's own, and stands in the log.

use std::collections::BTreeMap;
use std::fmt::Write;

use bytes::Bytes;
use umbel_filter::{Family, Hasher, Secret};

use crate::registry::{Change, Expected, Registry, Versioned};
use crate::{Error, Result, archive, definition, engine, entry};

const NAME: &str = "deployment"; // persisted
/// More than any deployment has to say.
const BYTES_MAX: usize = 4096;
/// What is hashed with the secret; the fingerprint shows whether two nodes have the same one.
const WORD: &[u8] = b"umbel deployment"; // persisted
/// How often it is tried while others change it too, or the registry is away for a moment.
const TRIES: usize = 5;

/// What a node was started with, or a deployment made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Units of order and placement.
    pub slots: u32,
    /// Partitions of the log.
    pub partitions: u32,
    secret: Option<u128>,
    cluster: Option<(String, u32)>,
    formats: BTreeMap<String, u32>,
}

impl Agreement {
    /// What this build would agree on.
    pub fn of_node(slots: u32, partitions: u32, secret: Option<&Secret>) -> Result<Self> {
        let fingerprint = |secret: &Secret| {
            let hasher = Hasher::new(Family::Keyed, Some(secret));
            let hasher = hasher.map_err(|error| Error::Invalid(error.to_string()))?;
            Ok::<_, Error>(u128::from_le_bytes(hasher.fingerprint(WORD).to_bytes()))
        };
        let formats = [
            ("archive", u32::from(archive::VERSION)),
            ("arrays", u32::from(engine::ARRAYS_VERSION)),
            ("definition", u32::from(definition::VERSION_NEWEST)),
            ("entry", u32::from(entry::VERSION_NEWEST)),
            ("manifest", u32::from(engine::MANIFEST_VERSION)),
            ("trimmed", u32::from(engine::TRIMMED_VERSION)),
        ];
        Ok(Self {
            slots,
            partitions,
            secret: secret.map(fingerprint).transpose()?,
            cluster: None,
            formats: formats.map(|(name, version)| (name.to_owned(), version)).into(),
        })
    }

    /// The same for a node of a cluster, whose partitions have so many hosts each.
    #[must_use]
    pub fn in_cluster(self, name: &str, copies: u32) -> Self {
        Self { cluster: Some((name.to_owned(), copies)), ..self }
    }

    /// The cluster whose nodes they are, and how many hosts each partition has.
    pub fn cluster(&self) -> Option<(&str, u32)> {
        self.cluster.as_ref().map(|(name, copies)| (name.as_str(), *copies))
    }

    /// What a deployment's nodes agreed on, if one of them ever started.
    pub async fn read(registry: &dyn Registry) -> Result<Option<Self>> {
        let found = registry.get(NAME).await?;
        found.map(|found| Self::decode(&found.value)).transpose()
    }

    /// Makes this the agreement, or joins the one that there is. Nothing changes if they differ in what is fixed: the error has both.
    pub async fn join(&self, registry: &dyn Registry) -> Result<()> {
        let mut found = registry.get(NAME).await?;
        for _ in 0..TRIES {
            let (joined, expected) = match &found {
                None => (self.clone(), Expected::Absent),
                Some(Versioned { value, version }) => {
                    let theirs = Self::decode(value)?;
                    let joined = self.joined(&theirs)?;
                    if joined == theirs {
                        return Ok(());
                    }
                    (joined, Expected::Version(*version))
                }
            };
            match registry.put(NAME, joined.encode(), expected, None).await {
                Ok(Change::Done(_)) => return Ok(()),
                Ok(Change::Conflict(now)) => found = now,
                // It may have happened: the value tells.
                Err(Error::Retry(_)) => found = registry.get(NAME).await?,
                Err(error) => return Err(error),
            }
        }
        Err(Error::Retry("others keep changing what the deployment agrees on".into()))
    }

    /// What both come to. An error names all in which they differ, with both values.
    pub fn joined(&self, theirs: &Self) -> Result<Self> {
        let mut differences = Vec::new();
        let mut differ = |what: &str, here: &str, there: &str| {
            differences.push(format!("{what} {here} here and {there} there"));
        };
        for (what, here, there) in
            [("slots", self.slots, theirs.slots), ("partitions", self.partitions, theirs.partitions)]
        {
            if here != there {
                differ(what, &here.to_string(), &there.to_string());
            }
        }
        if theirs.secret.is_some() && self.secret != theirs.secret {
            let shown = |secret: Option<u128>| {
                secret.map_or_else(|| "none".to_owned(), |secret| format!("{secret:032x}"))
            };
            differ("secret's fingerprint", &shown(self.secret), &shown(theirs.secret));
        }
        if self.cluster != theirs.cluster {
            let shown = |cluster: Option<(&str, u32)>| match cluster {
                Some((name, copies)) => format!("{name} with {copies} hosts for each partition"),
                None => "none".to_owned(),
            };
            differ("cluster", &shown(self.cluster()), &shown(theirs.cluster()));
        }
        let mut formats = self.formats.clone();
        for (name, there) in &theirs.formats {
            let here = formats.entry(name.clone()).or_default();
            if *here < *there {
                // Somebody writes what this build cannot read.
                differ(&format!("format {name}"), &here.to_string(), &there.to_string());
            }
        }
        if differences.is_empty() {
            return Ok(Self { secret: self.secret, formats, cluster: self.cluster.clone(), ..*theirs });
        }
        let differences = differences.join(", ");
        Err(Error::Invalid(format!("this node and its deployment do not agree: {differences}")))
    }

    fn encode(&self) -> Bytes {
        let mut text = format!("slots {}\npartitions {}\n", self.slots, self.partitions);
        if let Some(secret) = self.secret {
            // Writing into a string cannot fail.
            let _ = writeln!(text, "secret {secret:032x}");
        }
        if let Some((name, copies)) = &self.cluster {
            let _ = writeln!(text, "cluster {name}\ncopies {copies}");
        }
        for (name, version) in &self.formats {
            let _ = writeln!(text, "{name} {version}");
        }
        text.into()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = |what: &str| Error::Corrupt(format!("{NAME} in the registry {what}"));
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= BYTES_MAX);
        let text = text.ok_or_else(|| corrupt("is no text, or too long"))?;
        let (mut secret, mut cluster, mut formats) = (None, None, BTreeMap::new());
        for line in text.lines() {
            let (name, value) = line.split_once(' ').ok_or_else(|| corrupt("has a line without a value"))?;
            let is_new = if name == "secret" {
                let digits = u128::from_str_radix(value, 16);
                secret
                    .replace(digits.map_err(|_| corrupt("has a secret's fingerprint that is none"))?)
                    .is_none()
            } else if name == "cluster" {
                cluster.replace(value.to_owned()).is_none()
            } else {
                let number = value.parse::<u32>().map_err(|_| corrupt("has a number that is none"))?;
                // What is not known here is a format of a later version.
                formats.insert(name.to_owned(), number).is_none()
            };
            if !is_new {
                return Err(corrupt("says something twice"));
            }
        }
        let mut take = |name: &str| {
            formats.remove(name).filter(|number| *number > 0).ok_or_else(|| corrupt("does not say enough"))
        };
        let (slots, partitions) = (take("slots")?, take("partitions")?);
        let cluster = cluster.map(|name| Ok((name, take("copies")?))).transpose()?;
        Ok(Self { slots, partitions, secret, cluster, formats })
    }
}
