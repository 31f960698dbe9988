//! The command that raises the limit of open files of a shell.

use std::fs;

/// Number of the capability to raise hard limits (`CAP_SYS_RESOURCE`, capabilities(7)).
const CAP_SYS_RESOURCE: u32 = 24;

/// Returns the shell command that raises the limit of open files to this number.
pub fn raise_command(open_files: u64) -> String {
    if can_raise_limit() {
        format!("ulimit -n {open_files}")
    } else {
        format!("sudo prlimit --pid $$ --nofile={open_files}")
    }
}

/// Reports whether this user may raise the hard limit, so that `ulimit -n` works in the same shell.
pub fn can_raise_limit() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    capabilities
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .is_some_and(|capabilities| capabilities >> CAP_SYS_RESOURCE & 1 == 1)
}
