//! Where an engine is that a plane stands on, without telling its secrets to anybody.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::limits::PARTITIONS_MAX;
use crate::{Error, Result};

/// Longest URL that is looked at.
const BYTES_MAX: usize = 4096;
/// How long an answer may take, unless the URL says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);
const PARTITIONS: &str = "partitions";
/// The one scheme without hosts.
const FILE: &str = "file";
/// Parameters whose values may be shown; those of all others could be secrets.
const SHOWN: [&str; 10] =
    ["ca", "cert", "endpoint", "monitor", PARTITIONS, "region", "replicas", "sasl", "timeout_ms", "tls"];

/// Where an engine is: `scheme://user:password@host:port,host:port/path?name=value`.
///
/// It shows itself without user, password and parameters that it does not know, because it ends up in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    credentials: Option<(String, String)>,
    hosts: Vec<String>,
    path: String,
    parameters: Vec<(String, String)>,
}

impl Url {
    /// Reads a URL. An error does not repeat it, since it may hold a password.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = |why: &str| Error::Invalid(format!("a URL that {why}"));
        if text.len() > BYTES_MAX {
            return Err(invalid("is too long"));
        }
        let (scheme, rest) =
            text.split_once("://").ok_or_else(|| invalid("has no scheme, as in redis://"))?;
        if scheme.is_empty() || !scheme.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        {
            return Err(invalid("has a scheme of other than small letters and digits"));
        }
        if scheme != FILE {
            refuse_open_password(text)?;
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, authority),
        };
        let encoded = || invalid("has a % that is not followed by two hexadecimal digits");
        let decode = |part: &str| decoded(part).ok_or_else(encoded);
        let credentials = match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
            Some((user, password)) => Some((decode(user)?, decode(password)?)),
            None => None,
        };
        let hosts: Vec<_> = hosts.split(',').filter(|host| !host.is_empty()).map(str::to_owned).collect();
        // A folder is of this machine.
        if hosts.is_empty() != (scheme == FILE) {
            let is_file = scheme == FILE;
            return Err(invalid(if is_file {
                "names a host: write file:///folder"
            } else {
                "names no host or bucket"
            }));
        }
        let mut parameters = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parameters.push((decode(name)?, decode(value)?));
        }
        let path = decode(path)?.trim_matches('/').to_owned();
        Ok(Self { scheme: scheme.to_owned(), credentials, hosts, path, parameters })
    }

    /// The part before `://`.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// User and password, which are never shown.
    pub fn credentials(&self) -> Option<(&str, &str)> {
        self.credentials.as_ref().map(|(user, password)| (&**user, &**password))
    }

    /// Hosts, with a port where one was given; of object stores, the bucket.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Every host with its port.
    pub fn hosts_with_port(&self, port: u16) -> Vec<String> {
        let has_port =
            |host: &str| host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let with = |host: &String| if has_port(host) { host.clone() } else { format!("{host}:{port}") };
        self.hosts.iter().map(with).collect()
    }

    /// The path without slashes at its ends, or what stands for one that is empty.
    pub fn path_or(&self, default: &str) -> String {
        if self.path.is_empty() { default.to_owned() } else { self.path.clone() }
    }

    /// The folder that `file:///folder` names.
    pub fn folder(&self) -> Result<PathBuf> {
        if self.scheme != FILE || self.path.is_empty() {
            return Err(Error::Invalid(format!("{self} names no folder, as file:///folder does")));
        }
        Ok(Path::new("/").join(&self.path))
    }

    /// The value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// A parameter that is a number within bounds.
    pub fn number(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>> {
        let Some(text) = self.parameter(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.map(Some).ok_or_else(|| Error::Invalid(format!("{name} in {self} must be {least} to {most}")))
    }

    /// How many partitions the log shall have, or has.
    pub fn partitions(&self) -> Result<Option<u32>> {
        Ok(self.number(PARTITIONS, 1, u64::from(PARTITIONS_MAX))?.map(|number| number as u32))
    }

    /// The same with so many partitions, if it does not say how many.
    #[must_use]
    pub fn or_partitions(mut self, partitions: u32) -> Self {
        if self.parameter(PARTITIONS).is_none() {
            self.parameters.push((PARTITIONS.to_owned(), partitions.to_string()));
        }
        self
    }

    /// How long an answer of the engine may take.
    pub fn timeout(&self) -> Result<Duration> {
        Ok(self.number("timeout_ms", 100, 600_000)?.map_or(TIMEOUT, Duration::from_millis))
    }

    /// Whether the connection shall be encrypted.
    pub fn tls(&self) -> Result<bool> {
        match self.parameter("tls") {
            None | Some("false") => Ok(false),
            Some("true" | "") => Ok(true),
            Some(_) => Err(Error::Invalid(format!("tls in {self} must be true or false"))),
        }
    }

    /// Refuses parameters that the scheme does not know: a word that is misspelt would be ignored otherwise.
    pub fn allow(&self, known: &[&str]) -> Result<()> {
        match self.parameters.iter().find(|(name, _)| !known.contains(&&**name)) {
            Some((name, _)) => {
                let known = known.join(", ");
                Err(Error::Invalid(format!("{self} has the parameter {name}; known are: {known}")))
            }
            None => Ok(()),
        }
    }
}

/// Refuses an address whose password has a `/`, `?` or `@` as it is: it would be taken for host, path and parameters, which are shown.
pub fn refuse_open_password(text: &str) -> Result<()> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut names = query.split('&').map(|pair| pair.split('=').next().unwrap_or(pair));
    if path.contains('@') || names.any(|name| name.contains('@')) {
        return Err(Error::Invalid(
            "a URL that has an @ behind its host: write /, ? and @ in a password as %2F, %3F and %40".into(),
        ));
    }
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    if hosts.split(',').all(has_good_port) {
        return Ok(());
    }
    Err(Error::Invalid(
        "a URL that has no number for a port: write / and ? in a password as %2F and %3F, and IPv6 in brackets"
            .into(),
    ))
}

