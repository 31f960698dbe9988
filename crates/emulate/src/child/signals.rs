//! Signals with a meaning of their own in the child process.

use lfn_sys::process::signal::{SIGUSR1, SIGUSR2};

/// The child receives this signal in place of a SIGINT that was sent to the caller only. CMD has not received that
/// SIGINT.
pub(crate) const CALLER_ONLY_INTERRUPT: i32 = SIGUSR1;
/// Sent when a thread of the data path fails.
pub(super) const FORWARDING_FAILED: i32 = SIGUSR2;
