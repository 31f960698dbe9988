//! Flags of single packets, in the terms of Wireshark's `tcp.analysis` fields.

/// A flag of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PacketFlag {
    Retransmission,
    FastRetransmission,
    SpuriousRetransmission,
    OutOfOrder,
    LostSegment,
    AckLostSegment,
    DuplicateAck,
    KeepAlive,
    KeepAliveAck,
    WindowFull,
    WindowUpdate,
    ZeroWindow,
    ZeroWindowProbe,
    ZeroWindowProbeAck,
    ReusedPorts,
    /// The packet stands in the capture twice. Wireshark has no such flag.
    CapturedTwice,
}

/// All flags with their names in Wireshark, in the order of [`PacketFlag`].
pub const PACKET_FLAGS: [(PacketFlag, &str); 16] = [
    (PacketFlag::Retransmission, "retransmission"),
    (PacketFlag::FastRetransmission, "fast_retransmission"),
    (PacketFlag::SpuriousRetransmission, "spurious_retransmission"),
    (PacketFlag::OutOfOrder, "out_of_order"),
    (PacketFlag::LostSegment, "lost_segment"),
    (PacketFlag::AckLostSegment, "ack_lost_segment"),
    (PacketFlag::DuplicateAck, "duplicate_ack"),
    (PacketFlag::KeepAlive, "keep_alive"),
    (PacketFlag::KeepAliveAck, "keep_alive_ack"),
    (PacketFlag::WindowFull, "window_full"),
    (PacketFlag::WindowUpdate, "window_update"),
    (PacketFlag::ZeroWindow, "zero_window"),
    (PacketFlag::ZeroWindowProbe, "zero_window_probe"),
    (PacketFlag::ZeroWindowProbeAck, "zero_window_probe_ack"),
    (PacketFlag::ReusedPorts, "reused_ports"),
    (PacketFlag::CapturedTwice, "captured_twice"),
];

/// Set of the flags of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFlags(u32);

impl PacketFlags {
    /// Returns true if the packet has no flag.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds a flag to the set.
    pub fn insert(&mut self, flag: PacketFlag) {
        self.0 |= 1 << flag as u32;
    }

    /// Returns true if the packet has this flag.
    pub fn contains(self, flag: PacketFlag) -> bool {
        self.0 & (1 << flag as u32) != 0
    }

    /// Returns the flags with their names in Wireshark.
    pub fn iter(self) -> impl Iterator<Item = (PacketFlag, &'static str)> {
        PACKET_FLAGS.into_iter().filter(move |(flag, _)| self.contains(*flag))
    }
}
