//! The inside: process 1 of the new namespaces. Builds the path, runs both commands over it, and reports.
//!
//! It lives exactly as long as CMD. Being process 1 it inherits every process whose parent ended, and when it ends the
//! kernel kills them all; and it is itself killed by the kernel when the caller dies. So there is no clean-up code.

mod commands;
mod environment;
mod far;

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::thread;
use std::time::Duration;

use lfn_sys::namespace;
use lfn_sys::process::signal::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR2};
use lfn_sys::process::{self, Signals};
use lfn_sys::{clock, process::exit_now};
use rustix::pipe::PipeFlags;

use super::calibrate::{self, Calibration};
use super::control::{self, Address, Control, Doors};
use super::data_path::Forwarder;
use super::ledger::{DirectionLedger, Ledger, PathLedger};
use super::place::{End, Ground, LEAST_MTU_V6, Newcomer, Obstacle, SideName, SideNet};
use super::watch::Watchers;
use super::{EmulateError, INTERRUPT_ALONE, Outcome, Place, Report, Setup, now, start, system};

/// A thread of the data path gave up.
pub(super) const FORWARDING_FAILED: i32 = SIGUSR2;
/// Everything the inside is told by signals.
const SIGNALS: [i32; 7] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, INTERRUPT_ALONE, FORWARDING_FAILED];

/// What it brings in from outside.
pub(super) struct Brought {
    /// Who it was there, if it has to be made root here.
    pub(super) identity: Newcomer,
    /// What to build on.
    pub(super) ground: Ground,
    /// Closed by the caller's end.
    pub(super) lifeline: OwnedFd,
    /// What the run is called by those who speak to it.
    pub(super) address: Address,
    /// Where they do so outside.
    pub(super) door: Option<UnixListener>,
}

/// Does everything and ends the process.
pub(super) fn run(setup: &Setup, command: &[OsString], brought: Brought, reporter: File) -> ! {
    // Before any thread is made, and to the end of the process: what is not blocked would kill it.
    let signals = Signals::block(&SIGNALS).map_err(system("block signals"));
    let report = signals.as_ref().map_err(Clone::clone).and_then(|signals| {
        panic::catch_unwind(AssertUnwindSafe(|| live(setup, command, brought, signals)))
            .unwrap_or_else(|_| Err(EmulateError::Lost("it panicked".to_owned())))
    });
    let mut reporter = reporter;
    // A caller that is gone needs no report.
    let _ = serde_json::to_writer(&mut reporter, &report).map(|()| reporter.flush());
    exit_now(0)
}

fn live(setup: &Setup, command: &[OsString], brought: Brought, signals: &Signals) -> Report {
    settle(setup, brought.identity, brought.lifeline.as_fd())?;
    let address = brought.address;
    let calibration = calibrated(setup)?;
    let sides = brought.ground.build(setup)?;
    let forwarders = (0..setup.paths.len()).map(|path| both_ways(setup, &sides, path));
    let mut forwarders = forwarders.collect::<Result<Vec<_>, _>>()?;
    if let Some(calibration) = &calibration {
        let idle = Duration::from_secs_f64(calibration.idle);
        forwarders.iter_mut().flatten().for_each(|forwarder| forwarder.take_off(idle));
    }
    let watchers = Watchers::start(&setup.watch, setup.seed, &mut forwarders)?;
    let mailboxes: Vec<_> = forwarders.iter().map(|pair| pair.each_ref().map(Forwarder::mailbox)).collect();
    let control = Control::new(address.pid(), setup, mailboxes.clone());
    let doors = doors(address, brought.door, &sides);
    let (stop, running) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(system("make a pipe"))?;
    let (endings, accounts, changes) = thread::scope(|scope| {
        // Closed on every way out of here: until then no thread ends, and the scope waits for them all.
        let running = running;
        let start_one = |forwarder| start(scope, || forward(forwarder, stop.as_fd()));
        let start_both = |[forth, back]: [_; 2]| Ok([start_one(forth)?, start_one(back)?]);
        let threads = forwarders.into_iter().map(start_both).collect::<Result<Vec<_>, EmulateError>>()?;
        let control = start(scope, || control.serve(&doors, stop.as_fd()))?;
        let endings = far::start(setup, address, &sides[1].namespace).and_then(|far| {
            let epoch = now();
            mailboxes.iter().flatten().try_for_each(|mailbox| mailbox.begin(epoch))?;
            commands::run(setup, command, address, &sides[0].namespace, far, signals)
        });
        drop(running);
        let accounts = threads.into_iter().map(|pair| pair.map(|thread| thread.join().unwrap_or(Err(panicked()))));
        Ok::<_, EmulateError>((endings, accounts.collect::<Vec<_>>(), control.join().unwrap_or_default()))
    })?;
    let log = watchers.finish();
    let (near, far) = endings?;
    let (mut ledger, failure) = ledger(setup, accounts)?;
    ledger.paths.iter_mut().zip(changes).for_each(|(path, changes)| path.changes = changes);
    let broken = failure.map(|error| sides.iter().find_map(SideNet::broken).unwrap_or_else(|| error.to_string()));
    let ledger = Ledger { calibration, ..ledger };
    let mut outcome = Outcome { near, far, broken, ledger, log };
    let counted = add_interface_drops(&mut outcome.ledger, &sides);
    sides.iter().filter(|side| side.existed).for_each(SideNet::unplug);
    match counted {
        // An interface that is gone tells nothing.
        Err(_) if outcome.broken.is_some() => Ok(outcome),
        counted => counted.map(|()| outcome),
    }
}

