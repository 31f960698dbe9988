//! Recognises the files of an interrupted copy, and decides when they may be deleted.
//!
//! A name alone proves nothing. A file is a journal if its first line is an lfn description with a valid check value
//! ([`super::journal`]). A file is a partial file if it has such a journal, and its length is 0 or the length in the
//! journal. All other files belong to the user and stay. This module opens no file.

use std::time::Duration;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::byte_string::ByteString;
use serde::Serialize;

use super::journal::{JournalError, JournalHeader};

/// Suffix of a partial file's name.
pub const PARTIAL: &str = ".lfn-partial";

/// Suffix of a journal's name.
pub const JOURNAL: &str = ".lfn-journal";

/// Suffix used while a directory replaces a file: for the file or for the new directory.
pub const REPLACED: &str = ".lfn-replaced";

/// Kind of a temporary file, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftoverKind {
    Partial,
    /// The list of received blocks.
    Journal,
    /// The file that a directory replaces, or that directory.
    Replaced,
}

impl LeftoverKind {
    /// Splits a name such as `.NAME.lfn-partial` into its kind and NAME.
    pub fn parse_name(name: &[u8]) -> Option<(LeftoverKind, &[u8])> {
        let rest = name.strip_prefix(b".")?;
        let ends =
            [(LeftoverKind::Partial, PARTIAL), (LeftoverKind::Journal, JOURNAL), (LeftoverKind::Replaced, REPLACED)];
        let found = ends.into_iter().find_map(|(which, end)| Some((which, rest.strip_suffix(end.as_bytes())?)));
        found.filter(|(_, stem)| !stem.is_empty())
    }
}

/// Reason why a file with such a name is not recognised as a copy's file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRecognised {
    #[error("it has no journal")]
    NoJournal,
    /// Another program's file, or damaged.
    #[error("{0}")]
    Journal(#[from] JournalError),
    /// Another program's file, or a copy was interrupted while it restarted the file.
    #[error("its size is {length}, but its journal describes a file of {declared_bytes}")]
    Length { length: Bytes, declared_bytes: Bytes },
    /// A link, a directory, a pipe, and so on.
    #[error("a {0}, not a file")]
    Kind(&'static str),
    /// A copy was killed while it replaced this entry by a directory.
    #[error("a copy was interrupted while it replaced this by a directory: restore its name or delete it")]
    Replaced,
    /// Copies never create a second name for these files.
    #[error("it has a second hard link")]
    Linked,
}

/// Checks that a journal and a partial file belong to a copy. Either may be missing.
pub fn recognise(journal: Option<&JournalHeader>, partial: Option<Bytes>) -> Result<(), NotRecognised> {
    let header = journal.ok_or(NotRecognised::NoJournal)?;
    let declared_bytes = header.layout.bytes();
    match partial {
        Some(length) if length != declared_bytes && length != Bytes(0) => {
            Err(NotRecognised::Length { length, declared_bytes })
        }
        _ => Ok(()),
    }
}

/// Rule for deleting the files of interrupted copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct CleanRule {
    /// Minimum time since the last write.
    #[serde(rename = "min_age_seconds", serialize_with = "whole_seconds")]
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "u64"))]
    pub min_age: Duration,
    /// Delete the files; otherwise list them only.
    pub remove: bool,
}

/// The files that an interrupted copy left of one source file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Leftover {
    /// Path of the partial file, or of the journal if there is no partial file.
    pub path: ByteString,
    /// Name of the source on its host, from the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<ByteString>,
    /// Length of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// Received bytes, from the journal.
    #[serde(rename = "received_bytes", skip_serializing_if = "Option::is_none")]
    pub received: Option<Bytes>,
    /// Disk space of partial file and journal.
    #[serde(rename = "disk_bytes")]
    pub disk_usage: Bytes,
    /// Time since the last write.
    #[serde(rename = "age_seconds", serialize_with = "whole_seconds")]
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "u64"))]
    pub age: Duration,
    pub state: LeftoverState,
    /// Reason for `unrecognised` or `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// State of the files of an interrupted copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LeftoverState {
    InUse,
    /// Written recently: its copy may still be resumed.
    Recent,
    Stale,
    Removed,
    /// Not recognised as a copy's file: stays.
    Unrecognised,
    /// Cannot be read, or cannot be deleted.
    Failed,
}

