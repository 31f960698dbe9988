//! The child process, process 1 of the new namespaces. Builds the path, runs both commands over it, and sends a report
//! to the caller.
//!
//! The child lives exactly as long as CMD. As process 1, it adopts every orphaned process. When it ends, the kernel
//! kills all of them. When the caller dies, the kernel kills the child. So no clean-up code is needed.

mod commands;
mod environment;
mod far;
mod shell;

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lfn_session::clock::now;
use lfn_sys::process::signal::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use lfn_sys::process::{self, Signals};
use lfn_sys::{clock, namespace, process::exit_immediately};
use rustix::pipe::PipeFlags;

pub(super) use commands::CALLER_ONLY_INTERRUPT;

use super::accuracy::{AccuracyReport, DirectionReport, EmulatedPathReport};
use super::calibrate::{self, Calibration};
use super::control::{self, ControlAddress, ControlServer, ControlSocket, SideEnvironment};
use super::data_path::Forwarder;
use super::error::{EmulateError, spawn_scoped, system_error};
use super::network::{Attachment, MIN_MTU_V6, NamespaceError, OriginalUser, PathEnd, SideName, SideNetwork};
use super::outcome::{RunOutcome, RunResult};
use super::setup::{Placement, Setup};
use super::watch::Watchers;
use commands::FORWARDING_FAILED;

/// Signals that the child process handles.
const SIGNALS: [i32; 7] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, CALLER_ONLY_INTERRUPT, FORWARDING_FAILED];

/// State that the caller hands over to the child process.
pub(super) struct ChildContext {
    /// The user outside, if the child must become root first.
    pub(super) identity: OriginalUser,
    pub(super) attachment: Attachment,
    /// Closed when the caller ends.
    pub(super) lifeline: OwnedFd,
    pub(super) address: ControlAddress,
    /// Listener in the caller's network namespace.
    pub(super) control_socket: Option<UnixListener>,
}

/// Runs the emulation and ends the process.
pub(super) fn run(setup: &Setup, command: &[OsString], context: ChildContext, report_writer: File) -> ! {
    // Signals must be blocked before any thread starts and until the process ends. An unblocked signal would kill the
    // process.
    let signals = Signals::block(&SIGNALS).map_err(system_error("block signals"));
    let report = signals.as_ref().map_err(Clone::clone).and_then(|signals| {
        panic::catch_unwind(AssertUnwindSafe(|| run_emulation(setup, command, context, signals)))
            .unwrap_or_else(|_| Err(EmulateError::NoReport("it panicked".to_owned())))
    });
    let mut report_writer = report_writer;
    // The report is lost if the caller is gone.
    let _ = serde_json::to_writer(&mut report_writer, &report).map(|()| report_writer.flush());
    exit_immediately(0)
}

fn run_emulation(setup: &Setup, command: &[OsString], context: ChildContext, signals: &Signals) -> RunResult {
    set_up_process(setup, context.identity, context.lifeline.as_fd())?;
    let address = context.address;
    let calibration = calibrate_if_requested(setup)?;
    let sides = context.attachment.build(setup)?;
    let forwarders = (0..setup.paths.len()).map(|path| forwarders_of_path(setup, &sides, path));
    let mut forwarders = forwarders.collect::<Result<Vec<_>, _>>()?;
    if let Some(calibration) = &calibration {
        let idle_latency = Duration::from_secs_f64(calibration.idle_latency);
        forwarders.iter_mut().flatten().for_each(|forwarder| forwarder.compensate_idle_latency(idle_latency));
    }
    let watchers = Watchers::start(&setup.watch, setup.seed, &mut forwarders)?;
    let channels: Vec<_> = forwarders.iter().map(|pair| pair.each_ref().map(Forwarder::channel)).collect();
    let near_only = Arc::default();
    let environment = SideEnvironment {
        variables: [SideName::Near, SideName::Far].map(|side| environment::variables(setup, address, side)),
        near_only: Arc::clone(&near_only),
    };
    let control = ControlServer::new(address.pid(), setup, channels.clone(), environment);
    let sockets = open_control_sockets(setup, address, context.control_socket, &sides);
    let (stop, running) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(system_error("create a pipe"))?;
    let (exits, reports, changes) = thread::scope(|scope| {
        // Dropped at every exit of this closure. Only then do the threads end, and the scope waits for all threads.
        let running = running;
        let start_one = |forwarder| spawn_scoped(scope, || forward(forwarder, stop.as_fd()));
        let start_both = |[forth, back]: [_; 2]| Ok([start_one(forth)?, start_one(back)?]);
        let threads = forwarders.into_iter().map(start_both).collect::<Result<Vec<_>, EmulateError>>()?;
        let control = spawn_scoped(scope, || control.run(&sockets, stop.as_fd()))?;
        let exits = far::start(setup, address, &sides[1].namespace).and_then(|far| {
            let epoch = now();
            channels.iter().flatten().try_for_each(|channel| channel.begin(epoch))?;
            if let Some(ticket) = &far.ticket {
                let _ = near_only.set((environment::TICKET_VARIABLE.to_owned(), ticket.clone()));
            }
            commands::run(setup, command, address, &sides[0].namespace, far, signals)
        });
        drop(running);
        let reports = threads.into_iter().map(|pair| pair.map(|thread| thread.join().unwrap_or(Err(panicked()))));
        Ok::<_, EmulateError>((exits, reports.collect::<Vec<_>>(), control.join().unwrap_or_default()))
    })?;
    let (log, course) = watchers.finish();
    let (near, far) = exits?;
    let (mut accuracy_report, failure) = build_report(setup, reports)?;
    accuracy_report.paths.iter_mut().zip(changes).for_each(|(path, changes)| path.changes = changes);
    let link_failure =
        failure.map(|error| sides.iter().find_map(SideNetwork::interface_failure).unwrap_or_else(|| error.to_string()));
    let accuracy_report = AccuracyReport { calibration, ..accuracy_report };
    let mut outcome = RunOutcome { near, far, link_failure, accuracy_report, log, course };
    let counted = add_interface_drops(&mut outcome.accuracy_report, &sides);
    sides.iter().filter(|side| side.is_attached).for_each(SideNetwork::delete_interfaces);
    match counted {
        // The counters of a vanished interface cannot be read.
        Err(_) if outcome.link_failure.is_some() => Ok(outcome),
        counted => counted.map(|()| outcome),
    }
}

