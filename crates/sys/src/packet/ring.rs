//! A receive ring shared with the kernel (`PACKET_RX_RING`, `TPACKET_V2`; Documentation/networking/packet_mmap.rst).
//!
//! The kernel copies each frame, with its virtual-net header and the time of its arrival, into the next slot. So frames
//! are received without a system call; they can be used where they are; and the ring, unlike a socket's receive buffer,
//! is as large as whoever makes it wants, also for an ordinary user. Slots are given back in any order, but the kernel
//! fills them in turn and drops what comes when the next one is still taken. Version 2, because version 3 holds frames
//! back until a block is full or a millisecond has passed.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{MAX_FRAME, PacketSocket, VNET_HEADER};

/// The ring of one packet socket.
#[derive(Debug)]
pub struct ReceiveRing {
    start: NonNull<u8>,
    length: usize,
    slot: usize,
    slots_per_block: usize,
    /// Where the frame in each slot is, from the start of the slot; empty while the slot is the kernel's.
    taken: Vec<(u32, u32)>,
    /// The slot that the kernel fills next, or has filled.
    next: usize,
    /// No slot from `next` on up to this one is taken.
    oldest: usize,
}

/// What slots are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Frames of so many bytes, as [`Lengths`](super::Lengths) counts them, VLAN tag extra.
    Frames(usize),
    /// The longest frames there are.
    SuperPackets,
}

/// A frame that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Where it is.
    pub slot: usize,
    /// When it arrived at the interface, in nanoseconds of `CLOCK_REALTIME`.
    pub stamp: u64,
    /// False if it was longer than the slot: only its start is there.
    pub is_whole: bool,
}

// SAFETY: the ring owns its mapping alone; what the kernel changes in it is ordered by the status words.
unsafe impl Send for ReceiveRing {}

/// The kernel allocates in blocks: large, so that little is wasted, and small enough to be had.
const BLOCK: usize = 1 << 20;
/// Bytes before a frame and its virtual-net header: the slot's own header and the sender's address, aligned, and room
/// for one VLAN tag.
const BEFORE: usize = 96;
/// Bytes of the Ethernet addresses, after which a VLAN tag stands.
const ADDRESSES: usize = 12;
/// Bytes of a VLAN tag.
const TAG: usize = 4;
/// Where `hdr_len` and `csum_start` are in the virtual-net header: they count from the start of the frame, and are zero
/// where there is no such thing.
const OFFSETS: [usize; 2] = [2, 6];

