//! Packets where they were received: one ring of bytes a direction, written and freed in order of arrival.
//!
//! Constant delay makes the link a queue, so the bytes need no allocator: a frame is received into the free space
//! behind the newest, and the space of the oldest is free again once all its virtual packets have left or were dropped.
//! A link that reorders would still work; a packet that is held back holds back the space behind it.

use std::collections::VecDeque;
use std::io;

use lfn_sys::memory::Arena;
use lfn_sys::packet::MAX_FRAME;

/// The ring of one direction.
pub(super) struct PacketRing {
    /// The last is written to; those before it only until their frames have left.
    lots: VecDeque<Lot>,
    kept: VecDeque<Kept>,
    /// The id of the oldest kept frame; ids count up by one.
    oldest: u64,
    /// Where in the last lot the next frame goes if there is room.
    write: usize,
}

/// Memory, and the id of the first frame in it.
struct Lot {
    since: u64,
    arena: Arena,
}

/// One frame with its virtual-net header.
struct Kept {
    start: usize,
    length: usize,
    /// Virtual packets still in the link.
    left: u32,
}

/// Frames start at multiples of this, a cache line, so that the header in front is read with one access.
const ALIGNMENT: usize = 64;

/// Memory for a ring of at least `capacity` bytes, all of it resident.
pub(super) fn arena(capacity: usize) -> io::Result<Arena> {
    Arena::new(capacity.max(4 * MAX_FRAME))
}

impl PacketRing {
    /// A ring of at least `capacity` bytes, all of it resident.
    pub(super) fn new(capacity: usize) -> io::Result<Self> {
        let lots = VecDeque::from([Lot { since: 0, arena: arena(capacity)? }]);
        Ok(PacketRing { lots, kept: VecDeque::new(), oldest: 0, write: 0 })
    }

    /// Goes on in other memory. What was kept stays where it is.
    pub(super) fn move_on(&mut self, arena: Arena) {
        self.lots.push_back(Lot { since: self.next_id(), arena });
        self.write = 0;
        self.leave_lots();
    }

