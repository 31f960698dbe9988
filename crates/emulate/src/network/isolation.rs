//! Creation of new namespaces, and the reason if the system refuses.
//!
//! Root first tries without a user namespace, because in a user namespace even root cannot raise socket buffers above
//! the system limit. All other users get a user namespace. In a container, root may need one too.

use std::path::Path;
use std::{env, fs, io};

use lfn_sys::namespace::{self, CloneSide, NewNamespaces, UserIdentity};
use lfn_sys::sysctl;
use rustix::io::Errno;

use super::namespace_error::{MissingFeature, NamespaceError};
use crate::error::{EmulateError, system_error};

/// User who started the run, if the child process must become root in a new user namespace first.
pub(crate) type OriginalUser = Option<UserIdentity>;

/// Clones this process into new namespaces. The second value is the original user, if a user namespace is among them.
pub(super) fn clone_into_new_namespaces() -> Result<(CloneSide, OriginalUser), EmulateError> {
    namespaces_available()?;
    let identity = UserIdentity::current();
    if identity.is_root() {
        match namespace::clone_into_namespaces(NewNamespaces { user: false, network: true }) {
            Ok(side) => return Ok((side, None)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(system_error("clone into namespaces")(error)),
        }
    }
    let own = NewNamespaces { user: true, network: true };
    let side = namespace::clone_into_namespaces(own).map_err(system_error("clone into namespaces"))?;
    Ok((side, Some(identity)))
}

/// Like [`clone_into_new_namespaces`], but keeps the rights of this process. In a new user namespace the process would
/// have no rights outside of it. Returns `None` if the rights are not sufficient.
pub(super) fn clone_with_own_rights(network: bool) -> Result<Option<CloneSide>, EmulateError> {
    match namespace::clone_into_namespaces(NewNamespaces { user: false, network }) {
        Ok(side) => Ok(Some(side)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(system_error("clone into namespaces")(error)),
    }
}

/// Checks if a path can be emulated here. Creates namespaces and drops them again. Any thread may call this.
pub fn namespaces_available() -> Result<(), NamespaceError> {
    if UserIdentity::current().is_root() && namespace::test_clone(false).is_ok() {
        return Ok(());
    }
    namespace::test_clone(true).map_err(diagnose)
}

/// Finds the cause from the system settings. The kernel returns EPERM for nearly every cause.
fn diagnose(error: io::Error) -> NamespaceError {
    let has_value = |name: &str, value: &str| sysctl::read(name).is_ok_and(|v| v == value);
    let facts = SystemFacts {
        is_root: UserIdentity::current().is_root(),
        zero_limit: LIMITS.into_iter().find(|limit| has_value(limit, "0")),
        is_forbidden_to_users: has_value("kernel.unprivileged_userns_clone", "0"),
        is_restricted_by_apparmor: has_value("kernel.apparmor_restrict_unprivileged_userns", "1"),
        is_in_container: is_in_container(),
        has_seccomp_filter: has_seccomp_filter(),
    };
    facts.diagnose(&error)
}

/// Limits on the kinds of namespaces that a path needs. Hardened systems set the first one to 0.
const LIMITS: [&str; 5] = [
    "user.max_user_namespaces",
    "user.max_net_namespaces",
    "user.max_pid_namespaces",
    "user.max_mnt_namespaces",
    "user.max_ipc_namespaces",
];

/// Settings of the system that refused.
#[derive(Clone, Copy, Debug, Default)]
struct SystemFacts {
    is_root: bool,
    /// The limit on namespaces that is 0.
    zero_limit: Option<&'static str>,
    is_forbidden_to_users: bool,
    is_restricted_by_apparmor: bool,
    is_in_container: bool,
    has_seccomp_filter: bool,
}

impl SystemFacts {
    fn diagnose(&self, error: &io::Error) -> NamespaceError {
        let is_sandboxed = self.is_in_container || self.has_seccomp_filter;
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            // clone(2): a limit of this user namespace or of one of its parents.
            Some(Errno::NOSPC | Errno::USERS) => {
                NamespaceError::LimitReached(self.zero_limit.unwrap_or(LIMITS[0]).to_owned())
            }
            Some(Errno::INVAL) => NamespaceError::Kernel(MissingFeature::Namespaces),
            Some(Errno::NOSYS) if !is_sandboxed => NamespaceError::Kernel(MissingFeature::Namespaces),
            Some(Errno::AFNOSUPPORT) => NamespaceError::Kernel(MissingFeature::PacketSockets),
            // A seccomp filter returns EPERM or ENOSYS.
            Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS) => self.forbidden(error),
            _ => NamespaceError::Other(error.to_string()),
        }
    }

    fn forbidden(&self, error: &io::Error) -> NamespaceError {
        match *self {
            SystemFacts { is_forbidden_to_users: true, is_root: false, .. } => NamespaceError::Unprivileged,
            SystemFacts { is_restricted_by_apparmor: true, is_root: false, .. } => NamespaceError::AppArmor,
            SystemFacts { is_in_container: true, .. } => NamespaceError::Container,
            SystemFacts { has_seccomp_filter: true, .. } => NamespaceError::SeccompFilter,
            _ => NamespaceError::Other(error.to_string()),
        }
    }
}

