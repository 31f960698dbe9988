//! Linux namespaces: a process in new namespaces, a handle to a network namespace, and the mounts that a new namespace
//! needs.
//!
//! Uses `clone(2)`, `unshare(2)`, `setns(2)` and `mount(2)`; see `namespaces(7)` and `user_namespaces(7)`. A network
//! namespace belongs to a thread. So work in another namespace runs on its own short-lived thread, and the caller's
//! thread never changes its namespace.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::process::{self, ProcessExit};

/// A network namespace. It exists as long as this handle or a process in it.
#[derive(Debug)]
pub struct NetNamespace {
    handle: OwnedFd,
}

impl NetNamespace {
    /// Creates an empty network namespace (`CLONE_NEWNET`). Its `lo` is down.
    pub fn new() -> io::Result<Self> {
        on_thread(|| {
            // SAFETY: the flag is only CLONE_NEWNET, which changes nothing but the network namespace of this thread.
            // The call is unsafe because of CLONE_FILES and its effect on descriptors, which is not used here.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            Self::current()
        })?
    }

    /// Opens the network namespace of the calling thread.
    pub fn current() -> io::Result<Self> {
        let handle = rustix::fs::open("/proc/thread-self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(NetNamespace { handle })
    }

    /// Opens the network namespace `file`: `/proc/PID/ns/net`, or a name of `ip netns`. Any other file is an error of
    /// kind [`io::ErrorKind::InvalidInput`].
    pub fn open(file: &Path) -> io::Result<Self> {
        let handle = rustix::fs::open(file, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?;
        // SAFETY: NS_GET_NSTYPE takes no argument, and other files return an error.
        let kind = unsafe { libc::ioctl(handle.as_raw_fd(), libc::NS_GET_NSTYPE) };
        match kind == libc::CLONE_NEWNET {
            true => Ok(NetNamespace { handle }),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a network namespace")),
        }
    }

    /// Returns the user namespace that owns this one. Its root has all rights in this namespace. The error is `EPERM`
    /// if it is above the caller's.
    pub fn owner(&self) -> io::Result<UserNamespace> {
        // SAFETY: NS_GET_USERNS takes no argument and returns a new descriptor or -1.
        let raw = unsafe { libc::ioctl(self.handle.as_raw_fd(), libc::NS_GET_USERNS) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        Ok(UserNamespace { handle: unsafe { OwnedFd::from_raw_fd(raw) } })
    }

    /// Returns true if both handles refer to the same namespace.
    pub fn is_same_as(&self, other: &NetNamespace) -> io::Result<bool> {
        is_same(self.as_fd(), other.as_fd())
    }

    /// Runs `work` on a thread inside this namespace. Sockets and processes that it creates stay in the namespace.
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

/// A handle to a user namespace.
#[derive(Debug)]
pub struct UserNamespace {
    handle: OwnedFd,
}

impl UserNamespace {
    /// Opens the user namespace of the calling process.
    pub fn current() -> io::Result<Self> {
        let handle = rustix::fs::open("/proc/self/ns/user", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(UserNamespace { handle })
    }

    /// Returns true if both handles refer to the same namespace.
    pub fn is_same_as(&self, other: &UserNamespace) -> io::Result<bool> {
        is_same(self.handle.as_fd(), other.handle.as_fd())
    }

    /// Returns the id of the user who created this namespace, as this process sees users.
    pub fn owner_user_id(&self) -> io::Result<u32> {
        let mut uid: libc::uid_t = 0;
        // SAFETY: NS_GET_OWNER_UID writes a uid_t to its argument.
        match unsafe { libc::ioctl(self.handle.as_raw_fd(), libc::NS_GET_OWNER_UID, &raw mut uid) } {
            0 => Ok(uid),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Moves the calling process permanently into this namespace, where it then has all rights. The process must have
    /// only one thread. It needs these rights beforehand, as the creator of the namespace does.
    pub fn join(&self) -> io::Result<()> {
        Ok(rustix::thread::move_into_link_name_space(self.handle.as_fd(), Some(LinkNameSpaceType::User))?)
    }
}

/// Compares device and inode, which identify a namespace (`namespaces(7)`).
fn is_same(one: BorrowedFd, other: BorrowedFd) -> io::Result<bool> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Runs `work` on a separate thread and waits for it.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().spawn_scoped(scope, work)?;
        worker.join().map_err(|_| io::Error::other("the thread in the namespace panicked"))
    })
}

/// Result of [`clone_into_namespaces`] in the parent and in the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloneSide {
    /// The caller. The child has this process id and must be waited for.
    Parent(i32),
    /// The new process, process 1 of its namespace. When it ends, the kernel kills every process in the namespace.
    Child,
}

/// New namespaces of a child, in addition to PID, mount and IPC namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNamespaces {
    /// A user namespace. It allows the other namespaces without privilege.
    pub user: bool,
    pub network: bool,
}

/// Creates a child process, as `fork` does, in new namespaces.
///
/// The caller must have only one thread, because the child has a copy of the memory, including locks that other threads
/// hold. With more threads, the error is of kind [`io::ErrorKind::Unsupported`].
pub fn clone_into_namespaces(namespaces: NewNamespaces) -> io::Result<CloneSide> {
    if thread_count()? != 1 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "a process with several threads cannot be cloned"));
    }
    // SAFETY: without CLONE_VM and without a stack, this is fork(2) with flags: the child runs on a copy of this stack.
    // The process has only one thread (checked above), so no lock is held by a thread that the child lacks.
    match unsafe { clone(namespaces) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(CloneSide::Child),
        pid => Ok(CloneSide::Parent(pid)),
    }
}

