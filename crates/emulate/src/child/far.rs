//! Command on the far side: none, a command line, or a server that prints its ticket.
//!
//! The command has its own session. So the interrupt key of the terminal ends only CMD, and the end of CMD ends the far
//! command.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use lfn_session::Ticket;
use lfn_sys::clock;
use lfn_sys::namespace::{self, NetNamespace};
use lfn_sys::process::signal::{SIGKILL, SIGTERM};
use lfn_sys::process::{self, Signals};
use rustix::io::Errno;

use super::environment;
use crate::control::ControlAddress;
use crate::error::{EmulateError, system_error};
use crate::network::{PathEnd, SideName};
use crate::outcome::CommandExit;
use crate::{FarSide, Placement, Setup};

/// Maximum time until a server prints its ticket.
const TICKET_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum wait until a command line listens on a port. After this time, CMD is started anyway.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time to end after SIGTERM.
const TERM_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer than any ticket. A longer line is not a ticket.
const MAX_TICKET_LINE: usize = 1024;

/// The far command, if there is one.
#[derive(Debug, Default)]
pub(super) struct FarCommand {
    pid: Option<i32>,
    /// Ticket of the far server.
    pub(super) ticket: Option<String>,
    /// Set when the command has ended.
    pub(super) exit: Option<CommandExit>,
}

/// Starts the far command and waits until it accepts connections.
pub(super) fn start(
    setup: &Setup,
    control: ControlAddress,
    namespace: &NetNamespace,
) -> Result<FarCommand, EmulateError> {
    match &setup.far {
        FarSide::Nothing => Ok(FarCommand::default()),
        FarSide::Shell(line) => {
            let mut command = Command::new("/bin/sh");
            command.arg("-c").arg(line).stdout(io::stderr());
            let (pid, _) = spawn(command, setup, control, namespace)?;
            wait_for_listener(namespace)?;
            Ok(FarCommand { pid: Some(pid), ..FarCommand::default() })
        }
        FarSide::Server { program, arguments, memory_root } => {
            let mut command = Command::new(program);
            command.args(arguments).stdout(Stdio::piped());
            if let Some(root) = memory_root {
                namespace::mount_own_tmpfs(&mut command, root).map_err(system_error("prepare the far directory"))?;
            }
            let (pid, stdout) = spawn(command, setup, control, namespace)?;
            let ticket =
                stdout.ok_or_else(|| EmulateError::FarSide("it has no output".to_owned())).and_then(read_ticket)?;
            Ok(FarCommand { pid: Some(pid), ticket: Some(ticket), exit: None })
        }
    }
}

impl FarCommand {
    /// Records the exit of a child process, if it is the far command.
    pub(super) fn record_exit(&mut self, pid: i32, ending: process::ProcessExit) {
        if self.pid == Some(pid) {
            self.exit = Some(ending.into());
        }
    }

    /// Stops the far command and its process group, with SIGTERM and then SIGKILL.
    pub(super) fn stop(mut self, signals: &Signals) {
        let Some(pid) = self.pid else { return };
        let deadline = Instant::now() + TERM_TIMEOUT;
        let _ = process::send_signal(-pid, SIGTERM);
        while self.exit.is_none() && Instant::now() < deadline {
            while let Some((pid, ending)) = process::reap() {
                self.record_exit(pid, ending);
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if self.exit.is_none() && signals.next(Some(remaining)).is_err() {
                break;
            }
        }
        let _ = process::send_signal(-pid, SIGKILL);
    }
}

/// Returns true if a system resource was exhausted, so that the program is not the cause.
pub(super) fn is_resource_shortage(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| [Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM].contains(&errno))
}

fn spawn(
    mut command: Command,
    setup: &Setup,
    control: ControlAddress,
    side: &NetNamespace,
) -> Result<(i32, Option<ChildStdout>), EmulateError> {
    command.stdin(Stdio::null());
    environment::set(&mut command, setup, control, SideName::Far);
    if matches!(setup.placement, Placement::Namespaces { far: Some(_), .. }) {
        // The far command may not change the settings of an existing namespace.
        command.env_remove("LFN_EMULATED");
    }
    process::start_in_new_session(process::unblock_all_signals(&mut command));
    let spawned = side.run(|| command.spawn()).map_err(system_error("enter a network namespace"))?;
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = spawned.map_err(|error| {
        if is_resource_shortage(&error) {
            system_error(&format!("start '{program}'"))(error)
        } else {
            EmulateError::FarSide(format!("cannot start '{program}': {error}"))
        }
    })?;
    let pid = i32::try_from(child.id()).map_err(|e| system_error("start the far command")(io::Error::other(e)))?;
    Ok((pid, child.stdout.take()))
}

/// Reads the ticket, the first line of the server's output. A thread copies the rest to stderr.
fn read_ticket(mut stdout: ChildStdout) -> Result<String, EmulateError> {
    let deadline = Instant::now() + TICKET_TIMEOUT;
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let ready =
            clock::wait_readable([stdout.as_fd()], Some(remaining)).map_err(system_error("wait for the far server"))?;
        if ready == [false] && remaining.is_zero() {
            return Err(EmulateError::FarSide(format!("no ticket within {} s", TICKET_TIMEOUT.as_secs())));
        }
        let mut byte = [0];
        match ready[0].then(|| stdout.read(&mut byte)) {
            None => {}
            Some(Ok(1)) if line.len() < MAX_TICKET_LINE => line.push(byte[0]),
            Some(Ok(0)) => {
                return Err(EmulateError::FarSide("the server ended before it printed its ticket".to_owned()));
            }
            Some(Ok(_)) => {
                return Err(EmulateError::FarSide("the server printed something that is no ticket".to_owned()));
            }
            Some(Err(error)) => return Err(system_error("read the far server's ticket")(error)),
        }
    }
    let ticket = with_far_address(String::from_utf8_lossy(&line).trim())?;
    // Without a reader, the server would block when the pipe is full.
    let pass_on = move || io::copy(&mut stdout, &mut io::stderr());
    thread::Builder::new().spawn(pass_on).map_err(system_error("start a thread"))?;
    Ok(ticket)
}

/// Replaces the host of the ticket by the far address, because the server does not know this address.
fn with_far_address(line: &str) -> Result<String, EmulateError> {
    let ticket: Ticket = line.parse().map_err(|error| EmulateError::FarSide(format!("{error}")))?;
    Ok(Ticket { host: PathEnd::new(SideName::Far, 0).v4().to_string(), ..ticket }.to_string())
}

/// Waits until a process in the namespace has opened a socket. The wait is short, because a command may need no socket.
fn wait_for_listener(namespace: &NetNamespace) -> Result<(), EmulateError> {
    namespace
        .run(|| {
            let deadline = Instant::now() + LISTEN_TIMEOUT;
            while !has_sockets() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
        })
        .map_err(system_error("enter a network namespace"))
}

/// Returns true if a socket table has more than its header line.
fn has_sockets() -> bool {
    ["tcp", "tcp6", "udp", "udp6"].iter().any(|table| {
        fs::read_to_string(format!("/proc/thread-self/net/{table}")).is_ok_and(|text| text.lines().count() > 1)
    })
}