    /// Where to receive the next frame; `None` if there is no room.
    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        let in_others = self.in_others();
        let arena = self.lots.back_mut()?.arena.as_mut_slice();
        let start = match self.kept.get(in_others) {
            // Start over where the cache is warm.
            None => 0,
            Some(first) if self.write > first.start && arena.len() - self.write >= MAX_FRAME => self.write,
            Some(first) if self.write > first.start && first.start >= MAX_FRAME => 0,
            Some(first) if self.write <= first.start && first.start - self.write >= MAX_FRAME => self.write,
            Some(_) => return None,
        };
        self.write = start;
        arena.get_mut(start..start + MAX_FRAME)
    }

    /// Keeps the first `length` bytes of what [`room`](Self::room) gave, until `packets` virtual packets were
    /// released. Gives the frame's id.
    pub(super) fn keep(&mut self, length: usize, packets: u32) -> u64 {
        let id = self.next_id();
        self.kept.push_back(Kept { start: self.write, length, left: packets });
        self.write += length.next_multiple_of(ALIGNMENT);
        id
    }

    /// The frame called `id`, if it is still kept.
    pub(super) fn frame(&self, id: u64) -> Option<&[u8]> {
        let kept = self.kept.get(self.index(id)?)?;
        let lot = self.lots.iter().rev().find(|lot| lot.since <= id)?;
        lot.arena.as_slice().get(kept.start..kept.start + kept.length)
    }

    /// So many virtual packets of that frame exist once more.
    pub(super) fn retain(&mut self, id: u64, packets: u32) {
        if let Some(kept) = self.index(id).and_then(|index| self.kept.get_mut(index)) {
            kept.left = kept.left.saturating_add(packets);
        }
    }

    /// So many virtual packets of that frame have left or were dropped.
    pub(super) fn release(&mut self, id: u64, packets: u32) {
        if let Some(kept) = self.index(id).and_then(|index| self.kept.get_mut(index)) {
            kept.left = kept.left.saturating_sub(packets);
        }
        // A super-packet that met a full queue is the newest: its room is worth having back at once.
        while self.kept.len() > self.in_others() + 1
            && let Some(newest) = self.kept.back().filter(|kept| kept.left == 0)
        {
            self.write = newest.start;
            self.kept.pop_back();
        }
        while self.kept.front().is_some_and(|kept| kept.left == 0) {
            self.kept.pop_front();
            self.oldest += 1;
        }
        self.leave_lots();
    }

    /// Frees memory that no frame is left in.
    fn leave_lots(&mut self) {
        while self.lots.get(1).is_some_and(|next| next.since <= self.oldest) {
            self.lots.pop_front();
        }
    }

    /// How many of the frames kept are not in the last lot.
    fn in_others(&self) -> usize {
        let since = self.lots.back().map_or(0, |lot| lot.since);
        usize::try_from(since.saturating_sub(self.oldest)).unwrap_or(usize::MAX)
    }

    fn next_id(&self) -> u64 {
        self.oldest + self.kept.len() as u64
    }

    fn index(&self, id: u64) -> Option<usize> {
        usize::try_from(id.checked_sub(self.oldest)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(ring: &mut PacketRing, byte: u8, length: usize, packets: u32) -> Option<u64> {
        ring.room()?[..length].fill(byte);
        Some(ring.keep(length, packets))
    }

    #[test]
    fn frames_stay_whole_while_the_ring_goes_round() {
        let mut ring = PacketRing::new(0).unwrap();
        let mut held = VecDeque::new();
        let (mut full, mut round) = (0, 0);
        for step in 0..10_000_usize {
            let byte = (step % 251) as u8;
            let length = 1 + step * 7919 % MAX_FRAME;
            match put(&mut ring, byte, length, 2) {
                Some(id) => held.push_back((id, byte, length)),
                None => full += 1,
            }
            if held.len() > step % 5 {
                let (id, byte, length) = held.pop_front().unwrap();
                let frame = ring.frame(id).unwrap();
                assert!(frame.len() == length && frame.iter().all(|b| *b == byte), "step {step}");
                ring.release(id, 1);
                assert!(ring.frame(id).is_some(), "half of it is still in the link");
                ring.release(id, 1);
                round += 1;
            }
        }
        assert!(full > 0 && round > 5_000, "{full} times full, {round} frames");
    }

    #[test]
    fn a_frame_that_was_dropped_at_once_costs_no_room() {
        let mut ring = PacketRing::new(0).unwrap();
        let first = put(&mut ring, 1, 100, 1).unwrap();
        for _ in 0..1000 {
            let dropped = put(&mut ring, 2, MAX_FRAME, 45).unwrap();
            ring.release(dropped, 45);
        }
        assert!(ring.frame(first).unwrap().iter().all(|b| *b == 1));
    }

    #[test]
    fn a_full_ring_says_so() {
        let mut ring = PacketRing::new(0).unwrap();
        while put(&mut ring, 0, MAX_FRAME, 1).is_some() {}
        assert!(ring.room().is_none());
        ring.release(0, 1);
        ring.release(1, 1);
        assert!(ring.room().is_some());
    }

    #[test]
    fn frames_stay_whole_when_the_ring_moves_on() {
        let mut ring = PacketRing::new(0).unwrap();
        let mut held = VecDeque::new();
        for step in 0..500_usize {
            let byte = (step % 251) as u8;
            if step % 20 == 7 {
                ring.move_on(arena(0).unwrap());
            }
            if let Some(id) = put(&mut ring, byte, 20_000, 1) {
                held.push_back((id, byte));
            }
            if let Some(dropped) = put(&mut ring, 255, 100, 1) {
                ring.release(dropped, 1);
            }
            if held.len() > 30 || step % 3 == 0 {
                let (id, byte) = held.pop_front().unwrap();
                assert!(ring.frame(id).unwrap().iter().all(|b| *b == byte), "step {step}");
                ring.release(id, 1);
            }
        }
        assert!(held.len() > 5);
        while let Some((id, byte)) = held.pop_front() {
            assert!(ring.frame(id).unwrap().iter().all(|b| *b == byte));
            ring.release(id, 1);
        }
        assert!(ring.lots.len() == 1 && ring.kept.is_empty());
    }
}
