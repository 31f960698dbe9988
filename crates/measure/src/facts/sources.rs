//! Files of the kernel as the sources of facts, and sentences about sources that cannot be read.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use lfn_results::host::facts::HostFacts;

use super::Ends;

/// Maximum bytes of a file. The mounts of a host with many containers are the longest ones.
const MAX_FILE: u64 = 1 << 20;

/// Places of the facts.
#[derive(Debug, Clone)]
pub(super) struct Sources {
    /// Directory that holds `proc` and `sys`.
    pub(super) root: PathBuf,
    /// Connection to the other end.
    pub(super) ends: Option<Ends>,
}

impl Sources {
    /// Returns the file or directory of an absolute path.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Reads a file of the kernel. Bytes that are not UTF-8 are replaced.
    pub(super) fn text(&self, path: &str) -> io::Result<String> {
        let mut bytes = Vec::new();
        File::open(self.path(path))?.take(MAX_FILE).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Adds a sentence about a fact that could not be read.
pub(super) fn note(facts: &mut HostFacts, what: &str, error: &io::Error) {
    facts.unreadable.push(format!("{what}: {}", reason(error)));
}

/// Returns the text of a system error without its number and with a small initial, for the middle of a sentence.
pub(super) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error ").next().unwrap_or_default();
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}
