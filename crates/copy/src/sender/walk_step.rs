//! The steps of a walk.

use std::sync::Arc;

use lfn_session::wire::copy::entry::{Entry, Name};

use super::read_error::ReadError;
use super::source_file::ListedFile;

/// One step of a walk.
#[derive(Debug)]
pub(crate) enum WalkStep {
    /// An entry, with the data of a file.
    Entry(Entry, Option<Arc<ListedFile>>),
    /// An entry that cannot be listed.
    Failed { name: Name, reason: String },
    /// A symbolic link that is skipped, with its path in the list.
    SkippedLink(Vec<u8>),
    /// A device, a FIFO or a socket that is skipped.
    SkippedSpecial(Vec<u8>),
    /// An excluded entry. It is not reported, but finding it counts as progress.
    Excluded,
}

/// Converts an error to a step that reports the failure.
pub(super) fn or_failed(step: Result<Option<WalkStep>, ReadError>, path: &[u8]) -> Option<WalkStep> {
    step.unwrap_or_else(|why| Some(WalkStep::Failed { name: nearest_valid_name(path), reason: why.to_string() }))
}

/// Returns the name of a failed entry, or of its nearest parent directory with a valid name.
pub(super) fn nearest_valid_name(path: &[u8]) -> Name {
    let mut path = path;
    loop {
        match (Name::new(path), path.iter().rposition(|byte| *byte == b'/')) {
            (Ok(name), _) => return name,
            (Err(_), Some(slash)) => path = &path[..slash],
            (Err(_), None) => path = b".",
        }
    }
}
