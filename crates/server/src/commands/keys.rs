//! Filters as keys: what is there, what it is called, and until when.

use super::Outcome;
use crate::names::{key_of, name_of};
use crate::resp::Command;
use crate::session::{Session, is_erasable};

/// `DEL key...`, `UNLINK key...`
pub async fn del(session: &mut Session, command: Command<'_>) -> Outcome {
    let mut dropped = 0;
    for key in command.from(1) {
        if let Some(filter) = session.node.engine.filter(&name_of(key)) {
            session.node.engine.drop_filter(&filter).await?;
            dropped += 1;
        }
    }
    session.reply.count(dropped);
    Ok(())
}

/// `EXISTS key...`, `TOUCH key...`
pub fn exists(session: &mut Session, command: Command<'_>) -> Outcome {
    let there = command.from(1).filter(|key| session.node.engine.filter(&name_of(key)).is_some()).count();
    session.reply.count(there as u64);
    Ok(())
}

/// `TYPE key`
pub fn kind(session: &mut Session, command: Command<'_>) -> Outcome {
    let kind = match session.node.engine.filter(&name_of(command.get(1))) {
        None => "none",
        Some(filter) if is_erasable(&filter) => "MBbloomCF",
        Some(_) => "MBbloom--",
    };
    session.reply.simple(kind);
    Ok(())
}

/// `KEYS pattern`
pub fn keys(session: &mut Session, _command: Command<'_>) -> Outcome {
    let filters = session.node.engine.filters();
    session.reply.array(filters.len());
    filters.iter().for_each(|filter| session.reply.bulk(key_of(&filter.definition().name)));
    Ok(())
}

/// `DBSIZE`
pub fn dbsize(session: &mut Session) -> Outcome {
    let filters = session.node.engine.filters().len();
    session.reply.count(filters as u64);
    Ok(())
}

/// `FLUSHALL`, `FLUSHDB`
pub async fn flush(session: &mut Session) -> Outcome {
    for filter in session.node.engine.filters() {
        session.node.engine.drop_filter(&filter).await?;
    }
    session.reply.ok();
    Ok(())
}

/// Whether a text matches a pattern: `*`, `?`, `[a-z]`, `[^a]` and `\` before a byte that is meant itself.
///
/// After a star that fails, only the last star is tried further, so the time is at most the product of both lengths.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where to go on if what follows the last star does not fit: behind the star, one byte further in the text.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                if at == pattern.len() {
                    return true;
                }
                retry = Some((at, from + 1));
                continue;
            }
            None if from == text.len() => return true,
            None => {}
            Some(_) => {
                if let Some(byte) = text.get(from) {
                    let (fits, next) = matches_one(pattern, at, *byte);
                    if fits {
                        (at, from) = (next, from + 1);
                        continue;
                    }
                }
            }
        }
        match retry {
            Some((star, next)) if next <= text.len() => {
                (at, from) = (star, next);
                retry = Some((star, next + 1));
            }
            _ => return false,
        }
    }
}

/// Whether a byte fits to what stands in a pattern, and where the pattern goes on.
fn matches_one(pattern: &[u8], at: usize, byte: u8) -> (bool, usize) {
    match pattern[at] {
        b'?' => (true, at + 1),
        b'\\' if at + 1 < pattern.len() => (pattern[at + 1] == byte, at + 2),
        b'[' => {
            let mut at = at + 1;
            let negated = pattern.get(at) == Some(&b'^');
            at += usize::from(negated);
            let mut fits = false;
            // A class that is not closed ends with the pattern, as in Redis.
            while let Some(&first) = pattern.get(at) {
                match (first, pattern.get(at + 1), pattern.get(at + 2)) {
                    (b'\\', Some(&meant), _) => {
                        fits |= meant == byte;
                        at += 2;
                    }
                    (b']', _, _) => break,
                    (first, Some(b'-'), Some(&last)) => {
                        fits |= (first.min(last)..=first.max(last)).contains(&byte);
                        at += 3;
                    }
                    (first, _, _) => {
                        fits |= first == byte;
                        at += 1;
                    }
                }
            }
            (fits != negated, (at + 1).min(pattern.len()))
        }
        meant => (meant == byte, at + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_like_redis() {
        let yes: [(&str, &str); 14] = [
            ("*", ""),
            ("", ""),
            ("a*b*c", "axxbyyc"),
            ("a*c*", "abcabc"),
            ("*abc", "ababc"),
            ("h?llo", "hello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[b-a]llo", "hallo"),
            ("\\*", "*"),
            ("[\\]]", "]"),
            ("[a", "a"),
            ("**a", "ba"),
            ("\\", "\\"),
        ];
        let no: [(&str, &str); 9] = [
            ("", "a"),
            ("a", ""),
            ("h[^e]llo", "hello"),
            ("\\*", "a"),
            ("a*b", "abc"),
            ("?", ""),
            ("[]", "]"),
            ("[a", "b"),
            ("*a*b", "bbba"),
        ];
        for (pattern, text) in yes {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in no {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn stars_do_not_explode() {
        let pattern = "*a".repeat(50) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(5_000).as_bytes()));
    }
}
