//! Storage of the packets in the link: in the slots where they arrived, or in a ring of bytes.
//!
//! A frame stays in the slot where the kernel stored it, and is sent from there. So a short path needs no copy. But
//! there are only a few slots. When they become scarce, the oldest frames move to a ring of bytes, which is written and
//! freed in order of arrival. On a path so long that all frames must move, they move at once, while they are still in
//! the CPU cache. With a constant delay the link is a queue, so neither place needs an allocator. Reordering works too,
//! but a delayed packet blocks the space of the packets behind it. A full queue accepts the first packets of a
//! super-packet and drops the rest. The rest is not moved. Otherwise the ring would need twice the size of the queue.

use std::collections::VecDeque;
use std::io;

use lfn_link::{Link, LinkConfig, Packet};
use lfn_packet::{Segments, VnetHeader};
use lfn_sys::memory::Arena;
use lfn_sys::packet::MAX_FRAME;

use super::port::{self, RxQueue, RxSlot};

/// Slots where frames arrive.
pub(super) trait FrameSlots {
    /// Returns virtio-net header and frame.
    fn bytes(&self, slot: RxSlot) -> &[u8];
    /// Returns the slot to the kernel.
    fn give_back(&mut self, slot: RxSlot);
    /// Returns true if free slots are scarce.
    fn is_half_full(&self) -> bool;
}

/// Stored packets of one direction.
pub(super) struct PacketRing<S> {
    pub(super) slots: S,
    /// The last chunk is written. The others stay until their frames have left.
    chunks: VecDeque<Chunk>,
    stored: VecDeque<StoredFrame>,
    /// Id of the oldest stored frame. Ids increase by one.
    oldest_id: u64,
    /// Id of the oldest frame that is still in its slot.
    oldest_slot_id: u64,
    /// Position of the next frame in the last chunk.
    write: usize,
    /// True while frames move immediately.
    moves_immediately: bool,
}

/// Memory and the id of its first frame.
struct Chunk {
    first_id: u64,
    arena: Arena,
}

/// A frame with its virtio-net header.
struct StoredFrame {
    location: FrameLocation,
    /// Virtual packets still in the link, copies included.
    packets_left: u32,
    needed: NeededPart,
}

/// The part of a frame that the link still needs.
struct NeededPart {
    /// No virtual packet from this number on is in the link. `None` if the link made copies.
    end: Option<u32>,
    /// Bytes before the payload of the first packet.
    header: usize,
    /// Payload bytes of each virtual packet except the last.
    payload_per_packet: usize,
}

#[derive(Clone, Copy)]
enum FrameLocation {
    Slot(RxSlot),
    /// Start and length. After [`NeededPart::end`], the bytes belong to later frames.
    Chunk(usize, usize),
}

/// Alignment of frames, a cache line, so that the header is read with one memory access.
const ALIGNMENT: usize = 64;
/// Space beyond the contents of the link, for packets that arrive while the thread is busy.
const SLACK: u64 = 4 << 20;
/// With fewer stored frames, the slots are sufficient.
const MIN_FRAMES_TO_MOVE: usize = 60;

/// Returns the maximum number of packet bytes in these hops.
pub(super) fn bytes_in_link(hops: &[LinkConfig]) -> u64 {
    hops.iter().map(|hop| Link::memory_needed(hop).0).fold(0, u64::saturating_add)
}

/// Returns the memory that one direction needs: this ring, and the rings shared with the kernel.
pub(crate) fn memory_needed(hops: &[LinkConfig]) -> u64 {
    ring_size(hops).saturating_add(port::rx_ring_bytes(bytes_in_link(hops)))
}

/// Returns the size of the ring: the contents of the hops plus one eighth for the overhead of small packets.
pub(super) fn ring_size(hops: &[LinkConfig]) -> u64 {
    let contents = bytes_in_link(hops);
    contents.saturating_add(contents / 8).saturating_add(SLACK)
}

/// Allocates at least `capacity` bytes and makes them resident.
pub(super) fn arena(capacity: usize) -> io::Result<Arena> {
    Arena::new(capacity.max(4 * MAX_FRAME))
}

