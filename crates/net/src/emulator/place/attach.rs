//! Sides that exist already: the network namespace of a process, or one with a name.
//!
//! The path's interfaces are made in there, and nothing else is touched: the namespace's settings are its owner's. The
//! other ends of the cables are the emulator's, so that the interfaces go when it ends, however it ends.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::units::Bytes;
use lfn_sys::namespace::{NetNamespace, UserNamespace};
use lfn_sys::netlink::Netlink;
use lfn_sys::sysctl;

use super::addresses::{End, PREFIX_V4};
use crate::emulator::{EmulateError, system};

/// A network namespace as it is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// That of a process.
    Process(u32),
    /// One that `ip netns add` gave this name.
    Named(String),
    /// A file that stands for one, such as `/proc/PID/ns/net`.
    File(PathBuf),
}

/// How long the interfaces of an emulator that was killed may outlive it: the kernel clears away in the background.
const LINGERING: Duration = Duration::from_secs(1);
/// Where `ip netns` keeps names.
const NAMES: &str = "/run/netns";

impl Attachment {
    /// A number is a process, anything with a slash a file, the rest a name.
    pub fn parse(text: &str) -> Self {
        match text.parse() {
            Ok(pid) => Attachment::Process(pid),
            Err(_) if text.contains('/') => Attachment::File(text.into()),
            Err(_) => Attachment::Named(text.to_owned()),
        }
    }

    /// The namespace itself.
    pub(super) fn open(&self) -> Result<NetNamespace, EmulateError> {
        NetNamespace::open(&self.file()).map_err(|error| self.explain(&error))
    }

    fn file(&self) -> PathBuf {
        match self {
            Attachment::Process(pid) => PathBuf::from(format!("/proc/{pid}/ns/net")),
            Attachment::Named(name) => Path::new(NAMES).join(name),
            Attachment::File(file) => file.clone(),
        }
    }

    fn explain(&self, error: &io::Error) -> EmulateError {
        let file = self.file();
        let (reason, cure) = match (error.kind(), self) {
            (io::ErrorKind::NotFound, Attachment::Process(_)) => {
                ("there is no such process".to_owned(), "pgrep NAME finds the number of one".to_owned())
            }
            (io::ErrorKind::NotFound, Attachment::Named(_)) => {
                (format!("{} does not exist", file.display()), "ip netns list shows the names there are".to_owned())
            }
            (io::ErrorKind::InvalidInput, _) => (
                "that is no network namespace".to_owned(),
                "give a process id, a name of ip netns, or /proc/PID/ns/net".to_owned(),
            ),
            (io::ErrorKind::PermissionDenied, _) => ("it belongs to another user".to_owned(), AS_ROOT.to_owned()),
            _ => (error.to_string(), "give a process id, a name of ip netns, or /proc/PID/ns/net".to_owned()),
        };
        self.refuse(reason, cure)
    }

    /// That the caller may not change anything in there.
    pub(super) fn forbidden(&self) -> EmulateError {
        self.refuse("it is not this user's to change".to_owned(), AS_ROOT.to_owned())
    }

    fn refuse(&self, reason: String, cure: String) -> EmulateError {
        EmulateError::Attach { to: self.to_string(), reason, cure }
    }
}

const AS_ROOT: &str = "run as root, or attach to what runs in a user namespace of your own (unshare -Urn)";

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attachment::Process(pid) => write!(f, "process {pid}"),
            Attachment::Named(name) => write!(f, "network namespace '{name}'"),
            Attachment::File(file) => write!(f, "'{}'", file.display()),
        }
    }
}

/// A namespace that was found.
#[derive(Debug)]
pub(in crate::emulator) struct Attached {
    /// As it was typed.
    pub(super) typed: Attachment,
    /// Itself.
    pub(super) namespace: NetNamespace,
}

