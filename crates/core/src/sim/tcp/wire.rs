//! What the packets of the modelled connection carry, and how long they are.

use crate::time::Instant;

/// Most ranges an acknowledgement can name beside the timestamps (RFC 2018 §3).
pub(super) const BLOCKS: usize = 3;

/// A SYN's options are longer than the timestamps by the MSS, the window scale and SACK-permitted (RFC 9293, 7323, 2018).
pub(super) const SYN_OPTIONS: u32 = 8;

/// What goes from the sender to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Which of the streams.
    pub(in crate::sim) stream: u32,
    /// What it is.
    pub(super) kind: SegmentKind,
    /// When it was sent: the timestamp option.
    pub(super) sent: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentKind {
    /// Opens the connection.
    Syn,
    /// Data: the number of the first segment; the virtual packets of the packet are one segment each.
    Data {
        /// Number of the first.
        first: u64,
        /// The sender has reacted to congestion (CWR, RFC 3168 §6.1.2).
        reduced: bool,
    },
}

/// What goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub(in crate::sim) stream: u32,
    pub(super) kind: ReplyKind,
    /// The timestamp of the segment that this answers (RFC 7323 §4.3).
    pub(super) echo: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyKind {
    /// Accepts the connection.
    SynAck,
    /// As many acknowledgements as the packet has virtual packets, each of `step` segments more, and what the last of
    /// them says.
    Ack(Ack),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    /// How many acknowledgements there are.
    pub(super) count: u32,
    /// By how much each goes further than the one before it.
    pub(super) step: u32,
    /// True if the first of `blocks` is what goes further, false if it is `next`.
    pub(super) beyond: bool,
    /// The segment expected next.
    pub(super) next: u64,
    /// Ranges beyond it that arrived, the latest first; empty where there is none.
    pub(super) blocks: [(u64, u64); BLOCKS],
    /// The segments answered had come before (RFC 2883).
    pub(super) duplicate: bool,
    /// Congestion was experienced (ECE, RFC 3168 §6.1.3).
    pub(super) congestion: bool,
}

impl Ack {
    /// What acknowledgement number `index` says, counted from 0.
    pub(super) fn at(mut self, index: u32) -> Ack {
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

/// A number that tells streams apart as a hash of addresses and ports would.
pub(super) fn flow(stream: u32) -> u32 {
    (stream + 1).wrapping_mul(0x9e37_79b9)
}
