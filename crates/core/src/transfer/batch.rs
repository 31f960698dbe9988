//! Entries under way together: as many as fill a message well, and never more than a frame holds.
//!
//! An entry's number is its place in the list, from 0; a batch says the number of its first. Numbers of hard links are
//! checked here, because they point backwards in the list.

use serde::{Deserialize, Serialize};

use super::entry::{Entry, EntryError, Kind};

/// Most entries in a message.
pub const MAX_BATCH_ENTRIES: usize = 4096;

/// What a batch of more than one entry stays below, as JSON.
pub const MAX_BATCH_BYTES: usize = 256 * 1024;

/// The JSON around the entries.
const OVERHEAD: usize = 64;

/// Why entries are no batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// One of them is not as it should be.
    #[error("entry {number}: {error}")]
    Entry {
        /// Which.
        number: u32,
        /// What is wrong.
        error: EntryError,
    },
    /// Too many in one message.
    #[error("batch of {0} entries, at most {MAX_BATCH_ENTRIES} allowed")]
    Entries(usize),
    /// More entries than numbers.
    #[error("batch of {1} entries from {0}: entries are numbered in 32 bits")]
    Number(u32, usize),
    /// A link to itself or to what comes later.
    #[error("entry {number} is a hard link to {to}, which does not stand before it")]
    Link {
        /// The entry.
        number: u32,
        /// What it names.
        to: u32,
    },
}

/// Entries with consecutive numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Form")]
pub struct Batch {
    first: u32,
    entries: Vec<Entry>,
    #[serde(skip)]
    json_bound: usize,
}

impl Batch {
    /// None yet; the next gets the number `first`.
    pub fn new(first: u32) -> Self {
        Batch { first, entries: Vec::new(), json_bound: OVERHEAD }
    }

    /// Takes an entry, or gives it back because the batch is full: send it, and begin the next. A batch without entries
    /// takes any.
    pub fn push(&mut self, entry: Entry) -> Result<Option<Entry>, BatchError> {
        let number = u32::try_from(self.entries.len()).ok().and_then(|count| self.first.checked_add(count));
        let number = number.ok_or(BatchError::Number(self.first, self.entries.len() + 1))?;
        check(number, &entry)?;
        let bound = self.json_bound + entry.json_bound() + 1;
        let full = self.entries.len() >= MAX_BATCH_ENTRIES || bound > MAX_BATCH_BYTES;
        if full && !self.entries.is_empty() {
            return Ok(Some(entry));
        }
        self.json_bound = bound;
        self.entries.push(entry);
        Ok(None)
    }

    /// The number of its first entry.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// Its entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Each with its number.
    pub fn into_numbered(self) -> impl Iterator<Item = (u32, Entry)> {
        (self.first..=u32::MAX).zip(self.entries)
    }
}

fn check(number: u32, entry: &Entry) -> Result<(), BatchError> {
    entry.check().map_err(|error| BatchError::Entry { number, error })?;
    match entry.kind {
        Kind::HardLink { to } if to >= number => Err(BatchError::Link { number, to }),
        _ => Ok(()),
    }
}

/// As it comes from a peer; the frame bounds what it can hold.
#[derive(Deserialize)]
struct Form {
    first: u32,
    entries: Vec<Entry>,
}

impl TryFrom<Form> for Batch {
    type Error = BatchError;

