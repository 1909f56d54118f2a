//! What processor time a process has taken, all its threads together.

use std::time::Duration;

/// A process of this machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    /// This program itself.
    pub(crate) fn own() -> Self {
        Self(std::process::id())
    }

    /// Time in user and kernel code; nothing where it cannot be read.
    pub(crate) fn time(self) -> Option<Duration> {
        let stat = std::fs::read(format!("/proc/{}/stat", self.0)).ok()?;
        let ticks = ticks(&String::from_utf8_lossy(&stat))?;
        Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }
}

/// `utime` and `stime` of a line of `/proc/PID/stat`. The program's name may hold spaces and parentheses, so fields are
/// counted from the last one that closes.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    // The first of these is the third field of the line; the times are the 14th and 15th.
    let mut fields = fields.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    Some(fields.next()?.ok()? + fields.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_anything() {
        let rest =
            "S 1 77 77 0 -1 4194560 8310 0 12 0 123 45 6 7 20 0 5 0 9042 141193216 2213 18446744073709551615";
        for name in ["redis-server", "my server", "a) S 1 (b", "", ") 1 2 3 4 5 6 7 8 9 10 11 12 13"] {
            assert_eq!(ticks(&format!("77 ({name}) {rest}")), Some(168), "{name}");
        }
        for stat in ["", "77 (x", "77 (x) S 1 2 3", "77 (x) S 1 77 77 0 -1 4194560 8310 0 12 0 much 45"] {
            assert_eq!(ticks(stat), None, "{stat}");
        }
    }

    #[test]
    fn a_process_that_is_not_there_has_no_time() {
        assert_eq!(Process(u32::MAX).time(), None);
    }
}
