//! The end of a model.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// End of the process of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelEnd(ExitStatus);

impl fmt::Display for ModelEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.code(), self.0.signal()) {
            (Some(0), _) => f.write_str("ended"),
            (Some(code), _) => write!(f, "failed with exit code {code}"),
            (None, signal) => write!(f, "was killed by signal {}", signal.unwrap_or_default()),
        }
    }
}

impl ModelEnd {
    pub(super) fn new(status: ExitStatus) -> Self {
        ModelEnd(status)
    }

    pub(super) fn is_success(self) -> bool {
        self.0.success()
    }
}
