//! The inside: process 1 of the new namespaces. Builds the path, runs both commands over it, and reports.
//!
//! It lives exactly as long as CMD. Being process 1 it inherits every process whose parent ended, and when it ends the
//! kernel kills them all; and it is itself killed by the kernel when the caller dies. So there is no clean-up code.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lfn_sys::namespace::{self, NetNamespace};
use lfn_sys::process::signal::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR2};
use lfn_sys::process::{self, Signals};
use lfn_sys::{clock, process::exit_now};
use rustix::pipe::PipeFlags;

use super::addresses::{End, LEAST_MTU_V6, SideName};
use super::environment;
use super::far::{self, Far};
use super::forward::Forwarder;
use super::isolation::{Newcomer, Obstacle};
use super::ledger::{DirectionLedger, Ledger, PathLedger};
use super::topology::{self, SideNet};
use super::watch::Watchers;
use super::{EmulateError, Ending, INTERRUPT_ALONE, Outcome, Report, Setup, system};

/// How long CMD may take to end after SIGTERM or SIGHUP.
const GRACE: Duration = Duration::from_secs(5);
/// A second interrupt within this time means that the first one did not help.
const IMPATIENCE: Duration = Duration::from_secs(5);
/// An interrupt that CMD had from the same key press or kill as the caller.
const SAME_INTERRUPT: Duration = Duration::from_millis(500);
/// A thread of the data path gave up.
const FORWARDING_FAILED: i32 = SIGUSR2;
/// Everything the inside is told by signals.
const SIGNALS: [i32; 7] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, INTERRUPT_ALONE, FORWARDING_FAILED];

/// Does everything and ends the process.
pub(super) fn run(setup: &Setup, command: &[OsString], newcomer: Newcomer, lifeline: &OwnedFd, reporter: File) -> ! {
    // Before any thread is made, and to the end of the process: what is not blocked would kill it.
    let signals = Signals::block(&SIGNALS).map_err(system("block signals"));
    let report = signals.as_ref().map_err(Clone::clone).and_then(|signals| {
        panic::catch_unwind(AssertUnwindSafe(|| live(setup, command, newcomer, lifeline.as_fd(), signals)))
            .unwrap_or_else(|_| Err(EmulateError::Lost("it panicked".to_owned())))
    });
    let mut reporter = reporter;
    // A caller that is gone needs no report.
    let _ = serde_json::to_writer(&mut reporter, &report).map(|()| reporter.flush());
    exit_now(0)
}

fn live(setup: &Setup, command: &[OsString], newcomer: Newcomer, lifeline: BorrowedFd, signals: &Signals) -> Report {
    settle(setup, newcomer, lifeline)?;
    let sides = topology::build(setup)?;
    let forwarders = (0..setup.paths.len()).map(|path| both_ways(setup, &sides, path));
    let mut forwarders = forwarders.collect::<Result<Vec<_>, _>>()?;
    let watchers = Watchers::start(&setup.watch, setup.seed, &mut forwarders)?;
    let (stop, running) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(system("make a pipe"))?;
    let (commands, accounts) = thread::scope(|scope| {
        let start = |forwarder| scope.spawn(|| forward(forwarder, stop.as_fd()));
        let threads: Vec<_> = forwarders.into_iter().map(|pair| pair.map(start)).collect();
        let commands = run_commands(setup, command, &sides, signals);
        drop(running);
        let accounts = threads.into_iter().map(|pair| pair.map(|thread| thread.join().unwrap_or(Err(panicked()))));
        (commands, accounts.collect::<Vec<_>>())
    });
    let log = watchers.finish();
    let (near_ending, far_ending) = commands?;
    let mut paths = Vec::new();
    for (path, [near_to_far, far_to_near]) in setup.paths.iter().zip(accounts) {
        paths.push(PathLedger { path: path.profile, near_to_far: near_to_far?, far_to_near: far_to_near? });
    }
    let mut ledger = Ledger { seed: setup.seed, paths };
    add_interface_drops(&mut ledger, &sides)?;
    Ok(Outcome { near: near_ending, far: far_ending, ledger, log })
}

