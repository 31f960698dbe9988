//! What an interface and its queueing disciplines have counted, and by which interface a destination is reached
//! (`rtnetlink(7)`: `RTM_GETLINK`, `RTM_GETQDISC`, `RTM_GETROUTE`).
//!
//! Apart from `netlink`, which changes things: this only asks, as any user may. Messages on queueing disciplines are read
//! here by their attributes, because each discipline has options of its own that nobody here wants to know.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::NLM_F_REQUEST;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::tc::TcMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::netlink::Netlink;

/// An interface, and what it has counted since it was made (`struct rtnl_link_stats64`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Its name.
    pub name: String,
    /// Its MTU, bytes.
    pub mtu: u32,
    /// What it sends comes back (`IFF_LOOPBACK`).
    pub is_loopback: bool,
    /// `IFLA_INFO_KIND`: what the kernel made; none of a device.
    pub kind: Option<String>,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// `tx_errors`.
    pub sent_errors: u64,
    /// `tx_dropped`.
    pub sent_dropped: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// `rx_errors`.
    pub received_errors: u64,
    /// `rx_dropped`.
    pub received_dropped: u64,
    /// `rx_missed_errors` and `rx_fifo_errors`: no room for them.
    pub received_missed: u64,
}

/// A queueing discipline, and what it has counted since it was made (`struct gnet_stats_basic`, `gnet_stats_queue`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discipline {
    /// Its kind, `fq_codel`.
    pub kind: String,
    /// Its handle, both halves.
    pub handle: u32,
    /// The class it hangs on; all ones at the root.
    pub parent: u32,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets dropped.
    pub dropped_packets: u64,
    /// How often it held a packet back.
    pub overlimits: u64,
    /// Packets not taken by the interface.
    pub requeues: u64,
    /// Bytes that wait now.
    pub backlog_bytes: u64,
    /// Packets that wait now.
    pub backlog_packets: u64,
}

impl Netlink {
    /// The interface by which `to` is reached from the address `from`, as the kernel would route it now.
    pub fn interface_towards(&mut self, to: IpAddr, from: Option<IpAddr>) -> io::Result<u32> {
        let mut message = RouteMessage::default();
        let (family, bits) = match to {
            IpAddr::V4(_) => (AddressFamily::Inet, 32),
            IpAddr::V6(_) => (AddressFamily::Inet6, 128),
        };
        message.header.address_family = family;
        message.header.destination_prefix_length = bits;
        message.attributes.push(RouteAttribute::Destination(RouteAddress::from(to)));
        if let Some(from) = from.filter(|from| from.is_ipv4() == to.is_ipv4()) {
            message.header.source_prefix_length = bits;
            message.attributes.push(RouteAttribute::Source(RouteAddress::from(from)));
        }
        let answer = self.request(RouteNetlinkMessage::GetRoute(message), NLM_F_REQUEST)?;
        let Some(RouteNetlinkMessage::NewRoute(route)) = answer else {
            return Err(io::Error::other(format!("{to}: the kernel described no route")));
        };
        let index = route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        });
        index.ok_or_else(|| io::Error::other(format!("{to}: no interface leads there")))
    }

    /// What an interface has counted.
    pub fn traffic(&mut self, index: u32) -> io::Result<Traffic> {
        let mut asked = LinkMessage::default();
        asked.header.index = index;
        let answer = self.request(RouteNetlinkMessage::GetLink(asked), NLM_F_REQUEST)?;
        let Some(RouteNetlinkMessage::NewLink(link)) = answer else {
            return Err(io::Error::other(format!("interface {index}: the kernel described none")));
        };
        let is_loopback = link.header.flags.contains(LinkFlags::Loopback);
        let mut traffic = Traffic { is_loopback, ..Traffic::default() };
        let mut counted = false;
        for attribute in link.attributes {
            match attribute {
                LinkAttribute::IfName(name) => traffic.name = name,
                LinkAttribute::Mtu(mtu) => traffic.mtu = mtu,
                LinkAttribute::LinkInfo(infos) => {
                    traffic.kind = infos.iter().find_map(|info| match info {
                        LinkInfo::Kind(kind) => Some(kind.to_string()),
                        _ => None,
                    });
                }
                LinkAttribute::Stats64(stats) => {
                    counted = true;
                    (traffic.sent_bytes, traffic.sent_packets) = (stats.tx_bytes, stats.tx_packets);
                    (traffic.sent_errors, traffic.sent_dropped) = (stats.tx_errors, stats.tx_dropped);
                    (traffic.received_bytes, traffic.received_packets) = (stats.rx_bytes, stats.rx_packets);
                    (traffic.received_errors, traffic.received_dropped) = (stats.rx_errors, stats.rx_dropped);
                    traffic.received_missed = stats.rx_missed_errors + stats.rx_fifo_errors;
                }
                _ => {}
            }
        }
        let missing = || io::Error::other(format!("interface {index}: the kernel gave no statistics"));
        counted.then_some(traffic).ok_or_else(missing)
    }

    /// The queueing disciplines of an interface; `noqueue`, which counts nothing, where it has no queue.
    pub fn disciplines(&mut self, index: u32) -> io::Result<Vec<Discipline>> {
        let mut asked = TcMessage::default();
        asked.header.index = i32::try_from(index).map_err(io::Error::other)?;
        let answers = self.dump_bytes(RouteNetlinkMessage::GetQueueDiscipline(asked))?;
        Ok(answers.iter().filter_map(|answer| discipline(answer, index)).collect())
    }
}

