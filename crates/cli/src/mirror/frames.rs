//! Where requests and replies end, in bytes that come in any pieces: they are passed on as they are, and looked at on the way.

/// A request or a reply that has come to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Its first byte, which says what it is.
    pub(crate) kind: u8,
    /// All of it, if it was not too long to be kept.
    pub(crate) bytes: Option<Vec<u8>>,
}

/// Longest line within a frame.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Bytes that are cut into frames.
#[derive(Debug)]
pub(crate) struct Frames {
    kept_max: usize,
    kept: Vec<u8>,
    is_too_long: bool,
    kind: Option<u8>,
    /// How many parts are still to come until the frame is whole.
    missing: u64,
    /// Bytes of a text that are still to come, with its end.
    text: u64,
    line: Vec<u8>,
}

impl Frames {
    /// Frames of up to so many bytes are kept.
    pub(crate) fn new(kept_max: usize) -> Self {
        let (kept, line) = (Vec::new(), Vec::new());
        Self { kept_max, kept, is_too_long: false, kind: None, missing: 0, text: 0, line }
    }

    /// Takes the next bytes, and gives each frame that ends in them. An error means that this is not the protocol.
    pub(crate) fn take(&mut self, mut bytes: &[u8], mut each: impl FnMut(Frame)) -> Result<(), String> {
        while !bytes.is_empty() {
            let part = if self.text > 0 {
                let length = usize::try_from(self.text).unwrap_or(usize::MAX).min(bytes.len());
                self.text -= length as u64;
                if self.text == 0 {
                    self.missing = self.missing.saturating_sub(1);
                }
                length
            } else {
                self.take_line(bytes)?
            };
            let (taken, rest) = bytes.split_at(part);
            self.keep(taken);
            bytes = rest;
            if self.kind.is_some() && self.missing == 0 && self.text == 0 && self.line.is_empty() {
                each(self.finish());
            }
        }
        Ok(())
    }

    /// Takes what there is of a line, and gives its length.
    fn take_line(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let end = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let length = end.unwrap_or(bytes.len());
        self.line.extend_from_slice(&bytes[..length]);
        if self.line.len() > LINE_BYTES_MAX {
            return Err(format!("a line of more than {LINE_BYTES_MAX} bytes"));
        }
        if end.is_some() {
            let line = std::mem::take(&mut self.line);
            self.read_line(line.trim_ascii_end())?;
        }
        Ok(length)
    }

    fn read_line(&mut self, line: &[u8]) -> Result<(), String> {
        let (kind, rest) = line.split_first().map_or((b'\n', &[][..]), |(kind, rest)| (*kind, rest));
        if self.kind.is_none() {
            self.kind = Some(kind);
            self.missing = 1;
        }
        let number = || {
            let text = std::str::from_utf8(rest).ok().and_then(|text| text.parse::<i64>().ok());
            text.ok_or_else(|| format!("no length: {:?}", crate::resp::shown(line)))
        };
        match kind {
            b'$' | b'=' | b'!' => match u64::try_from(number()?) {
                Ok(length) => self.text = length.saturating_add(2),
                Err(_) => self.missing -= 1,
            },
            b'*' | b'~' | b'>' | b'%' => {
                let length = u64::try_from(number()?).unwrap_or(0);
                let length = if kind == b'%' { length.saturating_mul(2) } else { length };
                self.missing = (self.missing - 1).saturating_add(length);
            }
            // What it says of the reply that follows.
            b'|' => self.missing = self.missing.saturating_add(u64::try_from(number()?).unwrap_or(0) * 2),
            _ => self.missing -= 1,
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.is_too_long |= self.kept.len() + bytes.len() > self.kept_max;
        if !self.is_too_long {
            self.kept.extend_from_slice(bytes);
        }
    }

    fn finish(&mut self) -> Frame {
        let kept = std::mem::take(&mut self.kept);
        let bytes = (!std::mem::take(&mut self.is_too_long)).then_some(kept);
        Frame { kind: self.kind.take().unwrap_or(b'\n'), bytes }
    }
}

/// The words of a request; nothing if it is none that a client library sends.
pub(crate) fn words(request: &[u8]) -> Option<Vec<Vec<u8>>> {
    let words = crate::resp::reply(&mut &request[..], 0).ok()?.array()?;
    words.into_iter().map(crate::resp::Value::text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(bytes: &[u8], piece: usize, kept_max: usize) -> Vec<Frame> {
        let (mut frames, mut found) = (Frames::new(kept_max), Vec::new());
        bytes.chunks(piece).for_each(|piece| frames.take(piece, |frame| found.push(frame)).unwrap());
        found
    }

    #[test]
    fn frames_are_found_however_they_come() {
        let frames: [&[u8]; 12] = [
            b"+OK\r\n",
            b":-1\r\n",
            b"$6\r\na\r\n$1\r\r\n",
            b"$-1\r\n",
            b"*0\r\n",
            b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
            b"*2\r\n*2\r\n:1\r\n*0\r\n%1\r\n+a\r\n#t\r\n",
            b">2\r\n+message\r\n_\r\n",
            b"|1\r\n+ttl\r\n:3\r\n$1\r\nx\r\n",
            b"*-1\r\n",
            b"PING\r\n",
            b"\r\n",
        ];
        let all = frames.concat();
        for piece in 1..=all.len() {
            let found = cut(&all, piece, 1000);
            let bytes: Vec<&[u8]> = found.iter().map(|frame| frame.bytes.as_deref().unwrap()).collect();
            assert_eq!(bytes, frames, "in pieces of {piece}");
            assert!(
                found.iter().zip(frames).all(|(frame, bytes)| frame.kind == bytes[0] || bytes == b"\r\n")
            );
        }
    }

    #[test]
    fn what_is_too_long_is_counted_and_not_kept() {
        let long = [b"*1\r\n$100\r\n".as_slice(), &[b'x'; 100], b"\r\n"].concat();
        let all = [long.as_slice(), b":1\r\n"].concat();
        for piece in [1, 7, 1000] {
            let found = cut(&all, piece, 50);
            assert_eq!(found[0], Frame { kind: b'*', bytes: None });
            assert_eq!(found[1], Frame { kind: b':', bytes: Some(b":1\r\n".to_vec()) });
        }
    }

    #[test]
    fn what_is_no_protocol_is_an_error() {
        for bytes in [b"*x\r\n".as_slice(), b"$1x\r\n", &[b'a'; 70 << 10]] {
            assert!(Frames::new(10).take(bytes, |_| {}).is_err());
        }
    }

    #[test]
    fn requests_have_words() {
        assert_eq!(words(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"), Some(vec![b"GET".to_vec(), b"a".to_vec()]));
        assert_eq!((words(b"PING\r\n"), words(b"*1\r\n:1\r\n")), (None, None));
    }
}
