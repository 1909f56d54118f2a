//! A checksum over what two processes tell each other, where nothing else guards it on the way: a flipped bit in a position, in a
//! fingerprint or in the length of a lease would otherwise be believed. TCP's own checksum misses one damaged packet of many.

/// The checksum of the head of a question: what is to be done, where, how, and what kind of body comes with it. It is apart from that of
/// the body, because a head is looked at first: nothing may be refused for good that was only damaged. Ways between the two may write a
/// path with other escapes.
pub fn of_head(method: &str, path: &str, query: &str, kind: &str) -> String {
    text(&[method.as_bytes(), &unescaped(path), query.as_bytes(), kind.as_bytes()])
}

/// The checksum of the body of a question.
pub fn of_body(body: &[u8]) -> String {
    text(&[body])
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
        let sum = of_head("POST", "/v1/filters/a%3Ab/add", "session=1", "text/plain");
        assert_eq!(sum, of_head("POST", "/v1/filters/a:b/add", "session=1", "text/plain"));
        assert_eq!(unescaped("%4a%zz%4"), b"J%zz%4");
        for other in [
            of_head("PUT", "/v1/filters/a:b/add", "session=1", "text/plain"),
            of_head("POST", "/v1/filters/a:c/add", "session=1", "text/plain"),
            of_head("POST", "/v1/filters/a:b/add", "session=3", "text/plain"),
            of_head("POST", "/v1/filters/a:b/add", "session=1", "text/plaio"),
            // The same bytes in other parts.
            of_head("POST", "/v1/filters/a:b/ad", "dsession=1", "text/plain"),
        ] {
            assert_ne!(sum, other);
        }
        assert_ne!(of_body(b"keys"), of_body(b"kays"));
        assert_ne!(of_answer(&sum, 200, b"{}"), of_answer(&sum, 202, b"{}"));
        assert_ne!(of_answer(&sum, 200, b"{}"), of_answer("00000000", 200, b"{}"));
    }
}
