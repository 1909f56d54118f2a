//! Chunks that come compressed.

use bytes::Bytes;

use crate::{Error, Result};

/// What a server is asked for. Arrays are bits without a pattern, in which only how often a byte occurs can be used: zstd does that, LZ4
/// and Snappy look for repetitions and find none.
pub(crate) const ACCEPTED: &str = "zstd";

/// What was compressed as an answer says, if that is no more than `most` bytes, which are all that is taken for it.
pub(crate) fn decoded(coding: Option<&str>, bytes: Bytes, most: usize) -> Result<Bytes> {
    match coding {
        None | Some("identity") => Ok(bytes),
        Some(ACCEPTED) => match zstd::bulk::decompress(&bytes, most) {
            Ok(plain) => Ok(plain.into()),
            Err(error) => Err(Error::Corrupt(format!(
                "{} bytes that are no zstd of up to {most} bytes: {error}",
                bytes.len()
            ))),
        },
        Some(other) => {
            Err(Error::Corrupt(format!("an answer is compressed as {other:?}, which nobody asked for")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back_within_its_bound() {
        let plain = vec![7_u8; 1 << 20];
        let packed = Bytes::from(zstd::encode_all(&*plain, 1).unwrap());
        assert!(packed.len() < 1_000);
        assert_eq!(decoded(Some("zstd"), packed.clone(), plain.len()).unwrap(), plain);
        assert_eq!(decoded(None, packed.clone(), 0).unwrap(), packed);
        // A byte more than is allowed.
        assert!(matches!(decoded(Some("zstd"), packed.clone(), plain.len() - 1), Err(Error::Corrupt(_))));
        assert!(decoded(Some("gzip"), packed.clone(), 1 << 20).unwrap_err().to_string().contains("gzip"));
        for at in 0..packed.len() * 8 {
            let mut damaged = packed.to_vec();
            damaged[at / 8] ^= 1 << (at % 8);
            // Whatever it is, it is bounded; its hash is looked at later.
            if let Ok(bytes) = decoded(Some("zstd"), damaged.into(), plain.len()) {
                assert!(bytes.len() <= plain.len());
            }
        }
    }
}