    fn try_from(Form { first, entries }: Form) -> Result<Self, BatchError> {
        if entries.len() > MAX_BATCH_ENTRIES {
            return Err(BatchError::Entries(entries.len()));
        }
        if entries.len() as u64 > u64::from(u32::MAX - first) + 1 {
            return Err(BatchError::Number(first, entries.len()));
        }
        (first..=u32::MAX).zip(&entries).try_for_each(|(number, entry)| check(number, entry))?;
        let json_bound = entries.iter().map(|entry| entry.json_bound() + 1).sum::<usize>() + OVERHEAD;
        Ok(Batch { first, entries, json_bound })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::entry::{MAX_NAME, MAX_XATTR_BYTES, Modified, Name, Owner, Xattr};
    use crate::transfer::raw::Raw;
    use crate::units::Bytes;
    use crate::wire::{Kind as Frame, MESSAGE_LIMIT, encode};

    fn entry(name: &str, kind: Kind) -> Entry {
        Entry::new(Name::new(name).unwrap(), kind, 0o644, Modified::default()).unwrap()
    }

    fn file(name: &str) -> Entry {
        entry(name, Kind::File { length: Bytes(1) })
    }

    #[test]
    fn a_batch_fills_up_and_says_so() {
        let mut batch = Batch::new(7);
        let mut sent = 0;
        for number in 0..20_000u32 {
            let Some(back) = batch.push(file(&format!("dir/file-{number:05}"))).unwrap() else { continue };
            let frame = encode(Frame::Message, &batch).unwrap();
            assert!(frame.len() <= MAX_BATCH_BYTES && batch.entries().len() > 500, "{}", batch.entries().len());
            let read: Batch = serde_json::from_slice(&frame[5..]).unwrap();
            assert_eq!(read, batch);
            sent += read.entries().len() as u32;
            assert_eq!(read.into_numbered().last().unwrap().0, 7 + sent - 1);
            batch = Batch::new(7 + sent);
            assert_eq!(batch.push(back), Ok(None));
        }
        assert!(sent > 10_000);
    }

    #[test]
    fn the_largest_entry_fits_a_frame() {
        let target = Kind::Symlink { target: Raw(vec![b'"'; MAX_NAME - 1]) };
        let name = vec!["\"".repeat(255); 16].join("/");
        let mut largest = entry(&name, target);
        let owner = Some(Raw(vec![b'\\'; 256]));
        largest.owner = Some(Owner { uid: u32::MAX, gid: u32::MAX, user: owner.clone(), group: owner });
        for value in [b'"', 1, 0xff] {
            let each = MAX_XATTR_BYTES / 1024 - 255;
            largest.xattrs = vec![Xattr { name: Raw(vec![b'\\'; 255]), value: Raw(vec![value; each]) }; 1024];
            let mut batch = Batch::new(0);
            assert_eq!(batch.push(largest.clone()), Ok(None));
            let frame = encode(Frame::Message, &batch).unwrap();
            assert!(frame.len() < MESSAGE_LIMIT && frame.len() <= batch.json_bound + 5, "{}", frame.len());
            assert!(batch.push(file("a")).unwrap().is_some());
        }
    }

    #[test]
    fn links_point_backwards_and_numbers_end() {
        let link = |to| entry("l", Kind::HardLink { to });
        let mut batch = Batch::new(3);
        assert_eq!(batch.push(link(2)), Ok(None));
        assert_eq!(batch.push(link(3)), Ok(None));
        assert_eq!(batch.push(link(5)), Err(BatchError::Link { number: 5, to: 5 }));
        let mut text = serde_json::to_string(&batch).unwrap();
        assert!(serde_json::from_str::<Batch>(&text).is_ok());
        text = text.replace("\"first\":3", "\"first\":2");
        assert!(serde_json::from_str::<Batch>(&text).unwrap_err().to_string().contains("entry 2 is a hard link to 2"));
        let mut last = Batch::new(u32::MAX);
        assert_eq!(last.push(file("a")), Ok(None));
        assert_eq!(last.push(file("b")), Err(BatchError::Number(u32::MAX, 2)));
        let text = serde_json::to_string(&last).unwrap();
        assert_eq!(serde_json::from_str::<Batch>(&text).unwrap().into_numbered().next().unwrap().0, u32::MAX);
        let mut long: serde_json::Value = serde_json::from_str(&text).unwrap();
        long["first"] = 0.into();
        long["entries"] = vec![long["entries"][0].clone(); 4097].into();
        assert!(serde_json::from_value::<Batch>(long).unwrap_err().to_string().contains("batch of 4097 entries"));
    }
}