/// Calibrates if requested, and warns if this machine is too slow for the settings. A failed calibration does not stop
/// the run.
fn calibrate_if_requested(setup: &Setup) -> Result<Option<Calibration>, EmulateError> {
    if !setup.calibrate {
        return Ok(None);
    }
    // The run continues if stderr is closed.
    let print = |message: &dyn Display| drop(writeln!(io::stderr(), "lfn: {message}"));
    let calibration = match calibrate::calibrate(setup) {
        Ok(calibration) => calibration,
        Err(error) => {
            print(&format_args!("not calibrated: {error}"));
            return Ok(None);
        }
    };
    if let Some(costs) = &calibration.costs
        && let Some(overload) = calibrate::check_capacity(setup, costs)?
    {
        print(&overload);
        print(&format_args!(
            "packets will be late when the link is full; this machine can carry --rate {}",
            overload.fitting_rate.to_argument()
        ));
    }
    Ok(Some(calibration))
}

/// Builds the report of all paths. The second value is the first failure of a path.
fn build_report(
    setup: &Setup,
    reports: Vec<[DirectionResult; 2]>,
) -> Result<(AccuracyReport, Option<EmulateError>), EmulateError> {
    let (mut paths, mut failures) = (Vec::new(), Vec::new());
    for (path, [near_to_far, far_to_near]) in setup.paths.iter().zip(reports) {
        let ((near_to_far, one), (far_to_near, other)) = (near_to_far?, far_to_near?);
        let links = path.settings.iter().map(ToString::to_string).collect();
        paths.push(EmulatedPathReport { path: path.profile, links, changes: Vec::new(), near_to_far, far_to_near });
        failures.extend([one, other].into_iter().flatten());
    }
    Ok((AccuracyReport { seed: setup.seed, calibration: None, paths }, failures.into_iter().next()))
}

/// Creates the forwarders of one path: near to far, and far to near.
fn forwarders_of_path<'a>(
    setup: &Setup,
    sides: &'a [SideNetwork; 2],
    path: usize,
) -> Result<[Forwarder<'a>; 2], EmulateError> {
    let [forth, back] = setup.paths[path].seeded_hops(path, setup.seed);
    let [near, far] = sides.each_ref().map(|side| &side.cables[path].socket);
    Ok([Forwarder::new(&forth, near, far)?, Forwarder::new(&back, far, near)?])
}

/// Opens the control sockets. A side in the outer network namespace already has its listener. If the attached user
/// namespace has no id for this user, no sockets are opened, because peers could not be distinguished.
fn open_control_sockets(
    setup: &Setup,
    address: ControlAddress,
    outside: Option<UnixListener>,
    sides: &[SideNetwork; 2],
) -> Vec<ControlSocket> {
    if !process::has_unique_user_id() {
        let error = io::Error::other("the attached user namespace has no id for this user");
        control::warn_unreachable(address, &error);
        return Vec::new();
    }
    let is_bridge = matches!(setup.placement, Placement::Bridge(_));
    let mut outer_side = None;
    let mut sockets = Vec::new();
    for (name, side) in [SideName::Near, SideName::Far].into_iter().zip(sides) {
        match control::open_socket_in(&side.namespace, address) {
            Ok(listener) => sockets.push(ControlSocket { listener, side: Some(name) }),
            // The side is the network namespace where the emulation was started. A bridge has no side there.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && !is_bridge => outer_side = Some(name),
            Err(_) => {}
        }
    }
    sockets.extend(outside.map(|listener| ControlSocket { listener, side: outer_side }));
    sockets
}

