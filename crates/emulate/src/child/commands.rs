//! Command on the near side (CMD), and the signals that are forwarded to it.
//!
//! The link exists as long as CMD runs. Without a command, a shell runs if the near side is a new namespace. Otherwise
//! the link exists until a signal ends it.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::iter;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::{Duration, Instant};

use lfn_sys::namespace::NetNamespace;
use lfn_sys::process::signal::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use lfn_sys::process::{self, Signals};

use super::environment;
use super::far::{FarCommand, is_resource_shortage};
use super::shell::Shell;
use crate::control::ControlAddress;
use crate::error::{EmulateError, system_error};
use crate::network::{NamespaceRef, PathEnd, SideName};
use crate::outcome::CommandExit;
use crate::setup::{FarSide, Placement, Setup};

/// The child receives this signal in place of a SIGINT that was sent to the caller only. CMD has not received that
/// SIGINT.
pub(crate) const CALLER_ONLY_INTERRUPT: i32 = SIGUSR1;
/// Sent when a thread of the data path fails.
pub(super) const FORWARDING_FAILED: i32 = SIGUSR2;

/// Maximum time for CMD to end after SIGTERM or SIGHUP.
const TERM_TIMEOUT: Duration = Duration::from_secs(5);
/// A second interrupt within this time kills CMD, because the first one did not end it.
const SECOND_INTERRUPT: Duration = Duration::from_secs(5);
/// Interrupts within this time come from the same key press or kill command, and CMD has already received one.
const SAME_INTERRUPT: Duration = Duration::from_millis(500);

/// Exits of CMD and of the far command. `None` for a far command that the emulator stopped, and for a missing CMD.
pub(super) type CommandExits = (Option<CommandExit>, Option<CommandExit>);

/// Runs CMD on the near side until it ends. The far side must already be up.
pub(super) fn run(
    setup: &Setup,
    command: &[OsString],
    control: ControlAddress,
    near: &NetNamespace,
    mut far: FarCommand,
    signals: &Signals,
) -> Result<CommandExits, EmulateError> {
    let early = take_pending_signals(signals)?;
    let mut near_command = NearCommand::new(setup, command);
    if command.is_empty() && !setup.quiet {
        // Before the first prompt.
        print_introduction(setup, control, near_command.command().is_some());
    }
    let pid = match near_command.command() {
        Some(command) => Some(start_command(command, setup, control, near, far.ticket.as_deref())?),
        None => None,
    };
    let mut watcher = CommandWatcher::new(pid);
    let exit = match watcher.deliver_early_signals(&early)? {
        ControlFlow::Continue(()) => watcher.wait(signals, &mut far)?,
        ControlFlow::Break(()) => None,
    };
    let far_exit = far.exit;
    far.stop(signals);
    Ok((exit, far_exit))
}

/// Returns the signals that arrived while the link was created.
fn take_pending_signals(signals: &Signals) -> Result<Vec<process::Signal>, EmulateError> {
    let fetch = || signals.next(Some(Duration::ZERO)).map_err(system_error("wait for a signal")).transpose();
    iter::from_fn(fetch).collect()
}

/// Command on the near side.
enum NearCommand {
    Program(Command),
    Shell(Shell),
    /// The near side is an existing namespace or an interface, and there is no CMD.
    None,
}

impl NearCommand {
    /// Returns CMD, or a shell if the near side is a new namespace.
    fn new(setup: &Setup, command: &[OsString]) -> NearCommand {
        if let Some((program, arguments)) = command.split_first() {
            let mut command = Command::new(program);
            command.args(arguments);
            return NearCommand::Program(command);
        }
        match setup.placement {
            Placement::Namespaces { near: None, .. } => {
                NearCommand::Shell(Shell::of_user(io::stdin().is_terminal(), &environment::prompt(setup)))
            }
            _ => NearCommand::None,
        }
    }

    fn command(&mut self) -> Option<&mut Command> {
        match self {
            NearCommand::Program(command) => Some(command),
            NearCommand::Shell(shell) => Some(&mut shell.command),
            NearCommand::None => None,
        }
    }
}

/// Prints the addresses and the far command for a user who gave no command.
fn print_introduction(setup: &Setup, control: ControlAddress, has_shell: bool) {
    if has_shell && !io::stdin().is_terminal() {
        return;
    }
    // The run continues if stderr is closed.
    let _ = introduction(setup, control, has_shell).iter().try_for_each(|line| writeln!(io::stderr(), "{line}"));
}

