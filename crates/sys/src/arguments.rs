//! The arguments of this process as other users see them in `ps`: `/proc/PID/cmdline`, which is this process's own memory.
//!
//! Part of it is overwritten through `/proc/self/mem`, byte for byte, so that lengths and ends of arguments stay: the kernel
//! copies, as a debugger would, and nothing in the program holds a reference there (the standard library copies an argument
//! whenever it is asked for one). To be done before other threads run.

use std::fs::{self, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Overwrites with `x` what `secrets` finds in an argument. Until then everybody could read it.
pub fn hide(secrets: impl Fn(&[u8]) -> Option<Range<usize>>) -> io::Result<()> {
    let arguments = fs::read("/proc/self/cmdline")?;
    let mut found = Vec::new();
    let mut at = 0;
    for argument in arguments.split(|byte| *byte == 0) {
        if let Some(secret) = secrets(argument).filter(|range| range.end <= argument.len()) {
            found.push(at + secret.start..at + secret.end);
        }
        at += argument.len() + 1;
    }
    if found.is_empty() {
        return Ok(());
    }
    let (start, end) = bounds()?;
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
    for secret in found {
        let (first, length) = (start + secret.start as u64, secret.len());
        let mut there = vec![0; length];
        memory.read_exact_at(&mut there, first)?;
        // Only what is what it is taken for.
        if first + length as u64 > end || there != arguments[secret] {
            return Err(io::Error::other("the arguments are not where the kernel says"));
        }
        memory.write_all_at(&vec![b'x'; length], first)?;
    }
    Ok(())
}

/// Where the arguments stand in memory: `arg_start` and `arg_end` of `/proc/self/stat` (proc_pid_stat(5)).
fn bounds() -> io::Result<(u64, u64)> {
    const ARG_START: usize = 48;
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name of the command, field 2, may hold anything.
    let behind = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let mut fields = behind.split_whitespace().skip(ARG_START - 3).map(|field| field.parse::<u64>().ok());
    match (fields.next().flatten(), fields.next().flatten()) {
        (Some(start), Some(end)) if 0 < start && start < end => Ok((start, end)),
        _ => Err(io::Error::other("the kernel does not say where the arguments are")),
    }
}
