//! Signals that end a copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cmd::interrupt::ending_signals;
use crate::exit::{Exit, Failure};

/// Returns a flag that the first ending signal sets. The second signal ends the process.
pub(super) fn interrupt_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in ending_signals() {
        let code = i32::from(Exit::Interrupted.code());
        signal_hook::flag::register_conditional_shutdown(signal, code, flag.clone())?;
        signal_hook::flag::register(signal, flag.clone())?;
    }
    // A file size limit then is an error of write(2), like any other.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    Ok(flag)
}

/// Replaces an error after an interrupt by "interrupted". The terminal interrupts ssh too, so that the connection fails
/// at the same time.
pub(super) fn unless_interrupted(failure: Failure, interrupted: &AtomicBool) -> Failure {
    if interrupted.load(Ordering::Relaxed) { Failure::msg("interrupted").with_exit(Exit::Interrupted) } else { failure }
}
