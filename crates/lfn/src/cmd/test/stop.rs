//! Ctrl-C: the first ends the load and prints what there is, the second ends the command.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit::{Exit, Failure};

/// What an interrupt does.
pub(super) struct Interrupt {
    /// There was one.
    pub(super) seen: Arc<AtomicBool>,
    /// The next ends the process: before the load there is nothing to print, and after the first nobody waits twice.
    ends: Arc<AtomicBool>,
}

impl Interrupt {
    pub(super) fn listen() -> Result<Self, Failure> {
        let (seen, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let code = i32::from(Exit::Interrupted.code());
            signal_hook::flag::register_conditional_shutdown(signal, code, ends.clone())?;
            signal_hook::flag::register(signal, ends.clone())?;
            signal_hook::flag::register(signal, seen.clone())?;
        }
        Ok(Interrupt { seen, ends })
    }

    /// There is a load to be ended from now on.
    pub(super) fn load_begins(&self) {
        self.ends.store(self.seen(), Ordering::SeqCst);
    }

    pub(super) fn seen(&self) -> bool {
        self.seen.load(Ordering::SeqCst)
    }
}
