//! Shares the blocks of a sender between several receivers: ranks that write into the files of one of them, the lead.

use lfn_base::units::Bytes;

use super::BlockScheduler;
use super::filter::{BlockFilter, Sharing};

/// Maximum files that are looked at to find the next one to share. Most of them may be small.
const MAX_LOOK_AHEAD: usize = 1024;

impl<T: Clone> BlockScheduler<T> {
    /// Returns the first file with a block that the filter permits.
    pub(super) fn next_permitted(&self, filter: BlockFilter<'_>) -> Option<u32> {
        let candidates = if filter.shared_only { &self.sharing_to_send } else { &self.to_send };
        let has_block = |file: &u32| {
            let work = self.pending.get(file).and_then(Option::as_ref);
            self.may_open(*file)
                && work.is_some_and(|work| filter.first_block(work.sharing, &work.layout, &work.send).is_some())
        };
        candidates.iter().copied().take_while(|file| *file < self.requested_up_to).find(has_block)
    }

    /// Returns the next file of several blocks that the lead of several ranks should open for them. At most `max` files are
    /// open, or opened, and have blocks to send.
    pub fn next_to_share(&mut self, max: usize) -> Option<u32> {
        if self.sharing_to_send.len() >= max {
            return None;
        }
        let is_new = |file: &u32| {
            let work = self.pending.get(file).and_then(Option::as_ref);
            work.is_some_and(|work| work.layout.blocks() > 1 && work.sharing == Sharing::No && !work.digest_only)
        };
        let ready = self.to_send.iter().copied().take_while(|file| *file < self.requested_up_to);
        let file = ready.take(MAX_LOOK_AHEAD).find(is_new)?;
        self.pending.get_mut(&file)?.as_mut()?.sharing = Sharing::Requested;
        self.update_queues(file);
        Some(file)
    }

    /// Records that ranks can write a file. Returns its reader and its length, unless it is finished or was not requested.
    pub fn set_shared(&mut self, file: u32) -> Option<(T, Bytes)> {
        let work = self.pending.get_mut(&file)?.as_mut().filter(|work| work.sharing == Sharing::Requested)?;
        work.sharing = Sharing::Shared;
        Some((work.source.clone(), work.layout.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 1024;

    fn schedule(files: &[u64]) -> BlockScheduler<()> {
        let mut schedule = BlockScheduler::new(Bytes(BLOCK));
        for blocks in files {
            schedule.add_entry(1, Some((Bytes(blocks * BLOCK), ()))).unwrap();
        }
        schedule
    }

    fn take(schedule: &mut BlockScheduler<()>, filter: BlockFilter<'_>) -> Vec<(u32, u64)> {
        schedule.next_blocks(1 << 20, filter).iter().map(|task| (task.file, task.block.index)).collect()
    }

    #[test]
    fn only_shared_files_go_to_other_ranks() {
        let mut schedule = schedule(&[1, 3, 1, 2]);
        let others = BlockFilter { shared_only: true, staggered: &[] };
        assert!(take(&mut schedule, others).is_empty());
        assert_eq!(schedule.set_shared(1), None, "the file was not requested");
        assert_eq!((schedule.next_to_share(2), schedule.next_to_share(2)), (Some(1), Some(3)));
        assert_eq!(schedule.next_to_share(2), None);
        assert!(take(&mut schedule, others).is_empty(), "the lead has not opened a file");
        assert_eq!(schedule.set_shared(3), Some(((), Bytes(2 * BLOCK))));
        assert_eq!(take(&mut schedule, others), [(3, 0)]);
        assert_eq!(take(&mut schedule, BlockFilter::ALL), [(0, 0)]);
        assert_eq!(take(&mut schedule, BlockFilter::ALL), [(1, 0)]);
        assert_eq!(take(&mut schedule, others), [(3, 1)]);
        assert!(take(&mut schedule, others).is_empty());
        // A lost block returns.
        schedule.resend(3, 0, 0).unwrap();
        assert_eq!(take(&mut schedule, others), [(3, 0)]);
        schedule.fail(3).unwrap();
        assert_eq!(schedule.set_shared(3), None);
    }

    #[test]
    fn files_are_shared_only_after_their_request() {
        let mut schedule = schedule(&[2, 2]);
        schedule.set_wait_for_requests(true);
        assert_eq!(schedule.next_to_share(8), None);
        schedule.request_up_to(1).unwrap();
        assert_eq!((schedule.next_to_share(8), schedule.next_to_share(8)), (Some(0), None));
    }

    #[test]
    fn staggered_blocks_go_to_their_rank() {
        let mut schedule = schedule(&[7, 1]);
        let of = |ranks| BlockFilter { shared_only: false, staggered: ranks };
        let second = [false, true, false];
        assert_eq!(take(&mut schedule, of(&second)), [(0, 1)]);
        assert_eq!(take(&mut schedule, of(&second)), [(0, 4)]);
        // A file of one block belongs to no rank.
        assert_eq!(take(&mut schedule, of(&second)), [(1, 0)]);
        assert!(take(&mut schedule, of(&second)).is_empty());
        // The blocks of an absent rank may go to others.
        let mut left = Vec::new();
        while let [block] = take(&mut schedule, of(&[true, true, true]))[..] {
            left.push(block);
        }
        assert_eq!(left, [(0, 0), (0, 2), (0, 3), (0, 5), (0, 6)]);
    }
}
