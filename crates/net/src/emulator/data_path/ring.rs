//! Packets that the link has not let go of: where they came in, or in a ring of bytes of their own.
//!
//! A frame stays in the slot in which the kernel put it, and is sent from there: on a short path nothing is ever copied.
//! But slots are few. So the oldest frames move on into a ring of bytes, written and freed in order of arrival, when
//! slots become scarce; and where the path is so long that all of them have to move, they do so at once, while the
//! cache still has them. Constant delay makes the link a queue, so neither needs an allocator. A link that reorders
//! works as well; a packet that is held back holds back the space behind it. A full queue takes the first packets of a
//! super-packet and drops the rest: that rest is not moved, or the ring would have to be twice what the queue holds.

use std::collections::VecDeque;
use std::io;

use lfn_core::link::segment::{Segments, VnetHeader};
use lfn_core::link::{Link, LinkConfig, Packet};
use lfn_sys::memory::Arena;
use lfn_sys::packet::MAX_FRAME;

use super::port::{self, Intake, Slot};

/// Where frames come in.
pub(super) trait Slots {
    /// Virtual-net header and frame.
    fn bytes(&self, slot: Slot) -> &[u8];
    /// The frame is no longer needed.
    fn give_back(&mut self, slot: Slot);
    /// True if slots are scarce.
    fn is_crowded(&self) -> bool;
}

/// What one direction keeps.
pub(super) struct PacketRing<S> {
    /// Where frames come in.
    pub(super) slots: S,
    /// The last is written to; those before it only until their frames have left.
    lots: VecDeque<Lot>,
    kept: VecDeque<Kept>,
    /// The id of the oldest kept frame; ids count up by one.
    oldest: u64,
    /// The id of the oldest frame that is still in its slot.
    unmoved: u64,
    /// Where in the last lot the next frame goes.
    write: usize,
    /// True while frames move on at once.
    moves_at_once: bool,
}

/// Memory, and the id of the first frame in it.
struct Lot {
    since: u64,
    arena: Arena,
}

/// One frame with its virtual-net header.
struct Kept {
    place: Place,
    /// Virtual packets still in the link, copies too.
    left: u32,
    extent: Extent,
}

/// How much of a frame is still wanted.
struct Extent {
    /// No virtual packet from this one on is in the link; `None` once there are copies.
    end: Option<u32>,
    /// Bytes up to the first packet's payload.
    header: usize,
    /// Bytes of payload of each virtual packet but the last.
    each: usize,
}

#[derive(Clone, Copy)]
enum Place {
    Slot(Slot),
    /// From there, so many bytes; what follows [`Extent::end`] is of the frames behind it.
    Lot(usize, usize),
}

/// Frames start at multiples of this, a cache line, so that the header in front is read with one access.
const ALIGNMENT: usize = 64;
/// Room beyond what the link holds: what arrives while the thread does something else.
const SLACK: u64 = 4 << 20;
/// With fewer frames kept than this, slots will do.
const FEW: usize = 60;

/// What the hops hold at most, bytes of packets.
pub(super) fn held(hops: &[LinkConfig]) -> u64 {
    hops.iter().map(|hop| Link::memory_needed(hop).0).fold(0, u64::saturating_add)
}

/// Bytes of memory that one direction takes: this ring, and those shared with the kernel.
pub(in crate::emulator) fn memory(hops: &[LinkConfig]) -> u64 {
    ring_size(hops).saturating_add(port::rings(held(hops)))
}

/// What the hops hold, and an eighth for the bookkeeping of small packets.
pub(super) fn ring_size(hops: &[LinkConfig]) -> u64 {
    let held = held(hops);
    held.saturating_add(held / 8).saturating_add(SLACK)
}

/// Memory for a ring of at least `capacity` bytes, all of it resident.
pub(super) fn arena(capacity: usize) -> io::Result<Arena> {
    Arena::new(capacity.max(4 * MAX_FRAME))
}

impl<S: Slots> PacketRing<S> {
    /// With at least `capacity` bytes beside the slots, all of them resident.
    pub(super) fn new(slots: S, capacity: usize) -> io::Result<Self> {
        Ok(PacketRing {
            slots,
            lots: VecDeque::from([Lot { since: 0, arena: arena(capacity)? }]),
            kept: VecDeque::new(),
            oldest: 0,
            unmoved: 0,
            write: 0,
            moves_at_once: false,
        })
    }

    /// Goes on in other memory. What was kept stays where it is.
    pub(super) fn move_on(&mut self, arena: Arena) {
        self.lots.push_back(Lot { since: self.unmoved, arena });
        self.write = 0;
        self.leave_lots();
    }

