//! Signals that end a wait: Python runs its signal handlers only on its main thread, and only when asked.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::prelude::*;

/// State that ends the waits of a channel.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    /// Exception of a signal handler, for example `KeyboardInterrupt`.
    raised: Mutex<Option<PyErr>>,
    is_requested: AtomicBool,
}

impl Interrupt {
    /// Runs the handlers of signals that have arrived. Reports whether the wait ends.
    pub(crate) fn is_due(&self) -> bool {
        if self.is_requested.load(Ordering::Relaxed) {
            return true;
        }
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
