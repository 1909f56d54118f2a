//! What the records are: numbers that say nothing about where a record is, and titles that follow from them.

/// The first number.
pub(crate) const FIRST: u32 = 100_001;

/// A record of an archive.
pub(crate) struct Record {
    pub(crate) number: u32,
    pub(crate) title: String,
    pub(crate) year: u32,
    pub(crate) shelf: String,
}

const KINDS: [&str; 12] = [
    "Letters",
    "Map",
    "Ledger",
    "Drawings",
    "Diary",
    "Photographs",
    "Charter",
    "Census",
    "Ship's log",
    "Minutes",
    "Score",
    "Plans",
];
const SUBJECTS: [&str; 16] = [
    "a lighthouse keeper",
    "the cable company",
    "the botanical garden",
    "a clockmaker's widow",
    "the harbour office",
    "the observatory",
    "the opera house",
    "a polar expedition",
    "the glass works",
    "the city's bridges",
    "a travelling theatre",
    "the salt road",
    "the royal stables",
    "the first airport",
    "the school of music",
    "the weather station",
];

/// Mixes a number, so that neighbours have nothing in common.
fn mixed(number: u32) -> u32 {
    let mut bits = number.wrapping_mul(0x9e37_79b9);
    bits = (bits ^ bits >> 16).wrapping_mul(0x85eb_ca6b);
    (bits ^ bits >> 13).wrapping_mul(0xc2b2_ae35) ^ bits >> 16
}

/// The records of one of several archives.
pub(crate) fn of(archive: u32, archives: u32, all: u32) -> impl Iterator<Item = Record> {
    (FIRST..FIRST + all).filter(move |number| mixed(*number) % archives == archive).map(|number| {
        let bits = mixed(number ^ 0x5eed) as usize;
        let (kind, subject) = (KINDS[bits % KINDS.len()], SUBJECTS[bits / KINDS.len() % SUBJECTS.len()]);
        Record {
            number,
            title: format!("{kind} of {subject}"),
            year: 1_700 + mixed(number) / 7 % 300,
            shelf: format!("{}-{:03}", char::from(b'A' + (bits / 977 % 26) as u8), bits / 31 % 1_000),
        }
    })
}
