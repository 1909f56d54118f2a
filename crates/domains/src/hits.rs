use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::LOOKS_MAX;

/// How often a domain that might have a record was looked into, and how often the record was there. Both are in one word, so that
/// they always fit each other.
#[derive(Debug, Default)]
pub(crate) struct Hits(AtomicU64);

impl Hits {
    /// Notes what a look found.
    pub(crate) fn note(&self, found: bool) {
        let noted = |word: u64| {
            let (mut looks, mut hits) = parts(word);
            if looks >= LOOKS_MAX {
                (looks, hits) = (looks / 2, hits / 2);
            }
            Some(u64::from(looks + 1) << 32 | u64::from(hits + u32::from(found)))
        };
        // It always has a next word.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, noted);
    }

    /// The share of looks that found something, in parts of 2^32. As long as little is known it is not far from a half.
    pub(crate) fn share(&self) -> u64 {
        let (looks, hits) = parts(self.0.load(Ordering::Relaxed));
        ((u64::from(hits) + 1) << 32) / (u64::from(looks) + 2)
    }
}

fn parts(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_what_is_found_and_forget() {
        let hits = Hits::default();
        assert_eq!(hits.share(), 1 << 31);
        (0..2 * LOOKS_MAX).for_each(|number| hits.note(number % 4 == 0));
        assert!(hits.share().abs_diff(1 << 30) < 1 << 16);
        (0..4 * LOOKS_MAX).for_each(|_| hits.note(true));
        assert!(hits.share() > (1 << 32) / 10 * 9, "{}", hits.share());
    }
}