fn introduction(setup: &Setup, control: ControlAddress, has_shell: bool) -> Vec<String> {
    let [near_end, far_end] = [SideName::Near, SideName::Far].map(|side| PathEnd::new(side, 0));
    let [here, there] = [near_end.v4(), far_end.v4()];
    let service = match &setup.far {
        FarSide::Nothing => "no command runs there".to_owned(),
        FarSide::Shell(_) => "the --far-command runs there".to_owned(),
        FarSide::Server { arguments, .. } => {
            let has_iperf3 = arguments.iter().any(|word| word == "--iperf3");
            // Only new namespaces resolve the names for all programs.
            let name = if has_shell { "far".to_owned() } else { there.to_string() };
            let iperf3 = if has_iperf3 { format!(" and `iperf3 -c {name}`") } else { String::new() };
            format!("a server for `lfn test far`, `lfn copy FILE far:`{iperf3} runs there")
        }
    };
    let interface = near_end.interface();
    let location = |attached: &Option<NamespaceRef>| attached.as_ref().map(|namespace| format!(" in {namespace}"));
    match &setup.placement {
        Placement::Namespaces { far, .. } if has_shell => {
            let far = location(far).unwrap_or_default();
            vec![format!(
                "lfn: this shell is on the near side, {interface} {here}; far is {there}{far}, {service}; `exit` ends the link"
            )]
        }
        Placement::Namespaces { near, far } => {
            let [at_near, at_far] = [near, far].map(|side| location(side).unwrap_or_default());
            let mut lines = vec![format!(
                "lfn: near is {interface} {here}{at_near}; far is {interface} {there}{at_far}, {service}; \
                 an interrupt (Ctrl-C) ends the link"
            )];
            if let Some(enter) = near.as_ref().map(|near| near.enter_command(!control.is_root())) {
                let program = if is_on_path("lfn".as_ref()) { "lfn".into() } else { own_program() };
                if matches!(setup.far, FarSide::Server { .. }) {
                    lines.push(format!("lfn: in another terminal: {enter} {program} test far"));
                }
                lines.push(format!("lfn: other programs need the address: {enter} ping -c 3 {there}"));
            }
            lines
        }
        Placement::Bridge([one, other]) => {
            vec![format!("lfn: bridge between {one} and {other}; an interrupt (Ctrl-C) ends it")]
        }
    }
}

/// Returns the path of this program.
fn own_program() -> String {
    std::env::current_exe().map_or("lfn".to_owned(), |program| program.display().to_string())
}

fn start_command(
    command: &mut Command,
    setup: &Setup,
    control: ControlAddress,
    namespace: &NetNamespace,
    ticket: Option<&str>,
) -> Result<i32, EmulateError> {
    environment::set(command, setup, control, SideName::Near);
    if let Some(ticket) = ticket {
        command.env(environment::TICKET_VARIABLE, ticket);
    }
    process::unblock_all_signals(command);
    let spawned = namespace.run(|| command.spawn()).map_err(system_error("enter a network namespace"))?;
    let child = spawned.map_err(|error| start_error(command.get_program(), error))?;
    i32::try_from(child.id()).map_err(|e| system_error("start a command")(io::Error::other(e)))
}

/// Converts an error of the program start. A PATH directory without access makes the system return "permission denied"
/// for a program that does not exist in the other directories either. A shell reports such a program as not found, and
/// so does this function.
fn start_error(program: &OsStr, error: io::Error) -> EmulateError {
    if is_resource_shortage(&error) {
        return system_error(&format!("start '{}'", program.to_string_lossy()))(error);
    }
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let missing = denied && !program.as_bytes().contains(&b'/') && !is_on_path(program);
    EmulateError::Start {
        program: program.to_string_lossy().into_owned(),
        reason: if missing { "not found on the PATH".to_owned() } else { error.to_string() },
        not_found: missing || error.kind() == io::ErrorKind::NotFound,
    }
}

fn is_on_path(program: &OsStr) -> bool {
    std::env::var_os("PATH")
        .or_else(environment::search_path)
        .is_some_and(|paths| std::env::split_paths(&paths).any(|path| path.join(program).is_file()))
}

/// Waits for CMD and forwards signals to it. Without CMD, waits for a signal.
struct CommandWatcher {
    pid: Option<i32>,
    interrupted: Option<Instant>,
    kill_at: Option<Instant>,
}

impl CommandWatcher {
    fn new(pid: Option<i32>) -> Self {
        CommandWatcher { pid, interrupted: None, kill_at: None }
    }

