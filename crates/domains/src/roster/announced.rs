use bytes::Bytes;
use serde_json::{Value, json};
use umbel_core::definition::Definition;
use umbel_core::limits::FILTER_NAME_BYTES_MAX;
use xxhash_rust::xxh3::xxh3_64;

use crate::domain::check_name;
use crate::limits::{ADDRESS_BYTES_MAX, ANNOUNCED_BYTES_MAX, PUBLISHED_MAX};
use crate::{Error, Result};

const FORMAT: u64 = 1;

/// What a domain tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Its name.
    pub name: String,
    /// Where its servers are; empty if that could not be read.
    pub address: String,
    /// The filters that others may copy.
    pub filters: Vec<Published>,
}

/// A filter that others may copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its name.
    pub name: String,
    /// What stands for its definition: another number when its size, its kind or anything else of it has changed.
    pub digest: u64,
}

impl Published {
    /// A filter as it is defined.
    pub fn of(definition: &Definition) -> Result<Self> {
        Ok(Self { name: definition.name.clone(), digest: xxh3_64(&definition.encode()?) })
    }
}

impl Announced {
    pub(super) fn unreadable(name: &str) -> Self {
        Self { name: name.to_owned(), address: String::new(), filters: Vec::new() }
    }

    /// Says what cannot be.
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        let is_line =
            |text: &str| !text.contains(|letter: char| letter.is_control() || letter.is_whitespace());
        if !(1..=ADDRESS_BYTES_MAX).contains(&self.address.len()) || !is_line(&self.address) {
            return Err(Error::Invalid(format!(
                "the address {:?} of the domain {}; it has 1 to {ADDRESS_BYTES_MAX} bytes and no spaces",
                self.address, self.name
            )));
        }
        let is_name = |filter: &Published| (1..=FILTER_NAME_BYTES_MAX).contains(&filter.name.len());
        if self.filters.len() > PUBLISHED_MAX || !self.filters.iter().all(is_name) {
            return Err(Error::Invalid(format!(
                "{} filters of the domain {}; there are up to {PUBLISHED_MAX}, with names of 1 to {FILTER_NAME_BYTES_MAX} bytes",
                self.filters.len(),
                self.name
            )));
        }
        Ok(())
    }

    pub(super) fn encode(&self) -> Result<Bytes> {
        self.check()?;
        // Numbers of JSON have no room for all digests.
        let filters: Vec<Value> = self
            .filters
            .iter()
            .map(|filter| json!({ "name": filter.name, "digest": format!("{:016x}", filter.digest) }))
            .collect();
        let text =
            json!({ "format": FORMAT, "name": self.name, "address": self.address, "filters": filters })
                .to_string();
        if text.len() > ANNOUNCED_BYTES_MAX {
            return Err(Error::Invalid(format!(
                "the domain {} tells {} bytes of itself; at most {ANNOUNCED_BYTES_MAX}",
                self.name,
                text.len()
            )));
        }
        Ok(text.into())
    }

    pub(super) fn decode(name: &str, bytes: &[u8]) -> Result<Self> {
        let corrupt = |what: &str| Error::Corrupt(format!("the domain {name} in the registry {what}"));
        if bytes.len() > ANNOUNCED_BYTES_MAX {
            return Err(corrupt("is too long"));
        }
        let value: Value =
            serde_json::from_slice(bytes).map_err(|error| corrupt(&format!("is no JSON: {error}")))?;
        if value["format"].as_u64() != Some(FORMAT) || value["name"].as_str() != Some(name) {
            return Err(corrupt("has another name, or a format that is not known here"));
        }
        let filter = |filter: &Value| {
            let digest = filter["digest"].as_str().filter(|digest| digest.len() == 16);
            let digest = u64::from_str_radix(digest?, 16).ok()?;
            Some(Published { name: filter["name"].as_str()?.to_owned(), digest })
        };
        let filters = value["filters"].as_array().ok_or_else(|| corrupt("names no filters"))?;
        let filters: Option<Vec<Published>> = filters.iter().map(filter).collect();
        let announced = Self {
            name: name.to_owned(),
            address: value["address"].as_str().unwrap_or_default().to_owned(),
            filters: filters.ok_or_else(|| corrupt("has filters that cannot be"))?,
        };
        announced.check().map_err(|error| corrupt(&format!("cannot be: {error}")))?;
        Ok(announced)
    }
}

#[cfg(test)]
mod tests {
    use umbel_filter::Spec;

    use super::*;

    #[test]
    fn what_is_told_comes_back_and_nothing_else_is_taken() {
        let definition = Definition::new("books\n\"1\"", Spec::counting(1_000, 0.01));
        let larger = definition.resized(2_000, 0.01).unwrap();
        let [books, more] = [&definition, &larger].map(|definition| Published::of(definition).unwrap());
        assert!(books.name == more.name && books.digest != more.digest);
        let filters = vec![books, Published { name: "b".into(), digest: u64::MAX }];
        let announced = Announced { name: "north".into(), address: "http://north:6381".into(), filters };
        let bytes = announced.encode().unwrap();
        assert_eq!(Announced::decode("north", &bytes).unwrap(), announced);
        assert!(Announced::decode("south", &bytes).is_err());
        for end in 0..bytes.len() {
            assert!(Announced::decode("north", &bytes[..end]).is_err());
        }
        for (good, bad) in
            [("\"format\":1", "\"format\":2"), ("ffff", "fff"), ("http://", "http: "), ("digest", "sum")]
        {
            let text = std::str::from_utf8(&bytes).unwrap().replacen(good, bad, 1);
            assert!(Announced::decode("north", text.as_bytes()).is_err(), "{text}");
        }
        assert!(Announced { name: "a b".into(), ..announced.clone() }.encode().is_err());
        assert!(Announced { address: String::new(), ..announced }.encode().is_err());
    }
}
