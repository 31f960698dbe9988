//! The copy of one part: an ordinary upload of its entries.

use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lfn_copy::proto::manifest::ManifestLine;
use lfn_copy::{CopyOptions, LOCKED_REASON, LocalSource};
use lfn_queue::proto::header::Header;
use lfn_queue::proto::part::{Part, QueueEntry, QueueEntryKind};
use lfn_session::SessionId;
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::entry::{Modified, Name, final_name};
use lfn_session::wire::copy::filter::FilterRules;
use lfn_session::wire::copy::{CopyEnd, EntryEvent, EntryFailure, Selection};
use parking_lot::Mutex;

/// The upload of a part.
pub(super) struct PartUpload {
    /// `None` if nothing is left to copy.
    pub(super) source: Option<LocalSource>,
    /// Entries to copy, and the parent directories that are listed with them.
    pub(super) entries: u64,
    pub(super) parents: u64,
    /// Entries that are no longer as in the manifest.
    pub(super) changed: Vec<EntryFailure>,
    pub(super) options: CopyOptions,
    /// Lines with the digests of complete files, in the format of `b3sum`.
    pub(super) digests: Arc<Mutex<Vec<u8>>>,
}

impl PartUpload {
    /// Plans the upload of a part. Files that differ from the manifest are failures.
    pub(super) fn new(header: &Header, number: u32, part: &Part, sources: &[LocalSource], base: &CopyOptions) -> Self {
        let (source, changed) = match sources.get(usize::from(part.source)) {
            Some(LocalSource::File(path)) => select(path, part, base.selection.names.is_some()),
            _ => (None, Vec::new()),
        };
        let digests: Arc<Mutex<Vec<u8>>> = Arc::default();
        let lines = digests.clone();
        let record = move |event: &EntryEvent| {
            if let Some(digest) = event.digest {
                let name = ByteString::from(event.name.as_bytes());
                lines.lock().extend(ManifestLine { digest, name }.encode());
            }
        };
        let mut options = base.clone();
        options.listener = base.listener.with(record);
        options.id = Some(copy_id(header, number));
        // The manifest has only selected entries.
        let selection = &base.selection;
        options.selection = Selection { preserve: selection.preserve, rules: FilterRules::default(), names: None };
        // After a lost session, the mover may have lost its lease too.
        options.retry_for = Duration::ZERO;
        options.transfer_options.report_digests = base.transfer_options.verify.has_digest();
        options.transfer_options.multiple_sources = false;
        let changed_names: HashSet<_> = changed.iter().map(|failure| &failure.name).collect();
        let names: HashSet<_> =
            part.entries.iter().map(|entry| &entry.name).filter(|name| !changed_names.contains(name)).collect();
        let (entries, parents) = (names.len() as u64, count_parents(&names));
        let parents = if matches!(source, Some(LocalSource::Entries { .. })) { parents } else { 0 };
        PartUpload { source, entries, parents, changed, options, digests }
    }
}

/// Returns the id of all copies of a part. The server ends an older copy with the same id.
fn copy_id(header: &Header, part: u32) -> SessionId {
    let text = format!("{} {part}", header.id);
    let hash = blake3::derive_key("lfn copy 2026 id of a part of a queue", text.as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&hash[..16]);
    SessionId(id)
}

/// Returns the source with the entries of a part, and the entries that differ from the manifest.
fn select(path: &Path, part: &Part, has_names: bool) -> (Option<LocalSource>, Vec<EntryFailure>) {
    let top = final_name(path.as_os_str().as_bytes()).filter(|_| !has_names);
    let (mut names, mut changed) = (Vec::new(), Vec::new());
    for entry in &part.entries {
        // A source that is a link is followed, as by the copy. Links below a source are not.
        let is_source = top.is_some_and(|top| entry.name.as_bytes() == top);
        match difference(&place_of(path, top, &entry.name), entry, is_source) {
            None => names.push(entry.name.clone()),
            Some(reason) => changed.push(failure(&entry.name, reason)),
        }
    }
    let is_whole_source = |entry: &QueueEntry| {
        top.is_some_and(|top| entry.name.as_bytes() == top) && entry.kind != QueueEntryKind::Directory
    };
    let source = match (names.as_slice(), part.entries.as_slice()) {
        ([], _) => None,
        (_, [only]) if is_whole_source(only) => Some(LocalSource::File(path.to_owned())),
        _ => {
            let mut directory = path.to_owned();
            if has_names {
                // The names of a list begin inside the directory.
                directory.push("");
            }
            Some(LocalSource::Entries { directory, names })
        }
    };
    (source, changed)
}

/// Counts the parent directories of these names that are not among the names.
fn count_parents(names: &HashSet<&Name>) -> u64 {
    let names: HashSet<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let mut parents: HashSet<&[u8]> = HashSet::new();
    for name in &names {
        let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        parents.extend(slashes.map(|(at, _)| &name[..at]).filter(|parent| !names.contains(parent)));
    }
    parents.len() as u64
}

/// Returns the path of an entry of a source.
fn place_of(source: &Path, top: Option<&[u8]>, name: &Name) -> PathBuf {
    let bytes = name.as_bytes();
    let below = match top {
        Some(top) if bytes == top => b"",
        Some(top) => bytes.get(top.len() + 1..).unwrap_or_default(),
        None if name.is_root() => b"",
        None => bytes,
    };
    if below.is_empty() { source.to_owned() } else { source.join(std::ffi::OsStr::from_bytes(below)) }
}

/// Returns the difference of an entry from the manifest, if there is one.
fn difference(path: &Path, entry: &QueueEntry, follows_link: bool) -> Option<String> {
    let QueueEntryKind::File { bytes, modified } = &entry.kind else { return None };
    let metadata = if follows_link { fs::metadata(path) } else { fs::symlink_metadata(path) };
    let metadata = match metadata {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Some("no such file or directory; it was in the manifest of the queue".to_owned());
        }
        // The copy reports the reason.
        Err(_) => return None,
    };
    let now = Modified::new(metadata.mtime(), u32::try_from(metadata.mtime_nsec()).unwrap_or(0)).ok();
    let is_same = metadata.is_file() && metadata.len() == bytes.0 && now == Some(*modified);
    (!is_same).then(|| "changed since the manifest of the queue was written".to_owned())
}

/// Returns the failure of an entry at this host.
pub(super) fn failure(name: &Name, reason: String) -> EntryFailure {
    EntryFailure { file: None, name: name.clone(), reason, disk_full: false, end: CopyEnd::Sender }
}

/// Reports whether another copy only holds the file at present.
pub(super) fn is_locked(failure: &EntryFailure) -> bool {
    failure.reason == LOCKED_REASON
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn names_lead_to_the_files_of_the_source() {
        for (source, has_names, name, expected) in [
            ("a/runs", false, "runs", "a/runs"),
            ("a/runs", false, "runs/b/c", "a/runs/b/c"),
            ("a/runs/", false, ".", "a/runs/"),
            ("a/runs/", false, "b", "a/runs/b"),
            ("a/runs", true, "b/c", "a/runs/b/c"),
        ] {
            let top = final_name(source.as_bytes()).filter(|_| !has_names);
            let name = Name::new(name.as_bytes()).unwrap();
            assert_eq!(place_of(Path::new(source), top, &name), PathBuf::from(expected));
        }
    }

    #[test]
    fn parents_are_counted_once() {
        let names = ["a/b/c", "a/b/d", "a/e", "f", "g/h", "g"].map(|name| Name::new(name.as_bytes()).unwrap());
        assert_eq!(count_parents(&names.iter().collect()), 2);
    }
}