/// What moves the packets of one path: near to far, and far to near.
fn both_ways<'a>(setup: &Setup, sides: &'a [SideNet; 2], path: usize) -> Result<[Forwarder<'a>; 2], EmulateError> {
    let [forth, back] = setup.hops(path);
    let [near, far] = sides.each_ref().map(|side| &side.cables[path].socket);
    Ok([Forwarder::new(&forth, near, far)?, Forwarder::new(&back, far, near)?])
}

/// Makes itself at home in the new namespaces.
fn settle(setup: &Setup, newcomer: Newcomer, lifeline: BorrowedFd) -> Result<(), EmulateError> {
    if let Some(identity) = newcomer {
        // Root without its capabilities may make a user namespace but not be anybody in it.
        identity.become_root_inside().map_err(|_| Obstacle::Container)?;
    }
    process::die_with_parent().map_err(system("tie the emulator's life to its caller's"))?;
    // A caller that died before that took its end of the pipe with it.
    if clock::wait_readable([lifeline], Some(Duration::ZERO)).is_ok_and(|[gone]| gone) {
        exit_now(1);
    }
    namespace::make_mounts_private().map_err(system("make mounts private"))?;
    name_both_sides(setup);
    // Some containers forbid it; CMD then sees processes of the outside, and that is all.
    let _ = namespace::mount_proc();
    Ok(())
}

/// Makes `near` and `far` resolve, to IPv6 too where the path has it. Where `/etc/hosts` cannot be covered, `LFN_FAR`
/// still has the address.
fn name_both_sides(setup: &Setup) {
    let hosts = Path::new("/etc/hosts");
    let mut names = fs::read(hosts).unwrap_or_default();
    names.push(b'\n');
    for (number, path) in setup.path_numbers().zip(&setup.paths) {
        for end in [SideName::Near, SideName::Far].map(|side| End::new(side, number)) {
            names.extend_from_slice(format!("{} {}\n", end.v4(), end.name()).as_bytes());
            if path.profile.mtu >= LEAST_MTU_V6 {
                names.extend_from_slice(format!("{} {}\n", end.v6(), end.name()).as_bytes());
            }
        }
    }
    if let Err(error) = namespace::cover_file(hosts, &names) {
        let place = hosts.display();
        // Nobody may be listening, and the run goes on all the same.
        let _ = writeln!(io::stderr(), "lfn: the names near and far do not resolve: cannot cover {place}: {error}");
    }
}

/// Forwards until told to stop; failing, wakes the thread that waits for the commands.
fn forward(forwarder: Forwarder, stop: BorrowedFd) -> Result<DirectionLedger, EmulateError> {
    forwarder.run(stop).map_err(|error| {
        // To itself: there is nobody else who could be told.
        let _ = process::send_signal(process::own_id(), FORWARDING_FAILED);
        system("forward packets")(error)
    })
}

fn panicked() -> EmulateError {
    EmulateError::Lost("a thread of the data path panicked".to_owned())
}

fn add_interface_drops(ledger: &mut Ledger, [near, far]: &[SideNet; 2]) -> Result<(), EmulateError> {
    for (path, account) in ledger.paths.iter_mut().enumerate() {
        let (from_near, to_near) = near.dropped(path).map_err(system("read the interfaces' counters"))?;
        let (from_far, to_far) = far.dropped(path).map_err(system("read the interfaces' counters"))?;
        account.near_to_far.unmodelled.interface = from_near + to_far;
        account.far_to_near.unmodelled.interface = from_far + to_near;
    }
    Ok(())
}

/// Runs the far command and CMD, to the end of the latter.
fn run_commands(
    setup: &Setup,
    command: &[OsString],
    [near, far]: &[SideNet; 2],
    signals: &Signals,
) -> Result<(Ending, Option<Ending>), EmulateError> {
    let mut far_side = far::start(setup, &far.namespace)?;
    let pid = start_near(setup, command, &near.namespace, far_side.ticket.as_deref())?;
    let ending = Watch::new(pid).wait(signals, &mut far_side)?;
    let far_ending = far_side.ending;
    far_side.stop(signals);
    Ok((ending, far_ending))
}

