//! The link emulator. It sends real kernel traffic through the model of `lfn_core::link`, between two network
//! namespaces.
//!
//! ```text
//! caller ── clone ──> child (process 1 of new PID, network, mount and IPC namespaces, root in a user namespace)
//!                       near namespace          middle (its own)           far namespace
//!                       CMD  lfn0 ══ veth ══ near ── link ──> far ══ veth ══ lfn0  far command
//!                                                 <── link ──
//! ```
//! [`run`] is the caller's side. It finds the attachment of the run, clones the child process, forwards signals to it
//! and reads its report. The [`setup`] is the input, the [`accuracy`] report is the output. The modules between them:
//!
//! - [`child`]: the process that builds the path and runs the commands.
//! - [`network`]: the two sides, their namespaces and interfaces.
//! - [`data_path`]: one thread for each direction. It moves packets from one interface through the model to the other
//!   interface.
//! - [`watch`]: the packet log and the live display.
//! - [`control`]: changes a running link.
//! - [`calibrate`]: measures the capacity of this machine.
//!
//! All resources are in the child's namespaces. When the child ends, for any reason, the kernel kills every process in
//! them and deletes the namespaces. Several paths are several pairs of interfaces and threads, each path with its own
//! addresses.

mod accuracy;
mod calibrate;
mod child;
pub mod control;
mod data_path;
mod network;
mod setup;
mod terminal;
mod watch;

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::thread::{self, JoinHandle, Scope, ScopedJoinHandle};
use std::time::Duration;

use child::ChildContext;
use control::ControlAddress;
use lfn_core::units::{BitRate, Bytes, show_duration};
use lfn_sys::clock;
use lfn_sys::namespace::CloneSide;
use lfn_sys::process::signal::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1};
use lfn_sys::process::{self, Signals};
use network::Attachment;
use rustix::pipe::PipeFlags;
use serde::{Deserialize, Serialize};
use terminal::Terminal;

pub use accuracy::{
    AccuracyReport, DirectionReport, EmulatedPathReport, HistogramBin, Inaccuracy, Lateness, LinkChange, QueueingDelay,
    Unmodelled,
};
pub use calibrate::{Calibration, CpuCost, ForwardingCosts};
pub use lfn_core::link::EmulatedPath;
pub use network::{MissingFeature, NamespaceError, NamespaceRef, bridge_mtu, namespaces_available};
pub use setup::{FarSide, MAX_PATHS, Placement, Setup};
pub use watch::{
    LiveDirection, LiveFigures, LiveOptions, LogError, LogFiles, LogFormat, LogSummary, OutputFile, WatchOptions,
};

/// Result of an emulation run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunOutcome {
    /// Exit of CMD; `None` if no command ran on the near side.
    pub near: Option<CommandExit>,
    /// `None` if there was no far command, or if the emulator stopped it at the end of the run.
    pub far: Option<CommandExit>,
    /// Reason why forwarding stopped early.
    pub link_failure: Option<String>,
    pub accuracy_report: AccuracyReport,
    /// Present if a log was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogSummary>,
}

/// Exit of a command: an exit status or a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CommandExit {
    /// The command ended with this status.
    Exited(i32),
    /// A signal with this number ended the command.
    Killed(i32),
}

impl fmt::Display for CommandExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandExit::Exited(status) => write!(f, "exited with status {status}"),
            CommandExit::Killed(signal) => write!(f, "was killed by signal {signal}"),
        }
    }
}

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

/// Signals that the caller forwards to CMD. SIGCHLD reports the end of the child process.
const FORWARDED_SIGNALS: [i32; 5] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD];
/// The child receives this signal in place of a SIGINT that was sent to the caller only. CMD has not received that
/// SIGINT.
const CALLER_ONLY_INTERRUPT: i32 = SIGUSR1;

/// Report of the child process at its end.
type RunResult = Result<RunOutcome, EmulateError>;

