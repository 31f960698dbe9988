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

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use lfn_base::units::Bytes;
use lfn_emulate::RunOutcome;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, kill_process};

use crate::documents::{EmulateDocument, EmulateSchema};
use helper::{HelperReply, MAX_REQUEST};

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
    let text = serde_json::to_vec(request).map_err(io::Error::from)?;
    let (length, maximum) = (Bytes(text.len() as u64), Bytes(MAX_REQUEST));
    if length > maximum {
        return Err(EmulateRequestError::RequestTooLong { length, maximum });
    }
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
    let helper_error = |reason| EmulateRequestError::Helper { program: options.program.clone(), reason };
    let start_error = |source| EmulateRequestError::StartHelper { program: options.program.clone(), source };
    let mut helper = HelperProcess(command.spawn().map_err(start_error)?);
    if let Some(mut stdin) = helper.0.stdin.take() {
        // A helper that has ended closes the pipe. Its exit then explains the error.
        let _ = stdin.write_all(&text);
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
            Ok(HelperReply::Failed(reason)) => result = Some(Err(helper_error(reason))),
            Err(RecvTimeoutError::Disconnected) => break,
            // The reader ends when no process can write any more.
            Err(RecvTimeoutError::Timeout) if matches!(helper.0.try_wait(), Ok(Some(_)) | Err(_)) => drop(held.take()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stop.load(Ordering::Relaxed) && !std::mem::replace(&mut is_stopped, true) {
            helper.terminate();
        }
    }
    let _ = reader.join();
    let status = helper.0.wait()?;
    result.unwrap_or_else(|| {
        if is_stopped {
            return Err(EmulateRequestError::Stopped);
        }
        Err(helper_error(format!("the helper ended without a result: {status}")))
    })
}

/// The helper process, which is killed if the caller does not wait for it.
struct HelperProcess(Child);

impl HelperProcess {
    /// Asks the helper to end the command. The helper kills a command that ignores the signal.
    fn terminate(&self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // The child is reaped later, so its process id is its own.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        // A process that is already reaped receives no signal.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;

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
        let long = EmulateRequest::new(links(), ["x".repeat(1 << 20)]);
        let error = run(&long, "/nonexistent/lfn");
        assert!(matches!(error, EmulateRequestError::RequestTooLong { .. }) && error.hint().is_some(), "{error}");
    }

    /// Writes a helper that writes its process id to the file `id`, sends `reply` and runs the shell command `then`.
    fn write_helper(directory: &Path, reply: &str, then: &str) -> PathBuf {
        let program = directory.join("helper");
        let id = directory.join("id");
        let script = format!("#!/bin/sh\necho $$ > {}\necho '{reply}' > \"$2\"\n{then}\n", id.display());
        // Another process writes the file. A child of another test would inherit a descriptor of this process, and a
        // program that is open for writing cannot start.
        let write = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
        assert!(Command::new("sh").args(["-c", write]).arg(&program).arg(script).status().unwrap().success());
        program
    }

    fn request() -> EmulateRequest {
        EmulateRequest::new(EmulatedLinks::from_spec("rate=1mbit,rtt=20ms").unwrap(), ["true"])
    }

    #[test]
    fn error_of_the_helper_reaches_the_caller() {
        let directory = tempfile::tempdir().unwrap();
        let program = write_helper(directory.path(), r#"{"Failed":"no seed"}"#, "exit 1");
        let error = run(&request(), program.to_str().unwrap());
        assert!(matches!(&error, EmulateRequestError::Helper { reason, .. } if reason == "no seed"), "{error}");
    }

    #[test]
    fn helper_is_killed_if_the_caller_panics() {
        let directory = tempfile::tempdir().unwrap();
        let program = write_helper(directory.path(), r#""Started""#, "exec sleep 1000");
        let options = EmulateOptions { program, ..EmulateOptions::default() };
        let stop = AtomicBool::new(false);
        let mut on_event = |event: &EmulateEvent| assert_ne!(*event, EmulateEvent::Started);
        let call = AssertUnwindSafe(|| emulate(&request(), &options, &stop, &mut on_event).map(drop));
        assert!(catch_unwind(call).is_err());
        let id = std::fs::read_to_string(directory.path().join("id")).unwrap();
        assert!(!Path::new("/proc").join(id.trim()).exists(), "the helper is killed and reaped");
    }
}
