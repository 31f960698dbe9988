//! Names and ids of users and groups (`getpwuid_r(3)` and related functions), from `/etc/passwd` or a directory
//! service, as the host is configured.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::names;

/// Returns the name of a user.
pub fn user_name(uid: u32) -> Option<Vec<u8>> {
    Some(uzers::get_user_by_uid(uid)?.name().as_bytes().to_vec())
}

/// Returns the id of a user.
pub fn user_id(name: &[u8]) -> Option<u32> {
    Some(uzers::get_user_by_name(OsStr::from_bytes(name))?.uid())
}

/// Returns the name of a group.
pub fn group_name(gid: u32) -> Option<Vec<u8>> {
    Some(uzers::get_group_by_gid(gid)?.name().as_bytes().to_vec())
}

/// Returns the id of a group.
pub fn group_id(name: &[u8]) -> Option<u32> {
    Some(uzers::get_group_by_name(OsStr::from_bytes(name))?.gid())
}

/// Returns the sources of users and groups in `/etc/nsswitch.conf` that this binary cannot use, such as `sss` or `ldap`. A
/// static binary uses only `/etc/passwd`, `/etc/group` and a running `nscd`.
pub fn unused_sources() -> Vec<String> {
    if !names::IS_STATIC || Path::new("/run/nscd/socket").exists() {
        return Vec::new();
    }
    sources_besides_files(&fs::read_to_string("/etc/nsswitch.conf").unwrap_or_default())
}

fn sources_besides_files(nsswitch_conf: &str) -> Vec<String> {
    // systemd knows only users of running services.
    let is_other = |source: &&str| !["files", "compat", "systemd", "db", "cache"].contains(source);
    let sources = ["passwd", "group"].map(|database| names::nsswitch_sources(nsswitch_conf, database));
    let mut others: Vec<String> = sources.into_iter().flatten().filter(is_other).map(str::to_owned).collect();
    others.sort_unstable();
    others.dedup();
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_services_are_found_in_nsswitch() {
        assert_eq!(sources_besides_files("passwd: files systemd\ngroup: compat\n"), [""; 0]);
        assert_eq!(
            sources_besides_files("passwd: files sss\ngroup: files sss ldap\nhosts: resolve\n"),
            ["ldap", "sss"]
        );
    }

    #[test]
    fn names_and_ids_map_to_each_other() {
        assert_eq!((user_name(0).as_deref(), user_id(b"root")), (Some(&b"root"[..]), Some(0)));
        assert_eq!((group_name(0).as_deref(), group_id(b"root")), (Some(&b"root"[..]), Some(0)));
        for name in [&b"no user of this name"[..], b"", b"a\0b"] {
            assert_eq!((user_id(name), group_id(name)), (None, None));
        }
        assert_eq!((user_name(3_999_999_999), group_name(3_999_999_999)), (None, None));
    }
}
