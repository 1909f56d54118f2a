//! Redis's patterns: `*`, `?`, `[a-z]`, `[^a]` and `\` before a letter that stands for itself.
//!
//! Only the last star is ever tried again, so a match takes at most as many steps as the lengths of pattern and text
//! multiplied. Redis's own recursion was made to take hours by hostile patterns.

/// Whether `pattern` matches all of `text`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    run(pattern, text, |byte| byte)
}

/// The same, where upper and lower case are one.
pub fn matches_any_case(pattern: &[u8], text: &[u8]) -> bool {
    run(pattern, text, |byte| byte.to_ascii_lowercase())
}

/// The letters before the first special one: all that a text must begin with.
pub fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
    &pattern[..pattern.iter().position(special).unwrap_or(pattern.len())]
}

fn run(pattern: &[u8], text: &[u8], fold: impl Fn(u8) -> u8 + Copy) -> bool {
    let (mut at, mut place) = (0, 0);
    // Behind the last star, and how much of the text it has taken.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, place));
            continue;
        }
        match (at < pattern.len(), text.get(place)) {
            (false, None) => return true,
            (true, Some(letter)) => {
                if let Some(next) = step(pattern, at, *letter, fold) {
                    (at, place) = (next, place + 1);
                    continue;
                }
            }
            // The rest of the pattern wants letters that are not there: a longer star would leave even fewer.
            (true, None) => return false,
            (false, Some(_)) => {}
        }
        match star {
            Some((behind, taken)) => {
                (at, place) = (behind, taken + 1);
                star = Some((behind, taken + 1));
            }
            None => return false,
        }
    }
}

/// Where the pattern goes on if its element at `at` takes `letter`.
fn step(pattern: &[u8], at: usize, letter: u8, fold: impl Fn(u8) -> u8) -> Option<usize> {
    let letter = fold(letter);
    match pattern[at] {
        b'?' => Some(at + 1),
        b'[' => {
            let (found, next) = class(pattern, at + 1, letter, fold);
            found.then_some(next)
        }
        // A backslash at the very end stands for itself.
        b'\\' if at + 1 < pattern.len() => (fold(pattern[at + 1]) == letter).then_some(at + 2),
        plain => (fold(plain) == letter).then_some(at + 1),
    }
}

/// Whether a class has the letter, and where it ends. One that is not closed ends with the pattern, as in Redis.
fn class(pattern: &[u8], mut at: usize, letter: u8, fold: impl Fn(u8) -> u8) -> (bool, usize) {
    let not = pattern.get(at) == Some(&b'^');
    at += usize::from(not);
    let mut found = false;
    loop {
        match pattern[at.min(pattern.len())..] {
            [] => return (found != not, at),
            [b'\\', plain, ..] => {
                found |= fold(plain) == letter;
                at += 2;
            }
            [b']', ..] => return (found != not, at + 1),
            [from, b'-', to, ..] => {
                let (from, to) = (from.min(to), from.max(to));
                found |= (fold(from)..=fold(to)).contains(&letter);
                at += 3;
            }
            [plain, ..] => {
                found |= fold(plain) == letter;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tricky_patterns() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("**", "abc", true),
            ("a*", "a", true),
            ("?", "", false),
            ("h?llo", "hello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hallo", true),
            ("h[b-a]llo", "hallo", true),
            ("[a-c]x", "bx", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("[\\]]", "]", true),
            ("[]", "a", false),
            ("[^]", "a", true),
            ("[abc", "b", true),
            ("[abc", "d", false),
            ("[a-", "-", true),
            ("[", "[", false),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxcxxb", false),
            ("a*a", "a", false),
            ("*.example.org", "a.b.example.org", true),
            ("A", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
            assert_eq!(oracle(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        assert!(matches_any_case(b"MAX[C-D]*", b"maxclients"));
        assert!(matches(b"\xff*\x00", b"\xff\xfe\x00"));
        assert_eq!(literal_prefix(b"user:*"), b"user:");
        assert_eq!(literal_prefix(b"user"), b"user");
    }

    #[test]
    fn hostile_patterns_end() {
        let begun = Instant::now();
        let pattern = b"a*".repeat(1000);
        let text = [b"a".repeat(20_000), b"b".to_vec()].concat();
        assert!(!matches(&[&pattern[..], b"c"].concat(), &text));
        assert!(begun.elapsed().as_secs() < 5);
    }

    /// The definition, tried out in every way.
    fn oracle(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|taken| oracle(rest, &text[taken..])),
            ([], _) | (_, []) => false,
            (_, [letter, rest @ ..]) => {
                step(pattern, 0, *letter, |byte| byte).is_some_and(|next| oracle(&pattern[next..], rest))
            }
        }
    }

    proptest! {
        #[test]
        fn stars_are_tried_enough(pattern in "[ab*?\\[\\]\\\\^-]{0,9}", text in "[ab\\]-]{0,9}") {
            prop_assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), oracle(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
