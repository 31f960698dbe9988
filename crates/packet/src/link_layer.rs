//! Link layers of captures, by their numbers (<https://www.tcpdump.org/linktypes.html>).

/// Link layer of a captured frame: the header that precedes the IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkLayer {
    Ethernet,
    /// Linux cooked capture of tcpdump with `-i any`, version 1 (SLL).
    LinuxCooked,
    /// Linux cooked capture, version 2 (SLL2).
    LinuxCooked2,
    /// IP of either version without a header.
    RawIp,
    RawIpv4,
    RawIpv6,
    /// BSD loopback: the address family in four bytes, in the byte order of any machine.
    Loopback,
    /// PPP, with or without the address and control bytes of HDLC.
    Ppp,
    /// Any other link type, with its number.
    Unknown(u32),
}

impl LinkLayer {
    /// Returns the link layer of a link type number (LINKTYPE value of a file, or DLT value of old programs).
    pub const fn from_number(number: u32) -> LinkLayer {
        match number {
            0 | 108 => LinkLayer::Loopback,
            1 => LinkLayer::Ethernet,
            9 | 50 => LinkLayer::Ppp,
            12 | 14 | 101 => LinkLayer::RawIp,
            113 => LinkLayer::LinuxCooked,
            228 => LinkLayer::RawIpv4,
            229 => LinkLayer::RawIpv6,
            276 => LinkLayer::LinuxCooked2,
            other => LinkLayer::Unknown(other),
        }
    }
}
