//! Kernel parameters under `/proc/sys`, with the names of `sysctl(8)`.
//!
//! Network parameters belong to the network namespace of the calling thread. Call these functions inside the namespace.

use std::fs;
use std::io;
use std::path::PathBuf;

/// Returns the value of `name` (for example `net.ipv4.tcp_rmem`) without the line end.
pub fn read(name: &str) -> io::Result<String> {
    fs::read_to_string(file(name)).map(|value| value.trim_end().to_owned())
}

/// Sets `name` to `value`.
pub fn write(name: &str, value: &str) -> io::Result<()> {
    fs::write(file(name), value)
}

/// Returns the file of `name`. A dot separates directories. Interface names with a dot are not supported.
pub fn file(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(name.replace('.', "/"))
}
