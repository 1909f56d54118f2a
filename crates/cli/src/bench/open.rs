//! Requests on a schedule, whatever the replies do. Latency counts from the time at which a request was due, so a server
//! that stalls is charged for every request that came due meanwhile, and not for one alone.

use std::time::{Duration, Instant};

use mio::{Events, Poll};

use super::link::Tally;
use super::load::{Worker, wait};
use super::source::Source;
use crate::resp::SILENCE_MAX;

/// When requests are due, in nanoseconds from the start.
#[derive(Clone, Copy)]
pub(crate) struct Schedule {
    /// Requests a second.
    pub(crate) rate: u32,
    pub(crate) duration: Duration,
}

impl Schedule {
    fn count(self) -> u64 {
        (self.duration.as_nanos() * u128::from(self.rate) / 1_000_000_000) as u64
    }

    /// Computed from the number, not by adding intervals: their rounding would make the rate drift.
    fn due(self, request: u64) -> u64 {
        (u128::from(request) * 1_000_000_000 / u128::from(self.rate)) as u64
    }
}

impl Worker {
    pub(crate) fn open(&mut self, source: &mut Source<'_>, schedule: Schedule) -> Result<Tally, String> {
        let address = self.address.clone();
        self.run_open(source, schedule).map_err(|error| format!("{address}: {error}"))
    }

    fn run_open(&mut self, source: &mut Source<'_>, schedule: Schedule) -> Result<Tally, String> {
        let mut timer = Timer::new(&self.poll)?;
        let (mut tally, start) = (Tally::default(), Instant::now());
        let now = || start.elapsed().as_nanos() as u64;
        let (total, keys) = (schedule.count(), source.keys());
        let (mut next, mut heard) = (0, 0);
        loop {
            while next < total && schedule.due(next) <= now() {
                let due = schedule.due(next);
                let index = (next % self.links.len() as u64) as usize;
                let link = &mut self.links[index];
                tally.late.record(now() - due);
                link.queue(source, due);
                link.flush()?;
                next += 1;
            }
            if tally.requests == total {
                return Ok(tally);
            }
            let at = now();
            if at.saturating_sub(heard) > SILENCE_MAX.as_nanos() as u64 && tally.requests < next {
                return Err(format!("no reply for {} s", SILENCE_MAX.as_secs()));
            }
            let pause = if next < total {
                Duration::from_nanos(schedule.due(next).saturating_sub(at))
            } else {
                SILENCE_MAX
            };
            timer.wait(&mut self.poll, &mut self.events, pause)?;
            for event in &self.events {
                let Some(link) = self.links.get_mut(event.token().0) else { continue };
                if event.is_writable() {
                    link.flush()?;
                }
                if event.is_readable() && !link.is_idle() {
                    link.receive(keys, now, &mut tally)?;
                    heard = now();
                }
            }
        }
    }
}

/// Waits for the network, but not past a time: to microseconds, where poll itself knows milliseconds only.
#[cfg(target_os = "linux")]
struct Timer {
    file: std::os::fd::OwnedFd,
}

#[cfg(target_os = "linux")]
impl Timer {
    fn new(poll: &Poll) -> Result<Self, String> {
        use std::os::fd::AsRawFd;

        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let file =
            timerfd_create(TimerfdClockId::Monotonic, flags).map_err(|error| format!("no timer: {error}"))?;
        let token = mio::Token(usize::MAX);
        let registered = poll.registry().register(
            &mut mio::unix::SourceFd(&file.as_raw_fd()),
            token,
            mio::Interest::READABLE,
        );
        registered.map_err(|error| format!("no timer: {error}"))?;
        Ok(Self { file })
    }

    fn wait(&mut self, poll: &mut Poll, events: &mut Events, pause: Duration) -> Result<(), String> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

        // A time of zero would stop the timer instead.
        let pause = pause.max(Duration::from_nanos(1));
        let it_value =
            Timespec { tv_sec: pause.as_secs().cast_signed(), tv_nsec: pause.subsec_nanos().into() };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.file, TimerfdTimerFlags::empty(), &once)
            .map_err(|error| format!("cannot set a timer: {error}"))?;
        wait(poll, events, None)
    }
}

/// Without such timers, the last two milliseconds are spent asking again and again.
#[cfg(not(target_os = "linux"))]
struct Timer;

#[cfg(not(target_os = "linux"))]
impl Timer {
    #[allow(clippy::unnecessary_wraps)]
    fn new(_: &Poll) -> Result<Self, String> {
        Ok(Self)
    }

    fn wait(&mut self, poll: &mut Poll, events: &mut Events, pause: Duration) -> Result<(), String> {
        wait(poll, events, Some(pause.saturating_sub(Duration::from_millis(2))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_at_equal_distances() {
        let schedule = Schedule { rate: 500, duration: Duration::from_secs(60) };
        assert_eq!((schedule.count(), schedule.due(0), schedule.due(1)), (30_000, 0, 2_000_000));
        assert_eq!(schedule.due(29_999), 59_998_000_000);
    }

    #[test]
    fn a_rate_that_divides_no_second_does_not_drift() {
        let schedule = Schedule { rate: 3, duration: Duration::from_millis(2_500) };
        assert_eq!(schedule.count(), 7);
        let due: Vec<_> = (0..4).map(|request| schedule.due(request)).collect();
        assert_eq!(due, [0, 333_333_333, 666_666_666, 1_000_000_000]);
        let fast = Schedule { rate: 999_983, duration: Duration::from_secs(86_400) };
        assert_eq!(fast.due(fast.count()), 86_400_000_000_000);
        assert_eq!(fast.due(999_983), 1_000_000_000);
    }
}
