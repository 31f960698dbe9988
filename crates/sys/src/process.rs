//! Processes and signals beyond `std::process`.
//!
//! Signals are blocked and read with [`Signals::next`] (`sigtimedwait(2)`). So no signal handler runs between two
//! instructions. The only global state is the signal mask of the calling thread, which new threads inherit.

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::sysctl;

/// Signal numbers, re-exported from libc.
pub mod signal {
    pub use libc::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGTTOU, SIGUSR1, SIGUSR2, SIGXFSZ};
}

/// Returns true if this process ignores the signal, or was started with the signal ignored (as by nohup).
pub fn is_ignored(number: i32) -> bool {
    // SAFETY: sigaction is plain data, and a null pointer as the new action changes nothing.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        libc::sigaction(number, ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// A signal that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    pub number: i32,
    /// True if the kernel sent the signal, for example for the terminal's interrupt key. False if a process sent it.
    pub from_kernel: bool,
}

/// Blocked signals that are read with [`Signals::next`].
#[derive(Debug)]
pub struct Signals {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks `numbers` in the calling thread until this value is dropped.
    pub fn block(numbers: &[i32]) -> io::Result<Self> {
        // SAFETY: sigset_t is plain data. The calls below initialise both sets before they are read.
        let (mut set, mut before) = unsafe { (mem::zeroed(), mem::zeroed()) };
        // SAFETY: the pointers are to live sets, and sigaddset rejects invalid signal numbers.
        unsafe {
            libc::sigemptyset(&raw mut set);
            for &number in numbers {
                if libc::sigaddset(&raw mut set, number) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) {
                0 => Ok(Signals { set, before }),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// Returns the next of these signals. Waits at most `timeout`, or for any time without one.
    pub fn next(&self, timeout: Option<Duration>) -> io::Result<Option<Signal>> {
        let timeout = timeout.map(|t| libc::timespec {
            tv_sec: t.as_secs().try_into().unwrap_or(i32::MAX.into()),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: siginfo_t is plain data, and sigtimedwait fills it before it is read.
        let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
        // SAFETY: set and info are live, and timeout is null or points to a live timespec.
        let number = unsafe { libc::sigtimedwait(&raw const self.set, &raw mut info, timeout) };
        if number >= 0 {
            return Ok(Some(Signal { number, from_kernel: info.si_code > 0 }));
        }
        match io::Error::last_os_error() {
            e if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => Ok(None),
            e => Err(e),
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: pthread_sigmask filled `before` in `block`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut()) };
    }
}

/// Exit of a process: an exit status or a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessExit {
    Exited(i32),
    Killed(i32),
}

/// Returns the process id and the exit of a child that has ended, if there is one. Never waits.
pub fn reap() -> Option<(i32, ProcessExit)> {
    wait_for(-1, libc::WNOHANG)
}

/// Like [`reap`], but for one child.
pub fn reap_child(pid: i32) -> Option<(i32, ProcessExit)> {
    wait_for(pid, libc::WNOHANG)
}

/// Waits until the child `pid` ends. Returns `None` if there is no such child.
pub fn wait(pid: i32) -> Option<ProcessExit> {
    wait_for(pid, 0).map(|(_, exit)| exit)
}

fn wait_for(pid: i32, flags: i32) -> Option<(i32, ProcessExit)> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is live during the call.
        match unsafe { libc::waitpid(pid, &raw mut status, flags) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            child if child <= 0 => return None,
            child if libc::WIFSIGNALED(status) => return Some((child, ProcessExit::Killed(libc::WTERMSIG(status)))),
            child => return Some((child, ProcessExit::Exited(libc::WEXITSTATUS(status)))),
        }
    }
}

/// Sends a signal to a process, or to a process group if `pid` is negative. A missing process is not an error.
pub fn send_signal(pid: i32, number: i32) -> io::Result<()> {
    // SAFETY: kill takes two integers.
    match unsafe { libc::kill(pid, number) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            e => Err(e),
        },
    }
}

/// Returns the id of this process in its own PID namespace.
pub fn process_id() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

/// Returns the id of the calling thread in its own PID namespace.
pub fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_pid()
}

/// Makes the kernel kill this process when its parent thread ends (`PR_SET_PDEATHSIG`). A change of credentials resets
/// this, so call it afterwards. The caller must detect an earlier end of the parent in another way.
pub fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?)
}