/// Tests if [`clone_into_namespaces`] works, with or without a user namespace, and if a packet socket can be opened.
/// May be called from any thread.
pub fn test_clone(user: bool) -> io::Result<()> {
    // SAFETY: the child only makes system calls and ends, so locks of other threads do not matter.
    let pid = unsafe { clone(NewNamespaces { user, network: true }) };
    if pid == 0 {
        // SAFETY: both calls take integers. Ubuntu allows user namespaces for all users, but removes their rights.
        unsafe {
            let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
            libc::_exit(if socket < 0 { *libc::__errno_location() } else { 0 });
        }
    }
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    match process::wait(pid) {
        Some(ProcessExit::Exited(0)) => Ok(()),
        Some(ProcessExit::Exited(error)) => Err(io::Error::from_raw_os_error(error)),
        other => Err(io::Error::other(format!("a process in new namespaces ended: {other:?}"))),
    }
}

/// Forks into new namespaces. Returns the child's id, 0 in the child, or -1.
///
/// # Safety
/// The child has one thread and a copy of the memory. It must not access data that other threads were changing.
unsafe fn clone(namespaces: NewNamespaces) -> i32 {
    let user = if namespaces.user { libc::CLONE_NEWUSER } else { 0 };
    let network = if namespaces.network { libc::CLONE_NEWNET } else { 0 };
    let flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | user | network;
    // SAFETY: no pointer is passed. The caller guarantees the rest.
    let pid = unsafe { libc::syscall(libc::SYS_clone, i64::from(flags | libc::SIGCHLD), 0_i64, 0_i64, 0_i64, 0_i64) };
    // A process id is an int. The result of the system call is wider only by convention.
    pid as i32
}

fn thread_count() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

/// User and group of the caller, as seen outside a new user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserIdentity {
    uid: u32,
    gid: u32,
}

impl UserIdentity {
    /// Returns the effective ids of this process.
    pub fn current() -> Self {
        UserIdentity { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }

    /// Returns true for root.
    pub fn is_root(self) -> bool {
        self.uid == 0
    }

    /// Makes this user root of a new user namespace. Call this inside the new namespace. `setgroups` is denied first,
    /// which `user_namespaces(7)` requires of a caller without CAP_SETGID.
    pub fn become_root(self) -> io::Result<()> {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {} 1", self.uid))?;
        fs::write("/proc/self/gid_map", format!("0 {} 1", self.gid))
    }
}

/// Keeps all later mounts inside this mount namespace.
pub fn make_mounts_private() -> io::Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", flags)?)
}

