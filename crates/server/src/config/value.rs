//! How settings are read and printed.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use umbel_core::log::Durability;
use umbel_core::url::Url;
use umbel_filter::Family;

use crate::digest::Digest;

/// Text to value and back. What cannot be read is answered with what could be: "it must be ...".
pub(super) trait Codec<T> {
    fn parse(&self, text: &str) -> Result<T, String>;

    fn print(&self, value: &T) -> String;

    /// As Redis prints it: sizes and times without units.
    fn redis(&self, value: &T) -> String {
        self.print(value)
    }
}

/// Whole numbers from and to; `1e6` and `1_000_000` are numbers too.
pub(super) struct Number(pub(super) u64, pub(super) u64);

impl<T: TryFrom<u64> + Copy + ToString> Codec<T> for Number {
    fn parse(&self, text: &str) -> Result<T, String> {
        let number = whole(text).filter(|number| (self.0..=self.1).contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match self.1 {
            u64::MAX => format!("it must be a whole number, {} or more", self.0),
            max => format!("it must be a whole number from {} to {max}", self.0),
        })
    }

    fn print(&self, value: &T) -> String {
        value.to_string()
    }
}

fn whole(text: &str) -> Option<u64> {
    let plain = text.replace('_', "");
    plain.parse().ok().or_else(|| {
        // Past 2^53 a float no longer holds every whole number.
        let float: f64 = plain.parse().ok()?;
        (float >= 0.0 && float < 2_f64.powi(53) && float.fract() == 0.0).then_some(float as u64)
    })
}

/// A threshold that -1 turns off.
pub(super) struct Threshold;

impl Codec<i64> for Threshold {
    fn parse(&self, text: &str) -> Result<i64, String> {
        let number = text.replace('_', "").parse().ok().filter(|number| *number >= -1);
        number.ok_or_else(|| "it must be a whole number, 0 or more, or -1 for never".to_owned())
    }

    fn print(&self, value: &i64) -> String {
        value.to_string()
    }
}

/// Sizes from and to, with the units of Redis and IEC: `k` is 1000, `kb` and `KiB` are 1024, in any case.
pub(super) struct Bytes(pub(super) u64, pub(super) u64);

const UNITS: [(&str, u64); 15] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1 << 10),
    ("mb", 1 << 20),
    ("gb", 1 << 30),
    ("tb", 1 << 40),
    ("k", 1000),
    ("m", 1_000_000),
    ("g", 1_000_000_000),
    ("t", 1_000_000_000_000),
    ("bytes", 1),
    ("b", 1),
    ("", 1),
];

impl Codec<u64> for Bytes {
    fn parse(&self, text: &str) -> Result<u64, String> {
        let small = text.trim().to_ascii_lowercase();
        let size = UNITS.iter().find_map(|(unit, bytes)| {
            let number = small.strip_suffix(unit)?.trim_end();
            number.ends_with(|last: char| last.is_ascii_digit()).then_some((number, bytes))
        });
        let size = size.and_then(|(number, bytes)| whole(number)?.checked_mul(*bytes));
        size.filter(|size| (self.0..=self.1).contains(size)).ok_or_else(|| {
            let (min, max) = (self.print(&self.0), self.print(&self.1));
            format!("it must be a size from {min} to {max}, such as 64MiB, 4GB or 1048576")
        })
    }

    /// In the largest unit that divides it.
    fn print(&self, value: &u64) -> String {
        for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
            if *value > 0 && value.trailing_zeros() >= shift {
                return format!("{}{unit}", value >> shift);
            }
        }
        value.to_string()
    }

    fn redis(&self, value: &u64) -> String {
        value.to_string()
    }
}

/// A time; a plain number counts seconds, as Redis's `timeout` does.
pub(super) struct Period(pub(super) Duration, pub(super) Duration);

const TIMES: [(&str, u64); 6] =
    [("ms", 1), ("min", 60_000), ("m", 60_000), ("s", 1000), ("h", 3_600_000), ("", 1000)];

fn period(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = TIMES.iter().find_map(|(unit, milliseconds)| {
        let number = text.strip_suffix(unit)?.trim_end();
        number.ends_with(|last: char| last.is_ascii_digit()).then_some((number, milliseconds))
    })?;
    whole(number)?.checked_mul(*unit).map(Duration::from_millis)
}

fn print_period(value: Duration) -> String {
    match value.as_millis() {
        0 => "0".to_owned(),
        milliseconds if milliseconds % 1000 == 0 => format!("{}s", milliseconds / 1000),
        milliseconds => format!("{milliseconds}ms"),
    }
}

impl Codec<Duration> for Period {
    fn parse(&self, text: &str) -> Result<Duration, String> {
        period(text).filter(|time| (self.0..=self.1).contains(time)).ok_or_else(|| {
            let (min, max) = (print_period(self.0), print_period(self.1));
            format!("it must be a time from {min} to {max}, such as 200ms, 30s, 5m or 1h")
        })
    }

