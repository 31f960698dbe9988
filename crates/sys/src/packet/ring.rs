//! A receive ring shared with the kernel (`PACKET_RX_RING`, `TPACKET_V2`; Documentation/networking/packet_mmap.rst).
//!
//! The kernel copies each frame, with its virtio-net header and arrival time, into the next slot. So frames are
//! received without a system call and can be used in place. Unlike a receive buffer, the ring may have any size, also
//! for ordinary users. Slots may be given back in any order, but the kernel fills them in order and drops frames while
//! the next slot is taken. Version 3 is not used, because it holds frames until a block is full or 1 ms has passed.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{MAX_FRAME, PacketSocket};

/// Receive ring of one packet socket.
#[derive(Debug)]
pub struct ReceiveRing {
    start: NonNull<u8>,
    length: usize,
    slot: usize,
    slots_per_block: usize,
    /// Bytes of the virtio-net header before each frame: [`VNET_HEADER`](super::VNET_HEADER) or 0.
    vnet_header: usize,
    /// The frames have a link-layer header, into which a removed VLAN tag is inserted.
    has_link_header: bool,
    /// Offset and length of the frame in each slot. The length is zero while the kernel owns the slot.
    taken: Vec<(u32, u32)>,
    /// The slot that the kernel fills next, or has already filled.
    next: usize,
    /// No slot from `next` up to this one is taken.
    oldest: usize,
}

/// Slot size of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotSize {
    /// Frames of this many bytes, counted as in [`LengthFilter`](super::LengthFilter). A VLAN tag is added.
    Frames(usize),
    /// The longest possible frames.
    SuperPackets,
}

/// A received frame in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedFrame {
    pub slot: usize,
    /// Arrival at the interface, in nanoseconds of `CLOCK_REALTIME`.
    pub timestamp: u64,
    /// False if the frame was longer than the slot, which then holds only its start.
    pub is_complete: bool,
    /// Length of the whole frame in bytes, without virtio-net header and without a VLAN tag that the kernel removed.
    pub length: u32,
    /// The frame was sent from the interface (`PACKET_OUTGOING`).
    pub is_outgoing: bool,
    /// The frame passed the loopback interface.
    pub is_loopback: bool,
    /// EtherType of the packet, behind a VLAN tag that the kernel removed.
    pub protocol: u16,
}

// SAFETY: the ring is the only owner of its mapping, and the status words order the kernel's writes to it.
unsafe impl Send for ReceiveRing {}

/// The kernel allocates in blocks. This size wastes little memory and can still be allocated.
const BLOCK: usize = 1 << 20;
/// Bytes before a frame and its virtio-net header: the slot's own header and the sender address, aligned, plus one VLAN
/// tag.
const HEADER_SPACE: usize = 96;
/// Size of the Ethernet addresses. A VLAN tag follows them.
const ADDRESSES: usize = 12;
/// Size of a VLAN tag, bytes.
const VLAN_TAG: usize = 4;
/// Positions of `hdr_len` and `csum_start` in the virtio-net header. Both count from the start of the frame, and zero
/// means unused.
const OFFSETS: [usize; 2] = [2, 6];

