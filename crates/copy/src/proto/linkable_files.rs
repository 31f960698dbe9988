//! Files with several names, as both ends remember them: the most recent ones, within a memory limit.
//!
//! The sender lists a hard link only to a file that the receiver still remembers. Both ends compute this in the same
//! way from the order of the list, so they need no message. A name that is listed after the limit becomes a separate
//! file.

use std::collections::VecDeque;

/// Maximum memory of the remembered names, each with [`ENTRY_OVERHEAD`]: about 250,000 files.
const MAX_NAME_BYTES: usize = 24 << 20;

/// Memory of an entry besides its name, in bytes.
const ENTRY_OVERHEAD: usize = 64;

/// Entry numbers of the remembered files.
#[derive(Clone, Debug, Default)]
pub struct LinkableFiles {
    files: VecDeque<(u32, usize)>,
    bytes: usize,
}

impl LinkableFiles {
    /// Adds a file with several names, by its entry number and the length of its name. Numbers must ascend. Returns the
    /// files that are forgotten to stay within the limit.
    pub fn push(&mut self, number: u32, name: usize) -> impl Iterator<Item = u32> {
        self.files.push_back((number, name + ENTRY_OVERHEAD));
        self.bytes += name + ENTRY_OVERHEAD;
        let mut count = 0;
        while self.bytes > MAX_NAME_BYTES && count + 1 < self.files.len() {
            self.bytes -= self.files[count].1;
            count += 1;
        }
        self.files.drain(..count).map(|(number, _)| number)
    }

    /// Reports whether a file is remembered.
    pub fn contains(&self, number: u32) -> bool {
        self.files.binary_search_by_key(&number, |(number, _)| *number).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_files_are_remembered_within_limit() {
        let mut linked = LinkableFiles::default();
        let mut forgotten = Vec::new();
        for number in 0..600_000 {
            forgotten.extend(linked.push(number * 3, 100));
        }
        let kept = MAX_NAME_BYTES / (100 + ENTRY_OVERHEAD);
        assert_eq!(forgotten.len(), 600_000 - kept);
        assert_eq!(forgotten.last(), Some(&(3 * (600_000 - kept as u32 - 1))));
        assert!(linked.contains(3 * 599_999) && linked.contains(3 * (600_000 - kept as u32)));
        assert!(!linked.contains(*forgotten.last().unwrap()) && !linked.contains(1));
        // The last file is remembered, whatever the length of its name.
        assert_eq!(linked.push(u32::MAX, MAX_NAME_BYTES).count(), kept);
        assert!(linked.contains(u32::MAX));
    }
}
