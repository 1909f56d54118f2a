//! Where requests end, and which say so twice.
//!
//! A request with two lengths, or a length and a coding, may be read in one way by a proxy and in another one here, and then they disagree about
//! where the next request begins. hyper takes one of them and does not show that there was another header, so the bytes are followed before
//! hyper sees them: the second header is made one that hyper refuses with 400.

/// Longest line of a head; hyper refuses heads that are longer.
const LINE_BYTES_MAX: usize = 64 << 10;

/// What the bytes of a connection belong to.
#[derive(Debug, Default)]
pub(super) struct Framing {
    part: Part,
    /// The line so far, of parts that have lines.
    line: Vec<u8>,
    /// Whether the head has more than its first line.
    has_begun: bool,
    length: Option<u64>,
    /// Headers so far that say where the request ends.
    has_length: bool,
    has_coding: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Part {
    #[default]
    Head,
    /// So many bytes of a body.
    Body(u64),
    ChunkSize,
    /// So many bytes of a chunk.
    Chunk(u64),
    ChunkEnd,
    Trailers,
    /// What hyper refuses.
    Refused,
}

impl Framing {
    /// Follows the next bytes of the connection, and spoils what is to be refused.
    pub(super) fn follow(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        while let Some(byte) = bytes.get_mut(at) {
            match self.part {
                Part::Refused => return,
                Part::Body(left) | Part::Chunk(left) => {
                    let passed = left.min((bytes.len() - at) as u64);
                    at += passed as usize;
                    self.part = match (self.part, left - passed) {
                        (Part::Body(_), 0) => Part::Head,
                        (Part::Body(_), left) => Part::Body(left),
                        (_, 0) => Part::ChunkEnd,
                        (_, left) => Part::Chunk(left),
                    };
                    continue;
                }
                Part::Head | Part::ChunkSize | Part::ChunkEnd | Part::Trailers => {}
            }
            at += 1;
            match *byte {
                b'\n' => self.end_line(),
                b':' if self.part == Part::Head && self.is_second_length() => {
                    *byte = 0;
                    self.part = Part::Refused;
                }
                _ if self.line.len() == LINE_BYTES_MAX => self.part = Part::Refused,
                byte => self.line.push(byte),
            }
        }
    }

    /// Whether the line so far is the name of a header that says again where the request ends.
    fn is_second_length(&mut self) -> bool {
        let is = |name: &str| self.has_begun && self.line.eq_ignore_ascii_case(name.as_bytes());
        let (is_length, is_coding) = (is("content-length"), is("transfer-encoding"));
        let is_second = (is_length || is_coding) && (self.has_length || self.has_coding);
        self.has_length |= is_length;
        self.has_coding |= is_coding;
        is_second
    }

    fn end_line(&mut self) {
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        self.part = match self.part {
            // Empty lines may come before a request.
            Part::Head if line.is_empty() && !self.has_begun => Part::Head,
            Part::Head if line.is_empty() => {
                let ended = std::mem::take(self);
                match ended.length {
                    _ if ended.has_coding => Part::ChunkSize,
                    Some(length @ 1..) => Part::Body(length),
                    _ => Part::Head,
                }
            }
            Part::Head => {
                self.has_begun = true;
                match value_of(line, "content-length").map(|value| number(value, 10)) {
                    Some(None) => Part::Refused,
                    Some(length) => {
                        self.length = length;
                        Part::Head
                    }
                    None => Part::Head,
                }
            }
            Part::ChunkSize => {
                let digits =
                    line.split(|byte| matches!(byte, b';' | b' ' | b'\t')).next().unwrap_or_default();
                match number(digits, 16) {
                    None => Part::Refused,
                    Some(0) => Part::Trailers,
                    Some(bytes) => Part::Chunk(bytes),
                }
            }
            Part::ChunkEnd => Part::ChunkSize,
            Part::Trailers if line.is_empty() => Part::Head,
            part => part,
        };
        self.line.clear();
    }
}

/// The value of a line that is this header.
fn value_of<'l>(line: &'l [u8], name: &str) -> Option<&'l [u8]> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    line[..colon].eq_ignore_ascii_case(name.as_bytes()).then(|| line[colon + 1..].trim_ascii())
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    // A sign is no digit.
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a connection after they were followed, that came so many at a time.
    fn followed(request: &str, piece: usize) -> Vec<u8> {
        let (mut framing, mut bytes) = (Framing::default(), request.as_bytes().to_vec());
        bytes.chunks_mut(piece).for_each(|piece| framing.follow(piece));
        bytes
    }

    #[test]
    fn second_lengths_are_spoiled_wherever_they_stand() {
        let length = "Content-Length: 3\r\n";
        let coding = "transfer-encoding: chunked\r\n";
        let first = "\r\nPOST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 34\r\n\r\ncontent-length: 1\ncontent-length:\n";
        let chunked = "POST /a HTTP/1.1\nTransfer-Encoding: chunked\n\n20;x=y\r\n\r\n\r\ncontent-length: 5\r\ncontent-l\r\n0\r\nx: y\r\n\r\n";
        for before in ["", "GET / HTTP/1.1\r\n\r\n", first, chunked] {
            for (one, other) in [(length, coding), (coding, length), (length, length), (coding, coding)] {
                let start = format!("{before}POST / HTTP/1.1\r\n{one}host: a\r\n");
                let request = format!("{start}{other}\r\nabc");
                for piece in [1, 7, request.len()] {
                    let mut expected = request.clone().into_bytes();
                    expected[start.len() + other.find(':').unwrap()] = 0;
                    assert_eq!(followed(&request, piece), expected, "{request}");
                }
                let fine = format!("{start}\r\n0\r\n\r\n");
                assert_eq!(followed(&fine, 3), fine.as_bytes());
            }
        }
    }

    #[test]
    fn what_hyper_refuses_is_not_followed() {
        for head in ["content-length: -1", "content-length: +1", "content-length: 99999999999999999999"] {
            let request = format!("POST / HTTP/1.1\r\n{head}\r\ncontent-length: 1\r\n\r\n");
            assert_eq!(followed(&request, 5), request.as_bytes());
        }
        let long = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(2 * LINE_BYTES_MAX));
        assert_eq!(followed(&long, 1000), long.as_bytes());
    }
}