/// Emulates the path while `command` runs on its near side, and returns when the command ends. Without a command, a
/// shell runs. If the near side is attached or behind an interface, nothing runs, and the function returns after SIGINT
/// or SIGTERM.
///
/// The calling process must have only one thread, because it is cloned. CMD receives SIGINT from the terminal itself.
/// SIGTERM and SIGHUP are forwarded to CMD, which is killed 5 s later.
pub fn run(setup: &Setup, command: &[OsString]) -> Result<RunOutcome, EmulateError> {
    setup.check()?;
    let attachment = Attachment::find(setup)?;
    let address = ControlAddress::own();
    let control_socket = control::open_socket(address).map_err(|error| control::warn_unreachable(address, &error)).ok();
    let terminal = Terminal::save();
    let blocked = Signals::block(&FORWARDED_SIGNALS).map_err(system_error("block signals"))?;
    let (report_reader, report_writer) =
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(system_error("create a pipe"))?;
    let (lifeline, held_lifeline) =
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(system_error("create a pipe"))?;
    // The kernel discards an unblocked signal to process 1. So the signal must be blocked before the clone.
    let blocked_interrupt = Signals::block(&[CALLER_ONLY_INTERRUPT]).map_err(system_error("block signals"))?;
    match attachment.clone_child()? {
        (CloneSide::Parent(pid), _) => {
            drop((blocked_interrupt, report_writer, lifeline, control_socket, attachment));
            let reading = read_report_on_thread(report_reader.into()).inspect_err(|_| kill_child(pid))?;
            let ending = wait_for_child(pid, &blocked);
            drop(held_lifeline);
            terminal.restore();
            parse_report(reading.join(), ending)
        }
        (CloneSide::Child, identity) => {
            drop((report_reader, held_lifeline));
            let context = ChildContext { identity, attachment, lifeline, address, control_socket };
            child::run(setup, command, context, report_writer.into())
        }
    }
}

/// Forwards signals until the child process ends.
fn wait_for_child(pid: i32, signals: &Signals) -> Option<process::ProcessExit> {
    loop {
        if let Some((_, ending)) = process::reap_child(pid) {
            return Some(ending);
        }
        let Ok(signal) = signals.next(None) else { return process::wait(pid) };
        let passed_on = match signal {
            Some(signal) if signal.number == SIGCHLD => None,
            // The terminal sends the interrupt and quit keys to the whole foreground process group, CMD included.
            Some(signal) if signal.from_kernel && signal.number != SIGHUP => None,
            Some(signal) if signal.number == SIGINT => Some(CALLER_ONLY_INTERRUPT),
            Some(signal) => Some(signal.number),
            None => None,
        };
        if let Some(number) = passed_on {
            // The signal cannot be sent only if the child has ended. The next iteration reaps it.
            let _ = process::send_signal(pid, number);
        }
    }
}

/// Reads the report on a thread while the caller waits for the child. A report is larger than the pipe buffer, and the
/// child cannot end before all of it is read.
fn read_report_on_thread(mut report_reader: File) -> Result<JoinHandle<io::Result<Vec<u8>>>, EmulateError> {
    let read = move || {
        let mut text = Vec::new();
        report_reader.read_to_end(&mut text).map(|_| text)
    };
    thread::Builder::new().name("report".to_owned()).spawn(read).map_err(system_error(START_THREAD))
}

fn parse_report(text: thread::Result<io::Result<Vec<u8>>>, ending: Option<process::ProcessExit>) -> RunResult {
    let text = text.unwrap_or_else(|_| Err(io::Error::other("the thread panicked")));
    let text = text.map_err(system_error("read the emulator's report"))?;
    serde_json::from_slice(&text).unwrap_or_else(|_| {
        let how = match ending {
            Some(process::ProcessExit::Killed(signal)) => format!("signal {signal} killed it"),
            Some(process::ProcessExit::Exited(status)) => format!("it exited with status {status}"),
            None => "it is gone".to_owned(),
        };
        Err(EmulateError::NoReport(how))
    })
}

/// Kills and reaps the child process, so that process 1 does not inherit it.
fn kill_child(pid: i32) {
    // The signal cannot be sent only if the child has already ended.
    let _ = process::send_signal(pid, SIGKILL);
    process::wait(pid);
}

const START_THREAD: &str = "start a thread";

/// Starts a scoped thread. Returns an error if the system allows no more threads.
fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, EmulateError> {
    thread::Builder::new().spawn_scoped(scope, work).map_err(system_error(START_THREAD))
}

/// Adds the step at which a system call failed.
fn system_error<E: Into<io::Error>>(step: &str) -> impl FnOnce(E) -> EmulateError {
    move |error| EmulateError::System { step: step.to_owned(), reason: error.into().to_string() }
}

impl From<process::ProcessExit> for CommandExit {
    fn from(ending: process::ProcessExit) -> Self {
        match ending {
            process::ProcessExit::Exited(status) => CommandExit::Exited(status),
            process::ProcessExit::Killed(signal) => CommandExit::Killed(signal),
        }
    }
}

/// Returns the current time on the link's clock.
fn now() -> lfn_core::time::Instant {
    lfn_core::time::Instant::from_nanos(clock::monotonic_nanos())
}