/// Length of `struct tcmsg`.
const HEADER: usize = 20;
/// `TCA_KIND`, and `TCA_STATS2` with what is in it: `TCA_STATS_BASIC`, `TCA_STATS_QUEUE`, `TCA_STATS_PKT64`.
const KIND: u16 = 1;
const STATS: u16 = 7;
const BASIC: u16 = 1;
const QUEUE: u16 = 3;
const PACKETS: u16 = 8;

/// One `RTM_NEWQDISC`, if it is of this interface.
fn discipline(message: &[u8], index: u32) -> Option<Discipline> {
    if number(message, 4)? != index {
        return None;
    }
    let mut discipline =
        Discipline { handle: number(message, 8)?, parent: number(message, 12)?, ..Discipline::default() };
    for (kind, value) in attributes(message.get(HEADER..)?) {
        match kind {
            KIND => discipline.kind = String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned(),
            STATS => attributes(value).for_each(|(kind, value)| count(&mut discipline, kind, value)),
            _ => {}
        }
    }
    Some(discipline)
}

/// What a discipline's statistics of one sort say; a structure that is too short says nothing.
fn count(discipline: &mut Discipline, kind: u16, value: &[u8]) {
    let word = |at| number(value, at).map(u64::from);
    match kind {
        BASIC => {
            discipline.sent_bytes = long(value, 0).unwrap_or(0);
            discipline.sent_packets = discipline.sent_packets.max(word(8).unwrap_or(0));
        }
        PACKETS => discipline.sent_packets = long(value, 0).unwrap_or(discipline.sent_packets),
        QUEUE => {
            let word = |at| word(at).unwrap_or(0);
            (discipline.backlog_packets, discipline.backlog_bytes) = (word(0), word(4));
            (discipline.dropped_packets, discipline.requeues, discipline.overlimits) = (word(8), word(12), word(16));
        }
        _ => {}
    }
}

/// Attributes as netlink packs them: length, kind, value, padded to four bytes.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
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

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
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
    fn a_discipline_is_read_past_options_nobody_knows() {
        let expected = Discipline {
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
        assert_eq!(discipline(&message(), 8), None, "of another interface");
    }

    #[test]
    fn a_message_cut_anywhere_is_no_panic() {
        let whole = message();
        for length in 0..whole.len() {
            discipline(&whole[..length], 7);
        }
        assert_eq!(attributes(&[0; 8]).count(), 0, "attributes of no length do not go on for ever");
    }

    #[test]
    fn loopback_is_reached_and_counts() {
        let mut netlink = Netlink::open().unwrap();
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let index = netlink.interface_towards(address, Some(address)).unwrap();
        let before = netlink.traffic(index).unwrap();
        assert!(before.is_loopback && before.mtu > 0, "{before:?}");
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[0; 1000], socket.local_addr().unwrap()).unwrap();
        let after = netlink.traffic(index).unwrap();
        assert!(after.sent_bytes >= before.sent_bytes + 1000 && after.sent_packets > before.sent_packets);
        let kinds: Vec<_> = netlink.disciplines(index).unwrap().into_iter().map(|one| one.kind).collect();
        assert_eq!(kinds, ["noqueue"]);
    }
}
