use std::path::Path;

use async_trait::async_trait;
use umbel_client::{Body, Web, escaped};

use super::{Record, Source};
use crate::limits::{KEY_BYTES_MAX, RECORD_BYTES_MAX};
use crate::{Error, Result};

/// Where the key goes.
const MARK: &str = "{key}";

/// Records of a server of HTTP: what is at the address with the key in it. A status of 404 or 410 says that there is no such record.
#[derive(Debug)]
pub struct WebRecords {
    web: Web,
    /// What stands before and behind the key.
    path: [String; 2],
}

impl WebRecords {
    /// Records at `http://host/records/{key}` or `https://host/find?number={key}`; the key is escaped there.
    pub fn new(template: &str, token: Option<&str>, ca_file: Option<&Path>) -> Result<Self> {
        let wrong = || Error::Invalid(format!("{template:?} is no address with {MARK} in its path, once"));
        let (scheme, rest) = template.split_once("://").ok_or_else(wrong)?;
        let (host, path) = rest.split_once('/').ok_or_else(wrong)?;
        let (before, behind) = path.split_once(MARK).ok_or_else(wrong)?;
        if host.contains(MARK) || behind.contains(MARK) || template.contains('#') {
            return Err(wrong());
        }
        let web = Web::new(&format!("{scheme}://{host}"), token, ca_file)?;
        Ok(Self { web, path: [format!("/{before}"), behind.to_owned()] })
    }
}

/// A key as a part of an address. Servers take one or two dots alone for a way through folders.
fn part(key: &[u8]) -> Result<String> {
    match key {
        b"" | b"." | b".." => {
            let key = String::from_utf8_lossy(key);
            Err(Error::Invalid(format!("the key {key:?} cannot stand in an address")))
        }
        _ if key.len() > KEY_BYTES_MAX => {
            Err(Error::Invalid(format!("a key of {} bytes; at most {KEY_BYTES_MAX}", key.len())))
        }
        _ => Ok(escaped(key)),
    }
}

#[async_trait]
impl Source for WebRecords {
    async fn fetch(&self, key: &[u8]) -> Result<Option<Record>> {
        let [before, behind] = &self.path;
        match self.web.get(format!("{before}{}{behind}", part(key)?), RECORD_BYTES_MAX).await {
            Ok(Body { kind, bytes }) => Ok(Some(Record::Body { kind, bytes })),
            Err(umbel_client::Error::Refused { status: 404 | 410, .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_within_their_part_of_the_address() {
        assert_eq!(part(b"../a?b#c d").unwrap(), "..%2Fa%3Fb%23c%20d");
        assert!([&b""[..], b".", b".."].iter().all(|key| part(key).is_err()));
        assert!(part(&vec![b'x'; KEY_BYTES_MAX + 1]).is_err());
        for bad in [
            "",
            "http://h",
            "http://h/x",
            "http://{key}/",
            "http://h/{key}/{key}",
            "ftp://h/{key}",
            "http://h/{key}#a",
        ] {
            assert!(WebRecords::new(bad, None, None).is_err(), "{bad}");
        }
        let records = WebRecords::new("http://h:1/a/{key}?x=1", None, None).unwrap();
        assert_eq!(records.path, ["/a/", "?x=1"]);
    }
}
