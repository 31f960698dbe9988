//! What runs on the near side, and its end: CMD, and signals on their way to it.
//!
//! The link lasts as long as CMD. Without one it is a shell, where the near side is ours to have one; elsewhere the link
//! lasts until somebody ends it with a signal.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::iter;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::{Duration, Instant};

use lfn_sys::namespace::NetNamespace;
use lfn_sys::process::signal::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};
use lfn_sys::process::{self, Signals};
use rustix::io::Errno;

use super::FORWARDING_FAILED;
use super::environment;
use super::far::Far;
use crate::emulator::control::Address;
use crate::emulator::place::{End, SideName};
use crate::emulator::{EmulateError, Ending, FarSide, INTERRUPT_ALONE, Place, Setup, system};

/// How long CMD may take to end after SIGTERM or SIGHUP.
const GRACE: Duration = Duration::from_secs(5);
/// A second interrupt within this time means that the first one did not help.
const IMPATIENCE: Duration = Duration::from_secs(5);
/// An interrupt that CMD had from the same key press or kill as the caller.
const SAME_INTERRUPT: Duration = Duration::from_millis(500);

/// How both commands ended: CMD, if there was one, and the far command, if it ended before it was told to.
pub(super) type Endings = (Option<Ending>, Option<Ending>);

/// Runs CMD on the near side, to its end, with the far side up already.
pub(super) fn run(
    setup: &Setup,
    command: &[OsString],
    control: Address,
    near: &NetNamespace,
    mut far: Far,
    signals: &Signals,
) -> Result<Endings, EmulateError> {
    let early = so_far(signals)?;
    let pid = match near_command(setup, command) {
        Some(command) => Some(start(command, setup, control, near, far.ticket.as_deref())?),
        None => None,
    };
    if command.is_empty() {
        introduce(setup, pid.is_some());
    }
    let mut watch = Watch::new(pid);
    let ending = match watch.catch_up(&early)? {
        ControlFlow::Continue(()) => watch.wait(signals, &mut far)?,
        ControlFlow::Break(()) => None,
    };
    let far_ending = far.ending;
    far.stop(signals);
    Ok((ending, far_ending))
}

/// What came while the link was being made.
fn so_far(signals: &Signals) -> Result<Vec<process::Signal>, EmulateError> {
    let fetch = || signals.next(Some(Duration::ZERO)).map_err(system("wait for a signal")).transpose();
    iter::from_fn(fetch).collect()
}

/// CMD, or a shell on a near side that nobody else has.
fn near_command(setup: &Setup, command: &[OsString]) -> Option<Command> {
    if let Some((program, arguments)) = command.split_first() {
        let mut command = Command::new(program);
        command.args(arguments);
        return Some(command);
    }
    let is_ours = matches!(setup.place, Place::Sides { near: None, .. });
    is_ours
        .then(|| Command::new(std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or("/bin/sh".into())))
}

/// Says what is where, to somebody who gave no command.
fn introduce(setup: &Setup, has_shell: bool) {
    let far = match &setup.far {
        FarSide::Nothing => "with nothing running there",
        FarSide::Shell(_) => "with the command of --far",
        FarSide::Server { .. } => "with a server for lfn test far and lfn copy",
    };
    let [near_end, far_end] = [SideName::Near, SideName::Far].map(|side| End::new(side, 0));
    let [here, there] = [near_end.v4(), far_end.v4()];
    let interface = near_end.interface();
    let line = match &setup.place {
        Place::Sides { .. } if has_shell && !io::stdin().is_terminal() => return,
        Place::Sides { .. } if has_shell => {
            format!("this shell is near, {interface} {here}; far is {there}, {far}; exit ends the link")
        }
        Place::Sides { near, far: other } => {
            let place = |attached: &Option<_>| match attached {
                Some(attachment) => format!("in {attachment}"),
                None => far.to_owned(),
            };
            let (near, other) = (place(near), place(other));
            format!("near is {interface} {here} {near}; far is {interface} {there} {other}; an interrupt ends the link")
        }
        Place::Wire([one, other]) => format!("in the wire between {one} and {other}; an interrupt ends it"),
    };
    // Nobody may be listening.
    let _ = writeln!(io::stderr(), "lfn: {line}");
}

fn start(
    mut command: Command,
    setup: &Setup,
    control: Address,
    namespace: &NetNamespace,
    ticket: Option<&str>,
) -> Result<i32, EmulateError> {
    environment::set(&mut command, setup, control);
    if let Some(ticket) = ticket {
        command.env("LFN_FAR_TICKET", ticket);
    }
    process::with_no_signal_blocked(&mut command);
    let spawned = namespace.run(|| command.spawn()).map_err(system("enter a network namespace"))?;
    let child = spawned.map_err(|error| cannot_start(command.get_program(), error))?;
    i32::try_from(child.id()).map_err(|e| system("start a command")(io::Error::other(e)))
}

