//! Looking fingerprints up in a run.

use object_store::OBJECT_STORE_COALESCE_DEFAULT;
use umbel_filter::Fingerprint;

use super::Run;
use super::footer::Section;
use super::page::{self, PAGE_BYTES, page_for};
use crate::Result;
use crate::limits::LOOKUP_BYTES_MAX;

/// A page to search, counted from the first of its section, and the place of the key to search it for.
type Search = (usize, usize);

impl Run {
    /// The net count of each key, 0 for those that are not there.
    ///
    /// It reads one page a key, or two where keys with equal first words stand on both sides of a boundary.
    pub async fn nets(&self, filter: u64, keys: &[Fingerprint]) -> Result<Vec<i64>> {
        let mut nets = vec![0; keys.len()];
        let Some(section) = self.contents().section(filter) else { return Ok(nets) };
        let index = self.contents().index_of(section);
        let mut searches = Vec::<Search>::with_capacity(keys.len());
        for (place, key) in keys.iter().enumerate() {
            let mut pages = page_for(index, *key);
            // Nobody's hash does this by itself, but keys can be made so. Halving keeps even those lookups
            // short.
            while pages.len() > 2 {
                let middle = pages.start + pages.len() / 2;
                if self.page_begins_after(section, middle, *key).await? {
                    pages.end = middle;
                } else {
                    pages.start = middle;
                }
            }
            searches.extend(pages.map(|page| (page, place)));
        }
        searches.sort_unstable();
        let mut rest = &searches[..];
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(batch(rest));
            rest = later;
            let mut pages: Vec<usize> = batch.iter().map(|(page, _)| *page).collect();
            pages.dedup();
            let numbers: Vec<_> = pages.iter().map(|page| section.pages.start + *page as u64).collect();
            let chunks = self.read_each(&numbers).await?;
            let mut searches = batch.iter().peekable();
            for (page, chunk) in pages.iter().zip(&chunks) {
                let records = self.open_page(chunk, section, *page)?;
                while let Some((_, place)) = searches.next_if(|(at, _)| at == page) {
                    if let Some(net) = page::find(records, section.counted, keys[*place]) {
                        nets[*place] = i64::from(net);
                    }
                }
            }
        }
        Ok(nets)
    }

    async fn page_begins_after(&self, section: &Section, page: usize, key: Fingerprint) -> Result<bool> {
        let number = section.pages.start + page as u64;
        let chunk = self.read_pages(number..number + 1).await?;
        let records = self.open_page(&chunk, section, page)?;
        let Some(first) = records.first_chunk() else {
            return Err(self.corrupt((number * PAGE_BYTES as u64, "a page without records")));
        };
        Ok(Fingerprint::from_bytes(*first) > key)
    }
}

/// How many searches to do at once, at least one, so that what a store reads for them stays within bounds.
///
/// Stores read what is between two ranges if it is little, and keep all of it until the last range is done.
fn batch(searches: &[Search]) -> usize {
    let page_bytes = PAGE_BYTES as u64;
    let mut bytes = page_bytes;
    for (at, pair) in searches.windows(2).enumerate() {
        let step = (pair[1].0 - pair[0].0) as u64 * page_bytes;
        let gap = step.saturating_sub(page_bytes);
        bytes += if gap <= OBJECT_STORE_COALESCE_DEFAULT { step } else { page_bytes };
        if bytes > LOOKUP_BYTES_MAX {
            return at + 1;
        }
    }
    searches.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_by_what_a_store_reads() {
        let pages_max = (LOOKUP_BYTES_MAX / PAGE_BYTES as u64) as usize;
        let spread = |step: usize, count: usize| (0..count).map(|i| (i * step, i)).collect::<Vec<_>>();
        assert_eq!(batch(&spread(0, 100_000)), 100_000, "one page");
        assert_eq!(batch(&spread(1, 100_000)), pages_max, "pages side by side");
        assert_eq!(batch(&spread(100, 100_000)), pages_max.div_ceil(100), "small gaps are read too");
        assert_eq!(batch(&spread(1000, 100_000)), pages_max, "large gaps are not");
        assert_eq!(batch(&spread(7, 1)), 1);
    }
}
