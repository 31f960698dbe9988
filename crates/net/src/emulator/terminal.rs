//! Whose terminal it is: a shell inside takes it, as shells do, and cannot give it back to a process it does not see.

use std::io;

use lfn_sys::process::signal::SIGTTOU;
use lfn_sys::process::{Signals, foreground_group, own_group, set_foreground_group};

/// The terminal on stdin, if this process was in its foreground.
#[derive(Debug)]
pub(super) struct Terminal {
    group: Option<i32>,
}

impl Terminal {
    /// Remembers how it is.
    pub(super) fn remember() -> Self {
        Terminal { group: foreground_group(io::stdin()).filter(|group| Some(*group) == own_group()) }
    }

    /// Takes it back, or this process and its caller's next one would be stopped when they read from it.
    pub(super) fn take_back(&self) {
        let Some(group) = self.group else { return };
        // Who is in the background is stopped for that, unless it does not listen.
        let _ignored = Signals::block(&[SIGTTOU]);
        // A terminal that is gone needs nobody in its foreground.
        let _ = set_foreground_group(io::stdin(), group);
    }
}
