//! Content and length of the packets of the modelled connection.

use lfn_base::time::Instant;

/// Maximum ranges in an acknowledgement with timestamps (RFC 2018 §3).
pub(super) const MAX_SACK_BLOCKS: usize = 3;

/// Bytes by which the options of a SYN exceed the timestamps: MSS, window scale and SACK-permitted (RFC 9293, 7323,
/// 2018).
pub(super) const SYN_OPTIONS: u32 = 8;

/// A packet from the sender to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub(crate) stream: u32,
    pub(crate) kind: SegmentKind,
    /// Send time: the timestamp option.
    pub(crate) sent: Instant,
    /// Send time of the latest reply that the sender has seen: the echo of the timestamp option. The host sets it.
    pub(crate) echo: Instant,
    /// Identification of the first IP packet. The host sets it.
    pub(crate) ip_id: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentKind {
    Syn,
    /// Data, from the number of its first segment; each virtual packet of the packet is one segment.
    Data {
        first: u64,
        /// True if the sender has reacted to congestion (CWR, RFC 3168 §6.1.2).
        reduced: bool,
    },
}

/// A packet from the receiver to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub(crate) stream: u32,
    pub(crate) kind: ReplyKind,
    /// Timestamp of the segment that is answered (RFC 7323 §4.3).
    pub(crate) echo: Instant,
    /// Send time. The host sets it.
    pub(crate) sent: Instant,
    /// Identification of the first IP packet. The host sets it.
    pub(crate) ip_id: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    SynAck,
    /// One acknowledgement per virtual packet of the packet, each for `step` segments more. The content is that of the
    /// last.
    Ack(Ack),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(super) count: u32,
    /// Segments by which each acknowledgement advances.
    pub(super) step: u32,
    /// True if the acknowledgements advance the first of `blocks`, false if they advance `next`.
    pub(super) beyond: bool,
    pub(crate) next: u64,
    /// Ranges after `next` that arrived, the latest first; unused entries are empty.
    pub(crate) blocks: [(u64, u64); MAX_SACK_BLOCKS],
    /// Segments that arrived again, if the acknowledgement is for duplicates (RFC 2883).
    pub(crate) duplicate: Option<(u64, u64)>,
    /// True if congestion was experienced (ECE, RFC 3168 §6.1.3).
    pub(crate) congestion: bool,
}

impl Ack {
    /// Returns acknowledgement number `index`, counted from 0.
    pub(crate) fn at(mut self, index: u32) -> Ack {
        let less = u64::from(self.count.saturating_sub(index + 1)) * u64::from(self.step);
        if self.beyond {
            let [(from, to), ..] = &mut self.blocks;
            *to = to.saturating_sub(less).max(*from);
        } else {
            self.next = self.next.saturating_sub(less);
        }
        self
    }
}

/// Returns a flow number per stream, as a hash of addresses and ports would.
pub(super) fn flow(stream: u32) -> u32 {
    (stream + 1).wrapping_mul(0x9e37_79b9)
}
