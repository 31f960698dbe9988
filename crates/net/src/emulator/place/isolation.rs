//! Getting into namespaces of one's own, and saying why not.
//!
//! The super-user needs no user namespace and is tried without one first, because inside one even root may not enlarge
//! socket buffers beyond the system's limit. Everybody else gets one, and in a container root may need one too.

use std::env;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use lfn_sys::namespace::{self, Identity, Own, Side};
use lfn_sys::sysctl;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::emulator::{EmulateError, system};

/// Why namespaces cannot be made, or not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Obstacle {
    /// This limit is 0 (`user.max_user_namespaces`), or as many as it allows exist.
    #[error("{0} allows no more of them")]
    Count(String),
    /// `kernel.unprivileged_userns_clone` is 0, as hardened Debian kernels have it.
    #[error("kernel.unprivileged_userns_clone forbids them to ordinary users")]
    Unprivileged,
    /// AppArmor takes the capabilities away inside, as Ubuntu does from 24.04 on.
    #[error("AppArmor restricts them for ordinary users")]
    AppArmor,
    /// A container's seccomp filter, or root without its capabilities.
    #[error("this container does not allow them")]
    Container,
    /// A seccomp filter, and no sign of a container: a service's or a sandbox's.
    #[error("a seccomp filter forbids them")]
    Filter,
    /// The kernel was built without something, or has not loaded it.
    #[error("this kernel has no {0}")]
    Kernel(Lacking),
    /// Something else.
    #[error("{0}")]
    Other(String),
}

/// What a kernel may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lacking {
    /// User or network namespaces.
    Namespaces,
    /// Packet sockets.
    PacketSockets,
    /// veth interfaces.
    Veth,
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lacking::Namespaces => "user or no network namespaces",
            Lacking::PacketSockets => "packet sockets",
            Lacking::Veth => "veth interfaces",
        })
    }
}

impl Obstacle {
    /// A command that clears it away, or what to do; one line.
    pub fn cure(&self) -> String {
        let cure = match self {
            Obstacle::Count(limit) => return format!("sudo sysctl -w {limit}=10000"),
            Obstacle::Unprivileged => "sudo sysctl -w kernel.unprivileged_userns_clone=1, or run as root",
            Obstacle::AppArmor => "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run as root",
            Obstacle::Container => {
                "start the container with --cap-add SYS_ADMIN --cap-add NET_ADMIN \
                 --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
            }
            Obstacle::Filter => "run outside the sandbox; in a systemd service: RestrictNamespaces=no",
            Obstacle::Kernel(Lacking::Namespaces) => {
                "boot a kernel with CONFIG_USER_NS and CONFIG_NET_NS; with the second alone, run as root"
            }
            Obstacle::Kernel(Lacking::PacketSockets) => "sudo modprobe af_packet",
            Obstacle::Kernel(Lacking::Veth) => "sudo modprobe veth",
            Obstacle::Other(_) => "run as root, outside of any chroot, and with room left in ulimit -a",
        };
        cure.to_owned()
    }
}

/// Who made the inside, if it has to be made root there first.
pub(in crate::emulator) type Newcomer = Option<Identity>;