fn is_in_container() -> bool {
    ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists())
        || ["container", "KUBERNETES_SERVICE_HOST"].iter().any(|mark| env::var_os(mark).is_some())
}

fn has_seccomp_filter() -> bool {
    fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"])))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: SystemFacts = SystemFacts {
        is_root: false,
        zero_limit: None,
        is_forbidden_to_users: false,
        is_restricted_by_apparmor: false,
        is_in_container: false,
        has_seccomp_filter: false,
    };

    #[test]
    fn refusals_are_diagnosed_by_their_cause() {
        let root = SystemFacts { is_root: true, ..NOTHING };
        let docker = SystemFacts { is_in_container: true, has_seccomp_filter: true, ..NOTHING };
        let net = SystemFacts { zero_limit: Some("user.max_net_namespaces"), ..NOTHING };
        let (users, apparmor) = (
            |facts| SystemFacts { is_forbidden_to_users: true, ..facts },
            |facts| SystemFacts { is_restricted_by_apparmor: true, ..facts },
        );
        let count = |limit: &str| NamespaceError::LimitReached(limit.to_owned());
        let other = NamespaceError::Other(io::Error::from(Errno::PERM).to_string());
        let rows = [
            (NOTHING, Errno::NOSPC, count("user.max_user_namespaces")),
            (net, Errno::NOSPC, count("user.max_net_namespaces")),
            (docker, Errno::NOSPC, count("user.max_user_namespaces")),
            (users(NOTHING), Errno::PERM, NamespaceError::Unprivileged),
            (users(root), Errno::PERM, other.clone()),
            (apparmor(NOTHING), Errno::PERM, NamespaceError::AppArmor),
            (apparmor(NOTHING), Errno::ACCESS, NamespaceError::AppArmor),
            (apparmor(SystemFacts { is_root: true, ..docker }), Errno::PERM, NamespaceError::Container),
            (docker, Errno::PERM, NamespaceError::Container),
            (SystemFacts { has_seccomp_filter: true, ..root }, Errno::PERM, NamespaceError::SeccompFilter),
            (docker, Errno::NOSYS, NamespaceError::Container),
            (NOTHING, Errno::NOSYS, NamespaceError::Kernel(MissingFeature::Namespaces)),
            (docker, Errno::MFILE, NamespaceError::Other(io::Error::from(Errno::MFILE).to_string())),
            (docker, Errno::INVAL, NamespaceError::Kernel(MissingFeature::Namespaces)),
            (root, Errno::AFNOSUPPORT, NamespaceError::Kernel(MissingFeature::PacketSockets)),
            (NOTHING, Errno::PERM, other),
        ];
        for (facts, errno, obstacle) in rows {
            assert_eq!(facts.diagnose(&errno.into()), obstacle, "{facts:?} {errno:?}");
            assert_eq!(
                (obstacle.remedy().lines().count(), obstacle.to_string().lines().count()),
                (1, 1),
                "{obstacle:?}"
            );
        }
    }
}
