//! Keys as lines of text, as many as come.

use axum::body::{Body, BodyDataStream};
use futures_util::StreamExt;

use super::fault::Fault;

/// Keys that are taken together.
const BATCH_KEYS: usize = 1 << 14;

/// The lines of a body. An empty line is no key; a carriage return at the end of one does not belong to it.
pub(super) struct Lines {
    body: BodyDataStream,
    /// What has come and was not taken yet.
    held: Vec<u8>,
    /// Where the first line that was not taken begins.
    start: usize,
    line_bytes_max: usize,
    is_over: bool,
}

impl Lines {
    pub(super) fn new(body: Body, line_bytes_max: usize) -> Self {
        Self { body: body.into_data_stream(), held: Vec::new(), start: 0, line_bytes_max, is_over: false }
    }

    /// Hands the next lines to `take`; false if there are none.
    pub(super) async fn next(&mut self, mut take: impl FnMut(&[u8])) -> Result<bool, Fault> {
        let mut taken = 0;
        loop {
            while let Some(length) = self.held[self.start..].iter().position(|byte| *byte == b'\n') {
                let line = &self.held[self.start..self.start + length];
                self.start += length + 1;
                taken += hand(line, &mut take);
                if taken >= BATCH_KEYS {
                    return Ok(true);
                }
            }
            self.held.drain(..self.start);
            self.start = 0;
            if self.held.len() > self.line_bytes_max {
                return Err(Fault::invalid(format!("a line of more than {} bytes", self.line_bytes_max)));
            }
            if self.is_over {
                taken += hand(&std::mem::take(&mut self.held), &mut take);
                return Ok(taken > 0);
            }
            match self.body.next().await {
                Some(Ok(bytes)) => self.held.extend_from_slice(&bytes),
                Some(Err(error)) => return Err(Fault::invalid(format!("the body ended early: {error}"))),
                None => self.is_over = true,
            }
        }
    }
}

fn hand(line: &[u8], take: &mut impl FnMut(&[u8])) -> usize {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return 0;
    }
    take(line);
    1
}
