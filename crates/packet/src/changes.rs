//! Changes that a link applies to the bytes of a packet.

/// ECN field of an IP header (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// Not-ECT, or not an IP packet: only a drop can signal congestion.
    #[default]
    NotCapable,
    /// The packet has ECT(0) or ECT(1).
    Capable,
    /// Congestion experienced (CE): already marked.
    Congested,
}

/// Changes that a link applies to packets that it forwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Changes {
    /// Whether to set CE (congestion experienced) in the IP header of every virtual packet.
    pub is_marked: bool,
    /// Corruption to apply. A range with a corruption is one virtual packet.
    pub corruption: Option<Corruption>,
    /// Whether this packet is a second copy. The bytes of a copy are those of the original.
    pub is_copy: bool,
}

/// Parameters of the corruption of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Corruption {
    /// Random number that selects the bit. The same number selects the same bit.
    pub random: u64,
    /// Whether the checksum is corrected afterwards, so that only the application can detect the corruption.
    pub is_hidden: bool,
}
