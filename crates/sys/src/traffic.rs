//! Counters of interfaces and queueing disciplines (`rtnetlink(7)`: `RTM_GETLINK`, `RTM_GETQDISC`).
//!
//! Unlike `netlink`, this module only reads, as any user may. It parses messages about queueing disciplines itself,
//! because each discipline has its own options, which are not needed here.

use std::io;

use netlink_packet_core::NLM_F_REQUEST;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::tc::TcMessage;

use crate::netlink::Netlink;

/// An interface and its counters since its creation (`struct rtnl_link_stats64`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceStats {
    pub name: String,
    /// In bytes, without the Ethernet header.
    pub mtu: u32,
    /// Sent packets return to this host (`IFF_LOOPBACK`).
    pub is_loopback: bool,
    /// Kind of a virtual interface (`IFLA_INFO_KIND`). `None` for a device.
    pub kind: Option<String>,
    /// Length of the transmit queue, packets (`txqueuelen`).
    pub transmit_queue: Option<u32>,
    /// Number of changes of the carrier.
    pub carrier_changes: Option<u32>,
    pub sent_bytes: u64,
    pub sent_packets: u64,
    pub sent_errors: u64,
    pub sent_dropped: u64,
    pub received_bytes: u64,
    pub received_packets: u64,
    pub received_errors: u64,
    pub received_dropped: u64,
    /// Dropped for lack of room: `rx_missed_errors` and `rx_fifo_errors`.
    pub received_missed: u64,
    /// Received with a wrong checksum of the frame (`rx_crc_errors`).
    pub received_crc_errors: u64,
    /// Collisions on a half-duplex link.
    pub collisions: u64,
}

/// A queueing discipline and its counters since its creation (`struct gnet_stats_basic`, `gnet_stats_queue`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QdiscStats {
    /// Name of the discipline, for example `fq_codel`.
    pub kind: String,
    /// Major and minor number.
    pub handle: u32,
    /// Handle of its class. All ones at the root.
    pub parent: u32,
    pub sent_bytes: u64,
    pub sent_packets: u64,
    pub dropped_packets: u64,
    /// Number of times that the discipline delayed a packet.
    pub overlimits: u64,
    /// Packets that the interface did not accept.
    pub requeues: u64,
    /// Bytes in the queue now.
    pub backlog_bytes: u64,
    /// Packets in the queue now.
    pub backlog_packets: u64,
}

impl Netlink {
    /// Returns an interface with its counters.
    pub fn interface_stats(&mut self, index: u32) -> io::Result<InterfaceStats> {
        let mut query = LinkMessage::default();
        query.header.index = index;
        let answer = self.request(RouteNetlinkMessage::GetLink(query), NLM_F_REQUEST)?;
        let Some(RouteNetlinkMessage::NewLink(link)) = answer else {
            return Err(io::Error::other(format!("interface {index}: the kernel described none")));
        };
        let is_loopback = link.header.flags.contains(LinkFlags::Loopback);
        let mut stats = InterfaceStats { is_loopback, ..InterfaceStats::default() };
        let mut counted = false;
        for attribute in link.attributes {
            match attribute {
                LinkAttribute::IfName(name) => stats.name = name,
                LinkAttribute::Mtu(mtu) => stats.mtu = mtu,
                LinkAttribute::TxQueueLen(length) => stats.transmit_queue = Some(length),
                LinkAttribute::CarrierChanges(changes) => stats.carrier_changes = Some(changes),
                LinkAttribute::LinkInfo(infos) => {
                    stats.kind = infos.iter().find_map(|info| match info {
                        LinkInfo::Kind(kind) => Some(kind.to_string()),
                        _ => None,
                    });
                }
                LinkAttribute::Stats64(counters) => {
                    counted = true;
                    (stats.sent_bytes, stats.sent_packets) = (counters.tx_bytes, counters.tx_packets);
                    (stats.sent_errors, stats.sent_dropped) = (counters.tx_errors, counters.tx_dropped);
                    (stats.received_bytes, stats.received_packets) = (counters.rx_bytes, counters.rx_packets);
                    (stats.received_errors, stats.received_dropped) = (counters.rx_errors, counters.rx_dropped);
                    stats.received_missed = counters.rx_missed_errors + counters.rx_fifo_errors;
                    (stats.received_crc_errors, stats.collisions) = (counters.rx_crc_errors, counters.collisions);
                }
                _ => {}
            }
        }
        let missing = || io::Error::other(format!("interface {index}: the kernel gave no statistics"));
        counted.then_some(stats).ok_or_else(missing)
    }

    /// Returns the queueing disciplines of an interface. An interface without a queue has `noqueue`, which counts
    /// nothing.
    pub fn qdisc_stats(&mut self, index: u32) -> io::Result<Vec<QdiscStats>> {
        let mut query = TcMessage::default();
        query.header.index = i32::try_from(index).map_err(io::Error::other)?;
        let answers = self.dump_bytes(RouteNetlinkMessage::GetQueueDiscipline(query))?;
        Ok(answers.iter().filter_map(|answer| discipline(answer, index)).collect())
    }
}