    /// Sees to it that slots are not scarce; false if there is no room for what is in them.
    pub(super) fn make_room(&mut self) -> bool {
        while self.slots.is_crowded() {
            self.moves_at_once = true;
            if !self.move_one() {
                return false;
            }
        }
        true
    }

    /// Keeps the frame in a slot until all its virtual packets were released. Gives its id.
    pub(super) fn keep(&mut self, slot: Slot, segments: &Segments) -> u64 {
        let id = self.next_id();
        self.kept.push_back(Kept { place: Place::Slot(slot), left: segments.count, extent: Extent::of(segments) });
        id
    }

    /// The frame called `id`, if it is still kept. Of its payload, only what belongs to packets in the link is good.
    pub(super) fn frame(&self, id: u64) -> Option<&[u8]> {
        match self.kept.get(self.index(id)?)?.place {
            Place::Slot(slot) => Some(self.slots.bytes(slot)),
            Place::Lot(start, length) => {
                let lot = self.lots.iter().rev().find(|lot| lot.since <= id)?;
                lot.arena.as_slice().get(start..start + length)
            }
        }
    }

    /// These virtual packets exist once more.
    pub(super) fn retain(&mut self, packet: &Packet) {
        if let Some(kept) = self.index(packet.id).and_then(|index| self.kept.get_mut(index)) {
            kept.left = kept.left.saturating_add(packet.count);
            kept.extent.end = None;
        }
    }

    /// These virtual packets have left or were dropped.
    pub(super) fn release(&mut self, packet: &Packet) {
        let Some(kept) = self.index(packet.id).and_then(|index| self.kept.get_mut(index)) else { return };
        kept.left = kept.left.saturating_sub(packet.count);
        if kept.extent.end == Some(packet.first + packet.count) {
            kept.extent.end = Some(packet.first);
        }
        if let Kept { place: Place::Slot(slot), left: 0, .. } = *kept {
            self.slots.give_back(slot);
        }
        // A super-packet that met a full queue is the newest: its room is worth having back at once.
        while self.kept.len() > self.in_others() + 1
            && let Some(newest) = self.kept.back().filter(|kept| kept.left == 0)
        {
            if let Place::Lot(start, _) = newest.place {
                self.write = start;
            }
            self.kept.pop_back();
        }
        while self.kept.front().is_some_and(|kept| kept.left == 0) {
            self.kept.pop_front();
            self.oldest += 1;
        }
        self.unmoved = self.unmoved.clamp(self.oldest, self.next_id());
        self.leave_lots();
    }

    /// After a batch: moves frames on, if this is a time at which they all have to.
    pub(super) fn tidy(&mut self) {
        if self.moves_at_once {
            self.empty_slots();
            self.moves_at_once = self.kept.len() > FEW;
        }
    }

    /// Moves all frames out of their slots; false if there is no room for them.
    pub(super) fn empty_slots(&mut self) -> bool {
        while self.unmoved < self.next_id() {
            if !self.move_one() {
                return false;
            }
        }
        true
    }

    /// Moves the oldest frame that is in a slot; false if there is none, or no room.
    fn move_one(&mut self) -> bool {
        let id = self.unmoved;
        let Some(&Kept { place: Place::Slot(slot), left, ref extent }) =
            self.index(id).and_then(|index| self.kept.get(index))
        else {
            return false;
        };
        // What has left already takes no room, and its slot has been given back.
        let length = if left > 0 { self.slots.bytes(slot).len() } else { 0 };
        let wanted = extent.bytes(length);
        let Some(start) = self.room(length) else { return false };
        if let Some(lot) = self.lots.back_mut()
            && length > 0
        {
            lot.arena.as_mut_slice()[start..start + wanted].copy_from_slice(&self.slots.bytes(slot)[..wanted]);
            self.slots.give_back(slot);
        }
        if let Some(kept) = self.index(id).and_then(|index| self.kept.get_mut(index)) {
            kept.place = Place::Lot(start, length);
        }
        self.write = start + wanted.next_multiple_of(ALIGNMENT);
        self.unmoved += 1;
        true
    }

    /// Where in the last lot so many bytes find room.
    fn room(&self, length: usize) -> Option<usize> {
        let needed = length.next_multiple_of(ALIGNMENT);
        let capacity = self.lots.back()?.arena.as_slice().len();
        match self.kept.get(self.in_others()).map(|kept| kept.place) {
            Some(Place::Lot(first, _)) if self.write > first => match capacity.checked_sub(self.write) {
                Some(left) if left >= needed => Some(self.write),
                _ => (first >= needed).then_some(0),
            },
            Some(Place::Lot(first, _)) => (first - self.write >= needed).then_some(self.write),
            // Nothing in it: start over where the cache is warm.
            Some(Place::Slot(_)) | None => Some(0),
        }
    }

