//! Groups entries into messages that are well filled and fit into a frame.
//!
//! An entry's number is its position in the list, from 0. A batch carries the number of its first entry. The numbers of
//! hard links are checked here, because a hard link must refer to an earlier entry.

use lfn_session::wire::copy::entry::{Entry, EntryError, EntryKind};
use serde::{Deserialize, Serialize};

/// Maximum entries per message.
pub const MAX_BATCH_ENTRIES: usize = 4096;

/// Maximum JSON bytes of a batch with more than one entry.
pub const MAX_BATCH_BYTES: usize = 256 * 1024;

/// JSON bytes around the entries.
const BATCH_OVERHEAD: usize = 64;

/// Reason why entries form no valid batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    #[error("entry {number}: {error}")]
    Entry { number: u32, error: EntryError },
    #[error("batch of {0} entries, at most {MAX_BATCH_ENTRIES} allowed")]
    Entries(usize),
    #[error("batch of {1} entries from number {0}: entry numbers have 32 bits")]
    Number(u32, usize),
    #[error("entry {number} is a hard link to entry {to}, which is not listed before it")]
    Link { number: u32, to: u32 },
}

/// List entries with consecutive numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BatchForm")]
pub struct Batch {
    first: u32,
    entries: Vec<Entry>,
    #[serde(skip)]
    max_json_bytes: usize,
}

impl Batch {
    /// Creates an empty batch. Its first entry gets the number `first`.
    pub fn new(first: u32) -> Self {
        Batch { first, entries: Vec::new(), max_json_bytes: BATCH_OVERHEAD }
    }

    /// Adds an entry. Returns the entry if the batch is full: send the batch, then start the next one. An empty batch
    /// accepts any entry.
    pub fn push(&mut self, entry: Entry) -> Result<Option<Entry>, BatchError> {
        let number = u32::try_from(self.entries.len()).ok().and_then(|count| self.first.checked_add(count));
        let number = number.ok_or(BatchError::Number(self.first, self.entries.len() + 1))?;
        check_entry(number, &entry)?;
        let bound = self.max_json_bytes + entry.max_json_bytes() + 1;
        let full = self.entries.len() >= MAX_BATCH_ENTRIES || bound > MAX_BATCH_BYTES;
        if full && !self.entries.is_empty() {
            return Ok(Some(entry));
        }
        self.max_json_bytes = bound;
        self.entries.push(entry);
        Ok(None)
    }

    /// Returns the number of the first entry.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// Returns the entries in list order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns each entry with its number.
    pub fn into_numbered(self) -> impl Iterator<Item = (u32, Entry)> {
        (self.first..=u32::MAX).zip(self.entries)
    }
}

fn check_entry(number: u32, entry: &Entry) -> Result<(), BatchError> {
    entry.check().map_err(|error| BatchError::Entry { number, error })?;
    match entry.kind {
        EntryKind::HardLink { to } if to >= number => Err(BatchError::Link { number, to }),
        _ => Ok(()),
    }
}

/// Unchecked batch from a peer. The frame limit bounds its size.
#[derive(Deserialize)]
struct BatchForm {
    first: u32,
    entries: Vec<Entry>,
}

impl TryFrom<BatchForm> for Batch {
    type Error = BatchError;

    fn try_from(BatchForm { first, entries }: BatchForm) -> Result<Self, BatchError> {
        if entries.len() > MAX_BATCH_ENTRIES {
            return Err(BatchError::Entries(entries.len()));
        }
        if entries.len() as u64 > u64::from(u32::MAX - first) + 1 {
            return Err(BatchError::Number(first, entries.len()));
        }
        (first..=u32::MAX).zip(&entries).try_for_each(|(number, entry)| check_entry(number, entry))?;
        let json_bound = entries.iter().map(|entry| entry.max_json_bytes() + 1).sum::<usize>() + BATCH_OVERHEAD;
        Ok(Batch { first, entries, max_json_bytes: json_bound })
    }
}

#[cfg(test)]
mod tests {
    use lfn_base::units::Bytes;
    use lfn_session::wire::copy::byte_string::ByteString;
    use lfn_session::wire::copy::entry::{MAX_NAME, MAX_XATTR_BYTES, Modified, Name, Owner, Xattr};
    use lfn_session::wire::{FrameKind as Frame, MESSAGE_LIMIT, encode};

    use super::*;

    fn entry(name: &str, kind: EntryKind) -> Entry {
        Entry::new(Name::new(name).unwrap(), kind, 0o644, Modified::default()).unwrap()
    }

    fn file(name: &str) -> Entry {
        entry(name, EntryKind::File { length: Bytes(1) })
    }

    #[test]
    fn full_batch_returns_the_entry() {
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
    fn largest_entry_fits_a_frame() {
        let target = EntryKind::Symlink { target: ByteString(vec![b'"'; MAX_NAME - 1]) };
        let name = vec!["\"".repeat(255); 16].join("/");
        let mut largest = entry(&name, target);
        let owner = Some(ByteString(vec![b'\\'; 256]));
        largest.owner = Some(Owner { uid: u32::MAX, gid: u32::MAX, user: owner.clone(), group: owner });
        for value in [b'"', 1, 0xff] {
            let each = MAX_XATTR_BYTES / 1024 - 255;
            largest.xattrs =
                vec![Xattr { name: ByteString(vec![b'\\'; 255]), value: ByteString(vec![value; each]) }; 1024];
            let mut batch = Batch::new(0);
            assert_eq!(batch.push(largest.clone()), Ok(None));
            let frame = encode(Frame::Message, &batch).unwrap();
            assert!(frame.len() < MESSAGE_LIMIT && frame.len() <= batch.max_json_bytes + 5, "{}", frame.len());
            assert!(batch.push(file("a")).unwrap().is_some());
        }
    }

    #[test]
    fn hard_links_must_refer_to_earlier_entries() {
        let link = |to| entry("l", EntryKind::HardLink { to });
        let mut batch = Batch::new(3);
        assert_eq!(batch.push(link(2)), Ok(None));
        assert_eq!(batch.push(link(3)), Ok(None));
        assert_eq!(batch.push(link(5)), Err(BatchError::Link { number: 5, to: 5 }));
        let mut text = serde_json::to_string(&batch).unwrap();
        assert!(serde_json::from_str::<Batch>(&text).is_ok());
        text = text.replace("\"first\":3", "\"first\":2");
        assert!(
            serde_json::from_str::<Batch>(&text).unwrap_err().to_string().contains("entry 2 is a hard link to entry 2")
        );
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