/// Length of `struct tcmsg`, bytes.
const HEADER: usize = 20;
/// `TCA_KIND`, and `TCA_STATS2` with its parts `TCA_STATS_BASIC`, `TCA_STATS_QUEUE`, `TCA_STATS_PKT64`.
const KIND: u16 = 1;
const STATS: u16 = 7;
const BASIC: u16 = 1;
const QUEUE: u16 = 3;
const PACKETS: u16 = 8;

/// Parses one `RTM_NEWQDISC`, if it belongs to this interface.
fn discipline(message: &[u8], index: u32) -> Option<QdiscStats> {
    if u32_at(message, 4)? != index {
        return None;
    }
    let mut discipline =
        QdiscStats { handle: u32_at(message, 8)?, parent: u32_at(message, 12)?, ..QdiscStats::default() };
    for (kind, value) in attributes(message.get(HEADER..)?) {
        match kind {
            KIND => discipline.kind = String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned(),
            STATS => attributes(value).for_each(|(kind, value)| read_stats(&mut discipline, kind, value)),
            _ => {}
        }
    }
    Some(discipline)
}

/// Reads one part of the statistics. A structure that is too short counts as zero.
fn read_stats(discipline: &mut QdiscStats, kind: u16, value: &[u8]) {
    let word = |at| u32_at(value, at).map(u64::from);
    match kind {
        BASIC => {
            discipline.sent_bytes = u64_at(value, 0).unwrap_or(0);
            discipline.sent_packets = discipline.sent_packets.max(word(8).unwrap_or(0));
        }
        PACKETS => discipline.sent_packets = u64_at(value, 0).unwrap_or(discipline.sent_packets),
        QUEUE => {
            let word = |at| word(at).unwrap_or(0);
            (discipline.backlog_packets, discipline.backlog_bytes) = (word(0), word(4));
            (discipline.dropped_packets, discipline.requeues, discipline.overlimits) = (word(8), word(12), word(16));
        }
        _ => {}
    }
}

/// Returns netlink attributes: length, kind, value, padded to four bytes.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let half = |at: usize| Some(u16::from_ne_bytes(rest.get(at..at + 2)?.try_into().ok()?));
        let (length, kind) = (usize::from(half(0)?), half(2)?);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        // The two highest bits are flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
        Some((kind & 0x3fff, value))
    })
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(u16::try_from(value.len() + 4).unwrap().to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message() -> Vec<u8> {
        let words = [0, 7, 0x8001_0000, u32::MAX, 2].map(u32::to_ne_bytes).concat();
        let basic = [5_000_000_000_u64.to_ne_bytes(), 99_u64.to_ne_bytes()].concat();
        let queue = [3, 4542, 12, 1, 800].map(u32::to_ne_bytes).concat();
        let stats = [attribute(BASIC, &basic), attribute(QUEUE, &queue)].concat();
        [words, attribute(KIND, b"tbf\0"), attribute(2, &[1, 2, 3]), attribute(STATS | 0x8000, &stats)].concat()
    }

    #[test]
    fn unknown_qdisc_options_are_skipped() {
        let expected = QdiscStats {
            kind: "tbf".into(),
            handle: 0x8001_0000,
            parent: u32::MAX,
            sent_bytes: 5_000_000_000,
            sent_packets: 99,
            dropped_packets: 12,
            overlimits: 800,
            requeues: 1,
            backlog_bytes: 4542,
            backlog_packets: 3,
        };
        assert_eq!(discipline(&message(), 7), Some(expected));
        assert_eq!(discipline(&message(), 8), None, "belongs to another interface");
    }

    #[test]
    fn truncated_message_does_not_panic() {
        let message_bytes = message();
        for length in 0..message_bytes.len() {
            discipline(&message_bytes[..length], 7);
        }
        assert_eq!(attributes(&[0; 8]).count(), 0, "attributes of length 0 do not loop forever");
    }

    #[test]
    fn loopback_is_routed_and_counted() {
        let mut netlink = Netlink::open().unwrap();
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let index = netlink.route_interface(address, Some(address)).unwrap();
        let before = netlink.interface_stats(index).unwrap();
        assert!(before.is_loopback && before.mtu > 0, "{before:?}");
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[0; 1000], socket.local_addr().unwrap()).unwrap();
        let after = netlink.interface_stats(index).unwrap();
        assert!(after.sent_bytes >= before.sent_bytes + 1000 && after.sent_packets > before.sent_packets);
        let kinds: Vec<_> = netlink.qdisc_stats(index).unwrap().into_iter().map(|one| one.kind).collect();
        assert_eq!(kinds, ["noqueue"]);
    }
}
