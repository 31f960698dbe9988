//! Namespaces of Linux: a process in new ones, a network namespace as a handle, and the mounts a new one needs.
//!
//! Stands on `clone(2)`, `unshare(2)`, `setns(2)` and `mount(2)`; see `namespaces(7)` and `user_namespaces(7)`. A
//! network namespace belongs to a thread, so work in another one is done on a thread of its own that ends with it:
//! no caller can forget to come back.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::process::{self, Ending};

/// A network namespace, alive as long as this handle or a process in it.
#[derive(Debug)]
pub struct NetNamespace {
    handle: OwnedFd,
}

impl NetNamespace {
    /// A new, empty network namespace (`CLONE_NEWNET`); its `lo` is down.
    pub fn new() -> io::Result<Self> {
        on_thread(|| {
            // SAFETY: only CLONE_NEWNET is asked for, which changes nothing but the network namespace of this thread;
            // in particular not CLONE_FILES, whose effect on descriptors is why the call is unsafe.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            Self::current()
        })?
    }

    /// The network namespace of the calling thread.
    pub fn current() -> io::Result<Self> {
        let handle = rustix::fs::open("/proc/thread-self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(NetNamespace { handle })
    }

    /// The network namespace that `file` stands for: `/proc/PID/ns/net`, or a name of `ip netns`. Anything else is refused
    /// with [`io::ErrorKind::InvalidInput`].
    pub fn open(file: &Path) -> io::Result<Self> {
        let handle = rustix::fs::open(file, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?;
        // SAFETY: NS_GET_NSTYPE takes no argument; other files do not know it.
        let kind = unsafe { libc::ioctl(handle.as_raw_fd(), libc::NS_GET_NSTYPE) };
        match kind == libc::CLONE_NEWNET {
            true => Ok(NetNamespace { handle }),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a network namespace")),
        }
    }

    /// The user namespace whose root may do everything in this one. Refused with `EPERM` if that is above the caller's.
    pub fn owner(&self) -> io::Result<UserNamespace> {
        // SAFETY: NS_GET_USERNS takes no argument and gives a new descriptor or -1.
        let raw = unsafe { libc::ioctl(self.handle.as_raw_fd(), libc::NS_GET_USERNS) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and nothing else owns it.
        Ok(UserNamespace { handle: unsafe { OwnedFd::from_raw_fd(raw) } })
    }

    /// Whether both handles are of one namespace.
    pub fn is_same_as(&self, other: &NetNamespace) -> io::Result<bool> {
        is_same(self.as_fd(), other.as_fd())
    }

    /// Runs `work` on a thread inside this namespace. Sockets opened and processes started there stay in it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_thread(|| {
            rustix::thread::move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        })?
    }
}

impl AsFd for NetNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// A user namespace.
#[derive(Debug)]
pub struct UserNamespace {
    handle: OwnedFd,
}

impl UserNamespace {
    /// Of the calling process.
    pub fn current() -> io::Result<Self> {
        let handle = rustix::fs::open("/proc/self/ns/user", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(UserNamespace { handle })
    }

    /// Whether both handles are of one namespace.
    pub fn is_same_as(&self, other: &UserNamespace) -> io::Result<bool> {
        is_same(self.handle.as_fd(), other.handle.as_fd())
    }

    /// Moves the calling process into it, for good: it has all rights there. Needs those rights already, as whoever made
    /// the namespace has, and a process of one thread.
    pub fn join(&self) -> io::Result<()> {
        Ok(rustix::thread::move_into_link_name_space(self.handle.as_fd(), Some(LinkNameSpaceType::User))?)
    }
}

/// A namespace is known by device and inode (`namespaces(7)`).
fn is_same(one: BorrowedFd, other: BorrowedFd) -> io::Result<bool> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Runs `work` on a thread of its own and waits for it.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().spawn_scoped(scope, work)?;
        worker.join().map_err(|_| io::Error::other("the thread in the namespace panicked"))
    })
}

/// Which side of [`clone_into_namespaces`] this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The caller; the child has this process id, and must be waited for.
    Parent(i32),
    /// The new process: process 1 of its namespace. When it ends the kernel kills every process in there.
    Child,
}

/// Which namespaces a child gets of its own, besides PID, mount and IPC namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// A user namespace, which is what makes the others available without privilege.
    pub user: bool,
    /// A network namespace.
    pub network: bool,
}

/// Makes a child, as `fork` does, in new namespaces.
///
/// The caller must have one thread only: the child has a copy of the memory, locks held by other threads included.
/// That is checked, and refused with [`io::ErrorKind::Unsupported`].
pub fn clone_into_namespaces(own: Own) -> io::Result<Side> {
    if thread_count()? != 1 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "a process with several threads cannot be cloned"));
    }
    // SAFETY: without CLONE_VM and with no stack given this is fork(2) with flags: the child runs on a copy of this
    // stack. The process has one thread (checked above), so no lock is held by a thread that the child lacks.
    match unsafe { clone(own) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Child),
        pid => Ok(Side::Parent(pid)),
    }
}