/// Finds both sides' namespaces, of which one at least is given.
pub(super) fn open(sides: [Option<&Attachment>; 2]) -> Result<[Option<Attached>; 2], EmulateError> {
    let open = |side: Option<&Attachment>| {
        side.map(|typed| typed.open().map(|namespace| Attached { typed: typed.clone(), namespace })).transpose()
    };
    let [near, far] = sides;
    let both = [open(near)?, open(far)?];
    if let [Some(near), Some(far)] = &both
        && near.namespace.is_same_as(&far.namespace).map_err(system("compare network namespaces"))?
    {
        let reason = "near and far would be the same network namespace".to_owned();
        return Err(far.typed.refuse(reason, "leave out --attach-far, or attach it to another".to_owned()));
    }
    Ok(both)
}

/// Moves this process to where it has the rights to the namespaces: into the user namespace that they belong to, if that
/// is not its own.
pub(super) fn acquire_rights(sides: &[Option<Attached>; 2]) -> Result<(), EmulateError> {
    if rustix::process::geteuid().is_root() {
        // The rights of root reach into the user namespaces below its own.
        return Ok(());
    }
    let own = UserNamespace::current().map_err(system("open this process's user namespace"))?;
    for side in sides.iter().flatten() {
        let owner = side.namespace.owner().map_err(|_| side.typed.forbidden())?;
        if !owner.is_same_as(&own).map_err(system("compare user namespaces"))? {
            return owner.join().map_err(|_| side.typed.forbidden());
        }
    }
    Ok(())
}

impl Attached {
    /// Refuses a namespace in which the path's end would collide with something.
    pub(super) fn check(&self, end: End) -> Result<(), EmulateError> {
        let deadline = Instant::now() + LINGERING;
        let taken = loop {
            let taken = self.namespace.run(|| clash(end)).map_err(|_| self.typed.forbidden())?;
            match taken.map_err(system("look at the addresses there"))? {
                Some(_) if Instant::now() < deadline => thread::sleep(LINGERING / 50),
                taken => break taken,
            }
        };
        match taken {
            None => Ok(()),
            Some(reason) => Err(self.typed.refuse(
                reason,
                "end the other lfn emulate that is attached there, or free the name or address".to_owned(),
            )),
        }
    }

    /// Says so if sockets in there cannot fill the path.
    pub(super) fn check_buffers(&self, needed: Bytes) -> io::Result<Option<String>> {
        self.namespace.run(|| {
            let short = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"].into_iter().filter_map(|name| {
                let value = sysctl::read(name).ok()?;
                let (rest, most) = value.rsplit_once(char::is_whitespace)?;
                let rest = rest.split_whitespace().collect::<Vec<_>>().join(" ");
                let is_short = most.parse::<u64>().is_ok_and(|most| most < needed.0);
                is_short.then(|| format!("{name}='{rest} {}'", needed.0))
            });
            let short: Vec<_> = short.collect();
            (!short.is_empty()).then(|| short.join(" "))
        })
    }

    /// A command that runs another in there.
    pub(super) fn enter(&self) -> String {
        match &self.typed {
            Attachment::Process(pid) => format!("nsenter -t {pid} -n"),
            Attachment::Named(name) => format!("ip netns exec {name}"),
            Attachment::File(file) => format!("nsenter --net={}", file.display()),
        }
    }
}

/// What of the namespace of the calling thread is in the way of this end.
fn clash(end: End) -> io::Result<Option<String>> {
    let mut netlink = Netlink::open()?;
    let name = end.interface();
    if netlink.interface(&name).is_ok() {
        return Ok(Some(format!("it has an interface {name} already")));
    }
    // A wider network there is no obstacle: the longer prefix wins.
    let network = |address: u32| address >> (32 - PREFIX_V4);
    let overlap = netlink.addresses()?.into_iter().find(|assigned| match assigned.address {
        IpAddr::V4(address) => network(address.into()) == network(end.v4().into()),
        IpAddr::V6(address) => address.segments()[..4] == end.v6().segments()[..4],
    });
    Ok(overlap.map(|assigned| format!("it has the address {} already", assigned.address)))
}
