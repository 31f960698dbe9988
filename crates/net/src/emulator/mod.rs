//! The Long Link Emulator: real kernel traffic through the link of `lfn_core::link`, between two namespaces.
//!
//! ```text
//! caller ── clone ──> inside (process 1 of new PID, network, mount and IPC namespaces, root in a user namespace)
//!                       near namespace          middle (its own)           far namespace
//!                       CMD  lfn0 ══ veth ══ near ── link ──> far ══ veth ══ lfn0  far command
//!                                                 <── link ──
//! ```
//! [`run`] is the caller's side: it finds what the run stands on, makes the inside, passes signals on and reads what
//! became of it. What goes in is the [`setup`], what comes out the [`ledger`], and between them are rooms: [`inside`], the
//! process that builds it all and runs the commands; [`place`], the sides and where they are; [`data_path`], one thread a
//! direction that moves packets from one interface through the model to the other; [`watch`], the log and the live line;
//! [`control`], by which the user changes a link that runs; [`calibrate`], what this machine can do. Everything of ours
//! lives in the inside's namespaces: when it ends, however it ends, the kernel kills every process in there, and nothing
//! is left. Several paths are as many cables and pairs of threads, with addresses of their own.

mod calibrate;
pub mod control;
mod data_path;
mod inside;
mod ledger;
mod place;
mod setup;
mod terminal;
mod watch;

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::thread::{self, JoinHandle, Scope, ScopedJoinHandle};
use std::time::Duration;

use control::Address;
use inside::Brought;
use lfn_core::units::{BitRate, Bytes, show_duration};
use lfn_sys::clock;
use lfn_sys::namespace::Side;
use lfn_sys::process::signal::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1};
use lfn_sys::process::{self, Signals};
use place::Ground;
use rustix::pipe::PipeFlags;
use serde::{Deserialize, Serialize};
use terminal::Terminal;

pub use calibrate::{Calibration, Cost, Costs};
pub use ledger::{Bin, Change, DirectionLedger, Fault, Lateness, Ledger, PathLedger, Queueing, Unmodelled};
pub use lfn_core::link::EmulatedPath;
pub use place::{Attachment, Lacking, Obstacle, namespaces_available, wire_mtu};
pub use setup::{FarSide, MOST_PATHS, Place, Setup};
pub use watch::{Live, LiveDirection, LiveFigures, LogAccount, LogError, LogFile, LogFormat, OutputFile, Watching};

/// What became of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// How CMD ended, if there was one.
    pub near: Option<Ending>,
    /// How the far command ended, if it did so before it was told to.
    pub far: Option<Ending>,
    /// What made it impossible to go on, if something did.
    pub broken: Option<String>,
    /// The account of the link.
    pub ledger: Ledger,
    /// What became of the log, if one was wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogAccount>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// With this exit status.
    Exited(i32),
    /// Killed by this signal.
    Killed(i32),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Exited(status) => write!(f, "exited with status {status}"),
            Ending::Killed(signal) => write!(f, "was killed by signal {signal}"),
        }
    }
}

/// Why nothing could be emulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum EmulateError {
    /// The system allows no namespaces here. [`Obstacle::cure`] says what would change that.
    #[error("cannot make namespaces: {0}")]
    Namespaces(#[from] Obstacle),
    /// The settings make no link, or one beyond what the model computes with.
    #[error("{0}")]
    Link(String),
    /// At least one path, and no more than fit.
    #[error("{0} paths side by side are not within 1 to {MOST_PATHS}")]
    Paths(usize),
    /// The packets in flight do not fit into memory. Give a lower rate, RTT or queue.
    #[error("{rate} x {} needs {needed} for packets in flight; {usable} of the memory free may be taken", show_duration(*.rtt))]
    Memory {
        /// The rate asked for.
        rate: BitRate,
        /// The RTT asked for.
        rtt: Duration,
        /// What both directions need.
        needed: Bytes,
        /// What may be taken of the memory available.
        usable: Bytes,
    },
    /// There is nothing to attach to, or it is not ours, or something is in the way.
    #[error("cannot attach to {to}: {reason}")]
    Attach {
        /// As it was typed.
        to: String,
        /// What is the matter.
        reason: String,
        /// What to do about it.
        cure: String,
    },
    /// The interface cannot be an end of a bridge.
    #[error("interface {interface}: {reason}")]
    Bridge {
        /// Its name.
        interface: String,
        /// What is the matter.
        reason: String,
        /// What to do about it.
        cure: String,
    },
    /// More than this machine can carry, by far; and what would fit.
    #[error("{0}")]
    Beyond(String, BitRate),
    /// No such program, or not one: exit code 127 or 126, as a shell gives.
    #[error("cannot start '{program}': {reason}")]
    Start {
        /// As it was given.
        program: String,
        /// The system's words.
        reason: String,
        /// True if there is no such file.
        not_found: bool,
    },
    /// The far side's server did not come up.
    #[error("the far side did not come up: {0}")]
    Far(String),
    /// The thread of a direction has ended: the interface is gone, or the run is at its end.
    #[error("this direction of the link no longer runs")]
    Ended,
    /// The thread of a direction did not come to it, and was spared it: nothing has changed.
    #[error("this direction of the link has not answered in time")]
    Unanswered,
    /// A system call failed that should not.
    #[error("cannot {step}: {reason}")]
    System {
        /// What was being done.
        step: String,
        /// The system's words.
        reason: String,
    },
    /// The emulator was killed or crashed.
    #[error("the emulator ended without a report: {0}")]
    Lost(String),
}

