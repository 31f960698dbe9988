//! What runs on the far side: nothing, a command line, or a server that says by a ticket how to reach it.
//!
//! It has a session of its own, so the terminal's interrupt ends CMD only, and CMD's end ends it.

use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::session::Ticket;
use lfn_sys::clock;
use lfn_sys::namespace::NetNamespace;
use lfn_sys::process::signal::{SIGKILL, SIGTERM};
use lfn_sys::process::{self, Signals};

use super::commands::is_want;
use super::environment;
use crate::emulator::control::Address;
use crate::emulator::place::{End, SideName};
use crate::emulator::{EmulateError, Ending, FarSide, Setup, system};

/// How long a server may take to print its ticket.
const TICKET_WITHIN: Duration = Duration::from_secs(10);
/// How long a command line may take to listen on something before CMD is started all the same.
const LISTEN_WITHIN: Duration = Duration::from_secs(1);
/// How long it may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// More than any ticket; what is longer is not one.
const LONGEST_LINE: usize = 1024;

/// The far command, if there is one.
#[derive(Debug, Default)]
pub(super) struct Far {
    pid: Option<i32>,
    /// How to reach the server there.
    pub(super) ticket: Option<String>,
    /// How it ended, once it has.
    pub(super) ending: Option<Ending>,
}

/// Starts what the far side is to run, and waits until it can be talked to.
pub(super) fn start(setup: &Setup, control: Address, namespace: &NetNamespace) -> Result<Far, EmulateError> {
    match &setup.far {
        FarSide::Nothing => Ok(Far::default()),
        FarSide::Shell(line) => {
            let mut command = Command::new("/bin/sh");
            command.arg("-c").arg(line).stdout(io::stderr());
            let (pid, _) = spawn(command, setup, control, namespace)?;
            wait_for_listener(namespace)?;
            Ok(Far { pid: Some(pid), ..Far::default() })
        }
        FarSide::Server { program, arguments } => {
            let mut command = Command::new(program);
            command.args(arguments).stdout(Stdio::piped());
            let (pid, stdout) = spawn(command, setup, control, namespace)?;
            let ticket =
                stdout.ok_or_else(|| EmulateError::Far("it has no output".to_owned())).and_then(read_ticket)?;
            Ok(Far { pid: Some(pid), ticket: Some(ticket), ending: None })
        }
    }
}

impl Far {
    /// Told of every child that ended.
    pub(super) fn note(&mut self, pid: i32, ending: process::Ending) {
        if self.pid == Some(pid) {
            self.ending = Some(ending.into());
        }
    }

    /// Ends it: by SIGTERM, then by SIGKILL, with all that share its session's process group.
    pub(super) fn stop(mut self, signals: &Signals) {
        let Some(pid) = self.pid else { return };
        let deadline = Instant::now() + GRACE;
        let _ = process::send_signal(-pid, SIGTERM);
        while self.ending.is_none() && Instant::now() < deadline {
            while let Some((pid, ending)) = process::reap() {
                self.note(pid, ending);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if self.ending.is_none() && signals.next(Some(left)).is_err() {
                break;
            }
        }
        let _ = process::send_signal(-pid, SIGKILL);
    }
}

fn spawn(
    mut command: Command,
    setup: &Setup,
    control: Address,
    namespace: &NetNamespace,
) -> Result<(i32, Option<ChildStdout>), EmulateError> {
    command.stdin(Stdio::null());
    environment::set(&mut command, setup, control);
    process::in_own_session(process::with_no_signal_blocked(&mut command));
    let spawned = namespace.run(|| command.spawn()).map_err(system("enter a network namespace"))?;
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = spawned.map_err(|error| match is_want(&error) {
        true => system(&format!("start '{program}'"))(error),
        false => EmulateError::Far(format!("cannot start '{program}': {error}")),
    })?;
    let pid = i32::try_from(child.id()).map_err(|e| system("start the far command")(io::Error::other(e)))?;
    Ok((pid, child.stdout.take()))
}

/// Reads the first line of a server's output, which is its ticket, and sees to the rest.
fn read_ticket(mut stdout: ChildStdout) -> Result<String, EmulateError> {
    let deadline = Instant::now() + TICKET_WITHIN;
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        let ready = clock::wait_readable([stdout.as_fd()], Some(left)).map_err(system("wait for the far server"))?;
        if ready == [false] && left.is_zero() {
            return Err(EmulateError::Far(format!("no ticket within {} s", TICKET_WITHIN.as_secs())));
        }
        let mut byte = [0];
        match ready[0].then(|| stdout.read(&mut byte)) {
            None => {}
            Some(Ok(1)) if line.len() < LONGEST_LINE => line.push(byte[0]),
            Some(Ok(0)) => return Err(EmulateError::Far("the server ended before it printed its ticket".to_owned())),
            Some(Ok(_)) => return Err(EmulateError::Far("the server printed something that is no ticket".to_owned())),
            Some(Err(error)) => return Err(system("read the far server's ticket")(error)),
        }
    }
    let ticket = as_seen_from_near(String::from_utf8_lossy(&line).trim())?;
    // Its output must go somewhere, or it would stop when the pipe is full.
    let pass_on = move || io::copy(&mut stdout, &mut io::stderr());
    thread::Builder::new().spawn(pass_on).map_err(system("start a thread"))?;
    Ok(ticket)
}

/// The server does not know by which address it is reached.
fn as_seen_from_near(line: &str) -> Result<String, EmulateError> {
    let ticket: Ticket = line.parse().map_err(|error| EmulateError::Far(format!("{error}")))?;
    Ok(Ticket { host: End::new(SideName::Far, 0).v4().to_string(), ..ticket }.to_string())
}

/// Waits until anything in the namespace has a socket open to the outside, but not for long: a command may need none.
fn wait_for_listener(namespace: &NetNamespace) -> Result<(), EmulateError> {
    namespace
        .run(|| {
            let deadline = Instant::now() + LISTEN_WITHIN;
            while !has_sockets() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
        })
        .map_err(system("enter a network namespace"))
}

/// Each table has a line of headings, and one for each socket.
fn has_sockets() -> bool {
    ["tcp", "tcp6", "udp", "udp6"].iter().any(|table| {
        fs::read_to_string(format!("/proc/thread-self/net/{table}")).is_ok_and(|text| text.lines().count() > 1)
    })
}
