//! Kernel parameters under `/proc/sys`, by the names `sysctl(8)` uses.
//!
//! Those of the network belong to the namespace of the calling thread: run this inside the one that is meant.

use std::fs;
use std::io;
use std::path::PathBuf;

/// The value of `name` (`net.ipv4.tcp_rmem`), without the line end.
pub fn read(name: &str) -> io::Result<String> {
    fs::read_to_string(file(name)).map(|value| value.trim_end().to_owned())
}

/// Sets `name` to `value`.
pub fn write(name: &str, value: &str) -> io::Result<()> {
    fs::write(file(name), value)
}

/// The file that holds `name`: a dot separates directories; an interface name with a dot in it is not provided for.
pub fn file(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(name.replace('.', "/"))
}
