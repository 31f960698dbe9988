//! Ctrl-C: the first ends the load and prints what there is, the second ends the command.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit::{Exit, Failure};

/// What an interrupt does.
pub(super) struct Interrupt {
    /// There was one.
    seen: Arc<AtomicBool>,
    /// Ends the load; a test beside it that failed does so too.
    pub(super) stop: Arc<AtomicBool>,
    /// The next ends the process: before the load there is nothing to print, and after the first nobody waits twice.
    ends: Arc<AtomicBool>,
}

impl Interrupt {
    pub(super) fn listen() -> Result<Self, Failure> {
        let [seen, stop, ends] = [false, false, true].map(|set| Arc::new(AtomicBool::new(set)));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let code = i32::from(Exit::Interrupted.code());
            signal_hook::flag::register_conditional_shutdown(signal, code, ends.clone())?;
            signal_hook::flag::register(signal, ends.clone())?;
            signal_hook::flag::register(signal, seen.clone())?;
            signal_hook::flag::register(signal, stop.clone())?;
        }
        Ok(Interrupt { seen, stop, ends })
    }

    /// There is a load to be ended from now on.
    pub(super) fn load_begins(&self) {
        self.ends.store(self.seen(), Ordering::SeqCst);
    }

    /// A failure after an interrupt, with the exit code of one: what there was of the test has been printed.
    pub(super) fn of(&self, failure: Failure) -> Failure {
        if self.seen() { failure.with_exit(Exit::Interrupted) } else { failure }
    }

    pub(super) fn seen(&self) -> bool {
        self.seen.load(Ordering::SeqCst)
    }
}
