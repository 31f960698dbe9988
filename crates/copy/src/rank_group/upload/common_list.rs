//! The one list of all ranks: entries of the same name are the same entry.
//!
//! The list keeps a short record of each entry, because another rank may list the entry at any later time. Entries wait
//! here until the receiver has room for them.

use std::collections::{HashMap, VecDeque};

use lfn_base::units::Bytes;
use lfn_session::wire::copy::entry::{Entry, EntryKind, Modified};

use crate::rank_group::error::RankError;

/// Maximum number of entries of one copy: each needs about 64 bytes.
const MAX_ENTRIES: usize = 16 << 20;

/// Maximum number of entries that wait for the receiver.
const MAX_WAITING: usize = 1 << 20;

/// Maximum memory of the entries that wait, in bytes.
const MAX_WAITING_BYTES: usize = 512 << 20;

/// Hash of a name.
type NameHash = [u8; 16];

/// The list of all ranks.
#[derive(Debug, Default)]
pub(super) struct CommonList {
    known: HashMap<NameHash, KnownEntry>,
    waiting: VecDeque<Entry>,
    waiting_bytes: usize,
    /// Number of entries that the receiver has.
    passed: u32,
    /// Total length of all files.
    bytes: u64,
    /// Name of the first entry.
    first_name: Option<String>,
    /// No further entries are accepted.
    is_closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct KnownEntry {
    number: u32,
    /// `None` unless the entry is a file.
    length: Option<Bytes>,
    modified: Modified,
    kind: u8,
    /// Rank that listed the entry first.
    rank: u16,
}

/// The entry of a rank in the common list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) number: u32,
    pub(super) is_new: bool,
}

impl CommonList {
    /// Adds an entry of a rank.
    ///
    /// # Errors
    /// [`RankError`] if another rank has listed another entry under the name.
    pub(super) fn add(&mut self, rank: u16, entry: Entry) -> Result<Placed, RankError> {
        let mut hash = NameHash::default();
        hash.copy_from_slice(&blake3::hash(entry.name.as_bytes()).as_bytes()[..16]);
        let (kind, length) = match entry.kind {
            EntryKind::File { length } => (0, Some(length)),
            EntryKind::Directory => (1, None),
            EntryKind::Symlink { .. } => (2, None),
            EntryKind::HardLink { .. } => return Err(RankError::Unsupported("--hard-links")),
        };
        if let Some(known) = self.known.get(&hash) {
            known.compare(rank, &entry, kind, length)?;
            return Ok(Placed { number: known.number, is_new: false });
        }
        if self.is_closed {
            return Err(RankError::LateEntry { rank, name: entry.name.to_string() });
        }
        self.waiting_bytes += entry.weight();
        if self.known.len() >= MAX_ENTRIES
            || self.waiting.len() >= MAX_WAITING
            || self.waiting_bytes > MAX_WAITING_BYTES
        {
            return Err(RankError::TooManyWaiting(MAX_WAITING));
        }
        // At most MAX_ENTRIES.
        let number = self.known.len() as u32;
        self.known.insert(hash, KnownEntry { number, length, modified: entry.modified, kind, rank });
        self.bytes = self.bytes.saturating_add(length.unwrap_or_default().0);
        self.first_name.get_or_insert_with(|| entry.name.to_string());
        self.waiting.push_back(entry);
        Ok(Placed { number, is_new: true })
    }

    /// Takes the next entries for the receiver, as long as `has_room` for each. Returns the number of the first.
    pub(super) fn take(&mut self, mut has_room: impl FnMut(usize) -> bool) -> (u32, Vec<Entry>) {
        let first = self.passed;
        let mut entries = Vec::new();
        let mut weight = 0;
        while let Some(next) = self.waiting.front() {
            weight += next.weight();
            // The receiver counts an entry when it has the message, so one message must not exceed the room together.
            if !has_room(weight) || entries.len() >= 1024 {
                break;
            }
            self.waiting_bytes -= next.weight();
            entries.extend(self.waiting.pop_front());
        }
        self.passed += entries.len() as u32;
        (first, entries)
    }

    /// Accepts no further entries, and returns whether the receiver has all entries.
    pub(super) fn close(&mut self) -> bool {
        self.is_closed = true;
        self.waiting.is_empty()
    }

    pub(super) fn entries(&self) -> u32 {
        self.known.len() as u32
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    /// Returns the name of the first entry, for messages.
    pub(super) fn first_name(&self) -> &str {
        self.first_name.as_deref().unwrap_or_default()
    }
}

impl KnownEntry {
    fn compare(&self, rank: u16, entry: &Entry, kind: u8, length: Option<Bytes>) -> Result<(), RankError> {
        let (name, other) = (entry.name.to_string(), self.rank);
        if kind != self.kind {
            return Err(RankError::OtherKind { rank, name, other });
        }
        match (length, self.length) {
            (Some(own), Some(known)) if own != known => {
                return Err(RankError::OtherSize { rank, name, own, other, known });
            }
            _ => {}
        }
        // Times of directories change while the ranks list them.
        if length.is_some() && entry.modified != self.modified {
            let show = |time: Modified| format!("{}.{:09} s", time.seconds(), time.nanoseconds());
            let (own, known) = (show(entry.modified), show(self.modified));
            return Err(RankError::OtherTime { rank, name, own, other, known });
        }
        Ok(())
    }
}
