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

/// Longest pattern that [`covers`] looks into.
const COVERED_BYTES_MAX: usize = 1024;

/// Whether `outer` matches every text that `inner` matches. Two different patterns of which one is very long are not compared:
/// then it may be wrong by saying no, and never by saying yes.
pub fn covers(outer: &[u8], inner: &[u8]) -> bool {
    if outer == inner {
        return true;
    }
    if outer.len().max(inner.len()) > COVERED_BYTES_MAX {
        return false;
    }
    let (outer, inner) = (elements(outer), elements(inner));
    // As in `run`, with the elements of a pattern for letters. Only a star takes a star.
    let (mut at, mut place) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        match (outer.get(at), inner.get(place)) {
            (Some(Element::Star), _) => {
                at += 1;
                star = Some((at, place));
                continue;
            }
            (Some(Element::Letter(outer)), Some(Element::Letter(inner))) if inner.is_within(outer) => {
                (at, place) = (at + 1, place + 1);
                continue;
            }
            (None, None) => return true,
            (Some(_), None) => return false,
            (_, Some(_)) => {}
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

/// What a part of a pattern matches.
#[derive(Debug, PartialEq)]
enum Element {
    Letter(Letters),
    Star,
}

/// A set of letters, a bit for each.
#[derive(Debug, PartialEq)]
struct Letters([u64; 4]);

impl Letters {
    const ALL: Self = Self([u64::MAX; 4]);

    fn is_within(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(ours, theirs)| ours & !theirs == 0)
    }
}

/// A pattern in parts. Of stars and letters of any kind that stand together there is one star, at the end: `*?` is `?*`.
fn elements(pattern: &[u8]) -> Vec<Element> {
    let (mut elements, mut at) = (Vec::new(), 0);
    while at < pattern.len() {
        if pattern[at] == b'*' {
            at += 1;
            if elements.last() != Some(&Element::Star) {
                elements.push(Element::Star);
            }
            continue;
        }
        let mut letters = [0; 4];
        for letter in 0..=u8::MAX {
            if step(pattern, at, letter, |byte| byte).is_some() {
                letters[usize::from(letter / 64)] |= 1 << (letter % 64);
            }
        }
        let letters = Letters(letters);
        let behind_stars = elements.pop_if(|last| letters == Letters::ALL && *last == Element::Star);
        elements.push(Element::Letter(letters));
        elements.extend(behind_stars);
        at = match pattern[at] {
            b'[' => class(pattern, at + 1, 0, |byte| byte).1,
            b'\\' if at + 1 < pattern.len() => at + 2,
            _ => at + 1,
        };
    }
    elements
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

    /// What a real Redis answered to `KEYS`.
    #[test]
    fn answers_are_those_of_redis() {
        let mut lines = include_str!("../../../fixtures/redis/glob.txt").lines().map(|line| {
            let (pattern, texts) = line.split_once('\t').unwrap();
            (pattern, texts.split(' ').filter(|text| !text.is_empty()).collect::<Vec<_>>())
        });
        let (_, all) = lines.next().unwrap();
        let mut patterns = 0;
        for (pattern, expected) in lines {
            let found: Vec<_> =
                all.iter().copied().filter(|text| matches(pattern.as_bytes(), text.as_bytes())).collect();
            assert_eq!(found, expected, "{pattern}");
            patterns += 1;
        }
        assert!(patterns > 300 && all.len() == 60);
    }

    #[test]
    fn patterns_cover_others() {
        for (outer, inner, expected) in [
            ("*", "*", true),
            ("*", "", true),
            ("*", "public:[a-z]*", true),
            ("**", "*", true),
            ("", "*", false),
            ("public:*", "*", false),
            ("public:*", "public:*", true),
            ("public:*", "public:a", true),
            ("public:*", "public:", true),
            ("public:*", "public:news:*", true),
            ("public:*", "public:?", true),
            ("public:*", "public*", false),
            ("public:*", "publi[c]:*", true),
            ("public:*", "publi[cd]:*", false),
            ("public:*", "publi?:*", false),
            ("public:*", "\\public:*", true),
            ("public:*", "[p]ublic:\\*", true),
            ("public:\\*", "public:*", false),
            ("public:*", "*public:*", false),
            ("*:public", "a*:public", true),
            ("*a*b*", "xa*yb", true),
            ("*a*b*", "xb*ya", false),
            ("?*", "*?", true),
            ("?*?", "??*", true),
            ("??*", "?*", false),
            ("[a-z]x", "[b-d]x", true),
            ("[^a]", "b", true),
            ("[^a]", "[ab]", false),
            ("a", "?", false),
            ("[ab]", "a", true),
            ("abc", "ab", false),
            ("ab", "abc", false),
        ] {
            assert_eq!(covers(outer.as_bytes(), inner.as_bytes()), expected, "{outer} {inner}");
        }
        let long = [b"a".repeat(COVERED_BYTES_MAX), b"*".to_vec()].concat();
        assert!(covers(&long, &long) && !covers(&long, b"a"));
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

        #[test]
        fn what_is_covered_is_matched(
            outer in "[ab*?\\[\\]\\\\^-]{0,6}",
            inner in "[ab*?\\[\\]\\\\^-]{0,6}",
            text in "[ab\\]-]{0,6}",
        ) {
            let (outer, inner, text) = (outer.as_bytes(), inner.as_bytes(), text.as_bytes());
            prop_assert!(!covers(outer, inner) || !matches(inner, text) || matches(outer, text));
        }
    }
}
