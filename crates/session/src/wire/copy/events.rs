//! Results of the entries of a copy, one by one and as totals.
//!
//! The receiver reports results. The sender reports only its own failures.

use lfn_base::units::Bytes;
use serde::{Deserialize, Serialize};

use crate::wire::bounded;
use crate::wire::copy::digest::Digest;
use crate::wire::copy::entry::Name;
use crate::wire::copy::preserve::Unpreserved;

/// One of the two ends of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CopyEnd {
    #[default]
    Sender,
    Receiver,
}

impl std::fmt::Display for CopyEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            CopyEnd::Sender => "the source",
            CopyEnd::Receiver => "the destination",
        })
    }
}

/// One entry that cannot be copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct EntryFailure {
    /// Entry number, if the entry was listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<u32>,
    /// Path below the destination.
    pub name: Name,
    /// Description of the failure.
    #[serde(deserialize_with = "bounded::text")]
    pub reason: String,
    /// The destination is full, so other entries will fail too.
    #[serde(default)]
    pub disk_full: bool,
    /// End of the failure. A failure reported by a peer always happened at the peer.
    #[serde(default)]
    pub end: CopyEnd,
}

/// Result of one entry, or of a destination object that is not in the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct EntryEvent {
    /// Path below the destination.
    pub name: Name,
    /// Kind of the entry.
    pub kind: ReportedKind,
    /// Action on the entry.
    pub action: EntryAction,
    /// Length of a file that was copied, or would be copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// Digest of a complete file, if digests were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// Kind of a reported object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReportedKind {
    File,
    Directory,
    Link,
    Other,
}

/// Action on an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EntryAction {
    /// Created; nothing existed at the path.
    New,
    /// Replaced an existing object.
    Replace,
    /// Up to date already.
    UpToDate,
    /// The existing file is newer and stays.
    Newer,
    /// The existing object differs and stays.
    Refuse,
    /// Deleted, because the source does not have it.
    Delete,
}

impl EntryAction {
    /// Returns the word that is printed before the name.
    pub fn word(self) -> &'static str {
        match self {
            EntryAction::New => "new",
            EntryAction::Replace => "replace",
            EntryAction::UpToDate => "up-to-date",
            EntryAction::Newer => "newer",
            EntryAction::Refuse => "refuse",
            EntryAction::Delete => "delete",
        }
    }
}

/// Totals of the entries of a copy, as the receiver counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CopyTally {
    /// Files that were written.
    pub files: u64,
    /// Directories that were created.
    pub directories: u64,
    /// Links that were created.
    pub links: u64,
    /// Entries that were up to date.
    pub skipped: u64,
    /// Total length of the files that were up to date.
    pub skipped_bytes: Bytes,
    /// Entries that failed at either end.
    pub failed: u64,
    /// Some entries failed because the disk or a quota was full. With more space, the same copy resumes.
    pub disk_full: bool,
    /// Total length of the files written.
    pub bytes: Bytes,
    /// Objects deleted that the source does not have, including the contents of deleted directories.
    pub deleted: u64,
    /// Nothing was deleted although requested, because the source could not be listed completely.
    pub deletion_skipped: bool,
    /// Bytes of files that an earlier copy had left and that were not sent again.
    pub resumed_bytes: Bytes,
    /// Blocks that arrived damaged and were sent again.
    pub resent_blocks: u64,
    /// Entries that lack a requested attribute.
    pub not_preserved: Unpreserved,
}

impl CopyTally {
    /// Reports whether the copy created or replaced anything.
    pub fn changed(&self) -> bool {
        self.files + self.directories + self.links > 0
    }

    /// Reports whether anything must be synced to disk: new, existing or deleted entries.
    pub fn has_touched(&self) -> bool {
        let CopyTally { files, directories, links, skipped, deleted, .. } = *self;
        [files, directories, links, skipped, deleted].iter().any(|count| *count > 0)
    }

    /// Returns the total of all settled entries.
    pub fn entries(&self) -> u64 {
        let CopyTally { files, directories, links, skipped, failed, .. } = *self;
        [files, directories, links, skipped, failed].into_iter().fold(0, u64::saturating_add)
    }
}