/// Tries whether [`clone_into_namespaces`] works, with a user namespace or without, and gives the rights to a packet
/// socket; from any thread.
pub fn probe(user: bool) -> io::Result<()> {
    // SAFETY: the child makes system calls only and ends, so it does not matter which locks other threads hold.
    let pid = unsafe { clone(Own { user, network: true }) };
    if pid == 0 {
        // SAFETY: both calls take integers. Ubuntu lets anybody make user namespaces, but takes the rights away.
        unsafe {
            let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
            libc::_exit(if socket < 0 { *libc::__errno_location() } else { 0 });
        }
    }
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    match process::wait(pid) {
        Some(Ending::Exited(0)) => Ok(()),
        Some(Ending::Exited(error)) => Err(io::Error::from_raw_os_error(error)),
        other => Err(io::Error::other(format!("a process in new namespaces ended: {other:?}"))),
    }
}

/// `fork` with namespaces; gives the child's id, 0 in the child, or -1.
///
/// # Safety
/// The child has one thread and a copy of the memory: what other threads were changing, it must not touch.
unsafe fn clone(own: Own) -> i32 {
    let user = if own.user { libc::CLONE_NEWUSER } else { 0 };
    let network = if own.network { libc::CLONE_NEWNET } else { 0 };
    let flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | user | network;
    // SAFETY: no pointer is given; what the caller has to see to is passed on to it.
    let pid = unsafe { libc::syscall(libc::SYS_clone, i64::from(flags | libc::SIGCHLD), 0_i64, 0_i64, 0_i64, 0_i64) };
    // A process id is an int; the system call's result is wider only by convention.
    pid as i32
}

fn thread_count() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

/// User and group of the caller, as seen outside a user namespace that is about to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    uid: u32,
    gid: u32,
}

impl Identity {
    /// Of this process: the effective ids.
    pub fn current() -> Self {
        Identity { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }

    /// True for the super-user.
    pub fn is_root(self) -> bool {
        self.uid == 0
    }

    /// To be called in a new user namespace: makes this user its root. `setgroups` is denied first, as
    /// `user_namespaces(7)` demands of a caller without CAP_SETGID.
    pub fn become_root_inside(self) -> io::Result<()> {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {} 1", self.uid))?;
        fs::write("/proc/self/gid_map", format!("0 {} 1", self.gid))
    }
}

/// Keeps every mount made from here on within this mount namespace.
pub fn make_mounts_private() -> io::Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", flags)?)
}

/// Mounts a `/proc` that shows this PID namespace. Containers that hide parts of `/proc` refuse it with `EPERM`.
pub fn mount_proc() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(rustix::mount::mount("proc", "/proc", "proc", flags, None)?)
}

/// Has a command see the interfaces of the network namespace it starts in under `/sys`, in a mount namespace of its own: a
/// sysfs shows those of who mounted it. Where that is not allowed `/sys` stays as it is.
pub fn with_interfaces_in_sys(command: &mut Command) -> &mut Command {
    let cover = || {
        // CMD can do without.
        let _ = cover_interfaces();
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; it makes system calls and allocates nothing.
    unsafe { command.pre_exec(cover) }
}

/// Covers the directories of interfaces, and nothing else: control groups and whatever else is mounted there stay.
fn cover_interfaces() -> rustix::io::Result<()> {
    const CLASS: &CStr = c"/sys/class/net";
    const DEVICES: &CStr = c"/sys/devices/virtual/net";
    // SAFETY: only CLONE_NEWNS is asked for, and not CLONE_FILES, whose effect on descriptors is why the call is unsafe.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mount = |flags| rustix::mount::mount(c"sysfs", c"/sys", c"sysfs", flags, None);
    // What may not be written outside may not be inside.
    mount(flags).or_else(|_| mount(flags | MountFlags::RDONLY))?;
    let take = |path| {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        rustix::mount::open_tree(rustix::fs::CWD, path, flags)
    };
    let taken = take(CLASS).and_then(|class| Ok([(class, CLASS), (take(DEVICES)?, DEVICES)]));
    rustix::mount::unmount(c"/sys", UnmountFlags::DETACH)?;
    taken?.iter().try_for_each(|(tree, path)| {
        rustix::mount::move_mount(tree, c"", rustix::fs::CWD, *path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
    })
}

/// Makes the existing file `target` hold `contents`, in this mount namespace and nowhere else: the bytes are in a tmpfs
/// that has no other name, so nothing is left on any disk however this process ends.
pub fn cover_file(target: &Path, contents: &[u8]) -> io::Result<()> {
    // A mount point is needed for a moment, and /proc is a directory that is certainly there.
    let passage = Path::new("/proc");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("tmpfs", passage, "tmpfs", flags, Some(c"mode=755"))?;
    let file = passage.join("file");
    let covered = fs::write(&file, contents).and_then(|()| Ok(rustix::mount::mount_bind(&file, target)?));
    rustix::mount::unmount(passage, UnmountFlags::DETACH)?;
    covered
}
