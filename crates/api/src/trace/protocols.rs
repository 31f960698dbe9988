//! Packets and bytes of each protocol.

use std::cmp::Reverse;

use lfn_packet::decode::{Decoded, OtherPacket};

use crate::documents::ProtocolCount;

/// IANA number of TCP, UDP and ICMP. ICMPv6 counts as ICMP.
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;

/// Packets and bytes of one protocol.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    packets: u64,
    bytes: u64,
}

/// Packets and bytes of each protocol. Each packet counts once.
#[derive(Debug)]
pub(super) struct ProtocolCounts {
    /// Protocols over IP, by their IANA number.
    by_number: Box<[Count; 256]>,
    quic: Count,
    later_fragments: Count,
    not_ip: Count,
    malformed: Count,
}

impl Default for ProtocolCounts {
    fn default() -> Self {
        let none = Count::default();
        let by_number = Box::new([none; 256]);
        ProtocolCounts { by_number, quic: none, later_fragments: none, not_ip: none, malformed: none }
    }
}

impl ProtocolCounts {
    /// Counts a packet with its bytes on the wire.
    pub(super) fn add(&mut self, packet: &Decoded, bytes: u64) {
        let count = match packet {
            Decoded::Tcp(_) => self.number(TCP),
            Decoded::Other(OtherPacket::Udp) => self.number(UDP),
            Decoded::Other(OtherPacket::Icmp { .. }) => self.number(ICMP),
            Decoded::Other(OtherPacket::OtherIp { protocol }) => self.number(*protocol),
            Decoded::Other(OtherPacket::Quic) => &mut self.quic,
            Decoded::Other(OtherPacket::Fragment) => &mut self.later_fragments,
            Decoded::Other(OtherPacket::NotIp) => &mut self.not_ip,
            Decoded::Other(OtherPacket::Malformed) => &mut self.malformed,
        };
        count.packets += 1;
        count.bytes += bytes;
    }

    fn number(&mut self, number: u8) -> &mut Count {
        &mut self.by_number[usize::from(number)]
    }

    /// Returns the protocols of the capture, the most bytes first.
    pub(super) fn finish(&self) -> Vec<ProtocolCount> {
        let over_ip = (0..=u8::MAX).zip(self.by_number.iter()).map(|(number, count)| (name(number), *count));
        let others = [
            ("QUIC".to_owned(), self.quic),
            ("later fragments".to_owned(), self.later_fragments),
            ("not IP".to_owned(), self.not_ip),
            ("malformed".to_owned(), self.malformed),
        ];
        let seen = over_ip.chain(others).filter(|(_, count)| count.packets > 0);
        let mut counts: Vec<ProtocolCount> =
            seen.map(|(name, Count { packets, bytes })| ProtocolCount { name, packets, bytes }).collect();
        counts.sort_by_key(|count| (Reverse(count.bytes), Reverse(count.packets)));
        counts
    }
}

/// Returns the name of a protocol over IP (IANA, Assigned Internet Protocol Numbers).
fn name(number: u8) -> String {
    let known = match number {
        ICMP => "ICMP",
        2 => "IGMP",
        TCP => "TCP",
        UDP => "UDP",
        33 => "DCCP",
        46 => "RSVP",
        47 => "GRE",
        50 => "ESP",
        51 => "AH",
        88 => "EIGRP",
        89 => "OSPF",
        103 => "PIM",
        112 => "VRRP",
        115 => "L2TP",
        132 => "SCTP",
        136 => "UDP-Lite",
        other => return format!("IP protocol {other}"),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_have_their_names_and_the_most_bytes_first() {
        let mut counts = ProtocolCounts::default();
        let other_ip = |protocol| OtherPacket::OtherIp { protocol };
        let icmp = OtherPacket::Icmp { too_big: None };
        let packets = [
            (OtherPacket::Udp, 100),
            (OtherPacket::Quic, 1200),
            (other_ip(132), 500),
            (other_ip(132), 600),
            (icmp, 90),
            (other_ip(253), 80),
            (OtherPacket::NotIp, 60),
            (OtherPacket::Fragment, 50),
            (OtherPacket::Malformed, 40),
        ];
        for (packet, bytes) in packets {
            counts.add(&Decoded::Other(packet), bytes);
        }
        let counts = counts.finish();
        let found: Vec<_> = counts.iter().map(|count| (count.name.as_str(), count.packets, count.bytes)).collect();
        let expected = [
            ("QUIC", 1, 1200),
            ("SCTP", 2, 1100),
            ("UDP", 1, 100),
            ("ICMP", 1, 90),
            ("IP protocol 253", 1, 80),
            ("not IP", 1, 60),
            ("later fragments", 1, 50),
            ("malformed", 1, 40),
        ];
        assert_eq!(found, expected);
    }
}
