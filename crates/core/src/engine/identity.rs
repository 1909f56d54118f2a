//! The id of a deployment, by which copies of its filters tell it from every other deployment.

use std::fmt;
use std::str::FromStr;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::checkpoint::{put_new, read};
use crate::fields::{Fields, seal};
use crate::random::Random;
use crate::{Error, Result};

/// The first bytes of the blob with the id of a deployment.
pub const MAGIC: [u8; 8] = *b"\x89UMBDID\n";
const VERSION: u16 = 1;
const BLOB: &str = "deployment-id"; // persisted
const ID_BYTES: usize = 16;
/// Digits of the id and of its checksum, and a dash between them.
const TEXT_BYTES: usize = 2 * ID_BYTES + 1 + 8;

/// The id of a deployment: chosen at random when it is created, kept in its blobs, the same for all of its nodes.
///
/// A data folder that is copied is the same deployment. As text it ends with a checksum, because it also travels in headers of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeploymentId([u8; ID_BYTES]);

impl DeploymentId {
    pub(super) fn random(random: &dyn Random) -> Self {
        let (first, second) = (random.next(), random.next());
        Self((u128::from(first) << 64 | u128::from(second)).to_be_bytes())
    }

    fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::from(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend(self.0);
        seal(&mut bytes);
        bytes
    }

    /// Reads the blob of an id.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut fields = Fields::checked(bytes, BLOB, MAGIC, VERSION)?;
        fields.u16()?;
        let id = fields.take()?;
        fields.end()?;
        Ok(Self(id))
    }
}

impl fmt::Display for DeploymentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{:08x}", u128::from_be_bytes(self.0), crc32c::crc32c(&self.0))
    }
}

impl FromStr for DeploymentId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = || {
            let (id, _) = text.split_at_checked(2 * ID_BYTES)?;
            let id = Self(u128::from_str_radix(id, 16).ok()?.to_be_bytes());
            (text.len() == TEXT_BYTES && id.to_string() == text).then_some(id)
        };
        let shown = || text.escape_debug().take(2 * TEXT_BYTES).collect::<String>();
        parsed().ok_or_else(|| {
            Error::Corrupt(format!("{} is not the id of a deployment: its checksum does not fit", shown()))
        })
    }
}

/// Returns the id of the deployment, or gives it one. Of several nodes that do so at once, the first to write decides.
pub(super) async fn deployment_id(blobs: &dyn ObjectStore, random: &dyn Random) -> Result<DeploymentId> {
    if let Some(found) = find(blobs).await? {
        return Ok(found);
    }
    let id = DeploymentId::random(random);
    let Err(error) = put_new(blobs, BLOB, id.encode()).await else { return Ok(id) };
    find(blobs).await?.ok_or(error)
}

async fn find(blobs: &dyn ObjectStore) -> Result<Option<DeploymentId>> {
    match blobs.head(&Path::from(BLOB)).await {
        Ok(_) => Ok(Some(DeploymentId::decode(&read(blobs, BLOB).await?)?)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(Error::blob("cannot look for the id of the deployment", &error)),
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;
    use crate::random::SeededRandom;

    #[tokio::test]
    async fn deployment_keeps_its_id() {
        let blobs = InMemory::new();
        let first = deployment_id(&blobs, &SeededRandom::new(1)).await.unwrap();
        assert_eq!(deployment_id(&blobs, &SeededRandom::new(2)).await.unwrap(), first);
        assert_ne!(deployment_id(&InMemory::new(), &SeededRandom::new(2)).await.unwrap(), first);
    }

    #[test]
    fn damaged_id_is_refused() {
        let id = DeploymentId::random(&SeededRandom::new(1));
        let (bytes, text) = (id.encode(), id.to_string());
        assert_eq!((DeploymentId::decode(&bytes).unwrap(), text.parse::<DeploymentId>().unwrap()), (id, id));
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(DeploymentId::decode(&bytes).is_err(), "bit {bit}");
        }
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(String::from_utf8(bytes).map_or(true, |text| text.parse::<DeploymentId>().is_err()));
        }
    }
}