    fn print(&self, value: &Duration) -> String {
        print_period(*value)
    }

    fn redis(&self, value: &Duration) -> String {
        value.as_secs().to_string()
    }
}

/// Yes or no.
pub(super) struct Switch;

impl Codec<bool> for Switch {
    fn parse(&self, text: &str) -> Result<bool, String> {
        match text.to_ascii_lowercase().as_str() {
            "yes" | "true" | "on" | "1" => Ok(true),
            "no" | "false" | "off" | "0" => Ok(false),
            _ => Err("it must be yes or no".to_owned()),
        }
    }

    fn print(&self, value: &bool) -> String {
        if *value { "yes" } else { "no" }.to_owned()
    }
}

/// An error rate.
pub(super) struct Rate;

impl Codec<f64> for Rate {
    fn parse(&self, text: &str) -> Result<f64, String> {
        let rate = text.parse().ok().filter(|rate| *rate >= 1e-9 && *rate <= 0.5);
        rate.ok_or_else(|| "it must be a number from 1e-9 to 0.5".to_owned())
    }

    fn print(&self, value: &f64) -> String {
        value.to_string()
    }
}

/// Addresses, between spaces or commas.
pub(super) struct Addresses;

impl Codec<Vec<IpAddr>> for Addresses {
    fn parse(&self, text: &str) -> Result<Vec<IpAddr>, String> {
        let words = text.split([' ', ',', '\t']).filter(|word| !word.is_empty());
        let address = |word: &str| match word {
            "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
            "*" => Some(Ipv4Addr::UNSPECIFIED.into()),
            _ => word.parse().ok(),
        };
        let addresses: Option<Vec<IpAddr>> = words.map(address).collect();
        addresses
            .filter(|addresses| (1..=16).contains(&addresses.len()))
            .ok_or_else(|| "it must be 1 to 16 IP addresses, such as 127.0.0.1, ::1 or 0.0.0.0".to_owned())
    }

    fn print(&self, value: &Vec<IpAddr>) -> String {
        value.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }
}

/// A file or folder; nothing is no file.
pub(super) struct File;

impl Codec<Option<PathBuf>> for File {
    fn parse(&self, text: &str) -> Result<Option<PathBuf>, String> {
        Ok((!text.is_empty()).then(|| text.into()))
    }

    fn print(&self, value: &Option<PathBuf>) -> String {
        value.as_ref().map_or_else(String::new, |path| path.display().to_string())
    }
}

impl Codec<PathBuf> for File {
    fn parse(&self, text: &str) -> Result<PathBuf, String> {
        if text.is_empty() { Err("it must name a folder".to_owned()) } else { Ok(text.into()) }
    }

    fn print(&self, value: &PathBuf) -> String {
        value.display().to_string()
    }
}

/// Where an engine is; nothing is none. It is printed without its secrets.
pub(super) struct Engine;

impl Codec<Option<Url>> for Engine {
    fn parse(&self, text: &str) -> Result<Option<Url>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        Url::parse(text).map(Some).map_err(|error| {
            format!("it must be a URL such as redis://user:password@host:6379/name: {error}")
        })
    }

    fn print(&self, value: &Option<Url>) -> String {
        value.as_ref().map_or_else(String::new, ToString::to_string)
    }
}

/// A short name, or none.
pub(super) struct Word;

const WORD_BYTES_MAX: usize = 128;

impl Codec<String> for Word {
    fn parse(&self, text: &str) -> Result<String, String> {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
        if text.len() <= WORD_BYTES_MAX && text.chars().all(is_plain) {
            return Ok(text.to_owned());
        }
        Err(format!("it must have up to {WORD_BYTES_MAX} letters, digits, dots, dashes and underscores"))
    }

    fn print(&self, value: &String) -> String {
        value.clone()
    }
}

/// A host with a port, or none.
pub(super) struct Place;

impl Codec<String> for Place {
    fn parse(&self, text: &str) -> Result<String, String> {
        let port = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        let is_place = port.is_some_and(|(host, port)| !host.is_empty() && port > 0) && text.len() <= 300;
        if text.is_empty() || is_place && !text.contains(char::is_whitespace) {
            return Ok(text.to_owned());
        }
        Err("it must be a host and a port, such as 10.0.0.1:6380".to_owned())
    }

    fn print(&self, value: &String) -> String {
        value.clone()
    }
}

/// An address of HTTP, or none.
pub(super) struct Web;

impl Codec<String> for Web {
    fn parse(&self, text: &str) -> Result<String, String> {
        let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let is_address = host.is_some_and(|host| !host.is_empty() && !host.starts_with('/'))
            && text.len() <= 300
            && !text.contains(|letter: char| letter.is_whitespace() || letter.is_control());
        if text.is_empty() || is_address {
            return Ok(text.to_owned());
        }
        Err("it must be an address such as http://10.0.0.1:6381".to_owned())
    }

