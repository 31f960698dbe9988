//! Addresses, protocol and ports of a frame, for logs. The model knows only their hash.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::fmt;

use super::checksum::read_u16;
use super::layout::PacketLayout;

/// Addresses of an IP packet, and its ports if its protocol has ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoints {
    /// IANA number of the protocol after all extension headers.
    pub protocol: u8,
    pub source: IpAddr,
    pub destination: IpAddr,
    /// Ports of the source and of the destination. A fragment has none.
    pub ports: Option<(u16, u16)>,
}

/// Reads the endpoints of an Ethernet frame; `None` if it carries no IP packet.
pub fn endpoints(frame: &[u8]) -> Option<Endpoints> {
    let layout = PacketLayout::read(frame)?;
    let addresses = frame.get(layout.addresses())?;
    let (from, to) = addresses.split_at(addresses.len() / 2);
    let ports = layout.ports().and_then(|at| Some((read_u16(frame, at)?, read_u16(frame, at + 2)?)));
    Some(Endpoints { protocol: layout.protocol, source: address(from)?, destination: address(to)?, ports })
}

impl Endpoints {
    /// Returns the name as in `/etc/protocols` (`tcp`, `udp`, `icmp` …), or the number of an uncommon protocol.
    pub fn protocol_name(&self) -> IpProtocol {
        IpProtocol(self.protocol)
    }

    /// Returns the source, `10.73.23.1:5201` or `10.73.23.1`.
    pub fn sender(&self) -> FlowEndpoint {
        FlowEndpoint(self.source, self.ports.map(|ports| ports.0))
    }

    /// Returns the destination in the same form.
    pub fn receiver(&self) -> FlowEndpoint {
        FlowEndpoint(self.destination, self.ports.map(|ports| ports.1))
    }
}

/// IP protocol that displays its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpProtocol(u8);

/// Address, with its port if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEndpoint(IpAddr, Option<u16>);

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("icmp"),
            6 => f.write_str("tcp"),
            17 => f.write_str("udp"),
            33 => f.write_str("dccp"),
            50 => f.write_str("esp"),
            58 => f.write_str("ipv6-icmp"),
            132 => f.write_str("sctp"),
            other => write!(f, "{other}"),
        }
    }
}

impl fmt::Display for FlowEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(port) => SocketAddr::new(self.0, port).fmt(f),
            None => self.0.fmt(f),
        }
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::V4(Ipv4Addr::from(*bytes.first_chunk::<4>()?))),
        _ => Some(IpAddr::V6(Ipv6Addr::from(*bytes.first_chunk::<16>()?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend_from_slice(&[0x08, 0x00, 0x45, 0, 0, 20 + payload.len() as u8, 0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend_from_slice(&[10, 73, 23, 1, 10, 73, 23, 2]);
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn endpoints_have_ports_if_the_protocol_has_ports() {
        let udp = endpoints(&v4(17, &[0x14, 0x51, 0x23, 0x28, 0, 8, 0, 0])).unwrap();
        assert_eq!(udp.protocol_name().to_string(), "udp");
        assert_eq!(
            (udp.sender().to_string(), udp.receiver().to_string()),
            ("10.73.23.1:5201".into(), "10.73.23.2:9000".into())
        );
        let icmp = endpoints(&v4(1, &[8, 0, 0, 0, 0, 0, 0, 0])).unwrap();
        assert_eq!((icmp.ports, icmp.receiver().to_string()), (None, "10.73.23.2".into()));
        let mut fragment = v4(17, &[1, 2, 3, 4, 5, 6, 7, 8]);
        fragment[14 + 6] = 0x20;
        assert_eq!(endpoints(&fragment).unwrap().ports, None);
        let truncated = endpoints(&v4(6, &[1, 2, 3])).unwrap();
        assert_eq!(truncated.ports, None, "three bytes are no ports");
    }

    #[test]
    fn ipv6_endpoints_have_brackets() {
        let mut frame = vec![2; 12];
        frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 6, 64]);
        frame.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        frame.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        frame.extend_from_slice(&[0, 80, 0, 81, 0, 0, 0, 0]);
        let tcp = endpoints(&frame).unwrap();
        assert_eq!(
            (tcp.sender().to_string(), tcp.receiver().to_string()),
            ("[fd00::1]:80".into(), "[fd00::2]:81".into())
        );
        for length in 0..54 {
            assert_eq!(endpoints(&frame[..length]), None, "{length}");
        }
        assert_eq!(endpoints(&[0xff; 60]), None);
    }
}
