//! The monotonic clock in nanoseconds, and waiting on descriptors with a timeout in as much.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`, in nanoseconds.
pub fn monotonic_nanos() -> u64 {
    nanos(ClockId::Monotonic)
}

/// `CLOCK_REALTIME`, in nanoseconds since 1970: for stamps of the kernel, never for measuring.
pub fn wall_nanos() -> u64 {
    nanos(ClockId::Realtime)
}

/// How long the host has run, suspended times included (`CLOCK_BOOTTIME`).
pub fn since_boot() -> Duration {
    Duration::from_nanos(nanos(ClockId::Boottime))
}

/// How far the clock of [`wall_nanos`] may be from UTC, if something sets it after a source outside (`adjtimex(2)`:
/// `STA_UNSYNC`, and the maximum error that whoever sets it tells).
pub fn wall_error() -> Option<Duration> {
    let mut state = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: all zeros is a valid timex that asks for nothing to be changed, and it outlives the call.
    let state = unsafe {
        libc::adjtimex(state.as_mut_ptr());
        state.assume_init()
    };
    let is_set = state.status & libc::STA_UNSYNC == 0 && state.maxerror > 0;
    is_set.then(|| Duration::from_micros(u64::try_from(state.maxerror).unwrap_or(u64::MAX)))
}

/// Waits until one of `files` can be read or has been closed by its peer, at most `timeout`, for ever without one
/// (`ppoll(2)`). The kernel takes the liberty to end the wait late by a thousandth of `timeout`, whatever the timer
/// slack (`select_estimate_accuracy` in fs/select.c): see [`most_of`]. Says for each whether it is ready; all false
/// after the timeout or a signal.
pub fn wait_readable<const N: usize>(files: [BorrowedFd<'_>; N], timeout: Option<Duration>) -> io::Result<[bool; N]> {
    let mut polled = files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN));
    let timeout = timeout.map(|t| Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(t.subsec_nanos()),
    });
    match rustix::event::poll(&mut polled, timeout.as_ref()) {
        Ok(_) => Ok(polled.map(|p| !p.revents().is_empty())),
        Err(Errno::INTR) => Ok([false; N]),
        Err(error) => Err(error.into()),
    }
}

/// Sleeps until `CLOCK_MONOTONIC` shows `nanos`, or a signal comes (`clock_nanosleep(2)`).
pub fn sleep_until(nanos: u64) {
    const SECOND: u64 = 1_000_000_000;
    let (seconds, rest) = (nanos / SECOND, (nanos % SECOND) as i64);
    let at = Timespec { tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX), tv_nsec: rest };
    // Only a signal or a time that is none can end it early, and the caller looks at the clock anyway.
    let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

/// A timeout that ends before `left` has passed even if the kernel is late by a thousandth of it. What then remains is
/// so short that a thousandth of it does not matter.
pub fn most_of(left: Duration) -> Duration {
    const NOT_WORTH_IT: Duration = Duration::from_millis(2);
    if left < NOT_WORTH_IT { left } else { left - left / 500 }
}

fn nanos(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds * 1_000_000_000 + nanos
}
