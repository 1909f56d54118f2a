//! Requests, replies, and how a server counts them.

/// All requests are this one: servers that differ in their loops alone need no parser.
pub(super) const REQUEST: &[u8] = b"*3\r\n$9\r\nBF.EXISTS\r\n$4\r\nloop\r\n$9\r\nkey:00001\r\n";
pub(super) const REPLY: &[u8] = b":1\r\n";

/// Bytes of a buffer that servers and load read into.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

/// Requests of one connection, counted by their length.
#[derive(Default)]
pub(super) struct Frames {
    bytes: u64,
}

impl Frames {
    /// Puts a reply behind the others for every request that has become whole.
    pub(super) fn answer(&mut self, input: &[u8], replies: &mut Vec<u8>) {
        let before = self.whole();
        self.bytes += input.len() as u64;
        for _ in before..self.whole() {
            replies.extend_from_slice(REPLY);
        }
    }

    /// How many requests have come.
    pub(super) fn whole(&self) -> u64 {
        self.bytes / REQUEST.len() as u64
    }
}
