//! Processes and signals: what `std::process` leaves out.
//!
//! Signals are blocked and fetched with [`Signals::next`] (`sigtimedwait(2)`), so no handler runs between two
//! instructions and nothing here is global but the mask of the calling thread, which threads started later inherit.

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::sysctl;

/// Numbers of signals.
pub mod signal {
    pub use libc::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGTTOU, SIGUSR1, SIGUSR2, SIGXFSZ};
}

/// Whether this process was started with the signal ignored, as nohup does it, or ignores it itself.
pub fn is_ignored(number: i32) -> bool {
    // SAFETY: sigaction is plain data, and a null pointer in the place of a new action changes none.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        libc::sigaction(number, ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// A signal that was fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Its number, `SIGINT` and so on.
    pub number: i32,
    /// True if the kernel sent it, as the terminal's interrupt key makes it do; false if a process did.
    pub from_kernel: bool,
}

/// Signals that wait to be fetched instead of doing what they do.
#[derive(Debug)]
pub struct Signals {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks `numbers` in the calling thread until this is dropped.
    pub fn block(numbers: &[i32]) -> io::Result<Self> {
        // SAFETY: sigset_t is plain data; both are initialised by the calls below before they are read.
        let (mut set, mut before) = unsafe { (mem::zeroed(), mem::zeroed()) };
        // SAFETY: the pointers are to live sets; sigaddset refuses numbers that are no signals.
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

    /// The next of these signals, waiting at most `timeout`; for ever without one.
    pub fn next(&self, timeout: Option<Duration>) -> io::Result<Option<Signal>> {
        let timeout = timeout.map(|t| libc::timespec {
            tv_sec: libc::time_t::try_from(t.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: siginfo_t is plain data and is filled in by sigtimedwait before it is read.
        let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
        // SAFETY: set and info are live; timeout is null or points to a live timespec.
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
        // SAFETY: `before` was filled in by pthread_sigmask in `block`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut()) };
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
}

/// A child that has ended, if there is one: its process id and how. Never waits.
pub fn reap() -> Option<(i32, Ending)> {
    wait_for(-1, libc::WNOHANG)
}

/// The same of one child.
pub fn reap_one(pid: i32) -> Option<(i32, Ending)> {
    wait_for(pid, libc::WNOHANG)
}

/// Waits for the child `pid` to end; `None` if there is no such child.
pub fn wait(pid: i32) -> Option<Ending> {
    wait_for(pid, 0).map(|(_, ending)| ending)
}

fn wait_for(pid: i32, flags: i32) -> Option<(i32, Ending)> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is live for the call.
        match unsafe { libc::waitpid(pid, &raw mut status, flags) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            child if child <= 0 => return None,
            child if libc::WIFSIGNALED(status) => return Some((child, Ending::Killed(libc::WTERMSIG(status)))),
            child => return Some((child, Ending::Exited(libc::WEXITSTATUS(status)))),
        }
    }
}

/// Sends a signal to a process, or to a process group if `pid` is negative. A process that is gone is no error.
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

/// The process id of the caller, as its own PID namespace has it.
pub fn own_id() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

/// The id of the calling thread, as its own PID namespace has it.
pub fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_pid()
}

/// Asks the kernel to kill this process when the thread that made it ends (`PR_SET_PDEATHSIG`). Changing credentials
/// undoes it, so this comes after; and a parent that ended before is to be noticed by other means.
pub fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?)
}

