//! Whose terminal it is: a shell inside takes it, as shells do, and cannot give it back to a process it does not see.

use std::io;

use lfn_sys::process::Signals;
use lfn_sys::process::signal::SIGTTOU;
use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The terminal on stdin, if this process was in its foreground.
#[derive(Debug)]
pub(super) struct Terminal {
    group: Option<Pid>,
}

impl Terminal {
    /// Remembers how it is.
    pub(super) fn remember() -> Self {
        let own = getpgrp();
        Terminal { group: tcgetpgrp(io::stdin()).ok().filter(|group| *group == own) }
    }

    /// Takes it back, or this process and its caller's next one would be stopped when they read from it.
    pub(super) fn take_back(&self) {
        let Some(group) = self.group else { return };
        // Who is in the background is stopped for that, unless it does not listen.
        let _ignored = Signals::block(&[SIGTTOU]);
        // A terminal that is gone needs nobody in its foreground.
        let _ = tcsetpgrp(io::stdin(), group);
    }
}
