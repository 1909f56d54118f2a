//! Blobs that no checkpoint needs: left by one that failed, or by a crash.
//!
//! ```text
//!  number of the checkpoint that a blob was made for
//!  --- older, kept --------- newest, counts ---------
//!      what neither needs:   | may be somebody's who
//!      removed               | makes the next one: left
//! ```
//!
//! A checkpoint counts only if it is made from the newest one and has a greater number. So one whose number is not greater than that of
//! the newest that counts never will, whoever is still at work on it, and nobody misses its blobs. What has a greater number may count
//! yet. Where one engine makes all checkpoints, that is looked at when it starts, too.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::stream::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::Shared;
use super::checkpoint::{Kept, folder};

/// After so many checkpoints of a slot it is looked for orphans again.
const CHECKPOINTS_BETWEEN: u32 = 16;

/// The number in the name of a blob that ends like this.
pub(super) fn number_of(name: &str, end: &str) -> Option<u64> {
    let file = name.rsplit('/').next()?.strip_suffix(end)?;
    file.get(..12)?.parse().ok()
}

/// Which of these blobs of a slot neither kept checkpoint needs, and whether that is all there is to find out. Without two whole
/// checkpoints nothing is known to be superfluous; and while there is a third one that is newer than the older of them, it may be the
/// one that was damaged, so what it needs stays.
pub(super) fn orphans(names: &[String], kept: &[Kept]) -> (Vec<Arc<str>>, bool) {
    let [older, newer] = kept else { return (Vec::new(), false) };
    let needed: HashSet<&str> = older.blobs.iter().chain(&newer.blobs).map(|blob| &**blob).collect();
    let mut manifests = names.iter().filter_map(|name| number_of(name, ".manifest"));
    let has_third = manifests.any(|number| number > older.number && number != newer.number);
    let is_orphan = |name: &&String| match number_of(name, ".manifest") {
        Some(number) => number < older.number,
        None => !needed.contains(name.as_str()) && !has_third,
    };
    (names.iter().filter(is_orphan).map(|name| Arc::from(name.as_str())).collect(), !has_third)
}

/// Removes blobs. What fails is found again.
pub(super) async fn remove_all(blobs: &dyn ObjectStore, names: Vec<Arc<str>>) {
    for name in names {
        let _ = blobs.delete(&Path::from(&*name)).await;
    }
}

impl Shared {
    /// Removes orphans of a slot now and then. Whoever calls it has just made the newest checkpoint of the slot, and makes no other.
    pub(super) async fn sweep_orphans(&self, number: u16) {
        let (kept, newest) = {
            let mut turn = self.lane(number).turn.lock().await;
            let Some(slot) = turn.slot(self, number) else { return };
            slot.unswept += 1;
            if !(slot.unswept - 1).is_multiple_of(CHECKPOINTS_BETWEEN) {
                return;
            }
            let kept = slot.kept.iter().map(|kept| Kept { blobs: kept.blobs.clone(), ..*kept });
            (kept.collect::<Vec<_>>(), slot.counted)
        };
        let listed =
            self.blobs.list(Some(&Path::from(folder(number)))).map_ok(|blob| blob.location.to_string());
        let (Ok(mut names), Ok(())) = (listed.try_collect::<Vec<_>>().await, self.claimed()) else {
            return self.sweep_again(number).await;
        };
        // What was begun since, by whomever, may come to count.
        names.retain(|name| number_of(name, "").is_some_and(|number| number <= newest));
        let (orphans, is_all) = orphans(&names, &kept);
        let (manifests, blobs) = orphans.into_iter().partition(|name| name.ends_with(".manifest"));
        remove_all(&*self.blobs, manifests).await;
        // Somebody may be reading runs that are not needed any more.
        remove_all(&*self.blobs, self.reading[usize::from(number)].unread(blobs)).await;
        if !is_all {
            self.sweep_again(number).await;
        }
    }

    /// Lets the next checkpoint of a slot look for orphans.
    pub(super) async fn sweep_again(&self, number: u16) {
        let mut turn = self.lane(number).turn.lock().await;
        if let Some(slot) = turn.slot(self, number) {
            slot.unswept = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Position;

    fn kept(number: u64, blobs: &[&str]) -> Kept {
        let blobs = blobs.iter().map(|blob| Arc::from(*blob)).collect();
        Kept { number, position: Position::START, blobs }
    }

    #[test]
    fn what_no_kept_checkpoint_needs_is_an_orphan() {
        let name = |file: &str| format!("slots/0007/{file}");
        let run = name("000000000002-aaaaaaaa.run");
        let arrays = name("000000000005-bbbbbbbb.arrays");
        let both = [kept(4, &[&run]), kept(5, &[&run, &arrays])];
        let left = [
            name("000000000003.manifest"),
            name("000000000003-cccccccc.run"),
            name("000000000005-dddddddd.run"),
        ];
        let needed =
            [run.clone(), arrays.clone(), name("000000000004.manifest"), name("000000000005.manifest")];
        let all: Vec<String> = needed.iter().chain(&left).cloned().collect();
        assert_eq!(orphans(&all, &both), (left.iter().map(|name| Arc::from(name.as_str())).collect(), true));
        assert_eq!(orphans(&all, &both[1..]), (Vec::new(), false));
        // One that counts no more, or is damaged, keeps what it may need until it is older than both.
        let third = [kept(2, &[&run]), kept(5, &[&run, &arrays])];
        assert_eq!(orphans(&all, &third), (Vec::new(), false));
    }
}
