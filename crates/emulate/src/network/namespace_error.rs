//! Reasons why the system refuses namespaces, with their remedies.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Reason why namespaces cannot be created or used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum NamespaceError {
    /// This limit is 0 (`user.max_user_namespaces`), or as many namespaces as it allows exist.
    #[error("the limit {0} is reached")]
    LimitReached(String),
    /// `kernel.unprivileged_userns_clone` is 0, as on hardened Debian kernels.
    #[error("kernel.unprivileged_userns_clone forbids them to ordinary users")]
    Unprivileged,
    /// AppArmor removes the capabilities in user namespaces, as on Ubuntu since 24.04.
    #[error("AppArmor restricts them for ordinary users")]
    AppArmor,
    /// A container's seccomp filter, or root without its capabilities.
    #[error("this container does not allow them")]
    Container,
    /// The root directory of a chroot, whose mounts cannot be made private.
    #[error("/ is not a mount point, as in a plain chroot")]
    Chroot,
    /// A seccomp filter without a sign of a container, for example of a service or a sandbox.
    #[error("a seccomp filter forbids them")]
    SeccompFilter,
    /// The kernel was built without this feature, or has not loaded the module.
    #[error("this kernel has no {0}")]
    Kernel(MissingFeature),
    #[error("{0}")]
    Other(String),
}

/// Kernel feature that can be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MissingFeature {
    Namespaces,
    PacketSockets,
    Veth,
}

impl fmt::Display for MissingFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MissingFeature::Namespaces => "user or network namespaces",
            MissingFeature::PacketSockets => "packet sockets",
            MissingFeature::Veth => "veth interfaces",
        })
    }
}

impl NamespaceError {
    /// Returns a command that removes the obstacle, or an instruction. One line.
    pub fn remedy(&self) -> String {
        let remedy = match self {
            NamespaceError::LimitReached(limit) => return format!("sudo sysctl -w {limit}=10000"),
            NamespaceError::Unprivileged => "sudo sysctl -w kernel.unprivileged_userns_clone=1, or run as root",
            NamespaceError::AppArmor => "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run as root",
            NamespaceError::Container => {
                "start the container with --cap-add SYS_ADMIN --cap-add NET_ADMIN \
                 --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
            }
            NamespaceError::Chroot => "outside of the chroot: mount --bind DIR DIR, then chroot DIR",
            NamespaceError::SeccompFilter => "run outside the sandbox; in a systemd service: RestrictNamespaces=no",
            NamespaceError::Kernel(MissingFeature::Namespaces) => {
                "boot a kernel with CONFIG_USER_NS and CONFIG_NET_NS; with the second alone, run as root"
            }
            NamespaceError::Kernel(MissingFeature::PacketSockets) => "sudo modprobe af_packet",
            NamespaceError::Kernel(MissingFeature::Veth) => "sudo modprobe veth",
            NamespaceError::Other(_) => "run as root, outside of any chroot, and with room left in ulimit -a",
        };
        remedy.to_owned()
    }
}