impl ReceiveRing {
    /// Has `socket` receive into a ring of about `bytes` from now on, no longer into its buffer.
    pub fn new(socket: &PacketSocket, room: Room, bytes: usize) -> io::Result<Self> {
        let slot = room.slot();
        let (blocks, slots_per_block) = ((bytes / BLOCK).max(1), BLOCK / slot);
        let narrow = |value: usize| u32::try_from(value).map_err(io::Error::other);
        let request = libc::tpacket_req {
            tp_block_size: narrow(BLOCK)?,
            tp_block_nr: narrow(blocks)?,
            tp_frame_size: narrow(slot)?,
            tp_frame_nr: narrow(blocks * slots_per_block)?,
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as i32)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_RX_RING, request)?;
        let length = blocks * BLOCK;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping at an address the kernel chooses touches no existing memory.
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
            taken: vec![(0, 0); blocks * slots_per_block],
            next: 0,
            oldest: 0,
        })
    }

    /// How many frames there is room for.
    pub fn slots(&self) -> usize {
        self.taken.len()
    }

    /// How many slots lie between the oldest that is still taken and the next: when these are all, the kernel drops.
    pub fn spread(&self) -> usize {
        match (self.next + self.slots() - self.oldest) % self.slots() {
            0 if self.is_taken(self.next) => self.slots(),
            spread => spread,
        }
    }

    /// When the frame arrived that [`take`](Self::take) would take; `None` if there is none.
    pub fn peek(&self) -> Option<u64> {
        self.is_filled().then(|| stamp(&self.header()))
    }

    /// Takes the next frame, if there is one; its slot is this side's until it is [given back](Self::give_back).
    pub fn take(&mut self) -> io::Result<Option<Received>> {
        if !self.is_filled() {
            return Ok(None);
        }
        let (slot, header) = (self.next, self.header());
        let (length, kept, begin) = (header.tp_len as usize, header.tp_snaplen as usize, usize::from(header.tp_mac));
        if begin < VNET_HEADER + TAG || begin + kept > self.slot {
            let what = format!("a frame of {kept} bytes from {begin} on in a slot of {}", self.slot);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let tag = (header.tp_status & libc::TP_STATUS_VLAN_VALID != 0).then(|| vlan_tag(&header));
        self.taken[slot] = match tag {
            Some(tag) if kept >= ADDRESSES => {
                let begin = begin - VNET_HEADER - TAG;
                self.taken[slot] = (begin as u32, (TAG + VNET_HEADER + kept) as u32);
                put_tag_in(self.bytes_mut(slot), tag);
                self.taken[slot]
            }
            _ => ((begin - VNET_HEADER) as u32, (VNET_HEADER + kept) as u32),
        };
        self.next = (slot + 1) % self.slots();
        Ok(Some(Received { slot, stamp: stamp(&header), is_whole: kept >= length }))
    }

    /// Virtual-net header and frame in a slot that was taken; nothing if it was not.
    pub fn bytes(&self, slot: usize) -> &[u8] {
        let Some(&(begin, length)) = self.taken.get(slot) else { return &[] };
        // SAFETY: the range was checked to lie within the slot when it was taken (and is empty otherwise), the slot
        // lies within the mapping, and the kernel does not write to it until it is given back, which takes `&mut self`.
        unsafe { slice::from_raw_parts(self.at(slot).add(begin as usize), length as usize) }
    }

    /// Lets the kernel fill a slot again.
    pub fn give_back(&mut self, slot: usize) {
        if slot < self.slots() && self.is_taken(slot) {
            self.taken[slot] = (0, 0);
            self.status(slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            if slot == self.oldest {
                let after = |slot| (slot + 1) % self.taken.len();
                let next = after(slot);
                let in_turn = std::iter::successors(Some(next), |slot| Some(after(*slot)));
                self.oldest = in_turn
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
        let (begin, length) = self.taken[slot];
        // SAFETY: as in `bytes`, and `&mut self` makes this the only reference.
        unsafe { slice::from_raw_parts_mut(self.at(slot).add(begin as usize), length as usize) }
    }

    fn is_filled(&self) -> bool {
        // A ring that is full of taken slots comes round to one of them.
        !self.is_taken(self.next) && self.status(self.next).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    fn header(&self) -> libc::tpacket2_hdr {
        // SAFETY: every slot begins with the header, aligned to 64 bytes, which the kernel does not touch while the slot
        // is filled.
        unsafe { self.at(self.next).cast::<libc::tpacket2_hdr>().read() }
    }

    /// The first word of a slot's header: whose it is.
    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: aligned, within the mapping, and only ever read and written as one word by both sides.
        unsafe { AtomicU32::from_ptr(self.at(slot).cast()) }
    }

    fn at(&self, slot: usize) -> *mut u8 {
        debug_assert!(slot < self.slots());
        let offset = slot / self.slots_per_block * BLOCK + slot % self.slots_per_block * self.slot;
        // SAFETY: slot is below the number of slots, all of which lie within the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for ReceiveRing {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned by this value and no reference to it can outlive it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl Room {
    /// Bytes of a slot: a whole number of cache lines, as the kernel wants whole units of 16 bytes.
    fn slot(self) -> usize {
        let frame = match self {
            Room::Frames(bytes) => bytes,
            Room::SuperPackets => MAX_FRAME,
        };
        (BEFORE + frame).next_multiple_of(64)
    }
}

fn stamp(header: &libc::tpacket2_hdr) -> u64 {
    u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec)
}

/// The tag that the kernel took out of the frame, as it was on the wire.
fn vlan_tag(header: &libc::tpacket2_hdr) -> [u8; TAG] {
    let has_kind = header.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let kind = if has_kind { header.tp_vlan_tpid } else { libc::ETH_P_8021Q as u16 };
    let ([k0, k1], [t0, t1]) = (kind.to_be_bytes(), header.tp_vlan_tci.to_be_bytes());
    [k0, k1, t0, t1]
}

/// Puts a tag behind the addresses of a frame that begins, with its virtual-net header, after `TAG` bytes to spare.
fn put_tag_in(bytes: &mut [u8], tag: [u8; TAG]) {
    let after = VNET_HEADER + ADDRESSES;
    bytes.copy_within(TAG..TAG + after, 0);
    bytes[after..after + TAG].copy_from_slice(&tag);
    for at in OFFSETS {
        let offset = u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let moved = if offset == 0 { 0 } else { offset.saturating_add(TAG as u16) };
        bytes[at..at + 2].copy_from_slice(&moved.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_behind_the_addresses_and_offsets_move() {
        let mut bytes: Vec<u8> = [0; TAG].into_iter().chain([0; VNET_HEADER]).chain(10..40).collect();
        bytes[TAG + 2..TAG + 4].copy_from_slice(&54_u16.to_ne_bytes());
        put_tag_in(&mut bytes, [0x81, 0x00, 0x00, 0x05]);
        assert_eq!((&bytes[2..4], &bytes[6..8]), (&58_u16.to_ne_bytes()[..], &[0, 0][..]));
        assert_eq!(bytes[VNET_HEADER..VNET_HEADER + ADDRESSES], (10..22).collect::<Vec<u8>>());
        assert_eq!(bytes[22..26], [0x81, 0x00, 0x00, 0x05]);
        assert_eq!(bytes[26..], (22..40).collect::<Vec<u8>>());
    }
}
