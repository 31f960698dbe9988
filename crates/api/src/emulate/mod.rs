//! The verb `emulate`: runs a command over an emulated path and returns the accuracy report.
//!
//! The emulator clones its process, so its process must have only one thread. A caller may have many, so [`emulate()`]
//! starts `lfn` again as a helper. The helper reads the request from its standard input and sends its replies as JSON
//! lines to a pipe of the caller. The helper dies with the thread that called [`emulate()`].
//!
//! A program with one thread, such as `lfn emulate`, calls [`EmulateRequest::setup`] and [`run_setup`].

mod error;
mod helper;
mod request;
mod run;

use std::io::{self, BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use lfn_net::emulator::RunOutcome;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, kill_process};

use crate::documents::{EmulateDocument, EmulateSchema};
use helper::HelperReply;

pub use error::EmulateRequestError;
pub use helper::{HelperError, run_helper};
pub use request::{DEFAULT_MTU, EmulateRequest, EmulatedLinks, RequestedFarSide, far_server, random_seed};
pub use run::{run_setup, warnings};

/// Name of the hidden command that runs the helper.
pub const HELPER_COMMAND: &str = "emulate-request";

/// Interval of the checks for a stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Options of the helper process of [`emulate()`].
#[derive(Debug, Clone)]
pub struct EmulateOptions {
    /// The program lfn, by its path or by its name in `PATH`.
    pub program: PathBuf,
    /// Destination of the output of the commands.
    pub output: CommandOutput,
}

/// Destination of the output of the commands on the path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CommandOutput {
    /// Standard output and standard error of the caller.
    Inherit,
    #[default]
    Discard,
}

impl Default for EmulateOptions {
    fn default() -> Self {
        EmulateOptions { program: "lfn".into(), output: CommandOutput::default() }
    }
}

/// Event of an emulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmulateEvent {
    /// Unusual setting, as one sentence.
    Warning(String),
    /// Path and commands start.
    Started,
}

/// Emulates the paths of the request while its command runs. Returns when the command ends. A set `stop` ends the
/// command with SIGTERM.
pub fn emulate(
    request: &EmulateRequest,
    options: &EmulateOptions,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(&EmulateEvent),
) -> Result<EmulateDocument, EmulateRequestError> {
    if request.command.is_empty() {
        return Err(EmulateRequestError::NoCommand);
    }
    let setup = request.setup(options.program.clone())?;
    warnings(&setup).into_iter().for_each(|warning| on_event(&EmulateEvent::Warning(warning)));
    let outcome = run_with_helper(request, options, stop, on_event)?;
    Ok(EmulateDocument { schema: EmulateSchema::Current, outcome })
}

fn run_with_helper(
    request: &EmulateRequest,
    options: &EmulateOptions,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(&EmulateEvent),
) -> Result<RunOutcome, EmulateRequestError> {
    let (replies, held) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    // The helper opens the pipe by this name. An inheritable descriptor would leak into other children of this process.
    let pipe = format!("/proc/{}/fd/{}", std::process::id(), held.as_raw_fd());
    let mut command = Command::new(&options.program);
    command.arg(HELPER_COMMAND).arg(pipe).stdin(Stdio::piped());
    if options.output == CommandOutput::Discard {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    // An interrupt from the terminal is for the caller, which decides.
    command.process_group(0);
    let start_error = |source| EmulateRequestError::StartHelper { program: options.program.clone(), source };
    let mut child = command.spawn().map_err(start_error)?;
    if let Some(stdin) = child.stdin.take() {
        // A helper that has ended closes the pipe. Its exit then explains the error.
        let _ = serde_json::to_writer(stdin, request);
    }
    let (sender, received) = mpsc::channel();
    let reader = thread::Builder::new().name("emulate".into()).spawn(move || {
        let lines = BufReader::new(std::fs::File::from(replies)).lines().map_while(Result::ok);
        let parsed = lines.filter_map(|line| serde_json::from_str::<HelperReply>(&line).ok());
        parsed.for_each(|reply| drop(sender.send(reply)));
    })?;
    let mut result = None;
    let mut held = Some(held);
    let mut is_stopped = false;
    loop {
        match received.recv_timeout(POLL_INTERVAL) {
            Ok(HelperReply::Started) => on_event(&EmulateEvent::Started),
            Ok(HelperReply::Log(reason)) => result = Some(Err(EmulateRequestError::Log(reason))),
            Ok(HelperReply::Result(outcome)) => result = Some((*outcome).map_err(EmulateRequestError::Emulate)),
            Err(RecvTimeoutError::Disconnected) => break,
            // The reader ends when no process can write any more.
            Err(RecvTimeoutError::Timeout) if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) => drop(held.take()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stop.load(Ordering::Relaxed) && !std::mem::replace(&mut is_stopped, true) {
            terminate(&child);
        }
    }
    let _ = reader.join();
    let status = child.wait()?;
    result.unwrap_or_else(|| {
        if is_stopped {
            return Err(EmulateRequestError::Stopped);
        }
        let reason = format!("the helper ended without a result: {status}");
        Err(EmulateRequestError::Helper { program: options.program.clone(), reason })
    })
}

/// Asks the helper to end the command.
fn terminate(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The child is reaped later, so its process id is its own.
        let _ = kill_process(pid, Signal::TERM);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn run(request: &EmulateRequest, program: &str) -> EmulateRequestError {
        let options = EmulateOptions { program: program.into(), ..EmulateOptions::default() };
        emulate(request, &options, &AtomicBool::new(false), &mut |_| {}).unwrap_err()
    }

    #[test]
    fn wrong_requests_and_programs_are_errors() {
        let missing = EmulateRequest::new(EmulatedLinks::from_spec("rate=1mbit").unwrap(), ["true"]);
        assert!(matches!(run(&missing, "true"), EmulateRequestError::Settings(_)));
        let links = || EmulatedLinks::from_spec("rate=1mbit,rtt=20ms").unwrap();
        let request = EmulateRequest::new(links(), ["true"]);
        let error = run(&request, "/nonexistent/lfn");
        assert!(matches!(error, EmulateRequestError::StartHelper { .. }) && error.hint().is_some(), "{error}");
        assert!(matches!(run(&request, "true"), EmulateRequestError::Helper { .. }));
        let empty = EmulateRequest { command: Vec::new(), ..request };
        assert!(matches!(run(&empty, "true"), EmulateRequestError::NoCommand));
    }
}
