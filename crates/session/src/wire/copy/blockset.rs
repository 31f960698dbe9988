//! A set of block or entry numbers, stored as ranges.
//!
//! Blocks arrive nearly in order, so a few ranges describe millions of blocks. In JSON the ranges are
//! `[[first,last],…]`, sorted and not adjacent. A message holds at most [`MAX_RANGES`]; [`BlockSet::first_ranges`]
//! shortens a larger set. A shortened set only causes some blocks to be sent again.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

/// Maximum ranges in one message: at 43 bytes each, a third of a frame.
pub const MAX_RANGES: usize = 32_768;

/// A set of numbers stored as ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockSet {
    /// First number of each range to its last number. No two ranges are adjacent.
    ranges: BTreeMap<u64, u64>,
    length: u64,
}

/// Reason why ranges form no valid set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockSetError {
    #[error("block set of {0} ranges, at most {MAX_RANGES} allowed")]
    Ranges(usize),
    #[error("block range [{0},{1}] ends before it begins")]
    Backwards(u64, u64),
    #[error("block range [{first},{last}] overlaps or touches the range that ends at {before}")]
    Order { first: u64, last: u64, before: u64 },
    /// `u64::MAX` is excluded: a set that contains it could overflow its count.
    #[error("block number {} is out of range", u64::MAX)]
    Number,
}

impl BlockSet {
    /// Creates the set of the numbers from `first` to `last`, both included. The set is empty if `last` is smaller.
    pub fn from_range(first: u64, last: u64) -> Self {
        let mut set = BlockSet::default();
        set.insert_range(first, last);
        set
    }

    /// Adds a number. Returns false if the set contained it.
    pub fn insert(&mut self, index: u64) -> bool {
        let new = !self.contains(index);
        self.insert_range(index, index);
        new
    }

    /// Adds a range, both ends included. Ignores `u64::MAX`, which is no block number.
    pub fn insert_range(&mut self, first: u64, last: u64) {
        let last = last.min(u64::MAX - 1);
        if first > last {
            return;
        }
        let (mut start, mut end) = (first, last);
        // Merge every range that overlaps or is adjacent, from the highest down.
        while let Some((&f, &l)) = self.ranges.range(..=end + 1).next_back() {
            if l + 1 < start {
                break;
            }
            self.ranges.remove(&f);
            self.length -= l - f + 1;
            (start, end) = (start.min(f), end.max(l));
        }
        self.ranges.insert(start, end);
        self.length += end - start + 1;
    }

    /// Adds all numbers of another set.
    pub fn union(&mut self, other: &BlockSet) {
        other.ranges().for_each(|(first, last)| self.insert_range(first, last));
    }

    /// Removes the numbers of a range, and returns the removed ranges.
    pub fn remove_range(&mut self, first: u64, last: u64) -> Vec<(u64, u64)> {
        if first > last {
            return Vec::new();
        }
        let before = self.ranges.range(..first).next_back().filter(|(_, end)| **end >= first).map(|(start, _)| *start);
        let inside = self.ranges.range(first..=last).map(|(start, _)| *start);
        let starts: Vec<u64> = before.into_iter().chain(inside).collect();
        let mut removed = Vec::with_capacity(starts.len());
        for start in starts {
            let Some(end) = self.ranges.remove(&start) else { continue };
            if start < first {
                self.ranges.insert(start, first - 1);
            }
            if end > last {
                self.ranges.insert(last + 1, end);
            }
            let (from, to) = (start.max(first), end.min(last));
            self.length -= to - from + 1;
            removed.push((from, to));
        }
        removed
    }

    /// Returns the lowest range, both ends included.
    pub fn first_range(&self) -> Option<(u64, u64)> {
        self.ranges().next()
    }

    /// Reports whether the set contains the number.
    pub fn contains(&self, index: u64) -> bool {
        self.ranges.range(..=index).next_back().is_some_and(|(_, &last)| index <= last)
    }

    /// Returns the count of numbers in the set.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Reports whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the ranges in order, both ends included.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(&first, &last)| (first, last))
    }

    /// Returns the ranges of the numbers from `start` on, in order, both ends included.
    pub fn ranges_from(&self, start: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let before = self.ranges.range(..start).next_back().filter(|(_, last)| **last >= start);
        before.into_iter().chain(self.ranges.range(start..)).map(move |(first, last)| (start.max(*first), *last))
    }

    /// Returns the ranges below `count` that the set does not contain, in order, both ends included.
    pub fn gaps(&self, count: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.gaps_between(0, count)
    }

    /// Returns the ranges from `first` to `last` that the set does not contain, in order, both ends included.
    pub fn gaps_in(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.gaps_between(first, last.saturating_add(1))
    }

    /// Returns how many numbers from `first` to `last` the set does not contain.
    pub fn count_missing(&self, first: u64, last: u64) -> u64 {
        self.gaps_in(first, last).map(|(first, last)| last - first + 1).sum()
    }

    fn gaps_between(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut next = start;
        let before = self.ranges.range(..start).next_back();
        let ranges = before.into_iter().chain(self.ranges.range(start.min(end)..end));
        let ends = ranges.map(|(first, last)| (*first, last + 1)).chain([(end, end)]);
        ends.filter_map(move |(first, behind)| {
            let (from, to) = (next, first);
            next = next.max(behind);
            (from < to).then(|| (from, to - 1))
        })
    }

    /// Returns a set with only the first `ranges` ranges.
    pub fn first_ranges(&self, ranges: usize) -> BlockSet {
        let mut cut = BlockSet::default();
        self.ranges().take(ranges).for_each(|(first, last)| cut.insert_range(first, last));
        cut
    }

    fn from_ranges(ranges: &[(u64, u64)]) -> Result<Self, BlockSetError> {
        if ranges.len() > MAX_RANGES {
            return Err(BlockSetError::Ranges(ranges.len()));
        }
        let mut set = BlockSet::default();
        let mut before: Option<u64> = None;
        for &(first, last) in ranges {
            if first > last {
                return Err(BlockSetError::Backwards(first, last));
            }
            if last == u64::MAX {
                return Err(BlockSetError::Number);
            }
            if let Some(before) = before.filter(|before| first <= before + 1) {
                return Err(BlockSetError::Order { first, last, before });
            }
            set.ranges.insert(first, last);
            set.length += last - first + 1;
            before = Some(last);
        }
        Ok(set)
    }
}

