//! The packet path's end at one interface: frames come in through rings shared with the kernel, and go out one a call.
//!
//! A slot of a ring is as large as the largest frame, 64 KiB, whatever comes; a ring for many small packets would be
//! enormous. So there are two, each behind a socket of its own whose filter lets frames of its lengths through, and
//! here they become one stream again: the kernel stamps every frame, and hands frames that follow each other to both
//! sockets in that order.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use lfn_sys::packet::{Lengths, PacketSocket, ReceiveRing, Received, Room};

/// Both sockets at one interface.
#[derive(Debug)]
pub(in crate::emulator) struct Port {
    short: PacketSocket,
    long: PacketSocket,
}

/// What comes in at a port.
#[derive(Debug)]
pub(super) struct Intake<'a> {
    port: &'a Port,
    short: ReceiveRing,
    long: ReceiveRing,
}

/// Where a frame lies that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// In which ring.
    pub(super) is_long: bool,
    /// Where in it.
    pub(super) index: usize,
}

/// A frame that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Where it is.
    pub(super) slot: Slot,
    /// When it came, in nanoseconds of `CLOCK_REALTIME`.
    pub(super) stamp: u64,
    /// False if it was longer than a slot, and only its start is there.
    pub(super) is_whole: bool,
}

/// Longest frame of the short ring, bytes: an Ethernet frame with what tunnels and tags add. 2,048 with its slot.
const SHORT: u32 = 1920;
/// Bytes of the ring for short frames: 4,096 of them, a tenth of a second at the 45,000 a second that go through here.
pub(super) const SHORT_RING: usize = 8 << 20;
/// Bytes of the ring for super-packets, at least and at most: 240 and 960 of them, 12 and 50 ms at 10 Gb/s.
const LONG_RING: [u64; 2] = [16 << 20, 64 << 20];

/// Bytes of the rings at a port of a link that holds so many. That for super-packets is larger where the link holds more:
/// what comes in a burst is bounded by what its sender may have in flight.
pub(super) fn rings(held: u64) -> u64 {
    SHORT_RING as u64 + long_ring(held)
}

fn long_ring(held: u64) -> u64 {
    let [least, most] = LONG_RING;
    (least + held / 6).min(most)
}

impl Port {
    /// At the interface with this index in the namespace of the calling thread. Nothing is received until there is an
    /// intake.
    pub(in crate::emulator) fn open(interface: u32) -> io::Result<Self> {
        Ok(Port {
            short: PacketSocket::open(interface, Lengths::UpTo(SHORT))?,
            long: PacketSocket::open(interface, Lengths::Above(SHORT))?,
        })
    }

    /// Receives from now on, for a link that holds so many bytes.
    pub(super) fn intake(&self, held: u64) -> io::Result<Intake<'_>> {
        let long = usize::try_from(long_ring(held)).map_err(io::Error::other)?;
        Ok(Intake {
            port: self,
            short: ReceiveRing::new(&self.short, Room::Frames(SHORT as usize), SHORT_RING)?,
            long: ReceiveRing::new(&self.long, Room::SuperPackets, long)?,
        })
    }

    /// Sends one frame, its virtual-net header in front, gathered from `parts`.
    pub(super) fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.long.send(parts)
    }

    /// Receives what is addressed to others as well, on the interface with this index.
    pub(in crate::emulator) fn receive_all(&self, interface: u32) -> io::Result<()> {
        self.long.receive_all(interface)
    }

    /// Frames that found no room in the rings since the last call.
    pub(super) fn take_dropped(&self) -> io::Result<u64> {
        Ok(self.short.take_dropped()? + self.long.take_dropped()?)
    }
}

impl Intake<'_> {
    /// True if there is a frame to take.
    pub(super) fn has_some(&self) -> bool {
        self.short.peek().is_some() || self.long.peek().is_some()
    }

    /// The next frame, if there is one; it stays where it is until that is given back.
    pub(super) fn take(&mut self) -> io::Result<Option<Arrival>> {
        let (mut short, mut long) = (self.short.peek(), self.long.peek());
        // What was seen in the one ring may have come after something in the other that was not there yet when looked for.
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
        Ok(received.map(|Received { slot, stamp, is_whole }| Arrival {
            slot: Slot { is_long, index: slot },
            stamp,
            is_whole,
        }))
    }

    /// Virtual-net header and frame.
    pub(super) fn bytes(&self, slot: Slot) -> &[u8] {
        if slot.is_long { self.long.bytes(slot.index) } else { self.short.bytes(slot.index) }
    }

    /// Lets the kernel use the slot again.
    pub(super) fn give_back(&mut self, slot: Slot) {
        if slot.is_long { self.long.give_back(slot.index) } else { self.short.give_back(slot.index) }
    }

    /// True if half of a ring is taken, so that the kernel may soon find no room.
    pub(super) fn is_crowded(&self) -> bool {
        [&self.short, &self.long].iter().any(|ring| ring.spread() > ring.slots() / 2)
    }

    /// Fails if nothing will come any more, because the interface is gone or down.
    pub(super) fn check(&self) -> io::Result<()> {
        self.port.short.take_error()?;
        self.port.long.take_error()
    }

    /// Readable when something has come, or while the newest that came is not given back.
    pub(super) fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.port.short.as_fd(), self.port.long.as_fd()]
    }
}