/// Signals that a caller passes on to CMD. SIGCHLD tells it of the inside's end.
const SIGNALS: [i32; 5] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD];
/// What a SIGINT sent to the caller alone becomes on its way in: the inside knows whether CMD had one as well.
const INTERRUPT_ALONE: i32 = SIGUSR1;

/// What the inside reports at its end.
type Report = Result<Outcome, EmulateError>;

/// Emulates the path while `command` runs on its near side, and returns when that has ended. Without a command that is a
/// shell; where the near side is attached or behind an interface, nothing, and it returns after SIGINT or SIGTERM.
///
/// The calling process must have one thread only, because it is cloned. SIGINT from the terminal is left to CMD;
/// SIGTERM and SIGHUP are passed on to it, and after five seconds it is killed.
pub fn run(setup: &Setup, command: &[OsString]) -> Result<Outcome, EmulateError> {
    setup.check()?;
    let ground = Ground::find(setup)?;
    let address = Address::own();
    let door = control::open_door(address).map_err(|error| control::lament(address, &error)).ok();
    let terminal = Terminal::remember();
    let blocked = Signals::block(&SIGNALS).map_err(system("block signals"))?;
    let (reports, reporter) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(system("make a pipe"))?;
    let (lifeline, held) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(system("make a pipe"))?;
    // Process 1 does not die of what it has not blocked, but never learns of it: the inside begins with it blocked.
    let unready = Signals::block(&[INTERRUPT_ALONE]).map_err(system("block signals"))?;
    match ground.enter()? {
        (Side::Parent(pid), _) => {
            drop((unready, reporter, lifeline, door, ground));
            let reading = read_on_thread(reports.into()).inspect_err(|_| end_inside(pid))?;
            let ending = wait_for_inside(pid, &blocked);
            drop(held);
            terminal.take_back();
            understand(reading.join(), ending)
        }
        (Side::Child, identity) => {
            drop((reports, held));
            let brought = Brought { identity, ground, lifeline, address, door };
            inside::run(setup, command, brought, reporter.into())
        }
    }
}

/// Passes signals on until the inside has ended.
fn wait_for_inside(pid: i32, signals: &Signals) -> Option<process::Ending> {
    loop {
        if let Some((_, ending)) = process::reap_one(pid) {
            return Some(ending);
        }
        let Ok(signal) = signals.next(None) else { return process::wait(pid) };
        let passed_on = match signal {
            Some(signal) if signal.number == SIGCHLD => None,
            // The interrupt and quit keys reach everything in the foreground, CMD included.
            Some(signal) if signal.from_kernel && signal.number != SIGHUP => None,
            Some(signal) if signal.number == SIGINT => Some(INTERRUPT_ALONE),
            Some(signal) => Some(signal.number),
            None => None,
        };
        if let Some(number) = passed_on {
            // Only an inside that is gone cannot be told, and that the next turn finds out.
            let _ = process::send_signal(pid, number);
        }
    }
}

/// Reads while the inside is waited for: a report is longer than what a pipe holds, and an inside that cannot get rid of
/// it does not end.
fn read_on_thread(mut reports: File) -> Result<JoinHandle<io::Result<Vec<u8>>>, EmulateError> {
    let read = move || {
        let mut text = Vec::new();
        reports.read_to_end(&mut text).map(|_| text)
    };
    thread::Builder::new().name("report".to_owned()).spawn(read).map_err(system(START_THREAD))
}

fn understand(text: thread::Result<io::Result<Vec<u8>>>, ending: Option<process::Ending>) -> Report {
    let text = text.unwrap_or_else(|_| Err(io::Error::other("the thread panicked")));
    let text = text.map_err(system("read the emulator's report"))?;
    serde_json::from_slice(&text).unwrap_or_else(|_| {
        let how = match ending {
            Some(process::Ending::Killed(signal)) => format!("signal {signal} killed it"),
            Some(process::Ending::Exited(status)) => format!("it exited with status {status}"),
            None => "it is gone".to_owned(),
        };
        Err(EmulateError::Lost(how))
    })
}

/// Leaves nothing to whoever is process 1, not even to be waited for.
fn end_inside(pid: i32) {
    // Only an inside that is gone already cannot be killed.
    let _ = process::send_signal(pid, SIGKILL);
    process::wait(pid);
}

const START_THREAD: &str = "start a thread";

/// Starts a thread of a scope, and says so where the system allows no more.
fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, EmulateError> {
    thread::Builder::new().spawn_scoped(scope, work).map_err(system(START_THREAD))
}

/// Names the step at which a system call failed.
fn system<E: Into<io::Error>>(step: &str) -> impl FnOnce(E) -> EmulateError {
    move |error| EmulateError::System { step: step.to_owned(), reason: error.into().to_string() }
}

impl From<process::Ending> for Ending {
    fn from(ending: process::Ending) -> Self {
        match ending {
            process::Ending::Exited(status) => Ending::Exited(status),
            process::Ending::Killed(signal) => Ending::Killed(signal),
        }
    }
}

/// The time as the link knows it.
fn now() -> lfn_core::time::Instant {
    lfn_core::time::Instant::from_nanos(clock::monotonic_nanos())
}
