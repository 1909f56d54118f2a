//! Listens for notices, which are small, and fetches what changed from the nearest source. A notice that is missed is made good
//! by a slow timer.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use super::{Follower, pull};
use crate::backoff::jitter;
use crate::http::Ask;
use crate::limits::EVENT_BYTES_MAX;
use crate::{Error, Result};

/// A version that was noticed, or that is there when somebody begins to listen, is not older than this.
const NOTICED_AGE: Duration = Duration::from_secs(5);

/// What a notice says.
#[derive(Debug, PartialEq, Eq)]
enum Notice {
    /// There is a version.
    Version(Published),
    /// The centre has something to say to this replica alone.
    Ask,
    /// Others were missed.
    Missed,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
struct Published {
    number: u64,
    digest: String,
    #[serde(default)]
    current: bool,
}

pub(super) async fn run(follower: &mut Follower, interval: Duration) -> Result<()> {
    // A notice says that there is something; that there is nothing, only an answer says. So whoever must not be stale asks often.
    let interval = follower.shared.options.stale_after.map_or(interval, |stale| interval.min(stale / 4));
    let path = follower.shared.sources.path("notices");
    // First listen, then ask: what is published in between is noticed.
    let mut notices = follower.shared.sources.ask(&Ask::get(path)).await?;
    pull::pull(follower, interval.min(NOTICED_AGE)).await?;
    let mut events = Events::default();
    let mut next = Instant::now() + jitter(interval, &*follower.shared.options.random);
    let shared = Arc::clone(&follower.shared);
    loop {
        let heard = tokio::select! {
            heard = notices.next() => heard?,
            () = shared.look.notified() => {
                pull::pull(follower, interval).await?;
                continue;
            }
            () = sleep_until(next) => {
                pull::pull(follower, interval).await?;
                next = Instant::now() + jitter(interval, &*follower.shared.options.random);
                continue;
            }
        };
        let Some(bytes) = heard else {
            return Err(Error::Unreachable("the server ended its notices".to_owned()));
        };
        let live = follower.live()?;
        let mut newer = false;
        for notice in events.take(&bytes)? {
            match notice {
                Notice::Version(Published { number, digest, current }) => {
                    newer |= current && (number != live.number() || digest != live.digest.to_string());
                }
                Notice::Ask => follower.shared.beat.notify_one(),
                Notice::Missed => newer = true,
            }
        }
        if newer {
            pull::pull(follower, interval.min(NOTICED_AGE)).await?;
        }
    }
}

/// Server-sent events, as far as notices need them.
#[derive(Debug, Default)]
struct Events {
    buffer: BytesMut,
    event: String,
    data: String,
}

impl Events {
    /// The notices that are whole now.
    fn take(&mut self, bytes: &[u8]) -> Result<Vec<Notice>> {
        self.buffer.extend_from_slice(bytes);
        let mut notices = Vec::new();
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let line = self.buffer.split_to(end);
            self.buffer.advance(1);
            let line = String::from_utf8_lossy(&line);
            self.line(line.trim_end_matches('\r'), &mut notices)?;
        }
        if self.buffer.len() > EVENT_BYTES_MAX || self.data.len() > EVENT_BYTES_MAX {
            return Err(Error::Corrupt(format!("a notice of more than {EVENT_BYTES_MAX} bytes")));
        }
        Ok(notices)
    }

    fn line(&mut self, line: &str, notices: &mut Vec<Notice>) -> Result<()> {
        let value = |value: &str| value.strip_prefix(' ').unwrap_or(value).to_owned();
        match line.split_once(':') {
            _ if line.is_empty() => {
                let (event, data) = (std::mem::take(&mut self.event), std::mem::take(&mut self.data));
                match &*event {
                    "version" => {
                        let published = serde_json::from_str(&data);
                        let published =
                            published.map_err(|error| Error::Corrupt(format!("a notice: {error}")))?;
                        notices.push(Notice::Version(published));
                    }
                    "stage" => notices.push(Notice::Ask),
                    "missed" => notices.push(Notice::Missed),
                    _ => {}
                }
            }
            Some(("event", event)) => self.event = value(event),
            Some(("data", data)) => self.data.push_str(&value(data)),
            // Comments, and fields that nobody needs here.
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_come_back_however_they_are_cut() {
        let text = b": alive\n\nevent: version\r\ndata: {\"number\":7,\"digest\":\"ab\",\"current\":true}\r\n\r\nevent: stage\n\
            data: {}\n\nevent: version\ndata: {\"number\":8,\"digest\":\"cd\"}\n\n";
        for piece in 1..=text.len() {
            let mut events = Events::default();
            let notices: Vec<Notice> =
                text.chunks(piece).flat_map(|part| events.take(part).unwrap()).collect();
            let published = |number, digest: &str, current| {
                Notice::Version(Published { number, digest: digest.to_owned(), current })
            };
            assert_eq!(notices, [published(7, "ab", true), Notice::Ask, published(8, "cd", false)]);
        }
        assert!(Events::default().take(b"event: version\ndata: {\n\n").is_err());
        assert!(Events::default().take(&[b'x'; EVENT_BYTES_MAX + 1]).is_err());
    }
}
