//! Packet port at one interface: receives frames through rings shared with the kernel, and sends one frame per call.
//!
//! A slot of a ring has the size of the largest frame, 64 KiB, so a ring for many small packets would be very large.
//! For this reason there are two rings, each with its own socket and a filter for the frame length. This module merges
//! both into one stream: the kernel timestamps every frame and delivers frames to both sockets in order.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use lfn_sys::packet::{LengthFilter, PacketSocket, ReceiveRing, ReceivedFrame, SlotSize};

/// Both packet sockets at one interface.
#[derive(Debug)]
pub(crate) struct Port {
    short: PacketSocket,
    long: PacketSocket,
}

/// Received frames of a port.
#[derive(Debug)]
pub(super) struct RxQueue<'a> {
    port: &'a Port,
    short: ReceiveRing,
    long: ReceiveRing,
}

/// Location of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RxSlot {
    pub(super) is_long: bool,
    pub(super) index: usize,
}

/// A received frame in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RxFrame {
    pub(super) slot: RxSlot,
    /// Arrival time in nanoseconds of `CLOCK_REALTIME`.
    pub(super) timestamp: u64,
    /// False if the frame was longer than the slot, which then holds only its start.
    pub(super) is_complete: bool,
}

/// Maximum length of a frame in the short ring, bytes: an Ethernet frame with tunnel headers and tags. A slot has 2,048
/// bytes.
const MAX_SHORT_FRAME: u32 = 1920;
/// Size of the ring for short frames, bytes: 4,096 frames, 0.1 s at the maximum of 45,000 frames/s of this path.
pub(super) const SHORT_RING_SIZE: usize = 8 << 20;
/// Minimum and maximum size of the ring for super-packets, bytes: 240 and 960 frames, 12 and 50 ms at 10 Gb/s.
const LONG_RING_SIZE: [u64; 2] = [16 << 20, 64 << 20];

/// Returns the size of both rings for a link that holds `link_bytes`. The ring for super-packets grows with the link,
/// because a burst is limited by the sender's data in flight.
pub(super) fn rx_ring_bytes(link_bytes: u64) -> u64 {
    SHORT_RING_SIZE as u64 + long_ring(link_bytes)
}

fn long_ring(link_bytes: u64) -> u64 {
    let [min, max] = LONG_RING_SIZE;
    (min + link_bytes / 6).min(max)
}

impl Port {
    /// Opens a port at the interface with this index, in the namespace of the calling thread. Receiving starts with
    /// [`Port::open_rx_queue`].
    pub(crate) fn open(interface: u32) -> io::Result<Self> {
        Ok(Port {
            short: PacketSocket::open(interface, LengthFilter::UpTo(MAX_SHORT_FRAME))?,
            long: PacketSocket::open(interface, LengthFilter::Above(MAX_SHORT_FRAME))?,
        })
    }

    /// Starts receiving for a link that holds `link_bytes`.
    pub(super) fn open_rx_queue(&self, link_bytes: u64) -> io::Result<RxQueue<'_>> {
        let long = usize::try_from(long_ring(link_bytes)).map_err(io::Error::other)?;
        Ok(RxQueue {
            port: self,
            short: ReceiveRing::new(&self.short, SlotSize::Frames(MAX_SHORT_FRAME as usize), SHORT_RING_SIZE)?,
            long: ReceiveRing::new(&self.long, SlotSize::SuperPackets, long)?,
        })
    }

    /// Sends one frame, gathered from `parts`. The virtio-net header comes first.
    pub(super) fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.long.send(parts)
    }

    /// Receives also frames for other hosts (promiscuous mode).
    pub(crate) fn set_promiscuous(&self, interface: u32) -> io::Result<()> {
        self.long.set_promiscuous(interface)
    }

    /// Returns the number of frames that the kernel dropped since the last call, because a ring was full.
    pub(super) fn take_dropped(&self) -> io::Result<u64> {
        Ok(self.short.take_dropped()? + self.long.take_dropped()?)
    }
}

impl RxQueue<'_> {
    /// Returns true if a frame is waiting.
    pub(super) fn has_frame(&self) -> bool {
        self.short.peek().is_some() || self.long.peek().is_some()
    }

    /// Returns the next frame. The frame stays in its slot until `give_back`.
    pub(super) fn take(&mut self) -> io::Result<Option<RxFrame>> {
        let (mut short, mut long) = (self.short.peek(), self.long.peek());
        // A frame may arrive in one ring after that ring was checked. So an empty ring is checked again, to keep the
        // order.
        if short.is_none() && long.is_some() {
            short = self.short.peek();
        } else if long.is_none() && short.is_some() {
            long = self.long.peek();
        }
        let is_long = match (short, long) {
            (Some(short), Some(long)) => long < short,
            (_, long) => long.is_some(),
        };
        let received = if is_long { self.long.take()? } else { self.short.take()? };
        Ok(received.map(|ReceivedFrame { slot, timestamp, is_complete, .. }| RxFrame {
            slot: RxSlot { is_long, index: slot },
            timestamp,
            is_complete,
        }))
    }

    /// Returns virtio-net header and frame.
    pub(super) fn bytes(&self, slot: RxSlot) -> &[u8] {
        if slot.is_long { self.long.bytes(slot.index) } else { self.short.bytes(slot.index) }
    }

    /// Returns the slot to the kernel.
    pub(super) fn give_back(&mut self, slot: RxSlot) {
        if slot.is_long { self.long.give_back(slot.index) } else { self.short.give_back(slot.index) }
    }

    /// Returns true if more than half of a ring is in use, so that the kernel may soon drop frames.
    pub(super) fn is_half_full(&self) -> bool {
        [&self.short, &self.long].iter().any(|ring| ring.used_slots() > ring.slots() / 2)
    }

    /// Returns an error if the interface is gone or down.
    pub(super) fn check(&self) -> io::Result<()> {
        self.port.short.take_error()?;
        self.port.long.take_error()
    }

    /// Returns the file descriptors of both sockets. They are readable when a frame has arrived, or while the newest
    /// frame is not given back.
    pub(super) fn poll_fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.port.short.as_fd(), self.port.long.as_fd()]
    }
}
