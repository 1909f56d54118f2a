use umbel_filter::{Fingerprint, Hasher};

/// Keys of one question. They are hashed once for all filters that hash alike, however many domains are asked.
#[derive(Debug, Default)]
pub struct Keys<'a> {
    keys: Vec<&'a [u8]>,
    /// For every way to hash that was met, the fingerprints; none while nobody has asked for them.
    hashed: Vec<(Hasher, Vec<Fingerprint>)>,
}

impl<'a> Keys<'a> {
    /// These keys.
    pub fn new(keys: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self { keys: keys.into_iter().collect(), hashed: Vec::new() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys, in order.
    pub fn as_slice(&self) -> &[&'a [u8]] {
        &self.keys
    }

    /// Their fingerprints, in order.
    pub fn by(&mut self, hasher: &Hasher) -> &[Fingerprint] {
        let known = self.hashed.iter().position(|(known, _)| known.agrees_with(hasher));
        let place = known.unwrap_or_else(|| {
            self.hashed.push((hasher.clone(), Vec::with_capacity(self.keys.len())));
            self.hashed.len() - 1
        });
        let (hasher, fingerprints) = &mut self.hashed[place];
        if fingerprints.len() != self.keys.len() {
            fingerprints.clear();
            fingerprints.extend(self.keys.iter().map(|key| hasher.fingerprint(key)));
        }
        fingerprints
    }

    /// Other keys in the same memory.
    pub(crate) fn refill(&mut self, keys: impl Iterator<Item = &'a [u8]>) {
        self.keys.clear();
        self.keys.extend(keys);
        self.hashed.iter_mut().for_each(|(_, fingerprints)| fingerprints.clear());
    }

    /// Leaves only the keys at these places, which are in ascending order.
    pub(crate) fn keep(&mut self, places: &[usize]) {
        if places.len() == self.keys.len() {
            return;
        }
        for (_, fingerprints) in &mut self.hashed {
            if fingerprints.len() == self.keys.len() {
                places.iter().enumerate().for_each(|(to, from)| fingerprints[to] = fingerprints[*from]);
                fingerprints.truncate(places.len());
            }
        }
        places.iter().enumerate().for_each(|(to, from)| self.keys[to] = self.keys[*from]);
        self.keys.truncate(places.len());
    }
}

#[cfg(test)]
mod tests {
    use umbel_filter::{Family, Secret};

    use super::*;

    #[test]
    fn keys_are_hashed_once_for_each_way_to_hash() {
        let hasher = |family, secret| Hasher::new(family, secret).unwrap();
        let (one, other) = (Secret([1; 16]), Secret([2; 16]));
        let hashers = [
            hasher(Family::Murmur3, None),
            hasher(Family::Xxh3, None),
            hasher(Family::Keyed, Some(&one)),
            hasher(Family::Keyed, Some(&other)),
            hasher(Family::Murmur3, None),
            hasher(Family::Keyed, Some(&one)),
        ];
        let texts: Vec<String> = (0..10).map(|number| format!("key {number}")).collect();
        let mut keys = Keys::new(texts.iter().map(String::as_bytes));
        for kept in [(0..10).collect::<Vec<usize>>(), vec![1, 4, 9], vec![0, 2], vec![]] {
            keys.keep(&kept);
            for hasher in &hashers {
                let expected: Vec<_> = keys.as_slice().iter().map(|key| hasher.fingerprint(key)).collect();
                assert_eq!(keys.by(hasher), expected);
            }
            assert_eq!(keys.hashed.len(), 4);
        }
        keys.refill(texts[3..5].iter().map(String::as_bytes));
        assert_eq!(keys.by(&hashers[0]), [&b"key 3"[..], b"key 4"].map(|key| hashers[0].fingerprint(key)));
    }
}