/// What this machine can do, and a word where that is less than is asked of it. That it cannot be measured does not keep
/// anybody from running.
fn calibrated(setup: &Setup) -> Result<Option<Calibration>, EmulateError> {
    if !setup.calibrate {
        return Ok(None);
    }
    // Nobody may be listening, and the run goes on all the same.
    let say = |what: &dyn Display| drop(writeln!(io::stderr(), "lfn: {what}"));
    let calibration = match calibrate::calibrate(setup) {
        Ok(calibration) => calibration,
        Err(error) => {
            say(&format_args!("not calibrated: {error}"));
            return Ok(None);
        }
    };
    if let Some(costs) = &calibration.costs
        && let Some(verdict) = calibrate::judge(setup, costs)?
    {
        say(&verdict);
        say(&format_args!("packets will be late when it is full; --rate {} fits", verdict.fits.typed()));
    }
    Ok(Some(calibration))
}

/// The account of all paths, and why one of them could not go on.
fn ledger(setup: &Setup, accounts: Vec<[Forwarded; 2]>) -> Result<(Ledger, Option<EmulateError>), EmulateError> {
    let (mut paths, mut failures) = (Vec::new(), Vec::new());
    for (path, [near_to_far, far_to_near]) in setup.paths.iter().zip(accounts) {
        let ((near_to_far, one), (far_to_near, other)) = (near_to_far?, far_to_near?);
        let links = path.settings.iter().map(ToString::to_string).collect();
        paths.push(PathLedger { path: path.profile, links, changes: Vec::new(), near_to_far, far_to_near });
        failures.extend([one, other].into_iter().flatten());
    }
    Ok((Ledger { seed: setup.seed, calibration: None, paths }, failures.into_iter().next()))
}

/// What moves the packets of one path: near to far, and far to near.
fn both_ways<'a>(setup: &Setup, sides: &'a [SideNet; 2], path: usize) -> Result<[Forwarder<'a>; 2], EmulateError> {
    let [forth, back] = setup.paths[path].numbered(path, setup.seed);
    let [near, far] = sides.each_ref().map(|side| &side.cables[path].socket);
    Ok([Forwarder::new(&forth, near, far)?, Forwarder::new(&back, far, near)?])
}

/// Opens the doors that can be opened. A side that is the namespace outside has its door already. None where nobody can
/// be told from this user: in a user namespace attached to that has no id for him.
fn doors(address: Address, outside: Option<UnixListener>, [near, far]: &[SideNet; 2]) -> Doors {
    if !process::has_own_user_id() {
        let error = io::Error::other("this user has no id in the user namespace attached to");
        control::lament(address, &error);
        return [None, None, None];
    }
    let open = |side: &SideNet| control::open_door_in(&side.namespace, address).ok();
    [outside, open(near), open(far)]
}

/// Makes itself at home in the new namespaces.
fn settle(setup: &Setup, newcomer: Newcomer, lifeline: BorrowedFd) -> Result<(), EmulateError> {
    if let Some(identity) = newcomer {
        // Root without its capabilities may make a user namespace but not be anybody in it.
        identity.become_root_inside().map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Obstacle::Container.into(),
            _ => system("become root in a user namespace")(error),
        })?;
    }
    process::die_with_parent().map_err(system("tie the emulator's life to its caller's"))?;
    // A caller that died before that took its end of the pipe with it.
    if clock::wait_readable([lifeline], Some(Duration::ZERO)).is_ok_and(|[gone]| gone) {
        exit_now(1);
    }
    namespace::make_mounts_private().map_err(system("make mounts private"))?;
    if matches!(setup.place, Place::Sides { .. }) {
        name_both_sides(setup);
    }
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

/// The account of a direction, and why it could not go on; or why there is no account.
type Forwarded = Result<(DirectionLedger, Option<EmulateError>), EmulateError>;

/// Forwards until told to stop; failing, wakes the thread that waits for the commands.
fn forward(forwarder: Forwarder, stop: BorrowedFd) -> Forwarded {
    // To itself: there is nobody else who could be told.
    let wake = || drop(process::send_signal(process::own_id(), FORWARDING_FAILED));
    alarmed(wake, || {
        let (ledger, failure) = forwarder.run(stop).map_err(system("account for packets"))?;
        Ok((ledger, failure.map(system("forward packets"))))
    })
}

/// Rings after work that did not go well, also if it panics: CMD must not go on over a link that is none.
fn alarmed(ring: impl Fn(), work: impl FnOnce() -> Forwarded) -> Forwarded {
    let mut alarm = Alarm { ring, is_off: false };
    let forwarded = work();
    alarm.is_off = matches!(forwarded, Ok((_, None)));
    forwarded
}

/// Rings when it is dropped, unless it was switched off.
struct Alarm<F: Fn()> {
    ring: F,
    is_off: bool,
}

impl<F: Fn()> Drop for Alarm<F> {
    fn drop(&mut self) {
        if !self.is_off {
            (self.ring)();
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn only_a_link_that_goes_on_rings_no_alarm() {
        let fine = || Ok((DirectionLedger::default(), None));
        let failed = || Ok((DirectionLedger::default(), Some(panicked())));
        let works: [(bool, fn() -> Forwarded); 4] =
            [(false, fine), (true, failed), (true, || Err(panicked())), (true, || panic!("as a test"))];
        for (number, (is_bad, work)) in works.into_iter().enumerate() {
            let rung = Cell::new(false);
            let _ = panic::catch_unwind(AssertUnwindSafe(|| alarmed(|| rung.set(true), work)));
            assert_eq!(rung.get(), is_bad, "{number}");
        }
    }
}
