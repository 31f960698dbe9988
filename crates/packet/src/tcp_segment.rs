//! A TCP segment of a capture: the fields that an analysis of the connection needs.

use core::net::IpAddr;

/// Maximum ranges of a SACK option (RFC 2018 §3).
pub const MAX_SACK_RANGES: usize = 4;

/// Address and port of one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TcpEndpoint {
    pub address: IpAddr,
    pub port: u16,
}

/// Headers of a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSegment {
    pub source: TcpEndpoint,
    pub destination: TcpEndpoint,
    /// Identification of IPv4; none for IPv6.
    pub ip_id: Option<u16>,
    /// TTL of IPv4, or hop limit of IPv6.
    pub ttl: u8,
    /// ECN field of the IP header (RFC 3168 §5).
    pub ecn: u8,
    pub sequence: u32,
    pub acknowledgement: u32,
    pub flags: TcpFlags,
    /// Window field without scaling.
    pub window: u16,
    /// Payload bytes on the wire, which can be more than the capture has.
    pub payload: u32,
    pub options: TcpOptions,
}

/// Flags of a TCP header, with the bit AE of AccECN (RFC 9768).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFlags(pub u16);

impl TcpFlags {
    pub const FIN: TcpFlags = TcpFlags(0x001);
    pub const SYN: TcpFlags = TcpFlags(0x002);
    pub const RST: TcpFlags = TcpFlags(0x004);
    pub const PSH: TcpFlags = TcpFlags(0x008);
    pub const ACK: TcpFlags = TcpFlags(0x010);
    pub const URG: TcpFlags = TcpFlags(0x020);
    pub const ECE: TcpFlags = TcpFlags(0x040);
    pub const CWR: TcpFlags = TcpFlags(0x080);
    pub const AE: TcpFlags = TcpFlags(0x100);

    /// Returns true if all bits of `flags` are set.
    pub const fn contains(self, flags: TcpFlags) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// Options of a TCP header. Unknown and broken options are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
    pub sack_permitted: bool,
    pub timestamps: Option<Timestamps>,
    /// Ranges of the SACK option; the first `sack_ranges` are valid.
    pub sack: [SackRange; MAX_SACK_RANGES],
    pub sack_ranges: u8,
    pub mptcp: Option<MptcpOption>,
    /// True if the segment has an AccECN option (RFC 9768 §3.2.3).
    pub acc_ecn: bool,
    /// True if the capture ends within the options.
    pub is_truncated: bool,
}

/// Value and echo reply of the timestamps option (RFC 7323 §3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    pub value: u32,
    pub echo: u32,
}

/// A range of sequence numbers that arrived, from `start` up to but not including `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackRange {
    pub start: u32,
    pub end: u32,
}

/// The option of MPTCP that opens a connection or adds a subflow (RFC 8684 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MptcpOption {
    /// MP_CAPABLE, with the version of MPTCP. The key of the sender is absent in the first SYN of version 1. The key of
    /// the receiver is present after the handshake only.
    Capable { version: u8, key: Option<u64>, receiver_key: Option<u64> },
    /// MP_JOIN of a SYN, with the token of the receiver's connection.
    Join { token: u32 },
    /// Any other option of MPTCP.
    Other,
}

impl TcpOptions {
    /// Returns the ranges of the SACK option.
    pub fn sack(&self) -> &[SackRange] {
        &self.sack[..usize::from(self.sack_ranges).min(MAX_SACK_RANGES)]
    }
}

impl TcpSegment {
    /// Returns the sequence numbers that the segment takes: its payload, and one each for SYN and FIN.
    pub fn length(&self) -> u32 {
        let flags = u32::from(self.flags.contains(TcpFlags::SYN)) + u32::from(self.flags.contains(TcpFlags::FIN));
        self.payload.wrapping_add(flags)
    }
}
