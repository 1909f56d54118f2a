//! Filters as files of other systems and of our own, whatever door they leave through.

use std::io::Write;

use umbel_filter::format::native::Compression;
use umbel_filter::format::{guava, native, redisbloom, redisson};
use umbel_filter::{Filter, Layout, Spec};

/// What RedisBloom takes if nobody says.
const EXPANSION: u32 = 2;

/// A format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Native,
    Guava,
    RedisBloom,
    Redisson,
}

impl Format {
    /// The format of that name, in any case of letters.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = [Self::Native, Self::Guava, Self::RedisBloom, Self::Redisson];
        all.into_iter().find(|format| format.name().eq_ignore_ascii_case(name))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Guava => "guava",
            Self::RedisBloom => "redisbloom",
            Self::Redisson => "redisson",
        }
    }

    /// Whether a filter of this layout is written as it is.
    pub(crate) fn holds(self, layout: Layout) -> bool {
        match self {
            Self::Native => true,
            Self::Guava => matches!(layout, Layout::Guava | Layout::Guava32),
            Self::RedisBloom => matches!(layout, Layout::RedisBloom { .. }),
            Self::Redisson => layout == Layout::Redisson,
        }
    }

    /// What a filter has to be made into.
    pub(crate) fn spec(self, spec: Spec) -> Spec {
        let layout = match self {
            _ if self.holds(spec.layout) => spec.layout,
            Self::Native => spec.layout,
            Self::Guava => Layout::Guava,
            Self::RedisBloom => Layout::RedisBloom { expansion: Some(EXPANSION) },
            Self::Redisson => Layout::Redisson,
        };
        Spec { layout, ..spec }
    }

    /// Writes a filter that has the right layout. RedisBloom's chunks stand behind their cursors and lengths, as `umbel inspect` reads
    /// them.
    pub(crate) fn write(self, filter: &Filter, out: &mut dyn Write) -> umbel_filter::Result<()> {
        match self {
            Self::Native => native::write(filter, Compression::None, out),
            Self::Guava => guava::write(filter, out),
            Self::Redisson => redisson::write(filter, out),
            Self::RedisBloom => {
                for chunk in redisbloom::chunks(filter) {
                    let (cursor, bytes) = chunk?;
                    out.write_all(&cursor.to_le_bytes())?;
                    out.write_all(&(bytes.len() as u64).to_le_bytes())?;
                    out.write_all(&bytes)?;
                }
                Ok(())
            }
        }
    }
}
