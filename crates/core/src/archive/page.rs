//! Pages: how records stand in a run. Nothing here reads or writes blobs. `docs/formats.md` draws them.

use std::ops::Range;

use umbel_filter::Fingerprint;

use super::{Cover, Tally, order};

/// Bytes of a page. Page `n` of a run begins at byte `n * PAGE_BYTES`; page 0 is the header.
pub(super) const PAGE_BYTES: usize = 4096;
/// Bytes before the records of a page.
pub(super) const HEAD_BYTES: usize = 8;
const KEY_BYTES: usize = 16;
const TALLY_BYTES: usize = 20;

/// Bytes of a record.
pub(super) fn record_bytes(counted: bool) -> usize {
    if counted { TALLY_BYTES } else { KEY_BYTES }
}

/// Records in a full page. All pages of a section are full, but for the last.
pub(super) fn page_records(counted: bool) -> usize {
    (PAGE_BYTES - HEAD_BYTES) / record_bytes(counted)
}

/// A record as it is kept in memory: a tally, or the bare fingerprint where there are no counts.
pub(super) trait Record: Copy + Send + Sync + 'static {
    fn key(&self) -> Fingerprint;

    /// Why the record cannot stand in a section, if so.
    fn objection(&self, counted: bool) -> Option<&'static str>;

    /// Writes records one behind the other; `out` has room for them.
    fn encode(records: &[Self], counted: bool, out: &mut [u8]);

    /// Adds the records that stand in `bytes` to `out`.
    fn decode(bytes: &[u8], counted: bool, out: &mut Vec<Self>) -> Result<(), &'static str>;

    /// Makes one record of all with the same key, in a sorted list.
    fn combine(sorted: &mut Vec<Self>);

    #[inline]
    fn order(&self) -> u128 {
        order(self.key())
    }
}

impl Record for Fingerprint {
    #[inline]
    fn key(&self) -> Fingerprint {
        *self
    }

    fn objection(&self, counted: bool) -> Option<&'static str> {
        counted.then_some("a bare fingerprint for a section with counts")
    }

    fn encode(records: &[Self], _counted: bool, out: &mut [u8]) {
        for (record, place) in records.iter().zip(out.as_chunks_mut::<KEY_BYTES>().0) {
            *place = record.to_bytes();
        }
    }

    fn decode(bytes: &[u8], counted: bool, out: &mut Vec<Self>) -> Result<(), &'static str> {
        debug_assert!(!counted, "counts would be lost");
        out.extend(bytes.as_chunks::<KEY_BYTES>().0.iter().map(|key| Self::from_bytes(*key)));
        Ok(())
    }

    fn combine(sorted: &mut Vec<Self>) {
        sorted.dedup();
    }
}

impl Record for Tally {
    #[inline]
    fn key(&self) -> Fingerprint {
        self.key
    }

    fn objection(&self, counted: bool) -> Option<&'static str> {
        match (counted, self.net) {
            (true, 0) => Some("a net of 0, which says nothing"),
            (true, _) | (false, 1) => None,
            (false, _) => Some("a net other than 1 for a section without counts"),
        }
    }

    fn encode(records: &[Self], counted: bool, out: &mut [u8]) {
        if counted {
            for (record, place) in records.iter().zip(out.as_chunks_mut::<TALLY_BYTES>().0) {
                place[..KEY_BYTES].copy_from_slice(&record.key.to_bytes());
                place[KEY_BYTES..].copy_from_slice(&record.net.to_le_bytes());
            }
        } else {
            for (record, place) in records.iter().zip(out.as_chunks_mut::<KEY_BYTES>().0) {
                *place = record.key.to_bytes();
            }
        }
    }

    fn decode(bytes: &[u8], counted: bool, out: &mut Vec<Self>) -> Result<(), &'static str> {
        let start = out.len();
        if counted {
            out.extend(bytes.as_chunks::<TALLY_BYTES>().0.iter().map(counted_record));
        } else {
            let keys = bytes.as_chunks::<KEY_BYTES>().0.iter();
            out.extend(keys.map(|key| Self { key: Fingerprint::from_bytes(*key), net: 1 }));
        }
        if out[start..].iter().any(|record| record.net == 0) {
            return Err("a record with a net of 0");
        }
        Ok(())
    }

    /// Sums nets. A sum beyond 32 bits stays at their end: cells have 8 bits at most and stick when they are
    /// full, so no filter can tell such a count from a larger one. A sum of 0 says nothing and is left out.
    fn combine(sorted: &mut Vec<Self>) {
        let (mut read, mut kept) = (0, 0);
        while read < sorted.len() {
            let key = sorted[read].key;
            let mut net = 0i64;
            while let Some(record) = sorted.get(read).filter(|record| record.key == key) {
                net += i64::from(record.net);
                read += 1;
            }
            if net != 0 {
                let net = net.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
                sorted[kept] = Self { key, net };
                kept += 1;
            }
        }
        sorted.truncate(kept);
    }
}