impl<S: FrameSlots> PacketRing<S> {
    /// Creates a ring with at least `capacity` resident bytes in addition to the slots.
    pub(super) fn new(slots: S, capacity: usize) -> io::Result<Self> {
        Ok(PacketRing {
            slots,
            chunks: VecDeque::from([Chunk { first_id: 0, arena: arena(capacity)? }]),
            stored: VecDeque::new(),
            oldest_id: 0,
            oldest_slot_id: 0,
            write: 0,
            moves_immediately: false,
        })
    }

    /// Continues in other memory. Stored frames stay where they are.
    pub(super) fn switch_arena(&mut self, arena: Arena) {
        self.chunks.push_back(Chunk { first_id: self.oldest_slot_id, arena });
        self.write = 0;
        self.free_unused_chunks();
    }

    /// Moves frames until slots are not scarce. Returns false if the ring has no room for them.
    pub(super) fn free_slots(&mut self) -> bool {
        while self.slots.is_half_full() {
            self.moves_immediately = true;
            if !self.move_oldest_frame() {
                return false;
            }
        }
        true
    }

    /// Stores the frame of a slot until all its virtual packets are released. Returns the id of the frame.
    pub(super) fn store(&mut self, slot: RxSlot, segments: &Segments) -> u64 {
        let id = self.next_id();
        self.stored.push_back(StoredFrame {
            location: FrameLocation::Slot(slot),
            packets_left: segments.count,
            needed: NeededPart::new(segments),
        });
        id
    }

    /// Returns the frame `id`, if it is still stored. Payload of packets that have left the link is invalid.
    pub(super) fn frame(&self, id: u64) -> Option<&[u8]> {
        match self.stored.get(self.index(id)?)?.location {
            FrameLocation::Slot(slot) => Some(self.slots.bytes(slot)),
            FrameLocation::Chunk(start, length) => {
                let chunk = self.chunks.iter().rev().find(|chunk| chunk.first_id <= id)?;
                chunk.arena.as_slice().get(start..start + length)
            }
        }
    }

    /// Counts one more copy of these virtual packets.
    pub(super) fn retain(&mut self, packet: &Packet) {
        if let Some(stored) = self.index(packet.id).and_then(|index| self.stored.get_mut(index)) {
            stored.packets_left = stored.packets_left.saturating_add(packet.count);
            stored.needed.end = None;
        }
    }

    /// Releases virtual packets that were sent or dropped.
    pub(super) fn release(&mut self, packet: &Packet) {
        let Some(stored) = self.index(packet.id).and_then(|index| self.stored.get_mut(index)) else { return };
        stored.packets_left = stored.packets_left.saturating_sub(packet.count);
        if stored.needed.end == Some(packet.first + packet.count) {
            stored.needed.end = Some(packet.first);
        }
        if let StoredFrame { location: FrameLocation::Slot(slot), packets_left: 0, .. } = *stored {
            self.slots.give_back(slot);
        }
        // The newest frame is a super-packet that met a full queue. Its space is freed at once.
        while self.stored.len() > self.frames_in_old_chunks() + 1
            && let Some(newest) = self.stored.back().filter(|stored| stored.packets_left == 0)
        {
            if let FrameLocation::Chunk(start, _) = newest.location {
                self.write = start;
            }
            self.stored.pop_back();
        }
        while self.stored.front().is_some_and(|stored| stored.packets_left == 0) {
            self.stored.pop_front();
            self.oldest_id += 1;
        }
        self.oldest_slot_id = self.oldest_slot_id.clamp(self.oldest_id, self.next_id());
        self.free_unused_chunks();
    }

    /// Moves frames after a batch, if frames currently move immediately.
    pub(super) fn move_frames_if_needed(&mut self) {
        if self.moves_immediately {
            self.move_all_frames();
            self.moves_immediately = self.stored.len() > MIN_FRAMES_TO_MOVE;
        }
    }

    /// Moves all frames out of their slots. Returns false if the ring has no room for them.
    pub(super) fn move_all_frames(&mut self) -> bool {
        while self.oldest_slot_id < self.next_id() {
            if !self.move_oldest_frame() {
                return false;
            }
        }
        true
    }

