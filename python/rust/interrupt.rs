//! Signals that end a wait: Python runs its signal handlers only on its main thread, and only when asked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::prelude::*;

/// Minimum time between two checks. The channel checks with its lock held, and a check waits for other threads of Python.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// State that ends the waits of a channel.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    /// Exception of a signal handler, for example `KeyboardInterrupt`.
    raised: Mutex<Option<PyErr>>,
    is_requested: AtomicBool,
    last_check: Mutex<Option<Instant>>,
}

impl Interrupt {
    /// Runs the handlers of signals that have arrived. Reports whether the wait ends.
    pub(crate) fn is_due(&self) -> bool {
        if self.is_requested.load(Ordering::Relaxed) {
            return true;
        }
        let now = Instant::now();
        let last = self.last_check.lock().get_or_insert(now).to_owned();
        if now.duration_since(last) < CHECK_INTERVAL {
            return false;
        }
        *self.last_check.lock() = Some(now);
        match Python::try_attach(|py| py.check_signals()) {
            Some(Ok(())) => false,
            Some(Err(error)) => {
                *self.raised.lock() = Some(error);
                true
            }
            // The interpreter ends.
            None => true,
        }
    }

    /// Ends the wait of another thread, or permits waits again.
    pub(crate) fn request(&self, is_requested: bool) {
        self.is_requested.store(is_requested, Ordering::Relaxed);
    }

    /// Removes the exception that ended the wait.
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.raised.lock().take()
    }
}
