//! What several test files share: fixtures and a small generator of numbers.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

pub(crate) fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

pub(crate) fn read(name: &str) -> Vec<u8> {
    fs::read(fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(crate) fn manifest(folder: &str) -> Vec<Value> {
    serde_json::from_slice(&read(&format!("{folder}/manifest.json"))).unwrap()
}

pub(crate) fn numbers(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

/// The keys of `families/keys.hex`.
pub(crate) fn family_keys() -> Vec<Vec<u8>> {
    let text = String::from_utf8(read("families/keys.hex")).unwrap();
    text.lines().map(unhex).collect()
}

fn unhex(line: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
    (0..line.len()).step_by(2).map(digits).collect()
}

/// SplitMix64: any seed gives a sequence good enough to test with.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }
}