    /// Moves the oldest frame out of its slot. Returns false if no frame is in a slot, or if the ring has no room.
    fn move_oldest_frame(&mut self) -> bool {
        let id = self.oldest_slot_id;
        let Some(&StoredFrame { location: FrameLocation::Slot(slot), packets_left, ref needed }) =
            self.index(id).and_then(|index| self.stored.get(index))
        else {
            return false;
        };
        // A frame that has left needs no room, and its slot is already free.
        let length = if packets_left > 0 { self.slots.bytes(slot).len() } else { 0 };
        let needed_bytes = needed.bytes(length);
        let Some(start) = self.find_space(length) else { return false };
        if let Some(chunk) = self.chunks.back_mut()
            && length > 0
        {
            chunk.arena.as_mut_slice()[start..start + needed_bytes]
                .copy_from_slice(&self.slots.bytes(slot)[..needed_bytes]);
            self.slots.give_back(slot);
        }
        if let Some(stored) = self.index(id).and_then(|index| self.stored.get_mut(index)) {
            stored.location = FrameLocation::Chunk(start, length);
        }
        self.write = start + needed_bytes.next_multiple_of(ALIGNMENT);
        self.oldest_slot_id += 1;
        true
    }

    /// Returns the position of `length` free bytes in the last chunk.
    fn find_space(&self, length: usize) -> Option<usize> {
        let needed = length.next_multiple_of(ALIGNMENT);
        let capacity = self.chunks.back()?.arena.as_slice().len();
        match self.stored.get(self.frames_in_old_chunks()).map(|stored| stored.location) {
            Some(FrameLocation::Chunk(first, _)) if self.write > first => match capacity.checked_sub(self.write) {
                Some(space) if space >= needed => Some(self.write),
                _ => (first >= needed).then_some(0),
            },
            Some(FrameLocation::Chunk(first, _)) => (first - self.write >= needed).then_some(self.write),
            // The chunk is empty. Start at its beginning, which is in the CPU cache.
            Some(FrameLocation::Slot(_)) | None => Some(0),
        }
    }

    /// Frees chunks without frames.
    fn free_unused_chunks(&mut self) {
        while self.chunks.get(1).is_some_and(|next| next.first_id <= self.oldest_id) {
            self.chunks.pop_front();
        }
    }

    /// Returns the number of stored frames in chunks before the last one.
    fn frames_in_old_chunks(&self) -> usize {
        let first_id = self.chunks.back().map_or(0, |chunk| chunk.first_id);
        usize::try_from(first_id.saturating_sub(self.oldest_id)).unwrap_or(usize::MAX)
    }

    fn next_id(&self) -> u64 {
        self.oldest_id + self.stored.len() as u64
    }

    fn index(&self, id: u64) -> Option<usize> {
        usize::try_from(id.checked_sub(self.oldest_id)?).ok()
    }
}

impl NeededPart {
    fn new(segments: &Segments) -> NeededPart {
        NeededPart {
            end: Some(segments.count),
            header: VnetHeader::LEN + segments.header_len as usize,
            payload_per_packet: segments.wire_len.saturating_sub(segments.header_len) as usize,
        }
    }

    /// Returns the number of needed bytes of a frame with `length` bytes.
    fn bytes(&self, length: usize) -> usize {
        self.end.map_or(length, |end| (self.header + end as usize * self.payload_per_packet).min(length))
    }
}

