//! Arguments of this process as other users see them in `ps`: `/proc/PID/cmdline`, which reads this process's own
//! memory.
//!
//! This module overwrites secrets through `/proc/self/mem`, byte for byte, so that lengths and ends of arguments stay
//! the same. The kernel does the copy, as for a debugger. No code of the program holds a reference to this memory,
//! because the standard library copies an argument at every call. Call this before other threads start.

use std::fs::{self, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Overwrites the range that `secrets` returns for an argument with `x`. Until then every user could read it.
pub fn hide(secrets: impl Fn(&[u8]) -> Option<Range<usize>>) -> io::Result<()> {
    let arguments = fs::read("/proc/self/cmdline")?;
    let mut secrets_found = Vec::new();
    let mut at = 0;
    for argument in arguments.split(|byte| *byte == 0) {
        if let Some(secret) = secrets(argument).filter(|range| range.end <= argument.len()) {
            secrets_found.push(at + secret.start..at + secret.end);
        }
        at += argument.len() + 1;
    }
    if secrets_found.is_empty() {
        return Ok(());
    }
    let (start, end) = bounds()?;
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
    for secret in secrets_found {
        let (first, length) = (start + secret.start as u64, secret.len());
        let mut current = vec![0; length];
        memory.read_exact_at(&mut current, first)?;
        // Only the expected bytes are overwritten.
        if first + length as u64 > end || current != arguments[secret] {
            return Err(io::Error::other("the arguments are not at the address in /proc/self/stat"));
        }
        memory.write_all_at(&vec![b'x'; length], first)?;
    }
    Ok(())
}

/// Returns the address range of the arguments: `arg_start` and `arg_end` of `/proc/self/stat` (proc_pid_stat(5)).
fn bounds() -> io::Result<(u64, u64)> {
    const ARG_START: usize = 48;
    let stat = fs::read_to_string("/proc/self/stat")?;
    // Field 2, the command name, may contain any characters.
    let after_name = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let mut fields = after_name.split_whitespace().skip(ARG_START - 3).map(|field| field.parse::<u64>().ok());
    match (fields.next().flatten(), fields.next().flatten()) {
        (Some(start), Some(end)) if 0 < start && start < end => Ok((start, end)),
        _ => Err(io::Error::other("/proc/self/stat has no address of the arguments")),
    }
}
