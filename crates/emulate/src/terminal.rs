//! Foreground process group of the terminal. An interactive shell in the child's namespaces takes the terminal. It
//! cannot give the terminal back, because it cannot see the caller's process.

use std::io;

use lfn_sys::process::signal::SIGTTOU;
use lfn_sys::process::{Signals, foreground_group, process_group, set_foreground_group};

/// The terminal on stdin, if this process was in its foreground.
#[derive(Debug)]
pub(super) struct Terminal {
    group: Option<i32>,
}

impl Terminal {
    /// Saves the current foreground process group.
    pub(super) fn save() -> Self {
        Terminal { group: foreground_group(io::stdin()).filter(|group| Some(*group) == process_group()) }
    }

    /// Restores the foreground process group. Without this, this process and the next one of its caller would be
    /// stopped when they read from the terminal.
    pub(super) fn restore(&self) {
        let Some(group) = self.group else { return };
        // A background process that changes the foreground group is stopped by SIGTTOU, unless it blocks the signal.
        let _ignored = Signals::block(&[SIGTTOU]);
        // This fails only if the terminal is gone.
        let _ = set_foreground_group(io::stdin(), group);
    }
}