/// Sets up the user, the mounts and the death signal of the child process.
fn set_up_process(setup: &Setup, original_user: OriginalUser, lifeline: BorrowedFd) -> Result<(), EmulateError> {
    if let Some(identity) = original_user {
        // Without its capabilities, root may create a user namespace but cannot set ids in it.
        identity.become_root().map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => NamespaceError::Container.into(),
            _ => system_error("become root in a user namespace")(error),
        })?;
    }
    process::die_with_parent().map_err(system_error("tie the emulator's life to its caller's"))?;
    // If the caller died before this, its end of the pipe is closed.
    if clock::wait_readable([lifeline], Some(Duration::ZERO)).is_ok_and(|[gone]| gone) {
        exit_immediately(1);
    }
    namespace::make_mounts_private().map_err(|error| match error.kind() {
        // EINVAL: the root directory is not the root of a mount.
        io::ErrorKind::InvalidInput => NamespaceError::Chroot.into(),
        _ => system_error("set the mounts to private")(error),
    })?;
    if matches!(setup.placement, Placement::Namespaces { .. }) {
        write_hosts_file(setup);
    }
    // Some containers forbid this. Then CMD sees the outer processes, without other effects.
    let _ = namespace::mount_proc();
    Ok(())
}

/// Makes `near` and `far` resolve, also to IPv6 if the path has it. If `/etc/hosts` cannot be covered, `LFN_FAR` still
/// has the address.
fn write_hosts_file(setup: &Setup) {
    let hosts = Path::new("/etc/hosts");
    let mut names = fs::read(hosts).unwrap_or_default();
    names.push(b'\n');
    for (number, path) in setup.path_numbers().zip(&setup.paths) {
        for end in [SideName::Near, SideName::Far].map(|side| PathEnd::new(side, number)) {
            names.extend_from_slice(format!("{} {}\n", end.v4(), end.name()).as_bytes());
            if path.profile.mtu >= MIN_MTU_V6 {
                names.extend_from_slice(format!("{} {}\n", end.v6(), end.name()).as_bytes());
            }
        }
    }
    if let Err(error) = namespace::mount_over_file(hosts, &names) {
        let file = hosts.display();
        // The run continues if stderr is closed.
        let _ = writeln!(io::stderr(), "lfn: the names near and far do not resolve: cannot mount over {file}: {error}");
    }
}

/// Report of a direction and the reason why it stopped early, or the reason why there is no report.
type DirectionResult = Result<(DirectionReport, Option<EmulateError>), EmulateError>;

/// Forwards until `stop` is closed. A failure wakes the thread that waits for the commands.
fn forward(forwarder: Forwarder, stop: BorrowedFd) -> DirectionResult {
    // The signal goes to this process, which handles it in the waiting thread.
    let wake = || drop(process::send_signal(process::process_id(), FORWARDING_FAILED));
    with_alarm(wake, || {
        let (report, failure) = forwarder.run(stop).map_err(system_error("account for packets"))?;
        Ok((report, failure.map(system_error("forward packets"))))
    })
}

/// Calls `on_failure` after failed work and after a panic, because CMD must not continue over a broken link.
fn with_alarm(on_failure: impl Fn(), work: impl FnOnce() -> DirectionResult) -> DirectionResult {
    let mut alarm = Alarm { on_failure, is_disarmed: false };
    let forwarded = work();
    alarm.is_disarmed = matches!(forwarded, Ok((_, None)));
    forwarded
}

/// Calls `on_failure` when dropped, unless disarmed.
struct Alarm<F: Fn()> {
    on_failure: F,
    is_disarmed: bool,
}

impl<F: Fn()> Drop for Alarm<F> {
    fn drop(&mut self) {
        if !self.is_disarmed {
            (self.on_failure)();
        }
    }
}

fn panicked() -> EmulateError {
    EmulateError::NoReport("a thread of the data path panicked".to_owned())
}

fn add_interface_drops(
    accuracy_report: &mut AccuracyReport,
    [near, far]: &[SideNetwork; 2],
) -> Result<(), EmulateError> {
    for (index, path) in accuracy_report.paths.iter_mut().enumerate() {
        let (from_near, to_near) = near.dropped(index).map_err(system_error("read the interfaces' counters"))?;
        let (from_far, to_far) = far.dropped(index).map_err(system_error("read the interfaces' counters"))?;
        path.near_to_far.unmodelled.interface_dropped = from_near + to_far;
        path.far_to_near.unmodelled.interface_dropped = from_far + to_near;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn only_failed_forwarding_raises_the_alarm() {
        let fine = || Ok((DirectionReport::default(), None));
        let failed = || Ok((DirectionReport::default(), Some(panicked())));
        let works: [(bool, fn() -> DirectionResult); 4] =
            [(false, fine), (true, failed), (true, || Err(panicked())), (true, || panic!("as a test"))];
        for (number, (is_failure, work)) in works.into_iter().enumerate() {
            let has_rung = Cell::new(false);
            let _ = panic::catch_unwind(AssertUnwindSafe(|| with_alarm(|| has_rung.set(true), work)));
            assert_eq!(has_rung.get(), is_failure, "{number}");
        }
    }
}
