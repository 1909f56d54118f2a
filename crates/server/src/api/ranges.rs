//! Parts of an answer: `Range`, one at a time.

use std::ops::Range;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Everything. So is what cannot be understood, and several parts at once: a server may ignore them.
    Whole,
    /// These bytes.
    Part(Range<u64>),
    /// Bytes that are not there.
    Outside,
}

/// What a `Range` asks for, of so many bytes.
pub(super) fn asked(range: Option<&str>, length: u64) -> Asked {
    let Some((unit, spec)) = range.and_then(|range| range.split_once('=')) else { return Asked::Whole };
    let (unit, spec) = (unit.trim(), spec.trim());
    let Some((first, last)) = spec.split_once('-').filter(|_| unit.eq_ignore_ascii_case("bytes")) else {
        return Asked::Whole;
    };
    let part = match (number(first), number(last)) {
        // The last so many bytes.
        (Some(None), Some(Some(most))) => length.saturating_sub(most)..length,
        (Some(Some(first)), Some(None)) => first..length,
        (Some(Some(first)), Some(Some(last))) if first <= last => {
            first..last.saturating_add(1).min(length).max(first)
        }
        _ => return Asked::Whole,
    };
    if part.start < length && !part.is_empty() { Asked::Part(part) } else { Asked::Outside }
}

/// A number, or nothing if there is none; neither if it is something else.
fn number(text: &str) -> Option<Option<u64>> {
    match text {
        "" => Some(None),
        _ if !text.bytes().all(|digit| digit.is_ascii_digit()) => None,
        // More digits than a number has are far outside of everything.
        _ => Some(Some(text.parse().unwrap_or(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_understood_and_anything_else_is_all_of_it() {
        for (range, expected) in [
            ("bytes=0-9", Asked::Part(0..10)),
            ("bytes=0-0", Asked::Part(0..1)),
            ("bytes=90-", Asked::Part(90..100)),
            ("bytes=90-1000", Asked::Part(90..100)),
            ("bytes=90-99999999999999999999999", Asked::Part(90..100)),
            ("bytes=-10", Asked::Part(90..100)),
            ("bytes=-1000", Asked::Part(0..100)),
            ("BYTES = 1-2", Asked::Part(1..3)),
            ("bytes=100-", Asked::Outside),
            ("bytes=100-200", Asked::Outside),
            ("bytes=99999999999999999999999-", Asked::Outside),
            ("bytes=-0", Asked::Outside),
            ("bytes=9-3", Asked::Whole),
            ("bytes=-", Asked::Whole),
            ("bytes=0-1,5-6", Asked::Whole),
            ("bytes=a-b", Asked::Whole),
            ("bytes=+1-2", Asked::Whole),
            ("lines=0-9", Asked::Whole),
            ("0-9", Asked::Whole),
            ("", Asked::Whole),
        ] {
            assert_eq!(asked(Some(range), 100), expected, "{range}");
        }
        assert_eq!(asked(None, 100), Asked::Whole);
        assert_eq!(asked(Some("bytes=0-"), 0), Asked::Outside);
    }
}
