//! Sides in existing network namespaces: that of a process, or a named one.
//!
//! The emulator creates the path's interfaces in the namespace and changes nothing else, because its settings belong to
//! its owner. The other ends of the veth pairs belong to the emulator, so the interfaces disappear when the emulator
//! ends for any reason.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use lfn_base::units::Bytes;
use lfn_sys::namespace::{NetNamespace, UserNamespace};
use lfn_sys::netlink::Netlink;
use lfn_sys::sysctl;
use serde::{Deserialize, Serialize};

use super::addresses::{PREFIX_V4, PathEnd};
use crate::error::{EmulateError, system_error};

/// Network namespace that the user selected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamespaceRef {
    Process(u32),
    /// A name that `ip netns add` created.
    Named(String),
    /// A namespace file, for example `/proc/PID/ns/net`.
    File(PathBuf),
}

/// Maximum time that the interfaces of a killed emulator stay. The kernel deletes them in the background.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(1);
/// Directory of the names of `ip netns`.
const NETNS_DIR: &str = "/run/netns";

impl NamespaceRef {
    /// Parses a process id, a path (any text with a slash), or a name.
    pub fn parse(text: &str) -> Self {
        match text.parse() {
            Ok(pid) => NamespaceRef::Process(pid),
            Err(_) if text.contains('/') => NamespaceRef::File(text.into()),
            Err(_) => NamespaceRef::Named(text.to_owned()),
        }
    }

    /// Returns the start of a command line that runs another command in this namespace. An ordinary user must also
    /// enter the user namespace of the process.
    pub(crate) fn enter_command(&self, is_ordinary_user: bool) -> String {
        match self {
            NamespaceRef::Process(pid) if is_ordinary_user => {
                format!("nsenter -t {pid} -U --preserve-credentials -n")
            }
            NamespaceRef::Process(pid) => format!("nsenter -t {pid} -n"),
            NamespaceRef::Named(name) => format!("ip netns exec {name}"),
            NamespaceRef::File(file) => format!("nsenter --net={}", file.display()),
        }
    }

    /// Opens the network namespace.
    pub(super) fn open(&self) -> Result<NetNamespace, EmulateError> {
        NetNamespace::open(&self.file()).map_err(|error| self.open_error(&error))
    }

    fn file(&self) -> PathBuf {
        match self {
            NamespaceRef::Process(pid) => PathBuf::from(format!("/proc/{pid}/ns/net")),
            NamespaceRef::Named(name) => Path::new(NETNS_DIR).join(name),
            NamespaceRef::File(file) => file.clone(),
        }
    }

    fn open_error(&self, error: &io::Error) -> EmulateError {
        let file = self.file();
        let (reason, remedy) = match (error.kind(), self) {
            (io::ErrorKind::NotFound, NamespaceRef::Process(_)) => {
                ("there is no such process".to_owned(), "find the process id with: pgrep -a NAME".to_owned())
            }
            (io::ErrorKind::NotFound, NamespaceRef::Named(_)) => {
                (format!("{} does not exist", file.display()), "list the names with: ip netns list".to_owned())
            }
            (io::ErrorKind::InvalidInput, _) => (
                "this is not a network namespace".to_owned(),
                "give a process id, a name of ip netns, or /proc/PID/ns/net".to_owned(),
            ),
            (io::ErrorKind::PermissionDenied, _) => ("it belongs to another user".to_owned(), AS_ROOT.to_owned()),
            _ => (error.to_string(), "give a process id, a name of ip netns, or /proc/PID/ns/net".to_owned()),
        };
        self.error(reason, remedy)
    }

    /// Returns the error that the caller has no right to change this namespace.
    pub(super) fn permission_error(&self) -> EmulateError {
        self.error("this user has no right to change it".to_owned(), AS_ROOT.to_owned())
    }

    fn error(&self, reason: String, remedy: String) -> EmulateError {
        EmulateError::Attach { target: self.to_string(), reason, remedy }
    }
}

const AS_ROOT: &str = "run as root, or attach to a process in your own user namespace (unshare -Urn)";

impl fmt::Display for NamespaceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NamespaceRef::Process(pid) => write!(f, "process {pid}"),
            NamespaceRef::Named(name) => write!(f, "network namespace '{name}'"),
            NamespaceRef::File(file) => write!(f, "'{}'", file.display()),
        }
    }
}

