//! Packets of a direction, and the RTT from the capture point to both ends.

/// Jitter of a sender, nanoseconds.
const MAX_SENDER_JITTER: u64 = 2_000_000;

/// Times from the capture point to both ends and back, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathRtt {
    pub(crate) receiver_min: u64,
    pub(crate) sender_min: u64,
    pub(crate) sender_last: u64,
    pub(crate) receiver_last: u64,
}

impl PathRtt {
    pub(crate) fn base(&self) -> u64 {
        self.receiver_min + self.sender_min
    }

    /// Returns the time to the sender and back. A small difference from the minimum is the time of the sender, not a queue.
    pub(super) fn to_sender(self) -> u64 {
        let queue = self.sender_last.saturating_sub(self.sender_min);
        if queue < (self.base() / 8).max(MAX_SENDER_JITTER) { self.sender_min } else { self.sender_last }
    }

    pub(super) fn last(&self) -> u64 {
        self.receiver_last + self.sender_last
    }
}

/// A packet with payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataPacket {
    /// Capture time, but at least that of the previous packet.
    pub(crate) at: u64,
    /// Capture time as recorded. Packets of several interfaces can be out of order.
    pub(crate) captured_at: u64,
    pub(crate) sequence: u32,
    pub(crate) payload: u32,
    pub(crate) timestamp: Option<u32>,
    pub(crate) ip_id: Option<u16>,
    /// The packet ends a write of the application (PSH).
    pub(crate) is_pushed: bool,
}

/// An acknowledgement with the window of the receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckPacket<'a> {
    pub(crate) at: u64,
    pub(crate) acknowledgement: u32,
    pub(crate) window: u64,
    pub(crate) is_window_known: bool,
    pub(crate) payload: u32,
    pub(crate) sack: &'a [lfn_packet::SackRange],
    /// SYN, FIN or RST.
    pub(crate) is_control: bool,
}
