//! Replies to bytes.

/// The version of the protocol that a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// What every client understands.
    #[default]
    Resp2,
    /// With maps, booleans, doubles and messages that nobody asked for.
    Resp3,
}

/// Replies on their way to a client.
#[derive(Debug, Default)]
pub struct Reply {
    bytes: Vec<u8>,
    protocol: Protocol,
}

impl Reply {
    /// The version that is spoken.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Speaks another version from here on.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// What is there to be sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bytes are there to be sent.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is nothing to be sent.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets what was sent, or must not be sent.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes.truncate(bytes);
    }

    /// Takes the buffer, to be given back to others.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Writes into this buffer from here on.
    pub fn give(&mut self, buffer: Vec<u8>) {
        self.bytes = buffer;
    }

    fn is_resp3(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    fn head(&mut self, tag: u8, number: i64) {
        if (0..10).contains(&number) {
            return self.bytes.extend_from_slice(&[tag, b'0' + number as u8, b'\r', b'\n']);
        }
        self.bytes.push(tag);
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = number.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            self.bytes.push(b'-');
        }
        self.bytes.extend_from_slice(&digits[at..]);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, tag: u8, text: &str) {
        self.bytes.push(tag);
        // A line ends where its end is, whatever somebody put into it.
        self.bytes.extend(text.bytes().map(|byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte }));
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// A short text.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// An error; its first word is its kind.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text);
    }

    /// A number.
    pub fn integer(&mut self, number: i64) {
        self.head(b':', number);
    }

    /// A number that cannot be negative.
    pub fn count(&mut self, number: u64) {
        self.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// Yes or no.
    #[inline]
    pub fn boolean(&mut self, yes: bool) {
        let text: &[u8; 4] = match (self.is_resp3(), yes) {
            (true, true) => b"#t\r\n",
            (true, false) => b"#f\r\n",
            (false, true) => b":1\r\n",
            (false, false) => b":0\r\n",
        };
        self.bytes.extend_from_slice(text);
    }

    /// Bytes.
    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.head(b'$', bytes.len() as i64);
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Text that is meant for people.
    pub fn verbatim(&mut self, text: &str) {
        if !self.is_resp3() {
            return self.bulk(text);
        }
        self.head(b'=', text.len() as i64 + 4);
        self.bytes.extend_from_slice(b"txt:");
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A number with a fraction.
    pub fn double(&mut self, number: f64) {
        let text = number.to_string();
        if self.is_resp3() { self.line(b',', &text) } else { self.bulk(text) }
    }

    /// Nothing.
    pub fn null(&mut self) {
        self.bytes.extend_from_slice(if self.is_resp3() { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Nothing, where there would be an array.
    pub fn null_array(&mut self) {
        self.bytes.extend_from_slice(if self.is_resp3() { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// So many replies follow.
    pub fn array(&mut self, length: usize) {
        self.head(b'*', length as i64);
    }

    /// So many pairs of replies follow.
    pub fn map(&mut self, pairs: usize) {
        if self.is_resp3() { self.head(b'%', pairs as i64) } else { self.head(b'*', 2 * pairs as i64) }
    }

    /// So many replies follow, in no order.
    pub fn set(&mut self, length: usize) {
        self.head(if self.is_resp3() { b'~' } else { b'*' }, length as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl FnOnce(&mut Reply)) -> String {
        let mut reply = Reply::default();
        reply.set_protocol(protocol);
        write(&mut reply);
        String::from_utf8(reply.take()).expect("text")
    }

    #[test]
    fn writes_both_versions() {
        let all = |reply: &mut Reply| {
            reply.map(1);
            reply.bulk("key");
            reply.boolean(true);
            reply.null();
            reply.double(0.5);
            reply.set(0);
            reply.integer(-12);
            reply.integer(i64::MIN);
            reply.verbatim("hi");
            reply.null_array();
        };
        assert_eq!(
            written(Protocol::Resp2, all),
            "*2\r\n$3\r\nkey\r\n:1\r\n$-1\r\n$3\r\n0.5\r\n*0\r\n:-12\r\n:-9223372036854775808\r\n$2\r\nhi\r\n*-1\r\n"
        );
        assert_eq!(
            written(Protocol::Resp3, all),
            "%1\r\n$3\r\nkey\r\n#t\r\n_\r\n,0.5\r\n~0\r\n:-12\r\n:-9223372036854775808\r\n=6\r\ntxt:hi\r\n_\r\n"
        );
    }

    #[test]
    fn a_line_is_one_line() {
        assert_eq!(written(Protocol::Resp2, |reply| reply.error("ERR a\r\nb")), "-ERR a  b\r\n");
    }
}
