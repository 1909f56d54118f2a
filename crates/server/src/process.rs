//! What the system says of this process. Where it says nothing, there are zeros.

use std::fs::read_to_string;

/// Bytes of a page, as `/proc` counts them on every system that this runs on.
const PAGE_BYTES: u64 = 4096;
/// Ticks of a second in `/proc`; a constant of the kernel's interface.
const TICKS: f64 = 100.0;

/// Memory and time that the process takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// Bytes in memory.
    pub(crate) resident_bytes: u64,
    /// Seconds in the system.
    pub(crate) system_s: f64,
    /// Seconds outside of it.
    pub(crate) user_s: f64,
}

/// What the process takes now.
pub(crate) fn usage() -> Usage {
    let times = read_to_string("/proc/self/stat").ok().and_then(|text| times(&text));
    let (user_s, system_s) = times.unwrap_or_default();
    let pages =
        read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    Usage { resident_bytes: pages.unwrap_or_default().saturating_mul(PAGE_BYTES), system_s, user_s }
}

/// Seconds of the user and of the system.
fn times(text: &str) -> Option<(f64, f64)> {
    // The name of the process stands in brackets and may hold anything.
    let (_, fields) = text.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11).map(|field| field.parse::<f64>().unwrap_or_default() / TICKS);
    Some((fields.next()?, fields.next()?))
}

/// Bytes of memory that the machine has.
pub(crate) fn memory_bytes() -> u64 {
    let text = read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.unwrap_or_default().saturating_mul(1024)
}

/// The system and its version.
pub(crate) fn system() -> String {
    let release = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {} {}", release.trim(), std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times_behind_any_name() {
        let text = "7 (a) (b) S 1 2 3 4 5 6 7 8 9 10 250 150 0 0";
        assert_eq!(times(text), Some((2.5, 1.5)));
        assert_eq!(times(""), None);
    }
}
