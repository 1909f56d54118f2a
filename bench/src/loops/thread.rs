//! Processor time and sleeps of a thread.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a thread that has nothing to do may need to fall asleep. The system brings the time of a thread up to date
/// when it does.
const SETTLE_TIME: Duration = Duration::from_millis(3);

/// A thread of this process, by its folder in `/proc`.
pub(super) struct Thread(PathBuf);

/// What a thread has taken since it began.
pub(super) struct Spent {
    pub(super) time: Duration,
    /// How often it waited for something.
    pub(super) sleeps: u64,
}

impl Thread {
    /// The one that calls.
    pub(super) fn own() -> io::Result<Self> {
        let link = std::fs::read_link("/proc/thread-self").map_err(|error| {
            io::Error::other(format!("the processor time of threads is read from Linux's /proc: {error}"))
        })?;
        Ok(Self(Path::new("/proc").join(link)))
    }

    /// Waits until the thread has settled, then reads its counters.
    pub(super) fn spent(&self) -> io::Result<Spent> {
        std::thread::sleep(SETTLE_TIME);
        if let Some(helper) = helper()? {
            return Err(io::Error::other(format!(
                "{helper} works for the thread, so its time is not all of it"
            )));
        }
        let unreadable =
            |file: &str| io::Error::other(format!("{} cannot be read", self.0.join(file).display()));
        let schedule = std::fs::read_to_string(self.0.join("schedstat"))?;
        let nanos = schedule.split_ascii_whitespace().next().and_then(|nanos| nanos.parse().ok());
        let status = std::fs::read_to_string(self.0.join("status"))?;
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Ok(Spent {
            time: Duration::from_nanos(nanos.ok_or_else(|| unreadable("schedstat"))?),
            sleeps: sleeps
                .and_then(|sleeps| sleeps.trim().parse().ok())
                .ok_or_else(|| unreadable("status"))?,
        })
    }
}

/// A thread of the kernel that does what an io_uring could not do at once.
fn helper() -> io::Result<Option<String>> {
    for task in std::fs::read_dir("/proc/self/task")? {
        // A thread may be gone by now.
        let name = std::fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
        if name.starts_with("iou-") {
            return Ok(Some(name.trim_end().to_owned()));
        }
    }
    Ok(None)
}