/// Makes timers of the calling thread end on time, instead of up to 50 µs late (`PR_SET_TIMERSLACK`, 1 ns).
pub fn set_exact_timers() -> io::Result<()> {
    // SAFETY: PR_SET_TIMERSLACK takes an integer and affects only the calling thread.
    match unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Starts the command as the leader of a new session (`setsid(2)`), so that signals of the terminal do not reach it.
pub fn start_in_new_session(command: &mut Command) -> &mut Command {
    let new_session = || rustix::process::setsid().map(drop).map_err(io::Error::from);
    // SAFETY: only async-signal-safe calls are allowed between fork and exec. setsid is one, and it allocates nothing.
    unsafe { command.pre_exec(new_session) }
}

/// Makes the kernel send SIGTERM to the command when the thread that starts the command ends (`PR_SET_PDEATHSIG`).
pub fn end_with_parent(command: &mut Command) -> &mut Command {
    let set = || {
        let signal = Some(rustix::process::Signal::TERM);
        rustix::process::set_parent_process_death_signal(signal).map_err(io::Error::from)
    };
    // SAFETY: only async-signal-safe calls are allowed between fork and exec. prctl is one, and it allocates nothing.
    unsafe { command.pre_exec(set) }
}

/// Starts the command without blocked signals. `std` passes the caller's signal mask on. A thread that blocks signals
/// would start commands that never receive these signals.
pub fn unblock_all_signals(command: &mut Command) -> &mut Command {
    let unblock = || {
        // SAFETY: sigset_t is plain data, and sigemptyset initialises it before it is read.
        let mut none: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: the pointer is to a live set. A null pointer means that the previous mask is not returned.
        let result = unsafe {
            libc::sigemptyset(&raw mut none);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut())
        };
        if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
    };
    // SAFETY: only async-signal-safe calls are allowed between fork and exec. These are, and they allocate nothing.
    unsafe { command.pre_exec(unblock) }
}

/// Ignores a signal in this process, and in every command that it starts afterwards.
pub fn ignore_signal(number: i32) -> io::Result<()> {
    // SAFETY: SIG_IGN runs no code of this program.
    match unsafe { libc::signal(number, libc::SIG_IGN) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Restores the default action of a signal in this process, and in every command that it starts afterwards. `nohup` and
/// the background jobs of a shell start their programs with ignored signals, and a process passes these on.
pub fn restore_signal(number: i32) -> io::Result<()> {
    // SAFETY: SIG_DFL runs no code of this program.
    match unsafe { libc::signal(number, libc::SIG_DFL) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Raises the soft limit on open files to the hard limit (`RLIMIT_NOFILE`), but at most to 65,536. Most systems have a
/// soft limit of about 1,000. Errors are ignored, and the limit stays lower.
pub fn raise_open_file_limit() {
    const MAX_FILES: u64 = 1 << 16;
    let limit = getrlimit(Resource::Nofile);
    let target = limit.maximum.map_or(MAX_FILES, |maximum| maximum.min(MAX_FILES));
    if limit.current.is_some_and(|current| current < target) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(target), ..limit });
    }
}

/// Makes the calling thread run as early as possible: before all ordinary threads (`SCHED_FIFO`, lowest priority) if
/// this is permitted. Otherwise requests the shortest time slice (`sched_runtime` of an ordinary thread, Linux 6.12),
/// because the scheduler prefers the waiting thread with the earliest end of its slice. Processes that the thread
/// starts are ordinary again.
pub fn raise_priority() -> io::Result<()> {
    // SAFETY: sched_attr is plain data, for which all zeros is a valid value.
    let mut attributes: libc::sched_attr = unsafe { mem::zeroed() };
    attributes.size = mem::size_of::<libc::sched_attr>() as u32;
    attributes.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    // SAFETY: getpriority takes integers, and 0 is the calling thread.
    attributes.sched_nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let real_time = libc::sched_attr { sched_policy: libc::SCHED_FIFO as u32, sched_priority: 1, ..attributes };
    let short_slices =
        libc::sched_attr { sched_policy: libc::SCHED_OTHER as u32, sched_runtime: MIN_TIME_SLICE, ..attributes };
    set_scheduling(&real_time).or_else(|_| set_scheduling(&short_slices))
}

/// Minimum that the kernel accepts, nanoseconds (`__setparam_fair` in kernel/sched/syscalls.c).
const MIN_TIME_SLICE: u64 = 100_000;

/// Sets the scheduling attributes of the calling thread.
fn set_scheduling(attributes: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the pointer is to a live sched_attr that contains its own size, and 0 is the calling thread.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, ptr::from_ref(attributes), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the processor time of the calling thread, user and system together (`getrusage(2)`, `RUSAGE_THREAD`).
pub fn thread_cpu_time() -> io::Result<Duration> {
    // SAFETY: rusage is plain data, for which all zeros is a valid value.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to a live rusage.
    if unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let of = |t: libc::timeval| {
        let (seconds, micros) = (u64::try_from(t.tv_sec).unwrap_or(0), u64::try_from(t.tv_usec).unwrap_or(0));
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    };
    Ok(of(usage.ru_utime) + of(usage.ru_stime))
}

/// Ends the process without exit handlers, because a cloned process shares them with its parent.
pub fn exit_immediately(status: i32) -> ! {
    // SAFETY: _exit takes an integer and does not return.
    unsafe { libc::_exit(status) }
}

/// Returns true if the peer of a Unix socket certainly belongs to this process's user. The peer is the process that
/// connected or started to listen. Returns false if users cannot be distinguished ([`has_unique_user_id`]).
pub fn is_peer_same_user(socket: impl AsFd) -> io::Result<bool> {
    Ok(peer_user_id(socket)? == rustix::process::geteuid().as_raw() && has_unique_user_id())
}

/// Runs `work` on a thread with the rights of another user (`setresuid(2)`), as root can. The other threads keep their
/// user, because the system call changes only the calling thread.
pub fn run_as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let uid = rustix::process::Uid::from_raw(uid);
    thread::scope(|scope| {
        let worker = thread::Builder::new().spawn_scoped(scope, || {
            rustix::thread::set_thread_res_uid(uid, uid, uid)?;
            Ok(work())
        })?;
        worker.join().map_err(|_| io::Error::other("the thread of the other user panicked"))?
    })
}

/// Returns true if no other user has this process's user id. In a user namespace that does not map all users, unmapped
/// users share the overflow id (`user_namespaces(7)`). If all users are mapped, the overflow id is an ordinary one.
pub fn has_unique_user_id() -> bool {
    let overflow = sysctl::read("kernel.overflowuid").ok().and_then(|id| id.parse().ok()).unwrap_or(OVERFLOW_ID);
    rustix::process::geteuid().as_raw() != overflow
        || fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| maps_all_users(&map))
}

