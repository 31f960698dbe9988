//! The process of a model.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_sys::process;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::error::CoupleRunError;
use super::model_end::ModelEnd;

/// Time between SIGTERM and SIGKILL for a model that a run stops.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A model: at most one process at a time.
pub(super) struct ModelProcess {
    command: Vec<OsString>,
    running: Mutex<Option<Running>>,
    /// The model may end with exit code 0: its last step runs.
    may_end: AtomicBool,
}

struct Running {
    child: Child,
    end: Option<ModelEnd>,
    /// The process and those that it started were ended, or have ended with success.
    is_group_ended: bool,
}

impl Running {
    fn poll(&mut self) -> Option<ModelEnd> {
        if self.end.is_none() {
            // An error means that there is no such child.
            self.end = self.child.try_wait().unwrap_or_default().map(ModelEnd::new);
            // Processes that a successful model leaves are meant to stay.
            self.is_group_ended = self.end.is_some_and(|end| end.is_success());
        }
        self.end
    }
}

impl ModelProcess {
    pub(super) fn new(command: Vec<OsString>) -> Self {
        ModelProcess { command, running: Mutex::new(None), may_end: AtomicBool::new(false) }
    }

    /// Returns the program, for messages.
    pub(super) fn name(&self) -> String {
        self.command.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Starts the model in a process group of its own, with standard error for both of its outputs. The kernel sends SIGTERM to
    /// the model when this thread ends.
    #[allow(clippy::disallowed_methods, reason = "the model writes to standard error; lfn prints nothing here")]
    pub(super) fn start(&self, variables: &[(&str, OsString)]) -> Result<(), CoupleRunError> {
        let failed = |source| CoupleRunError::Start { command: self.name(), source };
        let (program, arguments) = self.command.split_first().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        // A process group in the background must not read from the terminal.
        if io::stdin().is_terminal() {
            command.stdin(Stdio::null());
        }
        command.stdout(io::stderr().as_fd().try_clone_to_owned().map_err(failed)?);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        process::end_with_parent(&mut command);
        let child = command.spawn().map_err(failed)?;
        *self.running.lock() = Some(Running { child, end: None, is_group_ended: false });
        Ok(())
    }

    /// Returns the end of the process that was started last.
    pub(super) fn end(&self) -> Option<ModelEnd> {
        self.running.lock().as_mut().and_then(Running::poll)
    }

    /// Permits the model to end with exit code 0.
    pub(super) fn permit_end(&self) {
        self.may_end.store(true, Ordering::Relaxed);
    }

    /// Reports whether the process has ended, and should not have.
    pub(super) fn has_ended_early(&self) -> bool {
        self.end().is_some_and(|end| !end.is_success() || !self.may_end.load(Ordering::Relaxed))
    }

    /// Waits until the process ends, or until `check` returns an error.
    pub(super) fn wait(
        &self,
        mut check: impl FnMut() -> Result<(), CoupleRunError>,
    ) -> Result<ModelEnd, CoupleRunError> {
        loop {
            if let Some(end) = self.end() {
                return Ok(end);
            }
            check()?;
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Ends the process and the processes that it started: SIGTERM, then SIGKILL. A process that has ended may have left others.
    pub(super) fn stop(&self) {
        let mut running = self.running.lock();
        let Some(running) = running.as_mut().filter(|running| !running.is_group_ended) else { return };
        let (group, deadline) = (Pid::from_child(&running.child), Instant::now() + TERMINATION_TIMEOUT);
        // An error means that the group has no process. Until then, the kernel gives its number to no other process.
        let mut has_processes = kill_process_group(group, Signal::TERM).is_ok();
        while has_processes && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
            // A process that is not waited for counts as one of the group.
            running.poll();
            has_processes = test_kill_process_group(group).is_ok();
        }
        if has_processes {
            let _ = kill_process_group(group, Signal::KILL);
        }
        if running.end.is_none() {
            running.end = running.child.wait().ok().map(ModelEnd::new);
        }
        running.is_group_ended = true;
    }
}

impl Drop for ModelProcess {
    fn drop(&mut self) {
        self.stop();
    }
}
