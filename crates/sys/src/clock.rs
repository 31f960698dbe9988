//! Monotonic clock in nanoseconds, and waiting for file descriptors with a precise time-out.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// Returns `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_nanos() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Returns `CLOCK_REALTIME` in nanoseconds since 1970. Use it for kernel timestamps, never to measure durations.
pub fn wall_nanos() -> u64 {
    nanos(ClockId::Realtime)
}

/// Returns the time since 1970. Use it for dates and ages, never to measure durations. The C library reads the clock, so
/// `faketime` can move it.
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the time since the host booted, suspended time included (`CLOCK_BOOTTIME`).
pub fn since_boot() -> Duration {
    Duration::from_nanos(nanos(ClockId::Boottime))
}

/// Returns the maximum error of [`wall_nanos`] against UTC. Returns `None` if the clock is not synchronised
/// (`adjtimex(2)`: `STA_UNSYNC`, and the maximum error that the synchronising program sets).
pub fn wall_error() -> Option<Duration> {
    let mut state = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: all zeros is a valid timex that requests no change, and it outlives the call.
    let state = unsafe {
        libc::adjtimex(state.as_mut_ptr());
        state.assume_init()
    };
    let is_synchronised = state.status & libc::STA_UNSYNC == 0 && state.maxerror > 0;
    is_synchronised.then(|| Duration::from_micros(u64::try_from(state.maxerror).unwrap_or(u64::MAX)))
}

/// Waits until one of `files` is readable or closed by its peer, or until `timeout`. Without a time-out, waits for any
/// time (`ppoll(2)`). The kernel may end the wait late by 1/1000 of `timeout`, independent of the timer slack
/// (`select_estimate_accuracy` in fs/select.c): see [`early_timeout`]. Returns for each file if it is ready. All values
/// are false after the time-out or a signal.
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

/// Sleeps until `CLOCK_MONOTONIC` reaches `nanos`, or until a signal (`clock_nanosleep(2)`).
pub fn sleep_until(nanos: u64) {
    const SECOND: u64 = 1_000_000_000;
    let (seconds, rest) = (nanos / SECOND, (nanos % SECOND) as i64);
    let at = Timespec { tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX), tv_nsec: rest };
    // Only a signal or an invalid time can end the sleep early. The caller reads the clock afterwards.
    let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

/// Returns a time-out that ends before `remaining`, even if the kernel is late by 1/1000. The rest is so short that
/// 1/1000 of it does not matter.
pub fn early_timeout(remaining: Duration) -> Duration {
    const MIN_SHORTENED: Duration = Duration::from_millis(2);
    if remaining < MIN_SHORTENED { remaining } else { remaining - remaining / 500 }
}

fn nanos(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds * 1_000_000_000 + nanos
}