impl LeftoverState {
    /// Classifies an existing file.
    pub fn classify(busy: bool, recognised: bool, age: Duration, older: Duration) -> LeftoverState {
        match (busy, recognised) {
            // A copy that has just started has no journal yet.
            (true, _) => LeftoverState::InUse,
            (false, false) => LeftoverState::Unrecognised,
            (false, true) if age < older => LeftoverState::Recent,
            (false, true) => LeftoverState::Stale,
        }
    }

    /// Returns the word that is printed before a path.
    pub fn word(self) -> &'static str {
        match self {
            LeftoverState::InUse => "in use",
            LeftoverState::Recent => "recent",
            LeftoverState::Stale => "stale",
            LeftoverState::Removed => "removed",
            LeftoverState::Unrecognised => "unrecognised",
            LeftoverState::Failed => "failed",
        }
    }
}

/// Number of files in each state, and their disk space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct LeftoverCounts {
    /// Files of running copies.
    pub in_use: u64,
    /// Files younger than the minimum age.
    pub recent: u64,
    /// Files that may be deleted.
    pub stale: u64,
    /// Files that were deleted.
    pub removed: u64,
    /// Files that belong to no copy.
    pub unrecognised: u64,
    /// Files that could not be read or deleted.
    pub failed: u64,
    /// Disk space of the stale files.
    pub stale_disk_bytes: Bytes,
    /// Disk space of the deleted files.
    pub removed_disk_bytes: Bytes,
}

impl LeftoverCounts {
    /// Counts one more file.
    pub fn add(&mut self, leftover: &Leftover) {
        let add = |sum: &mut Bytes| *sum = Bytes(sum.0.saturating_add(leftover.disk_usage.0));
        let count = match leftover.state {
            LeftoverState::InUse => &mut self.in_use,
            LeftoverState::Recent => &mut self.recent,
            LeftoverState::Stale => {
                add(&mut self.stale_disk_bytes);
                &mut self.stale
            }
            LeftoverState::Removed => {
                add(&mut self.removed_disk_bytes);
                &mut self.removed
            }
            LeftoverState::Unrecognised => &mut self.unrecognised,
            LeftoverState::Failed => &mut self.failed,
        };
        *count += 1;
    }
}

/// Writes a duration in whole seconds.
fn whole_seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.as_secs())
}

#[cfg(test)]
mod tests {
    use lfn_session::wire::copy::blocks::Layout;
    use lfn_session::wire::copy::entry::Modified;
    use lfn_session::wire::copy::options::Verify;

    use super::*;

    fn header(bytes: u64) -> JournalHeader {
        let layout = Layout::new(Bytes(bytes), Bytes(1024)).unwrap();
        JournalHeader { layout, modified: Modified::default(), source: "a".into(), verify: Verify::default() }
    }

    #[test]
    fn names_are_parsed() {
        assert_eq!(LeftoverKind::parse_name(b".a.lfn-partial"), Some((LeftoverKind::Partial, &b"a"[..])));
        assert_eq!(LeftoverKind::parse_name(b"..b.lfn-journal"), Some((LeftoverKind::Journal, &b".b"[..])));
        assert_eq!(LeftoverKind::parse_name(b".c.lfn-replaced"), Some((LeftoverKind::Replaced, &b"c"[..])));
        for other in ["a.lfn-partial", ".lfn-partial", ".a.lfn-partial2", ".a.lfn-new", ".", ""] {
            assert_eq!(LeftoverKind::parse_name(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn partial_file_needs_a_matching_journal() {
        let header = header(5000);
        for (journal, partial, known) in [
            (Some(&header), Some(5000), true),
            (Some(&header), Some(0), true),
            (Some(&header), None, true),
            (Some(&header), Some(4999), false),
            (None, Some(5000), false),
            (None, Some(0), false),
        ] {
            assert_eq!(recognise(journal, partial.map(Bytes)).is_ok(), known, "{partial:?}");
        }
    }

    #[test]
    fn only_old_recognised_unused_files_are_stale() {
        let (day, hour) = (Duration::from_secs(86_400), Duration::from_secs(3600));
        for (busy, recognised, age, older, state) in [
            (false, true, day, day, LeftoverState::Stale),
            (false, true, Duration::ZERO, Duration::ZERO, LeftoverState::Stale),
            (false, true, hour, day, LeftoverState::Recent),
            (true, true, day, hour, LeftoverState::InUse),
            (true, false, day, hour, LeftoverState::InUse),
            (false, false, day, hour, LeftoverState::Unrecognised),
        ] {
            assert_eq!(LeftoverState::classify(busy, recognised, age, older), state);
        }
    }
}
