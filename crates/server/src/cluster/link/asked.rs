//! Answers that are on their way, and questions that share one.

use tokio::sync::oneshot;
use tokio::time::Instant;
use umbel_core::Error;
use umbel_core::engine::Token;

use super::{Failure, Outcome};
use crate::cluster::wire;

/// Bytes of keys after which a question takes no more.
const KEYS_BYTES_MAX: usize = 1 << 20;

/// An answer that has to come by a time.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) who: Who,
    pub(super) end: Instant,
}

/// Who waits for it.
#[derive(Debug)]
pub(super) enum Who {
    One(oneshot::Sender<Outcome>),
    /// Each for the answers to so many keys.
    Some(Vec<(oneshot::Sender<Outcome>, usize)>),
}

impl Expected {
    /// Tells all who wait. Some may not wait any more.
    pub(super) fn tell(self, outcome: Outcome) {
        let all = match self.who {
            Who::One(answer) => {
                let _ = answer.send(outcome);
                return;
            }
            Who::Some(all) => all,
        };
        let keys: usize = all.iter().map(|(_, keys)| keys).sum();
        let mut outcome = outcome.and_then(|bytes| match bytes.len() == keys {
            true => Ok(bytes),
            false => {
                let why = "a node answered for more or fewer keys than it was sent";
                Err(Failure::Refused(Error::Corrupt(why.into())))
            }
        });
        for (answer, keys) in all {
            let own = match &mut outcome {
                Ok(bytes) => Ok(bytes.split_to(keys)),
                Err(failure) => Err(failure.clone()),
            };
            let _ = answer.send(own);
        }
    }
}

/// Keys of one filter that go as one question.
#[derive(Debug)]
pub(super) struct Asked {
    filter: u64,
    keys: Vec<Vec<u8>>,
    bytes: usize,
    waiting: Vec<(oneshot::Sender<Outcome>, usize)>,
    end: Instant,
}

/// Puts keys to those of the same filter.
pub(super) fn put(
    questions: &mut Vec<Asked>,
    filter: u64,
    keys: Vec<u8>,
    answer: oneshot::Sender<Outcome>,
    end: Instant,
) {
    let waits = (answer, keys.len() / wire::KEY_BYTES);
    let takes = |asked: &&mut Asked| asked.filter == filter && asked.bytes + keys.len() <= KEYS_BYTES_MAX;
    match questions.iter_mut().rev().find(takes) {
        Some(asked) => {
            asked.bytes += keys.len();
            asked.keys.push(keys);
            asked.waiting.push(waits);
            asked.end = asked.end.min(end);
        }
        None => {
            let bytes = keys.len();
            questions.push(Asked { filter, keys: vec![keys], bytes, waiting: vec![waits], end });
        }
    }
}

impl Asked {
    /// Writes the question, and says who waits for its answer.
    pub(super) fn put_into(self, out: &mut Vec<u8>) -> Expected {
        let head = wire::put_question(self.filter, &Token::default());
        let message: Vec<&[u8]> = std::iter::once(&head).chain(&self.keys).map(Vec::as_slice).collect();
        wire::put_frame(out, &[&[b"ASK"], &message]);
        Expected { who: Who::Some(self.waiting), end: self.end }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use umbel_filter::Fingerprint;

    use super::*;

    /// Questions with so many keys each, what goes out for them, and who waits.
    fn asked(counts: &[u64]) -> (Vec<Vec<u8>>, Vec<Expected>, Vec<oneshot::Receiver<Outcome>>) {
        let (mut questions, mut waiting) = (Vec::new(), Vec::new());
        let end = Instant::now() + Duration::from_secs(60);
        for (number, count) in (0..).zip(counts) {
            let (answer, waits) = oneshot::channel();
            let keys = (0..*count).map(|n| Fingerprint { first: n, second: number });
            put(&mut questions, 7, wire::put_keys(keys.collect::<Vec<_>>().into_iter()), answer, end);
            waiting.push(waits);
        }
        let mut frames = Vec::new();
        let expected = questions.into_iter().map(|question| {
            let mut frame = Vec::new();
            let expected = question.put_into(&mut frame);
            frames.push(frame);
            expected
        });
        let expected = expected.collect();
        (frames, expected, waiting)
    }

    #[test]
    fn questions_that_wait_go_together_and_each_gets_its_answers() {
        let (frames, mut expected, mut waiting) = asked(&[1, 3, 2]);
        let mut message = wire::put_question(7, &Token::default());
        for (number, count) in (0..).zip([1, 3, 2]) {
            let keys: Vec<_> = (0..count).map(|n| Fingerprint { first: n, second: number }).collect();
            message.extend(wire::put_keys(keys.into_iter()));
        }
        assert_eq!(frames, [wire::frame(&[b"ASK", &message])]);
        expected.remove(0).tell(Ok(Bytes::from_static(b"abbbcc")));
        let told = waiting.iter_mut().map(|waits| waits.try_recv().unwrap().unwrap());
        assert_eq!(told.collect::<Vec<_>>(), [&b"a"[..], b"bbb", b"cc"]);
    }

    #[test]
    fn an_answer_of_another_length_is_nobodys() {
        let (_, mut expected, mut waiting) = asked(&[1, 2]);
        expected.remove(0).tell(Ok(Bytes::from_static(b"ab")));
        for waits in &mut waiting {
            assert!(matches!(waits.try_recv().unwrap(), Err(Failure::Refused(Error::Corrupt(_)))));
        }
        let (_, mut expected, mut waiting) = asked(&[1, 2]);
        expected.remove(0).tell(Err(Failure::Lost("gone".into())));
        for waits in &mut waiting {
            assert!(matches!(waits.try_recv().unwrap(), Err(Failure::Lost(_))));
        }
    }

    #[test]
    fn a_question_does_not_grow_without_end() {
        let most = (KEYS_BYTES_MAX / wire::KEY_BYTES) as u64;
        let (frames, expected, _waiting) = asked(&[most, 1, most + 1, 2]);
        assert_eq!((frames.len(), expected.len()), (3, 3));
    }
}
