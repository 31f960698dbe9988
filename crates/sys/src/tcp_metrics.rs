//! Values that the kernel stores of closed TCP connections to a host (`ip-tcp_metrics(8)`): generic netlink, family
//! `tcp_metrics` (`linux/tcp_metrics.h`). Any user may read them.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

use crate::traffic::{attributes, u32_at, u64_at};

/// Length of `struct nlmsghdr` and of `struct genlmsghdr`, bytes.
const NETLINK_HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID` and `CTRL_ATTR_FAMILY_NAME`.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Command for the values of one host (`TCP_METRICS_CMD_GET`).
const GET: u8 = 1;
/// `TCP_METRICS_ATTR_…`: addresses of the other host and of this host, age in milliseconds, and values.
const TO_IPV4: u16 = 1;
const TO_IPV6: u16 = 2;
const AGE: u16 = 3;
const VALUES: u16 = 6;
const FROM_IPV4: u16 = 11;
const FROM_IPV6: u16 = 12;
/// Attributes of the values: `TCP_METRIC_…`, plus one.
const RTT_MILLISECONDS: u16 = 1;
const SSTHRESH: u16 = 3;
const CWND: u16 = 4;
const REORDERING: u16 = 5;
const RTT_MICROSECONDS: u16 = 6;

/// Values of earlier connections. The kernel stores no zeros, so a value of zero is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredMetrics {
    /// Slow-start threshold of a new connection, segments.
    pub ssthresh: Option<u32>,
    /// Congestion window of the last connection, segments.
    pub cwnd: Option<u32>,
    /// Reordering that a new connection tolerates, segments.
    pub reordering: Option<u32>,
    /// Smoothed RTT of the last connection.
    pub rtt: Option<Duration>,
    /// Time since the values were stored.
    pub age: Option<Duration>,
}

/// Returns the stored values of connections from `from` to `to` in the network namespace of the calling thread. `None`
/// if the kernel has none, or does not support them.
pub fn stored_metrics(to: IpAddr, from: Option<IpAddr>) -> io::Result<Option<StoredMetrics>> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let absent = |error: io::Error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => Ok(None),
        _ => Err(error),
    };
    let name = attribute(FAMILY_NAME, b"tcp_metrics\0");
    let family = match request(&socket, CONTROLLER, GET_FAMILY, &name) {
        Ok(answer) => family_id(&answer).ok_or_else(|| io::Error::other("tcp_metrics: the kernel gave no number"))?,
        Err(error) => return absent(error),
    };
    let address = |address: IpAddr, ipv4, ipv6| match address {
        IpAddr::V4(address) => attribute(ipv4, &address.octets()),
        IpAddr::V6(address) => attribute(ipv6, &address.octets()),
    };
    let mut query = address(to, TO_IPV4, TO_IPV6);
    query.extend(from.filter(|from| from.is_ipv4() == to.is_ipv4()).map_or(vec![], |from| {
        // The kernel finds only values of connections from this address.
        address(from, FROM_IPV4, FROM_IPV6)
    }));
    match request(&socket, family, GET, &query) {
        Ok(answer) => Ok(Some(parse(&answer))),
        Err(error) => absent(error),
    }
}

/// Sends a request and returns the attributes of its answer.
fn request(socket: &Socket, family: u16, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
    const SEQUENCE: u32 = 1;
    let length = NETLINK_HEADER + GENERIC_HEADER + attributes.len();
    let mut message = u32::try_from(length).map_err(io::Error::other)?.to_ne_bytes().to_vec();
    message.extend(family.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend(SEQUENCE.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    socket.send(&message, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let malformed = || io::Error::other("the kernel's answer is malformed");
    let kind = answer.get(4..6).and_then(|kind| Some(u16::from_ne_bytes(kind.try_into().ok()?)));
    let kind = kind.ok_or_else(malformed)?;
    if kind == NLMSG_ERROR {
        let code = u32_at(&answer, NETLINK_HEADER).ok_or_else(malformed)?.cast_signed();
        return Err(io::Error::from_raw_os_error(code.saturating_neg()));
    }
    let length = u32_at(&answer, 0).map_or(0, |length| length as usize);
    answer.get(NETLINK_HEADER + GENERIC_HEADER..length).map(<[u8]>::to_vec).ok_or_else(malformed)
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    // The values here are short: names and addresses.
    let length = (value.len() + 4) as u16;
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn family_id(answer: &[u8]) -> Option<u16> {
    let (_, value) = attributes(answer).find(|(kind, _)| *kind == FAMILY_ID)?;
    Some(u16::from_ne_bytes(value.get(..2)?.try_into().ok()?))
}

fn parse(answer: &[u8]) -> StoredMetrics {
    let mut stored = StoredMetrics::default();
    for (kind, value) in attributes(answer) {
        match kind {
            AGE => stored.age = u64_at(value, 0).map(Duration::from_millis),
            VALUES => {
                for (metric, value) in attributes(value) {
                    let value = u32_at(value, 0).filter(|value| *value > 0);
                    match metric {
                        SSTHRESH => stored.ssthresh = value,
                        CWND => stored.cwnd = value,
                        REORDERING => stored.reordering = value,
                        RTT_MICROSECONDS => stored.rtt = value.map(|rtt| Duration::from_micros(rtt.into())),
                        RTT_MILLISECONDS if stored.rtt.is_none() => {
                            stored.rtt = value.map(|rtt| Duration::from_millis(rtt.into()));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    stored
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn answer() -> Vec<u8> {
        let value = |kind, value: u32| attribute(kind, &value.to_ne_bytes());
        let values =
            [value(SSTHRESH, 7), value(RTT_MICROSECONDS, 80_500), value(CWND, 10), value(RTT_MILLISECONDS, 80)];
        [
            attribute(TO_IPV4, &[192, 0, 2, 1]),
            attribute(AGE, &90_500_u64.to_ne_bytes()),
            attribute(VALUES | 0x8000, &values.concat()),
        ]
        .concat()
    }

    #[test]
    fn values_are_read_in_their_units() {
        let stored = StoredMetrics {
            ssthresh: Some(7),
            cwnd: Some(10),
            reordering: None,
            rtt: Some(Duration::from_micros(80_500)),
            age: Some(Duration::from_millis(90_500)),
        };
        // The kernel writes milliseconds after microseconds, and the finer value stays.
        assert_eq!(parse(&answer()), stored);
    }

    #[test]
    fn truncated_answer_does_not_panic() {
        let bytes = answer();
        for length in 0..bytes.len() {
            parse(&bytes[..length]);
            family_id(&bytes[..length]);
        }
    }

    #[test]
    fn unknown_host_has_no_values() {
        // Addresses of documentation (RFC 5737, RFC 3849): nothing connects to them.
        assert_eq!(stored_metrics(Ipv4Addr::new(192, 0, 2, 253).into(), None).unwrap(), None);
        let to = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfffd);
        assert_eq!(stored_metrics(to.into(), Some(Ipv6Addr::LOCALHOST.into())).unwrap(), None);
    }
}