/// Clones this process into new namespaces; with who it was outside if a user namespace is among them.
pub(super) fn enter() -> Result<(Side, Newcomer), EmulateError> {
    namespaces_available()?;
    let identity = Identity::current();
    if identity.is_root() {
        match namespace::clone_into_namespaces(Own { user: false, network: true }) {
            Ok(side) => return Ok((side, None)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(system("clone into namespaces")(error)),
        }
    }
    let own = Own { user: true, network: true };
    let side = namespace::clone_into_namespaces(own).map_err(system("clone into namespaces"))?;
    Ok((side, Some(identity)))
}

/// The same with the rights this process has: in a user namespace of its own it would have none to what is outside.
/// Gives `None` where those are not enough.
pub(super) fn enter_with_own_rights(network: bool) -> Result<Option<Side>, EmulateError> {
    match namespace::clone_into_namespaces(Own { user: false, network }) {
        Ok(side) => Ok(Some(side)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(system("clone into namespaces")(error)),
    }
}

/// Whether a path can be emulated here. May be called from any thread; it makes namespaces and drops them again.
pub fn namespaces_available() -> Result<(), Obstacle> {
    if Identity::current().is_root() && namespace::probe(false).is_ok() {
        return Ok(());
    }
    namespace::probe(true).map_err(explain)
}

/// The kernel says EPERM for nearly everything; the settings say which it was.
fn explain(error: io::Error) -> Obstacle {
    let is = |name: &str, value: &str| sysctl::read(name).is_ok_and(|v| v == value);
    let facts = Facts {
        is_root: Identity::current().is_root(),
        empty_limit: LIMITS.into_iter().find(|limit| is(limit, "0")),
        forbidden_to_users: is("kernel.unprivileged_userns_clone", "0"),
        restricted_by_apparmor: is("kernel.apparmor_restrict_unprivileged_userns", "1"),
        in_container: in_container(),
        is_filtered: is_filtered(),
    };
    facts.explain(&error)
}

/// Most namespaces of each kind that a path needs. The first is the one that hardened systems set to 0.
const LIMITS: [&str; 5] = [
    "user.max_user_namespaces",
    "user.max_net_namespaces",
    "user.max_pid_namespaces",
    "user.max_mnt_namespaces",
    "user.max_ipc_namespaces",
];

/// What can be seen of a system that refused.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    is_root: bool,
    /// The limit on namespaces that is 0.
    empty_limit: Option<&'static str>,
    forbidden_to_users: bool,
    restricted_by_apparmor: bool,
    in_container: bool,
    is_filtered: bool,
}

impl Facts {
    fn explain(&self, error: &io::Error) -> Obstacle {
        let is_confined = self.in_container || self.is_filtered;
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            // clone(2): a limit of this user namespace or of one around it.
            Some(Errno::NOSPC | Errno::USERS) => Obstacle::Count(self.empty_limit.unwrap_or(LIMITS[0]).to_owned()),
            Some(Errno::INVAL) => Obstacle::Kernel(Lacking::Namespaces),
            Some(Errno::NOSYS) if !is_confined => Obstacle::Kernel(Lacking::Namespaces),
            Some(Errno::AFNOSUPPORT) => Obstacle::Kernel(Lacking::PacketSockets),
            // A filter says EPERM or that there is no such call.
            Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS) => self.forbidden(error),
            _ => Obstacle::Other(error.to_string()),
        }
    }

    fn forbidden(&self, error: &io::Error) -> Obstacle {
        match *self {
            Facts { forbidden_to_users: true, is_root: false, .. } => Obstacle::Unprivileged,
            Facts { restricted_by_apparmor: true, is_root: false, .. } => Obstacle::AppArmor,
            Facts { in_container: true, .. } => Obstacle::Container,
            Facts { is_filtered: true, .. } => Obstacle::Filter,
            _ => Obstacle::Other(error.to_string()),
        }
    }
}

fn in_container() -> bool {
    ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists())
        || ["container", "KUBERNETES_SERVICE_HOST"].iter().any(|mark| env::var_os(mark).is_some())
}

fn is_filtered() -> bool {
    fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"])))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Facts = Facts {
        is_root: false,
        empty_limit: None,
        forbidden_to_users: false,
        restricted_by_apparmor: false,
        in_container: false,
        is_filtered: false,
    };

    #[test]
    fn every_refusal_is_told_by_its_cause() {
        let root = Facts { is_root: true, ..NOTHING };
        let docker = Facts { in_container: true, is_filtered: true, ..NOTHING };
        let net = Facts { empty_limit: Some("user.max_net_namespaces"), ..NOTHING };
        let (users, apparmor) = (
            |facts| Facts { forbidden_to_users: true, ..facts },
            |facts| Facts { restricted_by_apparmor: true, ..facts },
        );
        let count = |limit: &str| Obstacle::Count(limit.to_owned());
        let other = Obstacle::Other(io::Error::from(Errno::PERM).to_string());
        let rows = [
            (NOTHING, Errno::NOSPC, count("user.max_user_namespaces")),
            (net, Errno::NOSPC, count("user.max_net_namespaces")),
            (docker, Errno::NOSPC, count("user.max_user_namespaces")),
            (users(NOTHING), Errno::PERM, Obstacle::Unprivileged),
            (users(root), Errno::PERM, other.clone()),
            (apparmor(NOTHING), Errno::PERM, Obstacle::AppArmor),
            (apparmor(NOTHING), Errno::ACCESS, Obstacle::AppArmor),
            (apparmor(Facts { is_root: true, ..docker }), Errno::PERM, Obstacle::Container),
            (docker, Errno::PERM, Obstacle::Container),
            (Facts { is_filtered: true, ..root }, Errno::PERM, Obstacle::Filter),
            (docker, Errno::NOSYS, Obstacle::Container),
            (NOTHING, Errno::NOSYS, Obstacle::Kernel(Lacking::Namespaces)),
            (docker, Errno::MFILE, Obstacle::Other(io::Error::from(Errno::MFILE).to_string())),
            (docker, Errno::INVAL, Obstacle::Kernel(Lacking::Namespaces)),
            (root, Errno::AFNOSUPPORT, Obstacle::Kernel(Lacking::PacketSockets)),
            (NOTHING, Errno::PERM, other),
        ];
        for (facts, errno, obstacle) in rows {
            assert_eq!(facts.explain(&errno.into()), obstacle, "{facts:?} {errno:?}");
            assert_eq!((obstacle.cure().lines().count(), obstacle.to_string().lines().count()), (1, 1), "{obstacle:?}");
        }
    }
}
