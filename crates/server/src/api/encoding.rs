//! Compressed answers: `Accept-Encoding`, in the framed format of each.

use std::io::{self, Write};

use lz4_flex::frame::FrameEncoder;

/// Fast: arrays that are half full do not become smaller at any level.
const ZSTD_LEVEL: i32 = 1;

/// How an answer is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Zstd,
    Lz4,
    Snappy,
}

impl Coding {
    const ALL: [Self; 3] = [Self::Zstd, Self::Lz4, Self::Snappy];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
        }
    }

    /// The one that a client likes best; of those that it likes as much, the first that it names. None if it wants nothing compressed
    /// more than anything else.
    pub(super) fn chosen(accepted: &str) -> Option<Self> {
        let mut best: (f32, Option<Self>) = (0.0, None);
        for part in accepted.split(',') {
            let mut words = part.split(';').map(str::trim);
            let name = words.next().unwrap_or_default();
            let coding = Self::ALL.into_iter().find(|coding| coding.name().eq_ignore_ascii_case(name));
            if coding.is_none() && !name.eq_ignore_ascii_case("identity") {
                continue;
            }
            let quality = words.find_map(|word| word.strip_prefix("q=").or(word.strip_prefix("Q=")));
            let quality = quality.map_or(1.0, |quality| quality.trim().parse::<f32>().unwrap_or(0.0));
            if quality > best.0 && quality <= 1.0 {
                best = (quality, coding);
            }
        }
        best.1
    }

    /// Compresses what `content` writes.
    pub(super) fn write(
        self,
        out: &mut dyn Write,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        match self {
            Self::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?;
                content(&mut encoder)?;
                encoder.finish()?;
            }
            Self::Lz4 => {
                let mut encoder = FrameEncoder::new(out);
                content(&mut encoder)?;
                encoder.finish().map_err(io::Error::other)?;
            }
            Self::Snappy => {
                let mut encoder = snap::write::FrameEncoder::new(out);
                content(&mut encoder)?;
                encoder.flush()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_chooses() {
        for (accepted, expected) in [
            ("", None),
            ("gzip, br", None),
            ("*", None),
            ("zstd", Some(Coding::Zstd)),
            ("gzip, LZ4, zstd", Some(Coding::Lz4)),
            ("snappy;q=0.5, zstd;q=0.8 , lz4;q=0.1", Some(Coding::Zstd)),
            ("zstd;q=0, snappy; q=0.001", Some(Coding::Snappy)),
            ("identity, zstd", None),
            ("identity;q=0.5, zstd", Some(Coding::Zstd)),
            ("zstd;q=nonsense", None),
            ("zstd;q=7", None),
            ("zstd;q=NaN", None),
            (",,;,", None),
        ] {
            assert_eq!(Coding::chosen(accepted), expected, "{accepted}");
        }
    }
}