/// A directory on the PATH that may not be entered makes the system say "permission denied" of a program that is in none
/// of the others either: that is not found, as a shell sees it.
fn cannot_start(program: &OsStr, error: io::Error) -> EmulateError {
    if is_want(&error) {
        return system(&format!("start '{}'", program.to_string_lossy()))(error);
    }
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let missing = denied && !program.as_bytes().contains(&b'/') && !is_on_path(program);
    EmulateError::Start {
        program: program.to_string_lossy().into_owned(),
        reason: if missing { "not found on the PATH".to_owned() } else { error.to_string() },
        not_found: missing || error.kind() == io::ErrorKind::NotFound,
    }
}

/// True if the system had no more of something: the program is not to blame.
pub(super) fn is_want(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| [Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM].contains(&errno))
}

fn is_on_path(program: &OsStr) -> bool {
    environment::path().is_some_and(|paths| std::env::split_paths(&paths).any(|path| path.join(program).is_file()))
}

/// Waits for CMD, and passes signals on to it; without a CMD for a signal.
struct Watch {
    pid: Option<i32>,
    interrupted: Option<Instant>,
    kill_at: Option<Instant>,
}

impl Watch {
    fn new(pid: Option<i32>) -> Self {
        Watch { pid, interrupted: None, kill_at: None }
    }

    /// Tells CMD what was sent before it was there to hear it: the terminal's interrupt too. Without a CMD that may be
    /// the link's end.
    fn catch_up(&mut self, early: &[process::Signal]) -> Result<ControlFlow<()>, EmulateError> {
        for &signal in early {
            let Some(pid) = self.pid else {
                if ends_a_link(signal.number) {
                    return Ok(ControlFlow::Break(()));
                }
                continue;
            };
            let unheard = |number| process::Signal { number, from_kernel: false };
            self.handle(unheard(if signal.number == SIGINT { INTERRUPT_ALONE } else { signal.number }), pid)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// How CMD ended; `None` if there was none.
    fn wait(mut self, signals: &Signals, far: &mut Far) -> Result<Option<Ending>, EmulateError> {
        loop {
            while let Some((pid, ending)) = process::reap() {
                if self.pid == Some(pid) {
                    return Ok(Some(ending.into()));
                }
                far.note(pid, ending);
            }
            let timeout = self.kill_at.map(|at| at.saturating_duration_since(Instant::now()));
            let signal = signals.next(timeout).map_err(system("wait for a signal"))?;
            match (signal, self.pid) {
                (Some(signal), Some(pid)) => self.handle(signal, pid)?,
                (Some(signal), None) if ends_a_link(signal.number) => return Ok(None),
                (None, Some(pid)) if self.kill_at.is_some_and(|at| at <= Instant::now()) => self.kill(pid)?,
                _ => {}
            }
        }
    }

    fn handle(&mut self, signal: process::Signal, pid: i32) -> Result<(), EmulateError> {
        let now = Instant::now();
        let since_interrupt = self.interrupted.map(|at| now - at);
        match signal.number {
            // What reached this process by the terminal or its group has reached CMD as well.
            SIGINT | INTERRUPT_ALONE if since_interrupt.is_some_and(|t| t < SAME_INTERRUPT) => {}
            SIGINT | INTERRUPT_ALONE if since_interrupt.is_some_and(|t| t < IMPATIENCE) => self.kill(pid)?,
            SIGINT => self.interrupted = Some(now),
            INTERRUPT_ALONE => {
                self.interrupted = Some(now);
                tell(pid, SIGINT)?;
            }
            SIGQUIT if signal.from_kernel => {}
            SIGTERM | SIGHUP | SIGQUIT => {
                self.kill_at.get_or_insert(now + GRACE);
                tell(pid, signal.number)?;
            }
            FORWARDING_FAILED => self.kill(pid)?,
            _ => {}
        }
        Ok(())
    }

    fn kill(&mut self, pid: i32) -> Result<(), EmulateError> {
        self.kill_at = None;
        tell(pid, SIGKILL)
    }
}

fn tell(pid: i32, signal: i32) -> Result<(), EmulateError> {
    process::send_signal(pid, signal).map_err(system("signal the command"))
}

fn ends_a_link(signal: i32) -> bool {
    [SIGINT, INTERRUPT_ALONE, SIGTERM, SIGHUP, SIGQUIT, FORWARDING_FAILED].contains(&signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_not_blamed_for_what_the_system_lacks() {
        for errno in [Errno::AGAIN, Errno::MFILE, Errno::NOMEM] {
            let error = cannot_start(OsStr::new("/bin/true"), errno.into());
            assert!(matches!(&error, EmulateError::System { step, .. } if step == "start '/bin/true'"), "{error}");
        }
        for (errno, missing) in [(Errno::NOENT, true), (Errno::ACCESS, false), (Errno::NOEXEC, false)] {
            let error = cannot_start(OsStr::new("/bin/true"), errno.into());
            assert!(matches!(error, EmulateError::Start { not_found, .. } if not_found == missing), "{errno:?}");
        }
    }
}