#[inline]
fn counted_record(bytes: &[u8; TALLY_BYTES]) -> Tally {
    Tally {
        key: Fingerprint::from_bytes(std::array::from_fn(|i| bytes[i])),
        net: i32::from_le_bytes(std::array::from_fn(|i| bytes[KEY_BYTES + i])),
    }
}

/// What a page must be, as the footer tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) cover: Cover,
    /// The number of the page in its run.
    pub(super) number: u64,
    pub(super) counted: bool,
    pub(super) records: usize,
    /// The first word of its first record.
    pub(super) first: u64,
}

/// Fills in the head of a page whose records are in place.
pub(super) fn seal(page: &mut [u8], cover: Cover, number: u64, counted: bool, records: usize) {
    page[4..6].copy_from_slice(&(records as u16).to_le_bytes());
    page[6] = record_bytes(counted) as u8;
    page[7] = 0;
    let sum = sum(page, cover, number);
    page[..4].copy_from_slice(&sum.to_le_bytes());
}

/// The bytes of the records of a page, once all else about it is checked.
pub(super) fn open<'a>(page: &'a [u8], expected: &Expected) -> Result<&'a [u8], &'static str> {
    if page.len() != PAGE_BYTES {
        return Err("a page that is cut off");
    }
    if sum(page, expected.cover, expected.number).to_le_bytes() != page[..4] {
        return Err("a page whose checksum does not match");
    }
    let records = usize::from(u16::from_le_bytes([page[4], page[5]]));
    let bytes = record_bytes(expected.counted);
    if records != expected.records
        || usize::from(page[6]) != bytes
        || records > page_records(expected.counted)
    {
        return Err("a page with other records than the footer says");
    }
    let (records, padding) = page[HEAD_BYTES..].split_at(records * bytes);
    if page[7] != 0 || padding.iter().any(|byte| *byte != 0) {
        return Err("a page with something in its reserved bytes");
    }
    let first = records.first_chunk().map(|first| u64::from_le_bytes(*first));
    if first != Some(expected.first) {
        return Err("a page that begins with another key than the index says");
    }
    Ok(records)
}

/// The checksum tells a page from the same page at another place and from one of another run.
fn sum(page: &[u8], cover: Cover, number: u64) -> u32 {
    let mut place = [0; 32];
    place[..8].copy_from_slice(&cover.low.to_le_bytes());
    place[8..16].copy_from_slice(&cover.high.to_le_bytes());
    place[16..18].copy_from_slice(&cover.slot.to_le_bytes());
    place[24..].copy_from_slice(&number.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), &page[4..])
}

/// The net of a key among the records of one page, if it is there.
pub(super) fn find(records: &[u8], counted: bool, key: Fingerprint) -> Option<i32> {
    if counted {
        let (records, _) = records.as_chunks::<TALLY_BYTES>();
        let at = records.binary_search_by_key(&order(key), |record| counted_record(record).order()).ok()?;
        Some(counted_record(&records[at]).net)
    } else {
        let (records, _) = records.as_chunks::<KEY_BYTES>();
        let of = |record: &[u8; KEY_BYTES]| order(Fingerprint::from_bytes(*record));
        records.binary_search_by_key(&order(key), of).ok().map(|_| 1)
    }
}

/// The pages of a section that can hold a key, given the first word of the first record of each page.
///
/// It is one page, or two where a page begins with the first word of the key: equal ones may stand at the end
/// of the page before. It is more only where so many keys share their first word that they fill pages.
pub(super) fn page_for(index: &[u64], key: Fingerprint) -> Range<usize> {
    let end = index.partition_point(|first| *first <= key.first);
    let start = index[..end].partition_point(|first| *first < key.first);
    start.saturating_sub(1)..end
}

#[cfg(test)]
mod tests;