/// `DEFAULT_OVERFLOWUID` of the kernel.
const OVERFLOW_ID: u32 = 65_534;

/// Returns true if a `uid_map` maps all ids, in one line.
fn maps_all_users(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Returns the user id of a Unix socket's peer in this user namespace (`SO_PEERCRED`, `unix(7)`). The peer is the
/// process that connected or started to listen. Its process may be in an invisible PID namespace.
pub fn peer_user_id(socket: impl AsFd) -> io::Result<u32> {
    // SAFETY: ucred is plain data, for which all zeros is a valid value.
    let mut peer: libc::ucred = unsafe { mem::zeroed() };
    let mut length = mem::size_of::<libc::ucred>() as libc::socklen_t;
    let descriptor = socket.as_fd().as_raw_fd();
    let (value, length) = ((&raw mut peer).cast(), &raw mut length);
    // SAFETY: value and length are live, and the kernel writes at most `length` bytes.
    match unsafe { libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_PEERCRED, value, length) } {
        0 => Ok(peer.uid),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the process group of this process, or `None` if the group is from outside this PID namespace and has no id
/// in it.
pub fn process_group() -> Option<i32> {
    // SAFETY: getpgrp takes no argument and cannot fail.
    Some(unsafe { libc::getpgrp() }).filter(|group| *group > 0)
}

/// Returns the foreground process group of a terminal. Returns `None` if the group has no id in this PID namespace, or
/// if the file is not the terminal of this process (`tcgetpgrp(3)`).
pub fn foreground_group(terminal: impl AsFd) -> Option<i32> {
    // SAFETY: tcgetpgrp takes an integer.
    Some(unsafe { libc::tcgetpgrp(terminal.as_fd().as_raw_fd()) }).filter(|group| *group > 0)
}

/// Makes a process group the foreground group of this terminal. A background process that calls this receives SIGTTOU,
/// unless the signal is blocked (`tcsetpgrp(3)`).
pub fn set_foreground_group(terminal: impl AsFd, group: i32) -> io::Result<()> {
    // SAFETY: tcsetpgrp takes integers.
    match unsafe { libc::tcsetpgrp(terminal.as_fd().as_raw_fd(), group) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_detected() {
        // The Rust runtime ignores SIGPIPE from the start.
        assert!(is_ignored(libc::SIGPIPE) && !is_ignored(libc::SIGTERM));
    }

    #[test]
    fn an_ignored_signal_is_restored() {
        ignore_signal(libc::SIGURG).unwrap();
        assert!(is_ignored(libc::SIGURG));
        restore_signal(libc::SIGURG).unwrap();
        assert!(!is_ignored(libc::SIGURG));
    }

    #[test]
    fn only_a_full_map_maps_all_users() {
        assert!(maps_all_users("         0          0 4294967295\n"));
        for map in ["", "0 1000 1\n", "0 0 4294967294\n", "0 100000 65536\n", "0 0 65534\n65534 65534 1\n"] {
            assert!(!maps_all_users(map), "{map}");
        }
    }
}