impl FromIterator<u64> for BlockSet {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut set = BlockSet::default();
        numbers.into_iter().for_each(|number| set.insert_range(number, number));
        set
    }
}

impl Serialize for BlockSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.ranges.len() > MAX_RANGES {
            return Err(ser::Error::custom(BlockSetError::Ranges(self.ranges.len())));
        }
        serializer.collect_seq(self.ranges())
    }
}

impl<'de> Deserialize<'de> for BlockSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The frame limit bounds the length of this list.
        let ranges = Vec::<(u64, u64)>::deserialize(deserializer)?;
        BlockSet::from_ranges(&ranges).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_set(
            ranges in proptest::collection::vec((0u64..120, 0u64..12), 0..40),
            others in proptest::collection::vec(0u64..140, 0..40),
            count in 0u64..150,
            removed in (0u64..150, 0u64..150),
        ) {
            let (mut set, mut model) = (BlockSet::default(), BTreeSet::new());
            for (first, width) in ranges {
                set.insert_range(first, first + width);
                model.extend(first..=first + width);
            }
            for &number in &others[..others.len() / 2] {
                prop_assert_eq!(set.insert(number), model.insert(number));
            }
            let other: BlockSet = others.iter().copied().collect();
            set.union(&other);
            model.extend(others);
            prop_assert_eq!(set.len(), model.len() as u64);
            prop_assert_eq!(set.is_empty(), model.is_empty());
            let from: Vec<u64> = set.ranges_from(20).flat_map(|(first, last)| first..=last).collect();
            prop_assert!(model.iter().copied().filter(|number| *number >= 20).eq(from));
            prop_assert!((0..160).all(|n| set.contains(n) == model.contains(&n)));
            let apart: Vec<_> = set.ranges().collect();
            prop_assert!(apart.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "{:?}", apart);
            let gaps: Vec<u64> = set.gaps(count).flat_map(|(first, last)| first..=last).collect();
            let missing: Vec<u64> = (0..count).filter(|n| !model.contains(n)).collect();
            prop_assert_eq!(gaps, missing);
            let (first, last) = removed;
            let gaps: Vec<u64> = set.gaps_in(first, last).flat_map(|(first, last)| first..=last).collect();
            prop_assert_eq!(set.count_missing(first, last), gaps.len() as u64);
            prop_assert_eq!(gaps, (first..=last).filter(|n| !model.contains(n)).collect::<Vec<_>>());
            let cut: Vec<u64> = set.remove_range(first, last).into_iter().flat_map(|(first, last)| first..=last).collect();
            prop_assert_eq!(cut, model.iter().copied().filter(|n| (first..=last).contains(n)).collect::<Vec<_>>());
            model.retain(|n| !(first..=last).contains(n));
            prop_assert_eq!(set.len(), model.len() as u64);
            prop_assert!((0..160).all(|n| set.contains(n) == model.contains(&n)));
            prop_assert_eq!(set.first_range().map(|(first, _)| first), model.first().copied());
            let json = serde_json::to_string(&set).unwrap();
            prop_assert_eq!(serde_json::from_str::<BlockSet>(&json).unwrap(), set);
        }
    }

    #[test]
    fn invalid_ranges_are_rejected() {
        let read = |text: &str| serde_json::from_str::<BlockSet>(text).map_err(|error| error.to_string());
        assert_eq!(read("[[0,2],[4,4]]").unwrap().len(), 4);
        assert_eq!(serde_json::to_string(&read("[[0,2],[4,4]]").unwrap()).unwrap(), "[[0,2],[4,4]]");
        for (text, said) in [
            ("[[2,1]]", "[2,1] ends before"),
            ("[[0,2],[3,4]]", "[3,4] overlaps or touches the range that ends at 2"),
            ("[[5,6],[1,2]]", "[1,2] overlaps or touches the range that ends at 6"),
            ("[[0,18446744073709551615]]", "18446744073709551615 is out of range"),
        ] {
            assert!(read(text).unwrap_err().contains(said), "{text}: {:?}", read(text));
        }
        assert!(read("[[-1,2]]").is_err() && read("[[1]]").is_err() && read("{}").is_err());
    }

    #[test]
    fn message_limits_the_number_of_ranges() {
        let set: BlockSet = (0..=MAX_RANGES as u64).map(|n| n * 2).collect();
        assert!(serde_json::to_string(&set).unwrap_err().to_string().contains("32769 ranges"));
        let cut = set.first_ranges(MAX_RANGES);
        assert_eq!((cut.len(), cut.contains(65_534), cut.contains(65_536)), (32_768, true, false));
        assert!(serde_json::to_string(&cut).is_ok());
        let far: BlockSet = (0..MAX_RANGES as u64).map(|n| u64::MAX - 2 - n * 2).collect();
        assert!(serde_json::to_string(&far).unwrap().len() < crate::wire::MESSAGE_LIMIT / 2);
        let whole = BlockSet::from_range(0, u64::MAX);
        assert_eq!((whole.len(), whole.contains(u64::MAX)), (u64::MAX, false));
    }
}