/// Lets timers of the calling thread end when they are due and not up to 50 µs later (`PR_SET_TIMERSLACK`, 1 ns).
pub fn exact_timers() -> io::Result<()> {
    // SAFETY: PR_SET_TIMERSLACK takes an integer and touches the calling thread only.
    match unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the command the leader of a session of its own (`setsid(2)`): the terminal's signals do not reach it.
pub fn in_own_session(command: &mut Command) -> &mut Command {
    let new_session = || rustix::process::setsid().map(drop).map_err(io::Error::from);
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; setsid is one and allocates nothing.
    unsafe { command.pre_exec(new_session) }
}

/// Has the command start with no signal blocked. `std` hands the caller's mask down, and a command that was started by a
/// thread which waits for its signals would never notice any.
pub fn with_no_signal_blocked(command: &mut Command) -> &mut Command {
    let unblock = || {
        // SAFETY: sigset_t is plain data, initialised by sigemptyset before it is read.
        let mut none: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: the pointer is to a live set; a null pointer means that the mask before is not wanted.
        let result = unsafe {
            libc::sigemptyset(&raw mut none);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut())
        };
        if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; these are, and allocate nothing.
    unsafe { command.pre_exec(unblock) }
}

/// Ignores a signal from here on; so will every command started afterwards.
pub fn ignore_signal(number: i32) -> io::Result<()> {
    // SAFETY: SIG_IGN runs no code of ours.
    match unsafe { libc::signal(number, libc::SIG_IGN) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Lets this process have as many files open as it may (`RLIMIT_NOFILE`), 65,536 at most: the soft limit of most systems is
/// a thousand. Where that fails it has fewer.
pub fn raise_files() {
    const MOST: u64 = 1 << 16;
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(MOST, |most| most.min(MOST));
    if limit.current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}

/// Lets the calling thread run as soon as it can: before every ordinary one (`SCHED_FIFO`, lowest priority) if that is
/// allowed. An ordinary user asks for turns as short as there are instead (`sched_runtime` of an ordinary thread, Linux
/// 6.12), because of those that wait the scheduler takes the one whose turn is over first. Processes it starts are
/// ordinary again.
pub fn run_first() -> io::Result<()> {
    // SAFETY: sched_attr is plain data, for which all zeros is a value.
    let mut wish: libc::sched_attr = unsafe { mem::zeroed() };
    wish.size = mem::size_of::<libc::sched_attr>() as u32;
    wish.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    // SAFETY: getpriority takes integers; 0 is the calling thread.
    wish.sched_nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let first = libc::sched_attr { sched_policy: libc::SCHED_FIFO as u32, sched_priority: 1, ..wish };
    let short_turns = libc::sched_attr { sched_policy: libc::SCHED_OTHER as u32, sched_runtime: SHORTEST_TURN, ..wish };
    set_scheduling(&first).or_else(|_| set_scheduling(&short_turns))
}

/// Nanoseconds: the least that the kernel takes (`__setparam_fair` in kernel/sched/syscalls.c).
const SHORTEST_TURN: u64 = 100_000;

/// Of the calling thread.
fn set_scheduling(attributes: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the pointer is to a live sched_attr that says its own size; 0 is the calling thread.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, ptr::from_ref(attributes), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Processor time that the calling thread has used, user and system together (`getrusage(2)`, `RUSAGE_THREAD`).
pub fn thread_cpu_time() -> io::Result<Duration> {
    // SAFETY: rusage is plain data, for which all zeros is a value.
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

/// Ends the process without running what was registered for its end: a clone shares that with its parent.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: _exit takes an integer and does not return.
    unsafe { libc::_exit(status) }
}

/// True if the user at the other end of a Unix socket, who connected or began to listen, is that of this process and
/// nobody else. False also where that cannot be told ([`has_own_user_id`]).
pub fn is_peer_of_own_user(socket: impl AsFd) -> io::Result<bool> {
    Ok(user_of_peer(socket)? == rustix::process::geteuid().as_raw() && has_own_user_id())
}

/// True if the id of this process's user is nobody else's. In a user namespace that does not map them, all users have
/// the overflow id (`user_namespaces(7)`), this one too; where everybody is mapped, it is an id like others.
pub fn has_own_user_id() -> bool {
    let overflow = sysctl::read("kernel.overflowuid").ok().and_then(|id| id.parse().ok()).unwrap_or(OVERFLOW_ID);
    rustix::process::geteuid().as_raw() != overflow
        || fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| maps_everybody(&map))
}

/// `DEFAULT_OVERFLOWUID` of the kernel.
const OVERFLOW_ID: u32 = 65_534;

/// Whether the text of a `uid_map` leaves no user out: one line, of all ids there are.
fn maps_everybody(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// The user at the other end of a Unix socket, in terms of this process's user namespace (`SO_PEERCRED`, `unix(7)`): who
/// connected, or who began to listen. Its process may be in a PID namespace that cannot be seen from here.
fn user_of_peer(socket: impl AsFd) -> io::Result<u32> {
    // SAFETY: ucred is plain data, for which all zeros is a value.
    let mut peer: libc::ucred = unsafe { mem::zeroed() };
    let mut length = mem::size_of::<libc::ucred>() as libc::socklen_t;
    let descriptor = socket.as_fd().as_raw_fd();
    let (value, length) = ((&raw mut peer).cast(), &raw mut length);
    // SAFETY: value and length are live, and the kernel writes no more than `length` bytes.
    match unsafe { libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_PEERCRED, value, length) } {
        0 => Ok(peer.uid),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The process group of this process; `None` if it comes from outside this PID namespace, where it has no number.
pub fn own_group() -> Option<i32> {
    // SAFETY: getpgrp takes nothing and cannot fail.
    Some(unsafe { libc::getpgrp() }).filter(|group| *group > 0)
}

/// The process group in the foreground of this terminal; `None` if it has no number here, or this is no terminal of this
/// process (`tcgetpgrp(3)`).
pub fn foreground_group(terminal: impl AsFd) -> Option<i32> {
    // SAFETY: tcgetpgrp takes an integer.
    Some(unsafe { libc::tcgetpgrp(terminal.as_fd().as_raw_fd()) }).filter(|group| *group > 0)
}

/// Puts a process group into the foreground of this terminal. Whoever is in the background himself is sent SIGTTOU, unless
/// that is blocked (`tcsetpgrp(3)`).
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
    fn what_is_ignored_is_known() {
        // The runtime of Rust ignores that one from the start.
        assert!(is_ignored(libc::SIGPIPE) && !is_ignored(libc::SIGTERM));
    }

    #[test]
    fn only_a_map_of_all_ids_leaves_nobody_out() {
        assert!(maps_everybody("         0          0 4294967295\n"));
        for map in ["", "0 1000 1\n", "0 0 4294967294\n", "0 100000 65536\n", "0 0 65534\n65534 65534 1\n"] {
            assert!(!maps_everybody(map), "{map}");
        }
    }
}