impl ReceiveRing {
    /// Makes `socket` receive into a ring of about `bytes` instead of its buffer.
    pub fn new(socket: &PacketSocket, room: SlotSize, bytes: usize) -> io::Result<Self> {
        let slot = room.slot();
        let (blocks, slots_per_block) = ((bytes / BLOCK).max(1), BLOCK / slot);
        let to_u32 = |value: usize| u32::try_from(value).map_err(io::Error::other);
        let request = libc::tpacket_req {
            tp_block_size: to_u32(BLOCK)?,
            tp_block_nr: to_u32(blocks)?,
            tp_frame_size: to_u32(slot)?,
            tp_frame_nr: to_u32(blocks * slots_per_block)?,
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as i32)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_RX_RING, request)?;
        let length = blocks * BLOCK;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses affects no existing memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, socket.as_fd().as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mmap gave a null address"))?;
        Ok(ReceiveRing {
            start,
            length,
            slot,
            slots_per_block,
            vnet_header: socket.vnet_header,
            has_link_header: socket.has_link_header,
            taken: vec![(0, 0); blocks * slots_per_block],
            next: 0,
            oldest: 0,
        })
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.taken.len()
    }

    /// Returns the number of slots from the oldest taken one to the next one. If this is all slots, the kernel drops
    /// frames.
    pub fn used_slots(&self) -> usize {
        match (self.next + self.slots() - self.oldest) % self.slots() {
            0 if self.is_taken(self.next) => self.slots(),
            used_slots => used_slots,
        }
    }

    /// Returns the arrival time of the frame that [`take`](Self::take) would return, or `None` if there is none.
    pub fn peek(&self) -> Option<u64> {
        self.is_filled().then(|| timestamp(&self.header()))
    }

    /// Takes the next frame, if there is one. Its slot stays taken until it is [given back](Self::give_back).
    pub fn take(&mut self) -> io::Result<Option<ReceivedFrame>> {
        if !self.is_filled() {
            return Ok(None);
        }
        let (slot, header, vnet_header) = (self.next, self.header(), self.vnet_header);
        let (length, captured, start_offset) =
            (header.tp_len as usize, header.tp_snaplen as usize, usize::from(header.tp_mac));
        if start_offset < vnet_header + VLAN_TAG || start_offset + captured > self.slot {
            let message = format!("a frame of {captured} bytes from {start_offset} on in a slot of {}", self.slot);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let sender = self.sender();
        let has_tag = self.has_link_header && header.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
        self.taken[slot] = if has_tag && captured >= ADDRESSES {
            let start_offset = start_offset - vnet_header - VLAN_TAG;
            self.taken[slot] = (start_offset as u32, (VLAN_TAG + vnet_header + captured) as u32);
            insert_vlan_tag(self.bytes_mut(slot), vnet_header, vlan_tag(&header));
            self.taken[slot]
        } else {
            ((start_offset - vnet_header) as u32, (vnet_header + captured) as u32)
        };
        self.next = (slot + 1) % self.slots();
        Ok(Some(ReceivedFrame {
            slot,
            timestamp: timestamp(&header),
            is_complete: captured >= length,
            length: header.tp_len,
            is_outgoing: sender.sll_pkttype == libc::PACKET_OUTGOING,
            is_loopback: sender.sll_hatype == libc::ARPHRD_LOOPBACK,
            protocol: u16::from_be(sender.sll_protocol),
        }))
    }

    /// Returns virtio-net header and frame of a taken slot, or an empty slice for a free slot.
    pub fn bytes(&self, slot: usize) -> &[u8] {
        let Some(&(start_offset, length)) = self.taken.get(slot) else { return &[] };
        // SAFETY: `take` checked that the range lies within the slot (otherwise it is empty). The slot lies within the
        // mapping. The kernel does not write to it until it is given back, which takes `&mut self`.
        unsafe { slice::from_raw_parts(self.slot_start(slot).add(start_offset as usize), length as usize) }
    }

    /// Returns a slot to the kernel.
    pub fn give_back(&mut self, slot: usize) {
        if slot < self.slots() && self.is_taken(slot) {
            self.taken[slot] = (0, 0);
            self.status(slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            if slot == self.oldest {
                let after = |slot| (slot + 1) % self.taken.len();
                let next = after(slot);
                let following = std::iter::successors(Some(next), |slot| Some(after(*slot)));
                self.oldest = following
                    .take(self.slots())
                    .find(|slot| *slot == self.next || self.is_taken(*slot))
                    .unwrap_or(self.next);
            }
        }
    }

    fn is_taken(&self, slot: usize) -> bool {
        self.taken[slot].1 > 0
    }

    fn bytes_mut(&mut self, slot: usize) -> &mut [u8] {
        let (start_offset, length) = self.taken[slot];
        // SAFETY: as in `bytes`, and `&mut self` makes this the only reference.
        unsafe { slice::from_raw_parts_mut(self.slot_start(slot).add(start_offset as usize), length as usize) }
    }

    fn is_filled(&self) -> bool {
        // In a ring full of taken slots, the next slot is a taken one.
        !self.is_taken(self.next) && self.status(self.next).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    fn header(&self) -> libc::tpacket2_hdr {
        // SAFETY: every slot starts with the header, aligned to 64 bytes. The kernel does not change the header while
        // the slot is filled.
        unsafe { self.slot_start(self.next).cast::<libc::tpacket2_hdr>().read() }
    }

    /// Returns the address of the sender, which follows the header of a filled slot (`packet_mmap.rst`).
    fn sender(&self) -> libc::sockaddr_ll {
        const OFFSET: usize = size_of::<libc::tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);
        // SAFETY: the kernel writes the address there for every frame, within the slot. It is plain data.
        unsafe { self.slot_start(self.next).add(OFFSET).cast::<libc::sockaddr_ll>().read_unaligned() }
    }

    /// Returns the first word of a slot's header, which shows its owner.
    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: aligned, within the mapping, and both sides read and write it only as one word.
        unsafe { AtomicU32::from_ptr(self.slot_start(slot).cast()) }
    }

    fn slot_start(&self, slot: usize) -> *mut u8 {
        debug_assert!(slot < self.slots());
        let offset = slot / self.slots_per_block * BLOCK + slot % self.slots_per_block * self.slot;
        // SAFETY: slot is below the number of slots, all of which lie within the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for ReceiveRing {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference to it can outlive the value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl SlotSize {
    /// Returns the size of a slot: a whole number of cache lines. The kernel requires a multiple of 16 bytes.
    fn slot(self) -> usize {
        let frame = match self {
            SlotSize::Frames(bytes) => bytes,
            SlotSize::SuperPackets => MAX_FRAME,
        };
        (HEADER_SPACE + frame).next_multiple_of(64)
    }
}

fn timestamp(header: &libc::tpacket2_hdr) -> u64 {
    u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec)
}