impl FrameSlots for RxQueue<'_> {
    fn bytes(&self, slot: RxSlot) -> &[u8] {
        self.bytes(slot)
    }

    fn give_back(&mut self, slot: RxSlot) {
        self.give_back(slot);
    }

    fn is_half_full(&self) -> bool {
        self.is_half_full()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lfn_base::units::{BitRate, Bytes};
    use lfn_link::QueueLimit;

    use super::*;

    /// Slots without a kernel.
    struct FakeSlots {
        frames: Vec<Option<Vec<u8>>>,
        half: usize,
    }

    impl FrameSlots for FakeSlots {
        fn bytes(&self, slot: RxSlot) -> &[u8] {
            self.frames[slot.index].as_deref().unwrap_or_default()
        }

        fn give_back(&mut self, slot: RxSlot) {
            assert!(self.frames[slot.index].take().is_some(), "given back twice");
        }

        fn is_half_full(&self) -> bool {
            self.frames.iter().flatten().count() > self.half
        }
    }

    fn ring(slots: usize) -> PacketRing<FakeSlots> {
        PacketRing::new(FakeSlots { frames: vec![None; slots], half: slots / 2 }, 0).unwrap()
    }

    /// Describes `packets` virtual packets in a frame of `length` bytes, with 20 bytes of headers.
    fn segments(length: usize, packets: u32) -> Segments {
        let payload = length.saturating_sub(VnetHeader::LEN + 20) as u32;
        let wire = 20 + payload.div_ceil(packets);
        let last_wire = 20 + payload - (packets - 1) * payload.div_ceil(packets);
        let opaque = lfn_packet::inspect(&[], &VnetHeader::default());
        Segments {
            count: packets,
            header_len: 20,
            payload_len: payload,
            wire_len: wire,
            last_wire_len: last_wire,
            ..opaque
        }
    }

    /// Returns `count` virtual packets, starting with `first`.
    fn several(id: u64, first: u32, count: u32) -> Packet {
        Packet { first, ..Packet::super_packet(id, count, 1514, 1514) }
    }

    fn release(ring: &mut PacketRing<FakeSlots>, id: u64, packets: u32) {
        ring.release(&several(id, 0, packets));
    }

    fn put(ring: &mut PacketRing<FakeSlots>, byte: u8, length: usize, packets: u32) -> Option<u64> {
        let index = ring.slots.frames.iter().position(Option::is_none).expect("the kernel would have found a slot");
        ring.slots.frames[index] = Some(vec![byte; length]);
        let slot = RxSlot { is_long: true, index };
        if ring.free_slots() {
            return Some(ring.store(slot, &segments(length, packets)));
        }
        ring.slots.give_back(slot);
        None
    }

    fn is_intact(ring: &PacketRing<FakeSlots>, id: u64, byte: u8, length: usize) -> bool {
        ring.frame(id).is_some_and(|frame| frame.len() == length && frame.iter().all(|b| *b == byte))
    }

    #[test]
    fn memory_stays_within_the_documented_bound() {
        let queues = [(1, 1_000), (135, 9_000_000), (1_000, 64_000_000), (10_000, 600_000_000)];
        for (megabits, queue) in queues {
            let hop = LinkConfig {
                rate: BitRate(megabits * 1_000_000).into(),
                delay: Duration::from_millis(270).into(),
                queue: QueueLimit::Bytes(Bytes(queue)),
                ..LinkConfig::default()
            };
            let bound = 1.3 * (megabits as f64 * 125e3 * 0.27 + queue as f64);
            let hops = [hop];
            let needed = memory_needed(&hops);
            // Both directions together may take 64 MiB more. A tenth of this is reserved for the program itself.
            assert!(needed as f64 - bound < 0.9 * f64::from(32 << 20), "{megabits} Mb/s: {needed} of {bound}");
        }
    }

    #[test]
    fn frames_stay_intact_while_the_ring_wraps() {
        for slots in [2, 7, 30] {
            let mut ring = ring(slots);
            let mut stored_frames = VecDeque::new();
            let (mut full, mut round) = (0, 0);
            for step in 0..10_000_usize {
                let byte = (step % 251) as u8;
                let length = 1 + step * 7919 % MAX_FRAME;
                match put(&mut ring, byte, length, 2) {
                    Some(id) => stored_frames.push_back((id, byte, length)),
                    None => full += 1,
                }
                if step % 3 == 0 {
                    ring.move_frames_if_needed();
                }
                if stored_frames.len() > step % 31 {
                    let (id, byte, length) = stored_frames.pop_front().unwrap();
                    assert!(is_intact(&ring, id, byte, length), "step {step}");
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
    fn frames_stay_intact_when_they_leave_out_of_order() {
        let mut ring = ring(9);
        let mut stored_frames = Vec::new();
        let mut round = 0;
        for step in 0..10_000_usize {
            let (byte, length) = ((step % 251) as u8, 1 + step * 7919 % 20_000);
            stored_frames.extend(put(&mut ring, byte, length, 1).map(|id| (id, byte, length)));
            if step % 7 == 0 {
                ring.move_all_frames();
            }
            while stored_frames.len() > 8 {
                let (id, byte, length) = stored_frames.swap_remove(step * 31 % stored_frames.len());
                assert!(is_intact(&ring, id, byte, length), "step {step}");
                release(&mut ring, id, 1);
                round += 1;
            }
        }
        stored_frames.into_iter().for_each(|(id, ..)| release(&mut ring, id, 1));
        assert!(round > 5_000 && ring.stored.is_empty() && ring.slots.frames.iter().all(Option::is_none));
    }

    #[test]
    fn frame_dropped_at_once_takes_no_space() {
        let mut ring = ring(4);
        let first = put(&mut ring, 1, 100, 1).unwrap();
        for step in 0..1000 {
            let dropped = put(&mut ring, 2, MAX_FRAME, 45).unwrap();
            if step % 2 == 0 {
                assert!(ring.move_all_frames());
            }
            release(&mut ring, dropped, 45);
        }
        assert!(is_intact(&ring, first, 1, 100));
    }

    #[test]
    fn part_dropped_by_a_full_queue_takes_no_space() {
        let mut ring = ring(4);
        let mut stored_frames = Vec::new();
        for byte in 0..30 {
            let id = put(&mut ring, byte, 60_000, 40).expect("a tenth of it fits");
            ring.release(&several(id, 4, 36));
            assert!(ring.move_all_frames());
            stored_frames.push((id, byte));
        }
        for (id, byte) in stored_frames {
            assert!(ring.frame(id).unwrap()[..6_000].iter().all(|b| *b == byte));
            ring.release(&several(id, 0, 4));
        }
        assert!(ring.stored.is_empty());
    }

    #[test]
    fn copy_keeps_the_end_of_its_frame() {
        let mut ring = ring(4);
        let id = put(&mut ring, 7, 60_000, 40).unwrap();
        ring.retain(&several(id, 36, 4));
        ring.release(&several(id, 36, 4));
        assert!(ring.move_all_frames());
        let next = put(&mut ring, 8, 60_000, 40).unwrap();
        assert!(ring.move_all_frames() && is_intact(&ring, id, 7, 60_000) && is_intact(&ring, next, 8, 60_000));
    }

    #[test]
    fn full_ring_accepts_frames_again_after_release() {
        let mut ring = ring(4);
        while put(&mut ring, 0, MAX_FRAME, 1).is_some() {}
        assert!(!ring.move_all_frames());
        release(&mut ring, 0, 1);
        release(&mut ring, 1, 1);
        assert!(put(&mut ring, 0, MAX_FRAME, 1).is_some());
    }

    #[test]
    fn frames_stay_intact_when_the_arena_changes() {
        let mut ring = ring(6);
        let mut stored_frames = VecDeque::new();
        for step in 0..500_usize {
            let byte = (step % 251) as u8;
            if step % 20 == 7 {
                ring.switch_arena(arena(0).unwrap());
            }
            stored_frames.extend(put(&mut ring, byte, 20_000, 1).map(|id| (id, byte)));
            if let Some(dropped) = put(&mut ring, 255, 100, 1) {
                release(&mut ring, dropped, 1);
            }
            if stored_frames.len() > 30 || step % 3 == 0 {
                let (id, byte) = stored_frames.pop_front().unwrap();
                assert!(is_intact(&ring, id, byte, 20_000), "step {step}");
                release(&mut ring, id, 1);
            }
        }
        assert!(stored_frames.len() > 5);
        while let Some((id, byte)) = stored_frames.pop_front() {
            assert!(is_intact(&ring, id, byte, 20_000));
            release(&mut ring, id, 1);
        }
        assert!(ring.chunks.len() == 1 && ring.stored.is_empty());
    }
}