/// An open namespace that the run is attached to.
#[derive(Debug)]
pub(crate) struct AttachedNamespace {
    pub(super) spec: NamespaceRef,
    pub(super) namespace: NetNamespace,
}

/// Opens the namespaces of both sides. At least one side must be given.
pub(super) fn open(sides: [Option<&NamespaceRef>; 2]) -> Result<[Option<AttachedNamespace>; 2], EmulateError> {
    let open = |side: Option<&NamespaceRef>| {
        side.map(|spec| spec.open().map(|namespace| AttachedNamespace { spec: spec.clone(), namespace })).transpose()
    };
    let [near, far] = sides;
    let both = [open(near)?, open(far)?];
    if let [Some(near), Some(far)] = &both
        && near.namespace.is_same_as(&far.namespace).map_err(system_error("compare network namespaces"))?
    {
        let reason = "near and far would be the same network namespace".to_owned();
        return Err(far.spec.error(reason, "omit --attach-far, or give another namespace".to_owned()));
    }
    Ok(both)
}

/// Moves this process into the user namespace that owns the network namespaces, if this is not its own. There the
/// process has the rights to change them.
pub(super) fn acquire_rights(sides: &[Option<AttachedNamespace>; 2]) -> Result<(), EmulateError> {
    if rustix::process::geteuid().is_root() {
        // Root has rights in all user namespaces below its own.
        return Ok(());
    }
    let own = UserNamespace::current().map_err(system_error("open this process's user namespace"))?;
    for side in sides.iter().flatten() {
        let owner = side.namespace.owner().map_err(|_| side.spec.permission_error())?;
        if !owner.is_same_as(&own).map_err(system_error("compare user namespaces"))? {
            return owner.join().map_err(|_| side.spec.permission_error());
        }
    }
    Ok(())
}

impl AttachedNamespace {
    /// Returns an error if the interface or the addresses of `end` conflict with existing ones.
    pub(super) fn check(&self, end: PathEnd) -> Result<(), EmulateError> {
        let deadline = Instant::now() + CLEANUP_TIMEOUT;
        let conflict = loop {
            let conflict = self.namespace.run(|| find_conflict(end)).map_err(|_| self.spec.permission_error())?;
            match conflict.map_err(system_error("read the addresses in the namespace"))? {
                Some(_) if Instant::now() < deadline => thread::sleep(CLEANUP_TIMEOUT / 50),
                conflict => break conflict,
            }
        };
        match conflict {
            None => Ok(()),
            Some(reason) => Err(self.spec.error(
                reason,
                "stop the other lfn emulate that is attached there, or free the name or address".to_owned(),
            )),
        }
    }

    /// Returns the `sysctl` settings that TCP needs to fill the path, or `None` if the current ones are large enough.
    pub(super) fn small_buffer_settings(&self, needed: Bytes) -> io::Result<Option<String>> {
        self.namespace.run(|| {
            let too_small = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"].into_iter().filter_map(|name| {
                let value = sysctl::read(name).ok()?;
                let (rest, max) = value.rsplit_once(char::is_whitespace)?;
                let rest = rest.split_whitespace().collect::<Vec<_>>().join(" ");
                let is_too_small = max.parse::<u64>().is_ok_and(|max| max < needed.0);
                is_too_small.then(|| format!("{name}='{rest} {}'", needed.0))
            });
            let too_small: Vec<_> = too_small.collect();
            (!too_small.is_empty()).then(|| too_small.join(" "))
        })
    }
}

/// Returns the first conflict of this end with the namespace of the calling thread.
fn find_conflict(end: PathEnd) -> io::Result<Option<String>> {
    let mut netlink = Netlink::open()?;
    let name = end.interface();
    if netlink.interface(&name).is_ok() {
        return Ok(Some(format!("it already has an interface {name}")));
    }
    // A wider network is no conflict, because the longer prefix has priority.
    let network = |address: u32| address >> (32 - PREFIX_V4);
    let overlap = netlink.addresses()?.into_iter().find(|assigned| match assigned.address {
        IpAddr::V4(address) => network(address.into()) == network(end.v4().into()),
        IpAddr::V6(address) => address.segments()[..4] == end.v6().segments()[..4],
    });
    Ok(overlap.map(|assigned| format!("it already has the address {}", assigned.address)))
}