/// Returns the VLAN tag that the kernel removed from the frame, as it was on the wire.
fn vlan_tag(header: &libc::tpacket2_hdr) -> [u8; VLAN_TAG] {
    let has_kind = header.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let kind = if has_kind { header.tp_vlan_tpid } else { libc::ETH_P_8021Q as u16 };
    let ([k0, k1], [t0, t1]) = (kind.to_be_bytes(), header.tp_vlan_tci.to_be_bytes());
    [k0, k1, t0, t1]
}

/// Inserts a tag after the addresses of a frame. `VLAN_TAG` spare bytes precede the frame and its virtio-net header of
/// `vnet_header` bytes.
fn insert_vlan_tag(bytes: &mut [u8], vnet_header: usize, tag: [u8; VLAN_TAG]) {
    let after = vnet_header + ADDRESSES;
    bytes.copy_within(VLAN_TAG..VLAN_TAG + after, 0);
    bytes[after..after + VLAN_TAG].copy_from_slice(&tag);
    if vnet_header == 0 {
        return;
    }
    for at in OFFSETS {
        let offset = u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let moved = if offset == 0 { 0 } else { offset.saturating_add(VLAN_TAG as u16) };
        bytes[at..at + 2].copy_from_slice(&moved.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::VNET_HEADER;
    use super::*;

    #[test]
    fn vlan_tag_is_inserted_and_offsets_move() {
        let mut bytes: Vec<u8> = [0; VLAN_TAG].into_iter().chain([0; VNET_HEADER]).chain(10..40).collect();
        bytes[VLAN_TAG + 2..VLAN_TAG + 4].copy_from_slice(&54_u16.to_ne_bytes());
        insert_vlan_tag(&mut bytes, VNET_HEADER, [0x81, 0x00, 0x00, 0x05]);
        assert_eq!((&bytes[2..4], &bytes[6..8]), (&58_u16.to_ne_bytes()[..], &[0, 0][..]));
        assert_eq!(bytes[VNET_HEADER..VNET_HEADER + ADDRESSES], (10..22).collect::<Vec<u8>>());
        assert_eq!(bytes[22..26], [0x81, 0x00, 0x00, 0x05]);
        assert_eq!(bytes[26..], (22..40).collect::<Vec<u8>>());
    }
}