    /// Frees memory that no frame is left in.
    fn leave_lots(&mut self) {
        while self.lots.get(1).is_some_and(|next| next.since <= self.oldest) {
            self.lots.pop_front();
        }
    }

    /// How many of the frames kept lie in lots before the last.
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

impl Extent {
    fn of(segments: &Segments) -> Extent {
        Extent {
            end: Some(segments.count),
            header: VnetHeader::LEN + segments.header as usize,
            each: segments.wire.saturating_sub(segments.header) as usize,
        }
    }

    /// How many of the `length` bytes of the frame.
    fn bytes(&self, length: usize) -> usize {
        self.end.map_or(length, |end| (self.header + end as usize * self.each).min(length))
    }
}

impl Slots for Intake<'_> {
    fn bytes(&self, slot: Slot) -> &[u8] {
        self.bytes(slot)
    }

    fn give_back(&mut self, slot: Slot) {
        self.give_back(slot);
    }

    fn is_crowded(&self) -> bool {
        self.is_crowded()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lfn_core::link::{QueueLimit, segment};
    use lfn_core::units::{BitRate, Bytes};

    use super::*;

    /// Slots as they are, without a kernel.
    struct Fake {
        frames: Vec<Option<Vec<u8>>>,
        crowd: usize,
    }

    impl Slots for Fake {
        fn bytes(&self, slot: Slot) -> &[u8] {
            self.frames[slot.index].as_deref().unwrap_or_default()
        }

        fn give_back(&mut self, slot: Slot) {
            assert!(self.frames[slot.index].take().is_some(), "given back twice");
        }

        fn is_crowded(&self) -> bool {
            self.frames.iter().flatten().count() > self.crowd
        }
    }

    fn ring(slots: usize) -> PacketRing<Fake> {
        PacketRing::new(Fake { frames: vec![None; slots], crowd: slots / 2 }, 0).unwrap()
    }

    /// So many virtual packets in a frame of `length` bytes, all but 20 of them payload.
    fn segments(length: usize, packets: u32) -> Segments {
        let payload = length.saturating_sub(VnetHeader::LEN + 20) as u32;
        let wire = 20 + payload.div_ceil(packets);
        let last_wire = 20 + payload - (packets - 1) * payload.div_ceil(packets);
        let opaque = segment::inspect(&[], &VnetHeader::default());
        Segments { count: packets, header: 20, payload, wire, last_wire, ..opaque }
    }

    /// Virtual packets `first` and those after it.
    fn several(id: u64, first: u32, count: u32) -> Packet {
        Packet { first, ..Packet::several(id, count, 1514, 1514) }
    }

    fn release(ring: &mut PacketRing<Fake>, id: u64, packets: u32) {
        ring.release(&several(id, 0, packets));
    }

    fn put(ring: &mut PacketRing<Fake>, byte: u8, length: usize, packets: u32) -> Option<u64> {
        let index = ring.slots.frames.iter().position(Option::is_none).expect("the kernel would have found a slot");
        ring.slots.frames[index] = Some(vec![byte; length]);
        let slot = Slot { is_long: true, index };
        if ring.make_room() {
            return Some(ring.keep(slot, &segments(length, packets)));
        }
        ring.slots.give_back(slot);
        None
    }

    fn is_whole(ring: &PacketRing<Fake>, id: u64, byte: u8, length: usize) -> bool {
        ring.frame(id).is_some_and(|frame| frame.len() == length && frame.iter().all(|b| *b == byte))
    }

    #[test]
    fn a_path_takes_no_more_memory_than_is_promised() {
        let queues = [(1, 1_000), (135, 9_000_000), (1_000, 64_000_000), (10_000, 600_000_000)];
        for (megabits, queue) in queues {
            let hop = LinkConfig {
                rate: BitRate(megabits * 1_000_000).into(),
                delay: Duration::from_millis(270).into(),
                queue: QueueLimit::Bytes(Bytes(queue)),
                ..LinkConfig::default()
            };
            let promised = 1.3 * (megabits as f64 * 125e3 * 0.27 + queue as f64);
            let hops = [hop];
            let taken = memory(&hops);
            // Of the 64 MiB that two directions may take beyond that, a tenth is left for the program itself.
            assert!(taken as f64 - promised < 0.9 * f64::from(32 << 20), "{megabits} Mb/s: {taken} of {promised}");
        }
    }

    #[test]
    fn frames_stay_whole_while_the_ring_goes_round() {
        for slots in [2, 7, 30] {
            let mut ring = ring(slots);
            let mut held = VecDeque::new();
            let (mut full, mut round) = (0, 0);
            for step in 0..10_000_usize {
                let byte = (step % 251) as u8;
                let length = 1 + step * 7919 % MAX_FRAME;
                match put(&mut ring, byte, length, 2) {
                    Some(id) => held.push_back((id, byte, length)),
                    None => full += 1,
                }
                if step % 3 == 0 {
                    ring.tidy();
                }
                if held.len() > step % 31 {
                    let (id, byte, length) = held.pop_front().unwrap();
                    assert!(is_whole(&ring, id, byte, length), "step {step}");
                    release(&mut ring, id, 1);
                    assert!(ring.frame(id).is_some(), "half of it is still in the link");
                    release(&mut ring, id, 1);
                    round += 1;
                }
            }
            assert!(full > 0 && round > 1_000, "{slots} slots: {full} times full, {round} frames");
        }
    }

    #[test]
    fn frames_stay_whole_when_they_leave_out_of_order() {
        let mut ring = ring(9);
        let mut held = Vec::new();
        let mut round = 0;
        for step in 0..10_000_usize {
            let (byte, length) = ((step % 251) as u8, 1 + step * 7919 % 20_000);
            held.extend(put(&mut ring, byte, length, 1).map(|id| (id, byte, length)));
            if step % 7 == 0 {
                ring.empty_slots();
            }
            while held.len() > 8 {
                let (id, byte, length) = held.swap_remove(step * 31 % held.len());
                assert!(is_whole(&ring, id, byte, length), "step {step}");
                release(&mut ring, id, 1);
                round += 1;
            }
        }
        held.into_iter().for_each(|(id, ..)| release(&mut ring, id, 1));
        assert!(round > 5_000 && ring.kept.is_empty() && ring.slots.frames.iter().all(Option::is_none));
    }

    #[test]
    fn a_frame_that_was_dropped_at_once_costs_no_room() {
        let mut ring = ring(4);
        let first = put(&mut ring, 1, 100, 1).unwrap();
        for step in 0..1000 {
            let dropped = put(&mut ring, 2, MAX_FRAME, 45).unwrap();
            if step % 2 == 0 {
                assert!(ring.empty_slots());
            }
            release(&mut ring, dropped, 45);
        }
        assert!(is_whole(&ring, first, 1, 100));
    }

    #[test]
    fn the_end_of_a_frame_that_a_full_queue_dropped_costs_no_room() {
        let mut ring = ring(4);
        let mut held = Vec::new();
        for byte in 0..30 {
            let id = put(&mut ring, byte, 60_000, 40).expect("a tenth of it fits");
            ring.release(&several(id, 4, 36));
            assert!(ring.empty_slots());
            held.push((id, byte));
        }
        for (id, byte) in held {
            assert!(ring.frame(id).unwrap()[..6_000].iter().all(|b| *b == byte));
            ring.release(&several(id, 0, 4));
        }
        assert!(ring.kept.is_empty());
    }

    #[test]
    fn a_copy_keeps_the_end_of_its_frame() {
        let mut ring = ring(4);
        let id = put(&mut ring, 7, 60_000, 40).unwrap();
        ring.retain(&several(id, 36, 4));
        ring.release(&several(id, 36, 4));
        assert!(ring.empty_slots());
        let next = put(&mut ring, 8, 60_000, 40).unwrap();
        assert!(ring.empty_slots() && is_whole(&ring, id, 7, 60_000) && is_whole(&ring, next, 8, 60_000));
    }

    #[test]
    fn a_full_ring_says_so_and_takes_more_when_there_is_room() {
        let mut ring = ring(4);
        while put(&mut ring, 0, MAX_FRAME, 1).is_some() {}
        assert!(!ring.empty_slots());
        release(&mut ring, 0, 1);
        release(&mut ring, 1, 1);
        assert!(put(&mut ring, 0, MAX_FRAME, 1).is_some());
    }

    #[test]
    fn frames_stay_whole_when_the_ring_moves_on() {
        let mut ring = ring(6);
        let mut held = VecDeque::new();
        for step in 0..500_usize {
            let byte = (step % 251) as u8;
            if step % 20 == 7 {
                ring.move_on(arena(0).unwrap());
            }
            held.extend(put(&mut ring, byte, 20_000, 1).map(|id| (id, byte)));
            if let Some(dropped) = put(&mut ring, 255, 100, 1) {
                release(&mut ring, dropped, 1);
            }
            if held.len() > 30 || step % 3 == 0 {
                let (id, byte) = held.pop_front().unwrap();
                assert!(is_whole(&ring, id, byte, 20_000), "step {step}");
                release(&mut ring, id, 1);
            }
        }
        assert!(held.len() > 5);
        while let Some((id, byte)) = held.pop_front() {
            assert!(is_whole(&ring, id, byte, 20_000));
            release(&mut ring, id, 1);
        }
        assert!(ring.lots.len() == 1 && ring.kept.is_empty());
    }
}
