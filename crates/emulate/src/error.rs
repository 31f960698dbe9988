//! Reasons why an emulation cannot run.

use std::io;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use lfn_base::units::{BitRate, Bytes, show_duration};
use serde::{Deserialize, Serialize};

use super::network::NamespaceError;

/// Maximum number of parallel paths. Each path costs two threads and at least 58 MB of rings. Each path also adds about
/// 130 ms to the start and to the end of the run, mostly to make the rings resident and to free them. So 64 paths take
/// 3.7 GB, and 9 s each time. [`Setup::check`](super::Setup::check) counts the memory.
pub const MAX_PATHS: usize = 64;

/// Reason why an emulation cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum EmulateError {
    /// The system allows no namespaces. [`NamespaceError::remedy`] gives a command that changes this.
    #[error("cannot create namespaces: {0}")]
    Namespaces(#[from] NamespaceError),
    /// The settings are contradictory, or they exceed a limit of the model.
    #[error("{0}")]
    Link(String),
    /// The number of paths is 0 or above [`MAX_PATHS`].
    #[error("{0} paths in parallel: the number must be between 1 and {MAX_PATHS}")]
    Paths(usize),
    /// The packets in flight do not fit into memory. A lower rate, RTT or queue needs less.
    #[error("{rate} x {} needs {needed} of memory for packets in flight; only {usable} can be used", show_duration(*.rtt))]
    Memory {
        rate: BitRate,
        rtt: Duration,
        /// Needed by both directions of all paths.
        needed: Bytes,
        /// Part of the available memory that may be used.
        usable: Bytes,
    },
    /// The namespace does not exist, belongs to another user, or already has a conflicting interface or address.
    #[error("cannot attach to {target}: {reason}")]
    Attach { target: String, reason: String, remedy: String },
    /// The interface cannot be an end of a bridge.
    #[error("interface {interface}: {reason}")]
    Bridge { interface: String, reason: String, remedy: String },
    /// The rate is far above the capacity of this machine. The second field is a rate that it can carry.
    #[error("{0}")]
    Infeasible(String, BitRate),
    /// The program cannot be started. The exit code is 127 if it was not found, else 126, as in a shell.
    #[error("cannot start '{program}': {reason}")]
    Start { program: String, reason: String, not_found: bool },
    /// The server on the far side did not start.
    #[error("the far side did not start: {0}")]
    FarSide(String),
    /// The thread of a direction has ended, because the interface vanished or the run is over.
    #[error("this direction of the link has stopped")]
    DirectionEnded,
    /// The thread of a direction did not read the command in time. The command was withdrawn, and nothing has changed.
    #[error("this direction of the link has not answered in time")]
    NoAnswer,
    /// An unexpected failure of a system call.
    #[error("cannot {step}: {reason}")]
    System { step: String, reason: String },
    /// The child process was killed or crashed.
    #[error("the emulator ended without a report: {0}")]
    NoReport(String),
}

pub(super) const START_THREAD: &str = "start a thread";

/// Starts a scoped thread. Returns an error if the system allows no more threads.
pub(super) fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, EmulateError> {
    thread::Builder::new().spawn_scoped(scope, work).map_err(system_error(START_THREAD))
}

/// Adds the step at which a system call failed.
pub(super) fn system_error<E: Into<io::Error>>(step: &str) -> impl FnOnce(E) -> EmulateError {
    move |error| EmulateError::System { step: step.to_owned(), reason: error.into().to_string() }
}
