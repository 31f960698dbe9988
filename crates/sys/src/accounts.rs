//! Names and ids of users and groups (`getpwuid_r(3)` and related functions), from `/etc/passwd` or a directory
//! service, as the host is configured.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fs;
use std::path::Path;

use crate::names;

/// Maximum size of a record, bytes. Groups with many members are large.
const MAX_RECORD: usize = 1 << 20;

/// Returns the name of a user.
pub fn user_name(uid: u32) -> Option<Vec<u8>> {
    // SAFETY: a plain C structure of integers and pointers, for which all zeros is a valid value.
    let mut record: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    with_buffer(|buffer| {
        // SAFETY: record, buffer and result are writable, and the buffer has the given length.
        let error = unsafe { libc::getpwuid_r(uid, &mut record, buffer.as_mut_ptr(), buffer.len(), &mut found) };
        // SAFETY: if a record was found, its strings are in the buffer.
        (error, (error == 0 && !found.is_null()).then(|| unsafe { text(record.pw_name) }).flatten())
    })
}

/// Returns the id of a user.
pub fn user_id(name: &[u8]) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: as above.
    let mut record: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    with_buffer(|buffer| {
        // SAFETY: as above, and the name ends with a zero byte.
        let error =
            unsafe { libc::getpwnam_r(name.as_ptr(), &mut record, buffer.as_mut_ptr(), buffer.len(), &mut found) };
        (error, (error == 0 && !found.is_null()).then_some(record.pw_uid))
    })
}

/// Returns the name of a group.
pub fn group_name(gid: u32) -> Option<Vec<u8>> {
    // SAFETY: as above.
    let mut record: libc::group = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    with_buffer(|buffer| {
        // SAFETY: as above.
        let error = unsafe { libc::getgrgid_r(gid, &mut record, buffer.as_mut_ptr(), buffer.len(), &mut found) };
        // SAFETY: as above.
        (error, (error == 0 && !found.is_null()).then(|| unsafe { text(record.gr_name) }).flatten())
    })
}

/// Returns the id of a group.
pub fn group_id(name: &[u8]) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: as above.
    let mut record: libc::group = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    with_buffer(|buffer| {
        // SAFETY: as above, and the name ends with a zero byte.
        let error =
            unsafe { libc::getgrnam_r(name.as_ptr(), &mut record, buffer.as_mut_ptr(), buffer.len(), &mut found) };
        (error, (error == 0 && !found.is_null()).then_some(record.gr_gid))
    })
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

/// Calls the function with a buffer that grows while it is too small (`ERANGE`).
fn with_buffer<T>(mut call: impl FnMut(&mut [c_char]) -> (c_int, Option<T>)) -> Option<T> {
    let mut buffer = vec![0; 1024];
    loop {
        match call(&mut buffer) {
            (libc::ERANGE, _) if buffer.len() < MAX_RECORD => buffer.resize(buffer.len() * 4, 0),
            (_, found) => return found,
        }
    }
}

/// Copies a C string, or returns None for a null pointer.
///
/// # Safety
/// The pointer must be null, or point to a string that ends with a zero byte.
unsafe fn text(text: *const c_char) -> Option<Vec<u8>> {
    if text.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    Some(unsafe { CStr::from_ptr(text) }.to_bytes().to_vec())
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
