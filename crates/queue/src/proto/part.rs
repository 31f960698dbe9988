//! Parts of the manifest. A part is what one lease covers: one large file, or several small entries of one source.

use lfn_base::units::Bytes;
use lfn_session::wire::copy::entry::{Modified, Name};
use serde::{Deserialize, Serialize};

/// Maximum entries of a part, and the maximum total length of its files if it has several entries.
pub const MAX_ENTRIES: usize = 1000;
pub const MAX_PART_BYTES: Bytes = Bytes(64_000_000);

/// Maximum weight of the names of a part: about the bytes of its messages. A server accepts messages of 1 MB by default.
const MAX_WEIGHT: usize = 256 * 1024;

/// Weight of an entry without its name.
const ENTRY_WEIGHT: usize = 128;

/// Weight of one byte of a name. JSON writes some bytes as several characters.
const BYTE_WEIGHT: usize = 4;

/// A part of the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Number of the source, from 0.
    pub source: u16,
    pub entries: Vec<QueueEntry>,
}

/// An entry of the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueEntry {
    /// Path below the destination.
    pub name: Name,
    #[serde(flatten)]
    pub kind: QueueEntryKind,
}

/// Kind of an entry. A file has its length and time when the manifest was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum QueueEntryKind {
    File { bytes: Bytes, modified: Modified },
    Directory,
    Link,
}

impl QueueEntry {
    /// Returns the length of a file, and 0 for other entries.
    pub fn bytes(&self) -> Bytes {
        match self.kind {
            QueueEntryKind::File { bytes, .. } => bytes,
            QueueEntryKind::Directory | QueueEntryKind::Link => Bytes(0),
        }
    }
}

impl Part {
    /// Returns the total length of the files.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes().0)))
    }

    /// Encodes the part for the key-value bucket.
    pub fn encode(&self) -> Vec<u8> {
        // The value has only strings and numbers, which JSON can always represent.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Decodes a part and checks its size.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let part: Part = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if part.entries.is_empty() || part.entries.len() > MAX_ENTRIES {
            return Err(format!("{} entries; expected 1 to {MAX_ENTRIES}", part.entries.len()));
        }
        Ok(part)
    }
}

/// Collects entries until a part is full.
#[derive(Debug, Default)]
pub struct PartBuilder {
    part: Option<Part>,
    bytes: u64,
    weight: usize,
}

impl PartBuilder {
    /// Adds an entry. Returns the part before it, if the entry begins another.
    pub fn add(&mut self, source: u16, entry: QueueEntry) -> Option<Part> {
        let bytes = entry.bytes().0;
        let weight = ENTRY_WEIGHT + BYTE_WEIGHT * entry.name.as_bytes().len();
        let has_room = |part: &Part| {
            part.source == source
                && part.entries.len() < MAX_ENTRIES
                && self.bytes.saturating_add(bytes) <= MAX_PART_BYTES.0
                && self.weight + weight <= MAX_WEIGHT
        };
        if let Some(part) = self.part.as_mut().filter(|part| has_room(part)) {
            part.entries.push(entry);
            self.bytes += bytes;
            self.weight += weight;
            return None;
        }
        (self.bytes, self.weight) = (bytes, weight);
        self.part.replace(Part { source, entries: vec![entry] })
    }

    /// Returns the last part.
    pub fn finish(&mut self) -> Option<Part> {
        self.part.take()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use proptest::prelude::*;

    fn file(name: &str, bytes: u64) -> QueueEntry {
        let kind = QueueEntryKind::File { bytes: Bytes(bytes), modified: Modified::default() };
        QueueEntry { name: Name::new(name.as_bytes()).unwrap(), kind }
    }

    fn parts(entries: impl IntoIterator<Item = (u16, QueueEntry)>) -> Vec<Part> {
        let mut builder = PartBuilder::default();
        let mut parts: Vec<_> = entries.into_iter().filter_map(|(source, entry)| builder.add(source, entry)).collect();
        parts.extend(builder.finish());
        parts
    }

    #[test]
    fn small_files_share_a_part() {
        let many = parts((0..2500).map(|n| (0, file(&n.to_string(), 10))));
        assert_eq!(many.iter().map(|part| part.entries.len()).collect::<Vec<_>>(), [1000, 1000, 500]);
        let large = parts([(0, file("a", 1)), (0, file("b", 64_000_000)), (0, file("c", 1)), (1, file("d", 1))]);
        assert_eq!(large.iter().map(|part| part.entries.len()).collect::<Vec<_>>(), [1, 1, 1, 1]);
    }

    #[test]
    fn parts_fit_into_messages() {
        let long = format!("{}x", format!("{}/", "\u{1}".repeat(200)).repeat(20));
        for part in parts((0..300).map(|_| (0, file(&long, 0)))) {
            assert!(part.encode().len() < 900_000, "{}", part.encode().len());
        }
    }

    proptest! {
        #[test]
        fn no_entry_is_lost(entries in proptest::collection::vec((0_u16..3, 0_u64..100_000_000), 0..60)) {
            let entries: Vec<_> =
                entries.iter().enumerate().map(|(n, (source, bytes))| (*source, file(&n.to_string(), *bytes))).collect();
            let parts = parts(entries.clone());
            let back: Vec<_> = parts.iter().flat_map(|part| part.entries.iter().map(|e| (part.source, e.clone()))).collect();
            prop_assert_eq!(back, entries);
            for part in parts {
                prop_assert!(part.bytes() <= MAX_PART_BYTES || part.entries.len() == 1);
                prop_assert_eq!(Part::decode(&part.encode()), Ok(part));
            }
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = Part::decode(&bytes);
        }
    }
}
