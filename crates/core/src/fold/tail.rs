//! What came after the archive: the exact record of a filter's newest fingerprints.

use std::collections::HashMap;
use std::sync::Arc;

use umbel_filter::Fingerprint;

/// Fingerprints in the order of the log, or, where they can be removed, their counts.
#[derive(Debug)]
pub enum Newest {
    /// Of a filter to which keys are only added.
    Keys(Vec<Fingerprint>),
    /// Adds less removals, of an erasable filter; below zero if the adds are in the archive.
    Nets(HashMap<Fingerprint, i32>),
}

impl Newest {
    fn new(counted: bool) -> Self {
        if counted { Self::Nets(HashMap::new()) } else { Self::Keys(Vec::new()) }
    }

    fn net(&self, key: Fingerprint) -> i64 {
        match self {
            Self::Keys(keys) => i64::from(keys.contains(&key)),
            Self::Nets(nets) => nets.get(&key).copied().unwrap_or(0).into(),
        }
    }

    /// How many fingerprints there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Keys(keys) => keys.len(),
            Self::Nets(nets) => nets.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What came after the archive. Frozen parts do not change any more: they are being archived, or folded into another generation.
#[derive(Debug)]
pub(super) struct Tail {
    frozen: Vec<Arc<Newest>>,
    newest: Newest,
}

impl Tail {
    pub(super) fn new(counted: bool) -> Self {
        Self { frozen: Vec::new(), newest: Newest::new(counted) }
    }

    pub(super) fn add(&mut self, keys: &[Fingerprint]) {
        match &mut self.newest {
            Newest::Keys(newest) => newest.extend_from_slice(keys),
            Newest::Nets(nets) => keys.iter().for_each(|key| *nets.entry(*key).or_default() += 1),
        }
    }

    pub(super) fn remove(&mut self, key: Fingerprint) {
        if let Newest::Nets(nets) = &mut self.newest {
            *nets.entry(key).or_default() -= 1;
        }
    }

    /// Adds less removals since the archive; of a filter without removals, whether it was added.
    pub(super) fn net(&self, key: Fingerprint) -> i64 {
        self.frozen.iter().map(|part| part.net(key)).sum::<i64>() + self.newest.net(key)
    }

    /// Fingerprints that no part frozen yet holds.
    pub(super) fn newest(&self) -> &Newest {
        &self.newest
    }

    /// Freezes what there is and gives all frozen parts.
    pub(super) fn freeze(&mut self) -> Vec<Arc<Newest>> {
        if !self.newest.is_empty() {
            let counted = matches!(self.newest, Newest::Nets(_));
            self.frozen.push(Arc::new(std::mem::replace(&mut self.newest, Newest::new(counted))));
        }
        self.frozen.clone()
    }

    /// Forgets frozen parts that are archived now.
    pub(super) fn archived(&mut self, parts: &[Arc<Newest>]) {
        self.frozen.retain(|kept| !parts.iter().any(|part| Arc::ptr_eq(part, kept)));
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(matches!(self.newest, Newest::Nets(_)));
    }
}
