//! The state of all parts, from their records. It decides which parts need a message, and when the copy is complete.

use lfn_base::units::Bytes;
use lfn_session::wire::copy::EntryFailure;

use super::header::Header;
use super::record::{MAX_FAILURES, PartRecord};

/// The state of all parts.
#[derive(Debug, Clone, Default)]
pub struct Board {
    entry_parts: u32,
    parts: Vec<PartState>,
    /// Parts that are done: with entries, and with directories only.
    done: [u32; 2],
    totals: QueueTotals,
}

#[derive(Debug, Clone, Default)]
struct PartState {
    is_done: bool,
    entries: u64,
    bytes: u64,
    failed: u64,
    /// Allocated only for parts with failures.
    failures: Vec<EntryFailure>,
}

/// Totals of the parts that are done. Entries of the directory parts do not count twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueTotals {
    /// Entries that are complete.
    pub entries: u64,
    pub bytes: Bytes,
    pub failed: u64,
}

impl Board {
    /// Creates the board of a manifest without any record.
    pub fn new(header: &Header) -> Self {
        let parts = vec![PartState::default(); header.parts() as usize];
        Board { entry_parts: header.entry_parts, parts, ..Board::default() }
    }

    /// Enters a record. A later record of the same part replaces the earlier one. Unknown parts are ignored.
    pub fn record(&mut self, part: u32, record: PartRecord) {
        self.reopen(part);
        let has_entries = part < self.entry_parts;
        let Some(state) = self.parts.get_mut(part as usize) else { return };
        *state = PartState {
            is_done: true,
            entries: if has_entries { record.entries } else { 0 },
            bytes: if has_entries { record.bytes.0 } else { 0 },
            failed: record.failed,
            failures: record.failures,
        };
        self.totals.entries = self.totals.entries.saturating_add(state.entries);
        self.totals.bytes.0 = self.totals.bytes.0.saturating_add(state.bytes);
        self.totals.failed = self.totals.failed.saturating_add(state.failed);
        self.done[usize::from(!has_entries)] += 1;
    }

    /// Removes the record of a part.
    pub fn reopen(&mut self, part: u32) {
        let Some(state) = self.parts.get_mut(part as usize).filter(|state| state.is_done) else { return };
        let state = std::mem::take(state);
        self.totals.entries = self.totals.entries.saturating_sub(state.entries);
        self.totals.bytes.0 = self.totals.bytes.0.saturating_sub(state.bytes);
        self.totals.failed = self.totals.failed.saturating_sub(state.failed);
        self.done[usize::from(part >= self.entry_parts)] -= 1;
    }

    /// Reports whether a part is done.
    pub fn is_done(&self, part: u32) -> bool {
        self.parts.get(part as usize).is_some_and(|state| state.is_done)
    }

    /// Reports whether every part is done.
    pub fn is_complete(&self) -> bool {
        (self.done[0] + self.done[1]) as usize == self.parts.len()
    }

    /// Returns the parts that need a message now. The directories come after all entries, because each new entry changes
    /// the time of its directory.
    pub fn open_parts(&self) -> impl Iterator<Item = u32> + '_ {
        let all = self.parts.len() as u32;
        let range = if self.done[0] < self.entry_parts { 0..self.entry_parts } else { self.entry_parts..all };
        range.filter(|part| !self.is_done(*part))
    }

    /// Returns the number of parts that need a message now.
    pub fn open_count(&self) -> u64 {
        match self.entry_parts - self.done[0] {
            0 => (self.parts.len() as u32 - self.entry_parts - self.done[1]).into(),
            open => open.into(),
        }
    }

    /// Returns the parts to copy again in a new run: those with failures, and then all directories.
    pub fn failed_parts(&self) -> Vec<u32> {
        let failed = |part: &u32| self.parts.get(*part as usize).is_some_and(|state| state.failed > 0);
        let failed: Vec<_> = (0..self.entry_parts).filter(failed).collect();
        let directories = self.entry_parts..self.parts.len() as u32;
        let again = directories.clone().filter(failed_directory(self, &failed));
        failed.iter().copied().chain(again).collect()
    }

    /// Returns the totals of the parts that are done.
    pub fn totals(&self) -> QueueTotals {
        self.totals
    }

    /// Returns the failures, at most [`MAX_FAILURES`].
    pub fn failures(&self) -> Vec<EntryFailure> {
        self.parts.iter().flat_map(|state| &state.failures).take(MAX_FAILURES).cloned().collect()
    }
}

/// Selects directory parts: all of them if entries are copied again, otherwise those with failures.
fn failed_directory<'a>(board: &'a Board, entries: &[u32]) -> impl Fn(&u32) -> bool + use<'a> {
    let all = !entries.is_empty();
    move |part| all || board.parts.get(*part as usize).is_some_and(|state| state.failed > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn board(entry_parts: u32, directory_parts: u32) -> Board {
        Board::new(&Header { entry_parts, directory_parts, ..Header::default() })
    }

    fn record(entries: u64, failed: u64) -> PartRecord {
        PartRecord { entries, bytes: Bytes(10 * entries), failed, ..PartRecord::default() }
    }

    #[test]
    fn directories_come_after_all_entries() {
        let mut board = board(2, 1);
        assert_eq!(board.open_parts().collect::<Vec<_>>(), [0, 1]);
        board.record(1, record(3, 0));
        assert_eq!((board.open_parts().collect::<Vec<_>>(), board.open_count()), (vec![0], 1));
        board.record(0, record(4, 1));
        assert_eq!((board.open_parts().collect::<Vec<_>>(), board.open_count()), (vec![2], 1));
        assert!(!board.is_complete());
        board.record(2, record(1, 0));
        assert!(board.is_complete() && board.open_count() == 0);
        assert_eq!(board.totals(), QueueTotals { entries: 7, bytes: Bytes(70), failed: 1 });
        assert_eq!(board.failed_parts(), [0, 2]);
        board.reopen(0);
        assert!(!board.is_complete() && board.totals().failed == 0);
    }

    #[test]
    fn empty_manifest_is_complete() {
        assert!(board(0, 0).is_complete());
        assert_eq!(board(0, 0).open_count(), 0);
    }

    proptest! {
        /// Records arrive in any order, several times, and are removed again.
        #[test]
        fn totals_are_those_of_the_last_records(steps in proptest::collection::vec((0_u32..8, 0_u64..4, 0_u64..2, any::<bool>()), 0..80)) {
            let mut board = board(5, 2);
            let mut last = [None; 7];
            for (part, entries, failed, removes) in steps {
                if removes { board.reopen(part) } else { board.record(part, record(entries, failed)) }
                if let Some(slot) = last.get_mut(part as usize) {
                    *slot = (!removes).then_some((entries, failed));
                }
            }
            let sum = |range: std::ops::Range<usize>, of: fn(&(u64, u64)) -> u64| last[range].iter().flatten().map(of).sum::<u64>();
            prop_assert_eq!(board.totals().entries, sum(0..5, |part| part.0));
            prop_assert_eq!(board.totals().failed, sum(0..7, |part| part.1));
            prop_assert_eq!(board.is_complete(), last.iter().all(Option::is_some));
            prop_assert_eq!(board.open_parts().count() as u64, board.open_count());
            prop_assert_eq!(board.open_count() == 0, board.is_complete());
        }
    }
}
