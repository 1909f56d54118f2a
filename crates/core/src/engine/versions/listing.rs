//! Which versions of a filter count, where several nodes make them.
//!
//! ```text
//!  current 7 - 00000000000000a1 9
//!  version 7 5f3a09c1 1760000000000
//!  version 9 0b44d2e0 1760000360000
//! ```
//!
//! One value in the registry for each filter, changed by compare-and-set. A version counts when it is listed, and it is listed only if
//! the newest one is still that from which it was made. What is pinned stands in the same value, so that no version is removed while
//! somebody pins it; and so does a number of whoever looks after strong replicas, so that one who did so before pins nothing any more.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use crate::registry::{Change, Expected, Registry};
use crate::{Error, Result};

const FOLDER: &str = "versions/"; // persisted, as what is in it
/// How often a change is tried that somebody else is ahead of.
const ATTEMPTS: usize = 16;

/// An attempt to make a version: its number, and what tells it from others for the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Making {
    /// The number that the version will have if it counts.
    pub number: u64,
    /// By chance.
    pub nonce: u32,
}

impl fmt::Display for Making {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012}-{:08x}", self.number, self.nonce)
    }
}

impl FromStr for Making {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = text.split_once('-').and_then(|(number, nonce)| {
            Some(Self { number: number.parse().ok()?, nonce: u32::from_str_radix(nonce, 16).ok()? })
        });
        let named = |making: &Self| making.to_string() == text;
        parsed.filter(named).ok_or_else(|| Error::Invalid("no version is made under this name".into()))
    }
}

/// Which versions of a filter replicas are to answer from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Current {
    /// The version that is pinned; if none is, the newest one is current.
    pub version: Option<u64>,
    /// The one that was pinned before: it stays for whoever wants to go back to it.
    pub previous: Option<u64>,
    /// The version that strong replicas answer from, whatever is pinned for the others; without one they do not answer.
    pub strong: Option<u64>,
}

/// What came of a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// It is so now.
    Done(Current),
    /// It was not as expected, but like this.
    Conflict(Current),
    /// There is no such version.
    NoVersion,
}

/// A version that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) making: Making,
    /// When it was made, in milliseconds since 1970.
    pub(super) made_ms: u64,
}

/// The versions of a filter that count, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) versions: Vec<Listed>,
    pub(super) current: Current,
    /// Whoever pins versions for strong replicas has to have this number.
    guard: u64,
}

impl Listing {
    pub(super) fn newest(&self) -> Option<Making> {
        self.versions.last().map(|listed| listed.making)
    }

    pub(super) fn numbered(&self, number: u64) -> Option<Making> {
        self.versions.iter().map(|listed| listed.making).find(|making| making.number == number)
    }

    pub(super) fn counts(&self, making: Making) -> bool {
        self.versions.iter().any(|listed| listed.making == making)
    }

    fn encode(&self) -> Bytes {
        let shown = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let Current { version, previous, strong } = self.current;
        let mut text = format!("current {} {} {:016x}", shown(version), shown(previous), self.guard);
        // A fourth word, which nodes of an earlier release do not read.
        if let Some(strong) = strong {
            text += &format!(" {strong}");
        }
        text.push('\n');
        for Listed { making, made_ms } in &self.versions {
            text += &format!("version {} {:08x} {made_ms}\n", making.number, making.nonce);
        }
        text.into()
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(value).ok()?.lines();
        let number = |text: &str| if text == "-" { Some(None) } else { text.parse().ok().map(Some) };
        let mut words = lines.next()?.strip_prefix("current ")?.split(' ');
        let (version, previous) = (number(words.next()?)?, number(words.next()?)?);
        let guard = u64::from_str_radix(words.next()?, 16).ok()?;
        let strong = words.next().map(str::parse).transpose().ok()?;
        let current = Current { version, previous, strong };
        let listed = |line: &str| {
            let mut words = line.strip_prefix("version ")?.split(' ');
            let number = words.next()?.parse().ok()?;
            let nonce = u32::from_str_radix(words.next()?, 16).ok()?;
            let made_ms = words.next()?.parse().ok()?;
            words.next().is_none().then_some(Listed { making: Making { number, nonce }, made_ms })
        };
        let versions: Vec<Listed> = lines.map(listed).collect::<Option<_>>()?;
        versions.is_sorted_by_key(|listed| listed.making.number).then_some(Self { versions, current, guard })
    }
}

/// The listings of all filters.
#[derive(Debug)]
pub(in crate::engine) struct Listings(Arc<dyn Registry>);

fn name(filter: u64) -> String {
    format!("{FOLDER}{filter:016x}")
}

impl Listings {
    pub(in crate::engine) fn new(registry: Arc<dyn Registry>) -> Self {
        Self(registry)
    }

    pub(super) async fn of(&self, filter: u64) -> Result<Listing> {
        Ok(self.found(filter).await?.0)
    }

