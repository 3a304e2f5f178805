// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use memwait_sys::{clockid_t, timespec, CLOCK_MONOTONIC, CLOCK_REALTIME, MEMWAIT_CLOCK_REALTIME};
use std::os::raw::{c_int, c_uint};
use std::ptr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

extern "C" {
    fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int;
}

/// The time at which a wait ends: a `Duration` from now, an `Instant`, or a `SystemTime`, which
/// follows the clock when the clock is set. A wait never ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    pub(crate) clock: clockid_t,
    pub(crate) time: timespec,
}

impl Deadline {
    /// The arguments for objects: the clock, and the address of the time, which is null for never.
    pub(crate) fn until(deadline: Option<&Deadline>) -> (clockid_t, *const timespec) {
        match deadline {
            None => (CLOCK_MONOTONIC, ptr::null()),
            Some(deadline) => (deadline.clock, &deadline.time),
        }
    }

    /// The arguments for words and loops: the address of the timeout, and the flag for its clock.
    pub(crate) fn timeout(deadline: Option<&Deadline>) -> (*const timespec, c_uint) {
        match deadline {
            None => (ptr::null(), 0),
            Some(deadline) if deadline.clock == CLOCK_REALTIME => {
                (&deadline.time, MEMWAIT_CLOCK_REALTIME)
            }
            Some(deadline) => (&deadline.time, 0),
        }
    }
}

impl From<Duration> for Deadline {
    fn from(from_now: Duration) -> Deadline {
        let mut now = timespec::default();

        // SAFETY: the clock exists, and the memory is valid.
        unsafe { clock_gettime(CLOCK_MONOTONIC, &mut now) };
        Deadline {
            clock: CLOCK_MONOTONIC,
            time: later(now, from_now),
        }
    }
}

impl From<Instant> for Deadline {
    fn from(instant: Instant) -> Deadline {
        instant.saturating_duration_since(Instant::now()).into()
    }
}

impl From<SystemTime> for Deadline {
    fn from(time: SystemTime) -> Deadline {
        // A time before the epoch has passed in any case.
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);

        Deadline {
            clock: CLOCK_REALTIME,
            time: later(timespec::default(), since),
        }
    }
}

/// A time beyond the last representable second never comes.
fn later(time: timespec, by: Duration) -> timespec {
    let nanoseconds = time.tv_nsec as u32 + by.subsec_nanos();
    let seconds = i64::try_from(by.as_secs())
        .unwrap_or(i64::MAX)
        .saturating_add(time.tv_sec)
        .saturating_add(i64::from(nanoseconds / 1_000_000_000));

    timespec {
        tv_sec: seconds,
        tv_nsec: i64::from(nanoseconds % 1_000_000_000),
    }
}
