//! What nodes tell each other of changes of a filter.
//!
//! ```text
//! CHANGES filter u64, after: [partition u32, position 16]          --> [reached 16, [position 16, entry]]
//! ```

use bytes::Bytes;
use umbel_core::engine::PartChanges;
use umbel_core::log::Record;
use umbel_core::{Position, Result};

use super::{Message, put_length};

const PLACE_BYTES: usize = 20;

/// A question for what changed a filter.
pub(crate) fn put_asked(filter: u64, after: &[(u32, Position)]) -> Vec<u8> {
    let mut out = filter.to_le_bytes().to_vec();
    put_length(&mut out, after.len());
    for (partition, position) in after {
        out.extend(partition.to_le_bytes());
        out.extend(position.to_bytes());
    }
    out
}

pub(crate) fn asked(bytes: &[u8]) -> Result<(u64, Vec<(u32, Position)>)> {
    let mut message = Message(bytes);
    let filter = message.u64()?;
    let count = message.count(PLACE_BYTES)?;
    let after = (0..count).map(|_| Ok((message.u32()?, message.position()?))).collect::<Result<_>>()?;
    message.end((filter, after))
}

/// The answer.
pub(crate) fn put_told(all: &[PartChanges]) -> Vec<u8> {
    let mut out = Vec::new();
    put_length(&mut out, all.len());
    for PartChanges { records, reached } in all {
        out.extend(reached.to_bytes());
        put_length(&mut out, records.len());
        for Record { position, entry } in records {
            out.extend(position.to_bytes());
            put_length(&mut out, entry.len());
            out.extend_from_slice(entry);
        }
    }
    out
}

pub(crate) fn told(bytes: &[u8]) -> Result<Vec<PartChanges>> {
    let mut message = Message(bytes);
    let count = message.count(PLACE_BYTES)?;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let reached = message.position()?;
        let count = message.count(PLACE_BYTES)?;
        let mut records = Vec::with_capacity(count);
        for _ in 0..count {
            let position = message.position()?;
            let length = message.count(1)?;
            records.push(Record { position, entry: Bytes::copy_from_slice(message.bytes(length)?) });
        }
        all.push(PartChanges { records, reached });
    }
    message.end(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_that_is_told_is_understood() {
        let position = Position::from_number;
        let after = vec![(3, position(7)), (u32::MAX, position(u128::MAX))];
        assert_eq!(asked(&put_asked(9, &after)).unwrap(), (9, after));
        let record = |number, entry| Record { position: position(number), entry: Bytes::from_static(entry) };
        let changes = vec![
            PartChanges { records: vec![record(1, b"one"), record(2, b"")], reached: position(5) },
            PartChanges { records: Vec::new(), reached: position(0) },
        ];
        assert_eq!(told(&put_told(&changes)).unwrap(), changes);
    }

    #[test]
    fn a_count_that_is_too_large_takes_no_memory() {
        let many = u32::MAX.to_le_bytes();
        assert!(told(&many).is_err() && asked(&[&[0; 8][..], &many].concat()).is_err());
        assert!(told(&[&1_u32.to_le_bytes()[..], &[0; 16], &many].concat()).is_err());
        assert!(
            told(&[&1_u32.to_le_bytes()[..], &[0; 16], &1_u32.to_le_bytes(), &[0; 16], &many].concat())
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn nothing_that_comes_does_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (asked(&bytes), told(&bytes));
        }
    }
}