    async fn found(&self, filter: u64) -> Result<(Listing, Expected)> {
        let Some(found) = self.0.get(&name(filter)).await? else {
            return Ok((Listing::default(), Expected::Absent));
        };
        let damaged = || Error::Corrupt(format!("{} in the registry is no list of versions", name(filter)));
        let listing = Listing::decode(&found.value).ok_or_else(damaged)?;
        Ok((listing, Expected::Version(found.version)))
    }

    /// Changes a listing, unless nothing is to be changed. What is to be changed is asked again if somebody else was first.
    async fn change<T>(
        &self,
        filter: u64,
        mut change: impl FnMut(&mut Listing) -> T,
    ) -> Result<(Listing, T)> {
        for _ in 0..ATTEMPTS {
            let (before, expected) = self.found(filter).await?;
            let mut after = before.clone();
            let told = change(&mut after);
            if after == before {
                return Ok((after, told));
            }
            match self.0.put(&name(filter), after.encode(), expected, None).await {
                Ok(Change::Done(_)) => return Ok((after, told)),
                Ok(Change::Conflict(_)) => {}
                // It may have been done: the value tells.
                Err(error) => {
                    if self.of(filter).await? == after {
                        return Ok((after, told));
                    }
                    return Err(error);
                }
            }
        }
        Err(Error::Retry("others change the versions of this filter all the time".into()))
    }

    /// Lists a version, if the newest one is still that from which it was made; false if it is not.
    pub(super) async fn commit(&self, filter: u64, base: Option<Making>, made: Listed) -> Result<bool> {
        let commit = |listing: &mut Listing| {
            if listing.newest() == Some(made.making) {
                return true;
            }
            let is_next = listing.newest() == base;
            listing.versions.extend(is_next.then_some(made));
            is_next
        };
        Ok(self.change(filter, commit).await?.1)
    }

    /// Takes versions out of the list but for these, the newest, and what is or was pinned. Gives what is left.
    pub(super) async fn retain(&self, filter: u64, kept: &[u64]) -> Result<Listing> {
        let retain = |listing: &mut Listing| {
            let Current { version, previous, strong } = listing.current;
            let newest = listing.newest();
            listing.versions.retain(|listed| {
                let number = listed.making.number;
                kept.contains(&number)
                    || Some(listed.making) == newest
                    || [version, previous, strong].contains(&Some(number))
            });
        };
        Ok(self.change(filter, retain).await?.0)
    }

    /// From now on, nobody pins a version for strong replicas who has another number.
    pub(super) async fn guard(&self, filter: u64, guard: u64) -> Result<()> {
        self.change(filter, |listing| listing.guard = guard).await.map(drop)
    }

    /// Pins a version, or none, if what is pinned is as expected, or nobody expects anything; and if nobody else looks after strong
    /// replicas than the one who pins it for them.
    pub(super) async fn pin(
        &self,
        filter: u64,
        version: Option<u64>,
        expected: Option<Option<u64>>,
        guard: Option<u64>,
    ) -> Result<Pin> {
        let pin = |listing: &mut Listing| {
            let current = listing.current;
            if version.is_some_and(|version| listing.numbered(version).is_none()) {
                return Pin::NoVersion;
            }
            let is_guarded = guard.is_some_and(|guard| guard != listing.guard);
            if is_guarded || expected.is_some_and(|expected| expected != current.version) {
                return Pin::Conflict(current);
            }
            if current.version != version {
                let previous = current.version.or(current.previous);
                listing.current = Current { version, previous, ..current };
            }
            Pin::Done(listing.current)
        };
        Ok(self.change(filter, pin).await?.1)
    }

    /// Sets the version that strong replicas answer from, if it is as expected and the caller has the newest guard.
    pub(super) async fn switch(
        &self,
        filter: u64,
        version: u64,
        expected: Option<u64>,
        guard: u64,
    ) -> Result<Pin> {
        let switch = |listing: &mut Listing| {
            let current = listing.current;
            if listing.numbered(version).is_none() {
                return Pin::NoVersion;
            }
            if guard != listing.guard || expected != current.strong {
                return Pin::Conflict(current);
            }
            listing.current.strong = Some(version);
            Pin::Done(listing.current)
        };
        Ok(self.change(filter, switch).await?.1)
    }

