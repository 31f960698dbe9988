//! Getting into namespaces of one's own, and saying why not.
//!
//! The super-user needs no user namespace and is tried without one first, because inside one even root may not enlarge
//! socket buffers beyond the system's limit. Everybody else gets one, and in a container root may need one too.

use std::fs;
use std::io;
use std::path::Path;

use lfn_sys::namespace::{self, Identity, Own, Side};
use lfn_sys::sysctl;
use serde::{Deserialize, Serialize};

use crate::emulator::{EmulateError, system};

/// Why namespaces cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Obstacle {
    /// `user.max_user_namespaces` is 0, or as many as it allows exist.
    #[error("user.max_user_namespaces allows no more of them")]
    Count,
    /// `kernel.unprivileged_userns_clone` is 0, as hardened Debian kernels have it.
    #[error("kernel.unprivileged_userns_clone forbids them to ordinary users")]
    Unprivileged,
    /// AppArmor takes the capabilities away inside, as Ubuntu does from 24.04 on.
    #[error("AppArmor restricts them for ordinary users")]
    AppArmor,
    /// A container's seccomp filter, or root without its capabilities.
    #[error("this container does not allow them")]
    Container,
    /// Something else.
    #[error("{0}")]
    Other(String),
}

impl Obstacle {
    /// A command that clears it away, or what to do.
    pub fn cure(&self) -> &'static str {
        match self {
            Obstacle::Count => "sudo sysctl -w user.max_user_namespaces=10000",
            Obstacle::Unprivileged => "sudo sysctl -w kernel.unprivileged_userns_clone=1, or run as root",
            Obstacle::AppArmor => "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run as root",
            Obstacle::Container => {
                "start the container with --cap-add SYS_ADMIN --cap-add NET_ADMIN \
                 --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
            }
            Obstacle::Other(_) => "run as root, or on a kernel with user and network namespaces",
        }
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

/// The kernel says EPERM for everything; the settings say which it was.
fn explain(error: io::Error) -> Obstacle {
    let is = |name: &str, value: &str| sysctl::read(name).is_ok_and(|v| v == value);
    if is("user.max_user_namespaces", "0") || error.kind() == io::ErrorKind::StorageFull {
        Obstacle::Count
    } else if is("kernel.unprivileged_userns_clone", "0") && !Identity::current().is_root() {
        Obstacle::Unprivileged
    } else if is("kernel.apparmor_restrict_unprivileged_userns", "1") && !Identity::current().is_root() {
        Obstacle::AppArmor
    } else if is_forbidden(&error) && in_container() {
        Obstacle::Container
    } else {
        Obstacle::Other(error.to_string())
    }
}

/// A filter says EPERM or that there is no such call; what else goes wrong is not of its making.
fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}

fn in_container() -> bool {
    let filtered = fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"])));
    filtered || ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists())
}
