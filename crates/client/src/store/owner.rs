//! Which filter a folder belongs to.
//!
//! ```text
//! umbel replica 1
//! deployment 5f0c...-1a2b3c4d     the id of its deployment; nothing if the server did not tell it
//! filter c40f3f1359e6f266         its number
//! name urls                       its name, escaped as in a path
//! server http://10.0.0.1:6381     where that deployment was met; one line for each
//! sum 0a1b2c3d                    CRC32C of all lines before
//! ```

use umbel_core::engine::DeploymentId;

use crate::http::escaped;

const FIRST: &str = "umbel replica 1"; // persisted
/// Most addresses that are kept, newest last.
const SERVERS_MAX: usize = 32;
pub(super) const BYTES_MAX: u64 = 64 << 10;

/// The filter that a folder belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Its deployment, if the server told which.
    pub(crate) deployment: Option<DeploymentId>,
    /// Its number.
    pub(crate) filter: u64,
    /// Its name, escaped.
    name: String,
    /// Addresses at which its deployment was met. None if the folder is older than this file.
    servers: Vec<String>,
}

impl Owner {
    pub(crate) fn new(
        deployment: Option<DeploymentId>,
        filter: u64,
        name: &str,
        servers: Vec<String>,
    ) -> Self {
        Self { deployment, filter, name: escaped(name), servers }
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == escaped(name)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the deployment was met at one of these addresses. Nothing speaks against any of them if none was ever noted.
    pub(crate) fn was_met_at(&self, servers: &[String]) -> bool {
        self.servers.is_empty() || servers.iter().any(|server| self.servers.contains(server))
    }

    pub(crate) fn servers(&self) -> &[String] {
        &self.servers
    }

    /// The same with addresses at which the deployment was met, too.
    pub(crate) fn met_at(mut self, servers: &[String]) -> Self {
        self.servers.retain(|known| !servers.contains(known));
        self.servers.extend_from_slice(servers);
        let old = self.servers.len().saturating_sub(SERVERS_MAX);
        self.servers.drain(..old);
        self
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut text = format!("{FIRST}\n");
        if let Some(deployment) = self.deployment {
            text.push_str(&format!("deployment {deployment}\n"));
        }
        text.push_str(&format!("filter {:016x}\nname {}\n", self.filter, self.name));
        self.servers.iter().for_each(|server| text.push_str(&format!("server {server}\n")));
        text.push_str(&format!("sum {:08x}\n", crc32c::crc32c(text.as_bytes())));
        text.into_bytes()
    }

    /// None if it is damaged.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (content, sum) = text.split_at_checked(text.rfind("sum ")?)?;
        if sum != format!("sum {:08x}\n", crc32c::crc32c(content.as_bytes())) {
            return None;
        }
        let mut lines = content.lines();
        if lines.next()? != FIRST {
            return None;
        }
        let (mut deployment, mut filter, mut name, mut servers) = (None, None, None, Vec::new());
        for line in lines {
            match line.split_once(' ')? {
                ("deployment", id) => deployment = Some(id.parse().ok()?),
                ("filter", number) => filter = Some(u64::from_str_radix(number, 16).ok()?),
                ("name", text) => name = Some(text.to_owned()),
                ("server", address) => servers.push(address.to_owned()),
                _ => return None,
            }
        }
        Some(Self { deployment, filter: filter?, name: name?, servers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_comes_back_and_damage_is_found() {
        let deployment = "00112233445566778899aabbccddeeff-".to_owned();
        let sum = crc32c::crc32c(&0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes());
        let deployment = format!("{deployment}{sum:08x}").parse().unwrap();
        for deployment in [None, Some(deployment)] {
            let servers = vec!["http://a:1".to_owned(), "https://b/sum 1".replace(' ', "%20")];
            let owner = Owner::new(deployment, 7, "a name\nof two lines", servers);
            let bytes = owner.encode();
            assert_eq!(Owner::decode(&bytes), Some(owner.clone()));
            assert!(owner.is_named("a name\nof two lines") && !owner.is_named("a name"));
            for bit in 0..bytes.len() * 8 {
                let mut bytes = bytes.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Owner::decode(&bytes), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn addresses_stay_few() {
        let mut owner = Owner::new(None, 7, "a", Vec::new());
        assert!(owner.was_met_at(&["http://any".to_owned()]));
        for number in 0..100 {
            owner = owner.met_at(&[format!("http://a:{number}"), "http://b".to_owned()]);
        }
        assert_eq!(owner.servers().len(), SERVERS_MAX);
        assert!(owner.was_met_at(&["http://b".to_owned()]) && owner.was_met_at(&["http://a:99".to_owned()]));
        assert!(!owner.was_met_at(&["http://a:1".to_owned()]));
    }
}