    fn print(&self, value: &String) -> String {
        value.clone()
    }
}

/// A secret that has to be shown to others, and to nobody else.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedSecret(String);

impl SharedSecret {
    /// What others are shown.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSecret(..)")
    }
}

/// Such a secret; nothing is none.
pub(super) struct Shared;

impl Codec<Option<SharedSecret>> for Shared {
    fn parse(&self, text: &str) -> Result<Option<SharedSecret>, String> {
        match text.len() {
            0 => Ok(None),
            16..=4096 => Ok(Some(SharedSecret(text.to_owned()))),
            _ => Err("it must have 16 to 4096 bytes".to_owned()),
        }
    }

    fn print(&self, value: &Option<SharedSecret>) -> String {
        if value.is_some() { "(hidden)" } else { "" }.to_owned()
    }
}

/// A version.
pub(super) struct Version;

impl Codec<String> for Version {
    fn parse(&self, text: &str) -> Result<String, String> {
        let numbers: Vec<_> = text.split('.').collect();
        match numbers.len() == 3 && numbers.iter().all(|number| number.parse::<u16>().is_ok()) {
            true => Ok(text.to_owned()),
            false => Err("it must be three numbers, such as 8.2.0".to_owned()),
        }
    }

    fn print(&self, value: &String) -> String {
        value.clone()
    }
}

/// Values that have names.
pub trait Named: Copy + PartialEq + Sized + 'static {
    /// Every value with its name, and the name that Redis has for it.
    const ALL: &'static [(Self, &'static str, &'static str)];

    /// The value's name.
    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(value, _, _)| *value == self).map_or("", |(_, name, _)| name)
    }
}

/// One of some names.
pub(super) struct Choice;

impl<T: Named> Codec<T> for Choice {
    fn parse(&self, text: &str) -> Result<T, String> {
        let small = text.to_ascii_lowercase();
        let found = T::ALL.iter().find(|(_, name, redis)| *name == small || *redis == small);
        found.map(|(value, _, _)| *value).ok_or_else(|| {
            let names: Vec<_> = T::ALL.iter().map(|(_, name, _)| *name).collect();
            format!("it must be one of {}", names.join(", "))
        })
    }

    fn print(&self, value: &T) -> String {
        value.name().to_owned()
    }

    fn redis(&self, value: &T) -> String {
        T::ALL.iter().find(|(one, _, _)| one == value).map_or("", |(_, _, redis)| redis).to_owned()
    }
}

/// What an acknowledged add survives.
pub(super) struct Durable;

impl Codec<Durability> for Durable {
    fn parse(&self, text: &str) -> Result<Durability, String> {
        let text = text.trim().to_ascii_lowercase();
        let interval = text.strip_prefix("interval").map(|rest| rest.trim_start_matches([' ', ':', '=']));
        match (text.as_str(), interval) {
            ("always", _) => Some(Durability::Always),
            ("os" | "no", _) => Some(Durability::Os),
            ("everysec", _) => Some(Durability::Interval(Duration::from_secs(1))),
            (_, Some("")) => Some(Durability::default()),
            (_, Some(time)) => period(time)
                .filter(|time| (1..=3_600_000).contains(&time.as_millis()))
                .map(Durability::Interval),
            _ => None,
        }
        .ok_or_else(|| {
            "it must be always, interval with a time from 1ms to 1h (interval 200ms), or os".to_owned()
        })
    }

    fn print(&self, value: &Durability) -> String {
        match value {
            Durability::Always => "always".to_owned(),
            Durability::Interval(time) => format!("interval {}", print_period(*time)),
            Durability::Os => "os".to_owned(),
        }
    }

    fn redis(&self, value: &Durability) -> String {
        match value {
            Durability::Always => "always",
            Durability::Interval(_) => "everysec",
            Durability::Os => "no",
        }
        .to_owned()
    }
}

/// How keys are hashed.
pub(super) struct Hashing;

impl Codec<Family> for Hashing {
    fn parse(&self, text: &str) -> Result<Family, String> {
        Family::from_str(text).map_err(|_| {
            let names: Vec<_> = Family::ALL.into_iter().map(Family::name).collect();
            format!("it must be one of {}", names.join(", "))
        })
    }

    fn print(&self, value: &Family) -> String {
        value.name().to_owned()
    }
}

/// A password, of which only the digest is kept. Nothing is no password.
pub(super) struct Hidden;

impl Codec<Option<Digest>> for Hidden {
    fn parse(&self, text: &str) -> Result<Option<Digest>, String> {
        match text.len() {
            0 => Ok(None),
            1..=4096 => Ok(Some(Digest::of(text.as_bytes()))),
            _ => Err("it must have up to 4096 bytes".to_owned()),
        }
    }

    fn print(&self, value: &Option<Digest>) -> String {
        if value.is_some() { "(hidden)" } else { "" }.to_owned()
    }
}
