//! Windows that the receiver of a direction advertised.

use super::packet::AckPacket;
use crate::flags::{PacketFlag, PacketFlags};

/// Windows of a receiver, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// Largest and last window.
    pub(crate) max: u64,
    last: u64,
    is_closed: bool,
    /// Times that the window closed.
    pub(crate) closings: u64,
    /// Bytes by which the window shrank: data that the receiver had not read.
    pub(crate) unread: u64,
}

impl Windows {
    /// Adds the window of an acknowledgement. `mss` is the largest payload of the sender.
    pub(super) fn add(&mut self, packet: &AckPacket<'_>, mss: u32, flags: &mut PacketFlags) {
        if packet.is_control || !packet.is_window_known {
            return;
        }
        if packet.window == 0 {
            flags.insert(PacketFlag::ZeroWindow);
            self.closings += u64::from(!self.is_closed);
        } else if self.is_closed {
            flags.insert(PacketFlag::WindowUpdate);
        }
        self.is_closed = packet.window == 0;
        let shrunk = self.last.saturating_sub(packet.window);
        // Data behind a gap also waits, and less than a packet is the usual delay of a reader.
        if packet.sack.is_empty() && shrunk >= u64::from(mss) {
            self.unread += shrunk;
        }
        self.last = packet.window;
        self.max = self.max.max(packet.window);
    }
}
