//! Filters as people ask for them: options by name, whatever door they come through.

use umbel_core::definition::{Growth, Window};
use umbel_core::engine::{NewFilter, Refill, Sharding};
use umbel_filter::{Counter, Family, Kind, Layout, Spec};

use crate::node::{Defaults, unix_time};

/// Buckets of a window, if nobody says.
const WINDOW_BUCKETS: u32 = 24;

/// A filter that is being asked for.
#[derive(Debug)]
pub(crate) struct Making {
    new: NewFilter,
    defaults: Defaults,
    family: Option<Family>,
    length_ms: Option<u64>,
    buckets: Option<u32>,
}

impl Making {
    /// A filter with defaults for everything else.
    pub(crate) fn new(capacity: u64, error: f64, defaults: Defaults) -> Self {
        let new = NewFilter::new("", Spec::bloom(capacity, error));
        Self { new, defaults, family: None, length_ms: None, buckets: None }
    }

    /// It takes no more when it is full.
    pub(crate) fn is_fixed(&mut self) {
        self.new.growth = Growth::Fixed;
    }

    /// Takes an option; its name is in lower case. The error says what is wrong with it.
    pub(crate) fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        let lower = value.to_lowercase();
        let unknown = || format!("{option} {value}");
        let new = &mut self.new;
        match option {
            "kind" => new.spec.kind = kind(&lower).ok_or_else(unknown)?,
            "family" => self.family = Some(lower.parse().map_err(|error| format!("{error}"))?),
            "layout" => {
                new.spec.layout = layout(&lower, self.defaults.expansion).ok_or_else(unknown)?;
            }
            "expansion" => new.growth = growth(&lower).ok_or_else(unknown)?,
            "growat" => new.grow_at = Some(percent(&lower).ok_or_else(unknown)?),
            "retain" => new.retain = yes_or_no(&lower).ok_or_else(unknown)?,
            "shards" => new.sharding = sharding(&lower).ok_or_else(unknown)?,
            "expire" => {
                let seconds: u64 = lower.parse().map_err(|_| unknown())?;
                let now = unix_time().as_millis() as u64;
                new.expires = Some(now.saturating_add(seconds.saturating_mul(1000)));
            }
            "window" => self.length_ms = Some(milliseconds(&lower).ok_or_else(unknown)?),
            "buckets" => self.buckets = Some(lower.parse().map_err(|_| unknown())?),
            _ => return Err(format!("unknown option {option}")),
        }
        Ok(())
    }

    /// The filter under this name, if all of it fits together.
    pub(crate) fn finish(self, name: &str) -> Result<NewFilter, String> {
        let Self { mut new, defaults, family, length_ms, buckets } = self;
        name.clone_into(&mut new.name);
        new.spec.family = family.or(new.spec.layout.required_family()).unwrap_or(defaults.family);
        if let (Layout::RedisBloom { expansion }, growth) = (&mut new.spec.layout, new.growth) {
            *expansion = match growth {
                Growth::Fixed => None,
                Growth::Percent(percent) => Some(percent / 100),
            };
            // RedisBloom's own arrays are what the filter is; its keys cannot be kept besides.
            new.retain = false;
        }
        new.window = match (length_ms, buckets) {
            (None, None) => None,
            (None, Some(_)) => return Err("BUCKETS goes with WINDOW".to_owned()),
            (Some(length_ms), buckets) => {
                Some(Window { length_ms, buckets: buckets.unwrap_or(WINDOW_BUCKETS) })
            }
        };
        new.spec.check().map_err(|error| error.to_string())?;
        Ok(new)
    }
}

/// Takes an option of a filter that is filled anew; its name is in lower case. The error says what is wrong with it.
pub(crate) fn set_refill(asked: &mut Refill, option: &str, value: &str) -> Result<(), String> {
    let lower = value.to_lowercase();
    let unknown = || format!("{option} {value}");
    match option {
        "capacity" => asked.capacity = Some(lower.parse().map_err(|_| unknown())?),
        "error" => asked.error = Some(lower.parse().map_err(|_| unknown())?),
        "kind" => asked.kind = Some(kind(&lower).ok_or_else(unknown)?),
        // A chain of sub-filters is refused, however it grows.
        "layout" => asked.layout = Some(layout(&lower, 2).ok_or_else(unknown)?),
        "retain" => asked.retain = Some(yes_or_no(&lower).ok_or_else(unknown)?),
        _ => return Err(format!("unknown option {option}")),
    }
    Ok(())
}

/// `24h`, `15m`, `90s`, `500ms`, `7d`.
fn milliseconds(text: &str) -> Option<u64> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => 1,
        "s" | "" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// What a filter counts, by name.
pub(crate) fn kind(text: &str) -> Option<Kind> {
    Some(match text {
        "bloom" => Kind::Bloom,
        "counting" => Kind::Counting(Counter::Nibble),
        "counting8" => Kind::Counting(Counter::Byte),
        _ => return None,
    })
}

/// How a filter is laid out, by name.
pub(crate) fn layout(text: &str, expansion: u32) -> Option<Layout> {
    Some(match text {
        "blocked" => Layout::Blocked,
        "guava" => Layout::Guava,
        "redisbloom" => Layout::RedisBloom { expansion: Some(expansion) },
        "redisson" => Layout::Redisson,
        _ => return None,
    })
}

/// How full a filter is when it begins to grow.
pub(crate) fn percent(text: &str) -> Option<u8> {
    text.parse().ok().filter(|percent| (1..=100).contains(percent))
}

/// `2` or `1.5`: how many times larger.
pub(crate) fn growth(text: &str) -> Option<Growth> {
    let times: f64 = text.parse().ok().filter(|times| (1.1..=32_768.0).contains(times))?;
    Some(Growth::Percent((times * 100.0).round() as u32))
}

fn yes_or_no(text: &str) -> Option<bool> {
    match text {
        "yes" | "true" | "1" => Some(true),
        "no" | "false" | "0" => Some(false),
        _ => None,
    }
}

fn sharding(text: &str) -> Option<Sharding> {
    Some(match text {
        "auto" => Sharding::BySize,
        "one" => Sharding::Whole,
        "all" => Sharding::Everywhere,
        _ => return None,
    })
}