    /// Forwards signals that arrived before CMD started, including the terminal's interrupt. Without CMD, such a signal
    /// may end the link.
    fn deliver_early_signals(&mut self, early: &[process::Signal]) -> Result<ControlFlow<()>, EmulateError> {
        for &signal in early {
            let Some(pid) = self.pid else {
                if ends_link(signal.number) {
                    return Ok(ControlFlow::Break(()));
                }
                continue;
            };
            let new_signal = |number| process::Signal { number, from_kernel: false };
            self.handle(new_signal(if signal.number == SIGINT { CALLER_ONLY_INTERRUPT } else { signal.number }), pid)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Waits for the exit of CMD. Returns `None` without CMD.
    fn wait(mut self, signals: &Signals, far: &mut FarCommand) -> Result<Option<CommandExit>, EmulateError> {
        loop {
            while let Some((pid, ending)) = process::reap() {
                if self.pid == Some(pid) {
                    return Ok(Some(ending.into()));
                }
                far.record_exit(pid, ending);
            }
            let timeout = self.kill_at.map(|at| at.saturating_duration_since(Instant::now()));
            let signal = signals.next(timeout).map_err(system_error("wait for a signal"))?;
            match (signal, self.pid) {
                (Some(signal), Some(pid)) => self.handle(signal, pid)?,
                (Some(signal), None) if ends_link(signal.number) => return Ok(None),
                (None, Some(pid)) if self.kill_at.is_some_and(|at| at <= Instant::now()) => self.kill(pid)?,
                _ => {}
            }
        }
    }

    fn handle(&mut self, signal: process::Signal, pid: i32) -> Result<(), EmulateError> {
        let now = Instant::now();
        let since_interrupt = self.interrupted.map(|at| now - at);
        match signal.number {
            // CMD has also received a signal that came from the terminal or was sent to the process group.
            SIGINT | CALLER_ONLY_INTERRUPT if since_interrupt.is_some_and(|t| t < SAME_INTERRUPT) => {}
            SIGINT | CALLER_ONLY_INTERRUPT if since_interrupt.is_some_and(|t| t < SECOND_INTERRUPT) => {
                self.kill(pid)?
            }
            SIGINT => self.interrupted = Some(now),
            CALLER_ONLY_INTERRUPT => {
                self.interrupted = Some(now);
                send_signal(pid, SIGINT)?;
            }
            SIGQUIT if signal.from_kernel => {}
            SIGTERM | SIGHUP | SIGQUIT => {
                self.kill_at.get_or_insert(now + TERM_TIMEOUT);
                send_signal(pid, signal.number)?;
            }
            FORWARDING_FAILED => self.kill(pid)?,
            _ => {}
        }
        Ok(())
    }

    fn kill(&mut self, pid: i32) -> Result<(), EmulateError> {
        self.kill_at = None;
        send_signal(pid, SIGKILL)
    }
}

fn send_signal(pid: i32, signal: i32) -> Result<(), EmulateError> {
    process::send_signal(pid, signal).map_err(system_error("signal the command"))
}

fn ends_link(signal: i32) -> bool {
    [SIGINT, CALLER_ONLY_INTERRUPT, SIGTERM, SIGHUP, SIGQUIT, FORWARDING_FAILED].contains(&signal)
}

#[cfg(test)]
mod tests {
    use lfn_link::EmulatedPath;
    use lfn_link::settings::HopSettings;
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn attached_sides_are_introduced_with_commands_that_work() {
        let mut settings = HopSettings::default();
        ["rtt=20ms", "rate=5mbit"].iter().for_each(|pair| settings.set_pair(pair).unwrap());
        let path = EmulatedPath::new(&[settings], 1500).unwrap();
        let arguments = vec!["--iperf3".into()];
        let far = FarSide::Server { program: "lfn".into(), arguments, memory_root: None };
        let near = Some(NamespaceRef::Process(77));
        let placement = Placement::Namespaces { near, far: None };
        let setup = Setup { placement, ..Setup::new(path, 1, far) };
        let lines = introduction(&setup, ControlAddress::own(), false);
        assert!(
            lines[0].contains("near is lfn0 10.73.23.1 in process 77; far is lfn0 10.73.23.2, a server"),
            "{lines:?}"
        );
        assert!(lines[0].contains(" and `iperf3 -c 10.73.23.2` runs there"), "{lines:?}");
        assert!(lines[1].starts_with("lfn: in another terminal: nsenter -t 77 "), "{lines:?}");
        assert!(lines[1].ends_with(" test far"), "{lines:?}");
        assert!(lines[2].ends_with(" ping -c 3 10.73.23.2"), "{lines:?}");
    }

    #[test]
    fn resource_shortage_is_not_blamed_on_the_program() {
        for errno in [Errno::AGAIN, Errno::MFILE, Errno::NOMEM] {
            let error = start_error(OsStr::new("/bin/true"), errno.into());
            assert!(matches!(&error, EmulateError::System { step, .. } if step == "start '/bin/true'"), "{error}");
        }
        for (errno, missing) in [(Errno::NOENT, true), (Errno::ACCESS, false), (Errno::NOEXEC, false)] {
            let error = start_error(OsStr::new("/bin/true"), errno.into());
            assert!(matches!(error, EmulateError::Start { not_found, .. } if not_found == missing), "{errno:?}");
        }
    }
}
