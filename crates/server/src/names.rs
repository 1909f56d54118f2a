//! Keys of Redis are bytes, names of filters are text.

use std::borrow::Cow;

/// Marks a name that is written in hexadecimal digits.
const ESCAPED: char = '\u{0}';
/// Names that begin with it are the engine's own.
const INTERNAL: char = '\u{1}';

/// The name of the filter that a client calls so.
pub(crate) fn name_of(key: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(key) {
        Ok(text) if !text.starts_with([ESCAPED, INTERNAL]) => text.into(),
        _ => {
            let mut name = String::with_capacity(1 + 2 * key.len());
            name.push(ESCAPED);
            key.iter().for_each(|byte| name.push_str(&format!("{byte:02x}")));
            name.into()
        }
    }
}

/// What clients call the filter of that name.
pub(crate) fn key_of(name: &str) -> Cow<'_, [u8]> {
    let Some(digits) = name.strip_prefix(ESCAPED) else { return name.as_bytes().into() };
    let bytes = digits.as_bytes().chunks(2).map(|pair| {
        std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()).unwrap_or_default()
    });
    bytes.collect::<Vec<_>>().into()
}

/// The same as text, for people and JSON; bytes that are none are replaced.
pub(crate) fn shown(name: &str) -> String {
    String::from_utf8_lossy(&key_of(name)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_name_of_its_own() {
        let keys: [&[u8]; 7] =
            [b"urls", "umbel\u{308}".as_bytes(), b"\xff\x00", b"\x00", b"\x01x", b"", b"\x00ff"];
        for key in keys {
            let name = name_of(key);
            assert_eq!(*key_of(&name), *key);
            assert!(!name.starts_with(INTERNAL));
        }
        assert_eq!(name_of(b"urls"), "urls");
    }
}
