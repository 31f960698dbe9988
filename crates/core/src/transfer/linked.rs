//! Files of several names, as both ends remember them: the latest of them, within a bound of memory.
//!
//! The sender makes a hard link only of a name whose file the receiver still remembers. Both reckon alike and in the order
//! of the list, so that no word about it is needed; a name that comes later than that is a file of its own again.

use std::collections::VecDeque;

/// Most bytes that the names of remembered files take, each with [`EACH`] more: about a quarter of a million files.
const MOST: usize = 24 << 20;

/// What remembering takes besides the name.
const EACH: usize = 64;

/// The numbers of the files that are remembered.
#[derive(Clone, Debug, Default)]
pub struct Linked {
    files: VecDeque<(u32, usize)>,
    bytes: usize,
}

impl Linked {
    /// Remembers a file of several names, by its number and the length of its name; numbers come in order. Gives those
    /// that are forgotten for it.
    pub fn push(&mut self, number: u32, name: usize) -> impl Iterator<Item = u32> {
        self.files.push_back((number, name + EACH));
        self.bytes += name + EACH;
        let mut count = 0;
        while self.bytes > MOST && count + 1 < self.files.len() {
            self.bytes -= self.files[count].1;
            count += 1;
        }
        self.files.drain(..count).map(|(number, _)| number)
    }

    /// Whether a file is remembered.
    pub fn has(&self, number: u32) -> bool {
        self.files.binary_search_by_key(&number, |(number, _)| *number).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_within_a_bound() {
        let mut linked = Linked::default();
        let mut forgotten = Vec::new();
        for number in 0..600_000 {
            forgotten.extend(linked.push(number * 3, 100));
        }
        let kept = MOST / (100 + EACH);
        assert_eq!(forgotten.len(), 600_000 - kept);
        assert_eq!(forgotten.last(), Some(&(3 * (600_000 - kept as u32 - 1))));
        assert!(linked.has(3 * 599_999) && linked.has(3 * (600_000 - kept as u32)));
        assert!(!linked.has(*forgotten.last().unwrap()) && !linked.has(1));
        // However long a name is, the last file is remembered.
        assert_eq!(linked.push(u32::MAX, MOST).count(), kept);
        assert!(linked.has(u32::MAX));
    }
}
