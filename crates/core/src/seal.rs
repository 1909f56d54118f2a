//! A checksum over what two processes tell each other, where nothing else guards it on the way: a flipped bit in a position, in a
//! fingerprint or in the length of a lease would otherwise be believed. TCP's own checksum misses one damaged packet of many.

/// The checksum of a question: what is to be done, where, how, and with what. Ways between the two may write a path with other escapes.
pub fn of_question(method: &str, path: &str, query: &str, body: &[u8]) -> String {
    text(&[method.as_bytes(), &unescaped(path), query.as_bytes(), body])
}

/// The checksum of an answer to the question with that checksum: an answer to another one does not fit.
pub fn of_answer(question: &str, status: u16, body: &[u8]) -> String {
    text(&[question.as_bytes(), &status.to_le_bytes(), body])
}

/// Each part with its length, so that none can pass for the end of another.
fn text(parts: &[&[u8]]) -> String {
    let sum = parts.iter().fold(0, |sum, part| {
        crc32c::crc32c_append(crc32c::crc32c_append(sum, &(part.len() as u64).to_le_bytes()), part)
    });
    format!("{sum:08x}")
}

/// A path without its `%XX`.
fn unescaped(path: &str) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(path.len()), path.as_bytes());
    while let [first, behind @ ..] = rest {
        let digit = |at: usize| behind.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                plain.push((high * 16 + low) as u8);
                rest = &behind[2..];
            }
            _ => {
                plain.push(*first);
                rest = behind;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_counts_and_escapes_do_not() {
        let sum = of_question("POST", "/v1/filters/a%3Ab/add", "session=1", b"keys");
        assert_eq!(sum, of_question("POST", "/v1/filters/a:b/add", "session=1", b"keys"));
        assert_eq!(unescaped("%4a%zz%4"), b"J%zz%4");
        for other in [
            of_question("PUT", "/v1/filters/a:b/add", "session=1", b"keys"),
            of_question("POST", "/v1/filters/a:c/add", "session=1", b"keys"),
            of_question("POST", "/v1/filters/a:b/add", "session=3", b"keys"),
            of_question("POST", "/v1/filters/a:b/add", "session=1", b"kays"),
            // The same bytes in other parts.
            of_question("POST", "/v1/filters/a:b/ad", "dsession=1", b"keys"),
        ] {
            assert_ne!(sum, other);
        }
        assert_ne!(of_answer(&sum, 200, b"{}"), of_answer(&sum, 202, b"{}"));
        assert_ne!(of_answer(&sum, 200, b"{}"), of_answer("00000000", 200, b"{}"));
    }
}
