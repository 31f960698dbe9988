//! Ctrl-C, SIGTERM and SIGHUP: the first one ends the load and prints the result, the second one ends the command.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lfn_sys::process::is_ignored;
use lfn_sys::process::signal::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Exit, Failure};

/// Time in which further signals belong to the first one.
const SAME_INTERRUPT: Duration = Duration::from_millis(250);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the signals that end a command. A SIGHUP that nohup ignores stays ignored.
pub(super) fn ending_signals() -> impl Iterator<Item = i32> {
    let hangup = Some(SIGHUP).filter(|&signal| !is_ignored(signal));
    [SIGINT, SIGTERM].into_iter().chain(hangup)
}

/// State of interrupts by signals.
pub(super) struct Interrupt {
    interrupted: Arc<AtomicBool>,
    /// Ends the load early, with its result.
    pub(super) stop: Arc<AtomicBool>,
    /// The next signal ends the process: before the load there is no result to print, and after the first signal there
    /// is no second wait.
    exit_on_next: Arc<AtomicBool>,
}

impl Interrupt {
    pub(super) fn listen() -> Result<Self, Failure> {
        let [interrupted, stop, exit_on_next] = [false, false, true].map(|set| Arc::new(AtomicBool::new(set)));
        for signal in ending_signals() {
            let code = i32::from(Exit::Interrupted.code());
            signal_hook::flag::register_conditional_shutdown(signal, code, exit_on_next.clone())?;
            signal_hook::flag::register(signal, interrupted.clone())?;
            signal_hook::flag::register(signal, stop.clone())?;
        }
        Ok(Interrupt { interrupted, stop, exit_on_next })
    }

    /// Marks the start of the load, which the next signal ends. Signals within [`SAME_INTERRUPT`] after it are the same
    /// interrupt: a signal to the process group comes again from `lfn emulate`, which forwards it.
    pub(super) fn begin_load(&self) {
        if self.is_interrupted() || !self.exit_on_next.swap(false, Ordering::SeqCst) {
            return;
        }
        let (interrupted, exit_on_next) = (self.interrupted.clone(), self.exit_on_next.clone());
        // Without this thread, the second signal does not end the command.
        let _ = thread::Builder::new().name("interrupt".into()).spawn(move || {
            while !interrupted.load(Ordering::SeqCst) {
                thread::sleep(POLL_INTERVAL);
            }
            thread::sleep(SAME_INTERRUPT);
            exit_on_next.store(true, Ordering::SeqCst);
        });
    }

    /// Ends the load, because its result cannot be printed.
    pub(super) fn end_load(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Sets the exit code of a failure after an interrupt. The result up to the interrupt has been printed.
    pub(super) fn with_exit_code(&self, failure: Failure) -> Failure {
        if self.is_interrupted() { failure.with_exit(Exit::Interrupted) } else { failure }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }
}