fn start_near(
    setup: &Setup,
    command: &[OsString],
    namespace: &NetNamespace,
    ticket: Option<&str>,
) -> Result<i32, EmulateError> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(EmulateError::Start {
            program: String::new(),
            reason: "no command was given".to_owned(),
            not_found: true,
        });
    };
    let mut command = Command::new(program);
    command.args(arguments);
    environment::set(&mut command, setup);
    if let Some(ticket) = ticket {
        command.env("LFN_FAR_TICKET", ticket);
    }
    process::with_no_signal_blocked(&mut command);
    start_in(namespace, &mut command)
}

/// Starts a command in a network namespace; its process id. It is waited for with every other child.
fn start_in(namespace: &NetNamespace, command: &mut Command) -> Result<i32, EmulateError> {
    let spawned = namespace.run(|| command.spawn()).map_err(system("enter a network namespace"))?;
    let child = spawned.map_err(|error| cannot_start(command.get_program(), error))?;
    i32::try_from(child.id()).map_err(|e| system("start a command")(io::Error::other(e)))
}

/// A directory on the PATH that may not be entered makes the system say "permission denied" of a program that is in none
/// of the others either: that is not found, as a shell sees it.
fn cannot_start(program: &OsStr, error: io::Error) -> EmulateError {
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let missing = denied && !program.as_bytes().contains(&b'/') && !is_on_path(program);
    EmulateError::Start {
        program: program.to_string_lossy().into_owned(),
        reason: if missing { "not found on the PATH".to_owned() } else { error.to_string() },
        not_found: missing || error.kind() == io::ErrorKind::NotFound,
    }
}

fn is_on_path(program: &OsStr) -> bool {
    environment::path().is_some_and(|paths| std::env::split_paths(&paths).any(|path| path.join(program).is_file()))
}

/// Waits for CMD, and passes signals on to it.
struct Watch {
    pid: i32,
    interrupted: Option<Instant>,
    kill_at: Option<Instant>,
}

impl Watch {
    fn new(pid: i32) -> Self {
        Watch { pid, interrupted: None, kill_at: None }
    }

    fn wait(mut self, signals: &Signals, far: &mut Far) -> Result<Ending, EmulateError> {
        loop {
            while let Some((pid, ending)) = process::reap() {
                if pid == self.pid {
                    return Ok(ending.into());
                }
                far.note(pid, ending);
            }
            let timeout = self.kill_at.map(|at| at.saturating_duration_since(Instant::now()));
            match signals.next(timeout).map_err(system("wait for a signal"))? {
                Some(signal) => self.handle(signal)?,
                None if self.kill_at.is_some_and(|at| at <= Instant::now()) => self.kill()?,
                None => {}
            }
        }
    }

    fn handle(&mut self, signal: process::Signal) -> Result<(), EmulateError> {
        let now = Instant::now();
        let since_interrupt = self.interrupted.map(|at| now - at);
        match signal.number {
            // What reached this process by the terminal or its group has reached CMD as well.
            SIGINT | INTERRUPT_ALONE if since_interrupt.is_some_and(|t| t < SAME_INTERRUPT) => {}
            SIGINT | INTERRUPT_ALONE if since_interrupt.is_some_and(|t| t < IMPATIENCE) => self.kill()?,
            SIGINT => self.interrupted = Some(now),
            INTERRUPT_ALONE => {
                self.interrupted = Some(now);
                self.tell(SIGINT)?;
            }
            SIGQUIT if signal.from_kernel => {}
            SIGTERM | SIGHUP | SIGQUIT => {
                self.kill_at.get_or_insert(now + GRACE);
                self.tell(signal.number)?;
            }
            FORWARDING_FAILED => self.kill()?,
            _ => {}
        }
        Ok(())
    }

    fn kill(&mut self) -> Result<(), EmulateError> {
        self.kill_at = None;
        self.tell(SIGKILL)
    }

    fn tell(&self, signal: i32) -> Result<(), EmulateError> {
        process::send_signal(self.pid, signal).map_err(system("signal the command"))
    }
}
