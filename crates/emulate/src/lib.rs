//! The link emulator. It sends real kernel traffic through the model of `lfn_link`, between two network
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

#![forbid(unsafe_code)]

mod accuracy;
mod calibrate;
mod child;
pub mod control;
mod data_path;
mod error;
mod network;
mod outcome;
mod setup;
mod terminal;
mod watch;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::thread::{self, JoinHandle};

use lfn_sys::namespace::CloneSide;
use lfn_sys::process::signal::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};
use lfn_sys::process::{self, Signals};
use rustix::pipe::PipeFlags;

use child::{CALLER_ONLY_INTERRUPT, ChildContext};
use control::ControlAddress;
use error::{START_THREAD, system_error};
use network::Attachment;
use outcome::RunResult;
use terminal::Terminal;

pub use accuracy::{
    AccuracyReport, DirectionReport, EmulatedPathReport, HistogramBin, Inaccuracy, Lateness, LinkChange, QueueingDelay,
    Unmodelled,
};
pub use calibrate::{Calibration, CpuCost, ForwardingCosts};
pub use error::{EmulateError, MAX_PATHS};
pub use lfn_link::EmulatedPath;
pub use network::{MissingFeature, NamespaceError, NamespaceRef, bridge_mtu, namespaces_available};
pub use outcome::{CommandExit, RunOutcome};
pub use setup::{FarSide, Placement, Setup};
pub use watch::{
    CourseSample, DirectionCourse, LiveDirection, LiveFigures, LiveOptions, LogError, LogFiles, LogFormat, LogSummary,
    OutputFile, PathCourse, WatchOptions,
};

/// Signals that the caller forwards to CMD. SIGCHLD reports the end of the child process.
const FORWARDED_SIGNALS: [i32; 5] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD];
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
