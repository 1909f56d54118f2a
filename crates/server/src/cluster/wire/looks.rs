//! Lookups of other nodes that say how current answers have to be.
//!
//! ```text
//! LOOK    consistency u8: 0 any, 1 current, 2 strong; then as ASK  --> age u64 in nanoseconds, [partition u32, position 16], a byte for each key
//! ```

use std::time::Duration;

use umbel_core::Result;
use umbel_core::engine::{Consistency, Token, Told};
use umbel_filter::Fingerprint;

use super::{Message, answers, cut, put_answers, put_question, put_token, question, take_token};

fn code(consistency: Consistency) -> u8 {
    match consistency {
        Consistency::Any => 0,
        Consistency::Current => 1,
        Consistency::Strong => 2,
    }
}

/// What a question for keys begins with; the keys follow.
pub(crate) fn put_look(consistency: Consistency, filter: u64, after: &Token) -> Vec<u8> {
    let mut out = vec![code(consistency)];
    out.extend(put_question(filter, after));
    out
}

pub(crate) fn look(bytes: &[u8]) -> Result<(Consistency, u64, Token, Vec<Fingerprint>)> {
    let (first, rest) = bytes.split_first().ok_or_else(cut)?;
    let consistency = [Consistency::Any, Consistency::Current, Consistency::Strong];
    let consistency = consistency.into_iter().find(|one| code(*one) == *first).ok_or_else(cut)?;
    let (filter, after, keys) = question(rest)?;
    Ok((consistency, filter, after, keys))
}

/// Answers to it.
pub(crate) fn put_told(told: &Told) -> Vec<u8> {
    let age = u64::try_from(told.age.as_nanos()).unwrap_or(u64::MAX);
    let mut out = age.to_le_bytes().to_vec();
    put_token(&mut out, &told.position);
    out.extend(put_answers(&told.answers));
    out
}

pub(crate) fn told(bytes: &[u8]) -> Result<Told> {
    let mut message = Message(bytes);
    let age = Duration::from_nanos(message.u64()?);
    let position = take_token(&mut message)?;
    Ok(Told { answers: answers(message.0)?, position, age })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use umbel_core::Position;
    use umbel_core::engine::Answer;

    use super::super::put_keys;
    use super::*;

    #[test]
    fn all_that_is_told_is_understood() {
        let keys: Vec<_> = (0..9).map(|n| Fingerprint { first: n, second: !n }).collect();
        let mut after = Token::default();
        after.see(2, Position::from_number(77));
        for consistency in [Consistency::Any, Consistency::Current, Consistency::Strong] {
            let asked = [put_look(consistency, 9, &after), put_keys(keys.iter().copied())].concat();
            assert_eq!(look(&asked).unwrap(), (consistency, 9, after.clone(), keys.clone()));
        }
        let answers = vec![Answer::Absent, Answer::Maybe, Answer::Unknown];
        let all = Told { answers, position: after, age: Duration::from_millis(1500) };
        assert_eq!(told(&put_told(&all)).unwrap(), all);
        assert!(look(&[3]).is_err() && look(&[]).is_err());
        assert!(told(&[&[0; 8][..], &u32::MAX.to_le_bytes()].concat()).is_err());
    }

    proptest! {
        #[test]
        fn nothing_that_comes_does_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (look(&bytes), told(&bytes));
        }
    }
}