/// Whether what stands behind the colon of a host is a port, if there is one. IPv6 has colons of its own, in brackets.
fn has_good_port(host: &str) -> bool {
    let behind = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((_, behind)) => behind,
        None => host.find(':').map_or("", |colon| &host[colon..]),
    };
    behind.is_empty() || behind.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

/// Percent-decoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        if *byte == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| !digits.contains('+'))?);
            rest = &tail[2..];
        } else {
            bytes.push(*byte);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = if self.credentials.is_some() { "***@" } else { "" };
        write!(f, "{}://{hidden}{}", self.scheme, self.hosts.join(","))?;
        if !self.path.is_empty() {
            write!(f, "/{}", self.path)?;
        }
        for (number, (name, value)) in self.parameters.iter().enumerate() {
            // An address within the address may have a password too.
            let value = if SHOWN.contains(&&**name) && !value.contains('@') { value } else { "***" };
            write!(f, "{}{name}={value}", if number == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let url = Url::parse("redis://us%40er:pa%3Ass@h1,h2:7000/a/b/?partitions=4&token=abc").unwrap();
        assert_eq!(url.credentials(), Some(("us@er", "pa:ss")));
        assert_eq!(url.hosts_with_port(6379), ["h1:6379", "h2:7000"]);
        assert_eq!((url.path_or("x"), url.partitions().unwrap()), ("a/b".into(), Some(4)));
        for shown in [url.to_string(), format!("{url:?}"), url.allow(&[]).unwrap_err().to_string()] {
            assert!(shown.contains("redis://***@h1,h2:7000/a/b?partitions=4&token=***"), "{shown}");
        }
        let url = Url::parse("s3://bucket?endpoint=https://user:secret@host").unwrap();
        assert_eq!(url.to_string(), "s3://bucket?endpoint=***");
    }

    #[test]
    fn nonsense_is_refused_without_being_repeated() {
        for text in [
            "",
            "secret",
            "://secret",
            "Redis://secret",
            "redis://",
            "redis://secret@",
            "redis://h/%2",
            "file://secret/a",
            "redis://:1/secret@h",
            "redis://:sec/ret@h",
            "redis://me:secret/x@h",
            "redis://me:secret?x@h",
            "redis://me:a@secret/b@h",
            "kafka://me:1?secret@h",
            "kafka://h1,me:secret",
            "redis://[::1]secret",
            "redis://::secret",
        ] {
            let error = Url::parse(text).unwrap_err().to_string();
            assert!(!error.contains("secret") && !error.contains("ret@"), "{error}");
        }
        for text in ["redis://h:1,[::1],[::1]:2,h/%40?x=a@b", "postgres:///db?host=/run"] {
            assert!(refuse_open_password(text).is_ok(), "{text}");
        }
        assert_eq!(Url::parse("file:///var/a@b").unwrap().folder().unwrap(), Path::new("/var/a@b"));
        assert_eq!(Url::parse("s3://bucket/a%40b").unwrap().path_or(""), "a@b");
        let folder = Url::parse("file:///var/lib/a%20b").unwrap();
        assert_eq!(folder.folder().unwrap(), Path::new("/var/lib/a b"));
        assert_eq!(folder.to_string(), "file:///var/lib/a b");
        assert!(Url::parse("file:///").unwrap().folder().is_err());
        let url = Url::parse("redis://h?partitions=0&timeout_ms=x&tls=perhaps").unwrap();
        assert!(url.partitions().is_err() && url.timeout().is_err() && url.tls().is_err());
    }
}