/// Mounts a `/proc` for this PID namespace. Containers that hide parts of `/proc` refuse this with `EPERM`.
pub fn mount_proc() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(rustix::mount::mount("proc", "/proc", "proc", flags, None)?)
}

/// Shows a command the interfaces of its own network namespace under `/sys`, in a separate mount namespace. A sysfs
/// shows the namespace of the process that mounted it. If the mount is not permitted, `/sys` stays unchanged.
pub fn mount_own_sysfs(command: &mut Command) -> &mut Command {
    let mount = || {
        // The command also works without this mount.
        let _ = mount_interface_directories();
        Ok(())
    };
    // SAFETY: only async-signal-safe calls are allowed between fork and exec. This closure makes system calls and
    // allocates nothing.
    unsafe { command.pre_exec(mount) }
}

/// Mounts over the directories of interfaces only, so that control groups and other mounts stay visible.
fn mount_interface_directories() -> rustix::io::Result<()> {
    const CLASS: &CStr = c"/sys/class/net";
    const DEVICES: &CStr = c"/sys/devices/virtual/net";
    // SAFETY: the flag is only CLONE_NEWNS. The call is unsafe because of CLONE_FILES and its effect on descriptors,
    // which is not used here.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mount = |flags| rustix::mount::mount(c"sysfs", c"/sys", c"sysfs", flags, None);
    // If /sys is read-only outside, only a read-only mount is permitted.
    mount(flags).or_else(|_| mount(flags | MountFlags::RDONLY))?;
    let open_tree = |path| {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        rustix::mount::open_tree(rustix::fs::CWD, path, flags)
    };
    let trees = open_tree(CLASS).and_then(|class| Ok([(class, CLASS), (open_tree(DEVICES)?, DEVICES)]));
    rustix::mount::unmount(c"/sys", UnmountFlags::DETACH)?;
    trees?.iter().try_for_each(|(tree, path)| {
        rustix::mount::move_mount(tree, c"", rustix::fs::CWD, *path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
    })
}

/// Gives a command an empty file system in memory at the existing directory `target`, in a separate mount namespace. The
/// kernel frees it when the command and its children have ended. If the mount is not permitted, the command does not
/// start. The size limit is half of the memory (`tmpfs(5)`).
pub fn mount_own_tmpfs<'a>(command: &'a mut Command, target: &Path) -> io::Result<&'a mut Command> {
    let target = CString::new(target.as_os_str().as_bytes())?;
    let mount = move || {
        // SAFETY: the flag is only CLONE_NEWNS. The call is unsafe because of CLONE_FILES and its effect on
        // descriptors, which is not used here.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        Ok(rustix::mount::mount(c"tmpfs", &*target, c"tmpfs", flags, Some(c"mode=700"))?)
    };
    // SAFETY: only async-signal-safe calls are allowed between fork and exec. This closure makes system calls and
    // allocates nothing.
    Ok(unsafe { command.pre_exec(mount) })
}

/// Replaces the content of the existing file `target`, but only in this mount namespace. The content is in a tmpfs
/// without another name, so nothing stays on any disk when the process ends.
pub fn mount_over_file(target: &Path, contents: &[u8]) -> io::Result<()> {
    // The tmpfs needs a temporary mount point, and /proc always exists.
    let mount_point = Path::new("/proc");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("tmpfs", mount_point, "tmpfs", flags, Some(c"mode=755"))?;
    let file = mount_point.join("file");
    let result = fs::write(&file, contents).and_then(|()| Ok(rustix::mount::mount_bind(&file, target)?));
    rustix::mount::unmount(mount_point, UnmountFlags::DETACH)?;
    result
}