    /// Forgets the list of a filter that is gone.
    pub(super) async fn forget(&self, filter: u64) -> Result<()> {
        self.0.delete(&name(filter), Expected::Anything).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::registry::EmbeddedRegistry;

    fn listed(number: u64, nonce: u32) -> Listed {
        Listed { making: Making { number, nonce }, made_ms: number * 1000 }
    }

    #[test]
    fn a_listing_comes_back_and_what_is_damaged_does_not() {
        let current = Current { version: Some(3), previous: None, strong: Some(9) };
        let listing = Listing { versions: vec![listed(3, 0), listed(9, u32::MAX)], current, guard: 1 << 60 };
        let text = listing.encode();
        assert_eq!(Listing::decode(&text), Some(listing));
        let without = Listing::decode(b"current 3 - 0\n").unwrap();
        assert_eq!(
            (without.current.version, without.current.strong),
            (Some(3), None),
            "of an earlier release"
        );
        for cut in 0..text.len() - 1 {
            let read = Listing::decode(&text[..cut]);
            assert!(read.is_none_or(|read| read.versions.len() < 2 || read.versions[1].made_ms < 9000));
        }
        for bad in [
            "",
            "current 1 -",
            "current 1 x 0\n",
            "current - - 0\nversion 1 2\n",
            "current - - 0\nversion 1 x 3",
        ] {
            assert_eq!(Listing::decode(bad.as_bytes()), None, "{bad:?}");
        }
        let making = Making { number: 12, nonce: 0xabc };
        assert_eq!(making.to_string().parse::<Making>().unwrap(), making);
        assert!("12-abc".parse::<Making>().is_err());
    }

    #[tokio::test]
    async fn of_two_versions_made_from_one_the_first_counts() {
        let registry = Arc::new(EmbeddedRegistry::in_memory(Arc::new(SystemClock::default())));
        let listings = Listings::new(registry);
        assert!(listings.commit(7, None, listed(1, 5)).await.unwrap());
        assert!(!listings.commit(7, None, listed(1, 6)).await.unwrap());
        let base = Some(listed(1, 5).making);
        assert!(listings.commit(7, base, listed(2, 1)).await.unwrap());
        // Whoever did not hear of it asks again, and is told that it is done.
        assert!(listings.commit(7, base, listed(2, 1)).await.unwrap());
        assert!(!listings.commit(7, base, listed(2, 2)).await.unwrap());
        assert!(!listings.commit(7, base, listed(3, 2)).await.unwrap());
        assert_eq!(listings.of(7).await.unwrap().versions, [listed(1, 5), listed(2, 1)]);
    }

    #[tokio::test]
    async fn what_is_pinned_is_kept_and_what_is_gone_is_not_pinned() {
        let registry = Arc::new(EmbeddedRegistry::in_memory(Arc::new(SystemClock::default())));
        let listings = Listings::new(registry);
        let mut base = None;
        for number in 1..=5 {
            assert!(listings.commit(7, base, listed(number, 0)).await.unwrap());
            base = Some(listed(number, 0).making);
        }
        let current = Current { version: Some(2), previous: None, strong: None };
        assert_eq!(listings.pin(7, Some(2), Some(None), None).await.unwrap(), Pin::Done(current));
        assert_eq!(listings.pin(7, Some(3), Some(None), None).await.unwrap(), Pin::Conflict(current));
        let current = Current { version: Some(3), previous: Some(2), strong: None };
        assert_eq!(listings.pin(7, Some(3), None, None).await.unwrap(), Pin::Done(current));
        let left = listings.retain(7, &[]).await.unwrap();
        assert_eq!(left.versions, [listed(2, 0), listed(3, 0), listed(5, 0)]);
        assert_eq!(listings.pin(7, Some(4), None, None).await.unwrap(), Pin::NoVersion);
        let current = Current { version: None, previous: Some(3), strong: None };
        assert_eq!(listings.pin(7, None, None, None).await.unwrap(), Pin::Done(current));
        // Somebody else looks after strong replicas now.
        listings.guard(7, 77).await.unwrap();
        assert_eq!(listings.pin(7, Some(5), None, Some(76)).await.unwrap(), Pin::Conflict(current));
        let current = Current { version: Some(5), ..current };
        assert_eq!(listings.pin(7, Some(5), None, Some(77)).await.unwrap(), Pin::Done(current));
        // What strong replicas answer from is another value: a pin leaves it, and it leaves the pin.
        assert_eq!(listings.switch(7, 3, None, 76).await.unwrap(), Pin::Conflict(current));
        assert_eq!(listings.switch(7, 3, Some(2), 77).await.unwrap(), Pin::Conflict(current));
        assert_eq!(listings.switch(7, 4, None, 77).await.unwrap(), Pin::NoVersion);
        let current = Current { strong: Some(3), ..current };
        assert_eq!(listings.switch(7, 3, None, 77).await.unwrap(), Pin::Done(current));
        let current = Current { version: Some(2), previous: Some(5), strong: Some(3) };
        assert_eq!(listings.pin(7, Some(2), None, None).await.unwrap(), Pin::Done(current));
        let current = Current { version: None, previous: Some(2), ..current };
        assert_eq!(listings.pin(7, None, None, None).await.unwrap(), Pin::Done(current));
        assert_eq!(
            listings.retain(7, &[]).await.unwrap().versions,
            [listed(2, 0), listed(3, 0), listed(5, 0)]
        );
        listings.forget(7).await.unwrap();
        assert_eq!(listings.of(7).await.unwrap(), Listing::default());
    }
}
