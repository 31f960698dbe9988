//! The memory of entries with large details, in a process of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use lfn_mesh::archive::Archive;
use lfn_mesh::entry::{Entry, EntryKind, RawJson};
use lfn_mesh::from_result::ResultHosts;
use lfn_mesh::import_file::read_file;
use lfn_mesh::sync::{NumberedEntry, SyncRequest};

const MIB: usize = 1 << 20;

/// Returns the maximum resident memory of this process since its start, bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn small_objects_take_a_small_multiple_of_their_text() {
    let mut entry = Entry::new(EntryKind::Load, "a", "b", Duration::from_secs(1));
    let objects = 3 * MIB / 7;
    entry.detail = RawJson::parse(format!("[{}{{}}]", "{\"\":0},".repeat(objects)));
    let entries = vec![NumberedEntry { number: 1, entry: RawJson::of(&entry).unwrap() }];
    let request = serde_json::to_string(&SyncRequest { entries, ..SyncRequest::default() }).unwrap();
    let line = serde_json::to_string(&entry).unwrap() + "\n";
    let text = request.len();
    drop(entry);
    let directory = tempfile::tempdir().unwrap();
    let mut archive = Archive::open(&directory.path().join("archive.sqlite")).unwrap();
    let before = peak();
    let received: SyncRequest = serde_json::from_str(&request).unwrap();
    let entry: Entry = serde_json::from_str(received.entries[0].entry.text()).unwrap();
    archive.insert(std::slice::from_ref(&entry), Duration::from_secs(2)).unwrap();
    let file = read_file(line.as_bytes(), ResultHosts::default()).unwrap();
    archive.insert_batches(file.batches(), Duration::from_secs(2)).unwrap();
    let grown = peak() - before;
    // A tree of values takes more than 80 times the text.
    assert!(grown < 12 * text, "{} MiB for {} MiB", grown / MIB, text / MIB);
}
