//! Contents of a file of which only a bounded part is read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads at most one byte more than `max_bytes`, since a device or a pipe may never end. The path `-` reads standard input.
pub(crate) fn read_contents(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        io::stdin().lock().take(max_bytes + 1).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(max_bytes + 1).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
