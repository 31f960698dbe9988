//! Choice of connections by host and port.

use std::net::{IpAddr, ToSocketAddrs};

use lfn_packet::{TcpEndpoint, TcpSegment};

use super::error::TraceError;

/// Connections that are analysed: those with one end that has the address and the port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectionFilter {
    /// Addresses of the host; empty for any host.
    pub addresses: Vec<IpAddr>,
    /// Port of the same end; none for any port.
    pub port: Option<u16>,
}

impl ConnectionFilter {
    /// Creates a filter from a host name or an address, and a port.
    pub fn new(host: Option<&str>, port: Option<u16>) -> Result<Self, TraceError> {
        let addresses = match host {
            None => Vec::new(),
            Some(host) => match host.parse() {
                Ok(address) => vec![address],
                Err(_) => {
                    let found = (host, 0).to_socket_addrs();
                    let found = found.map_err(|source| TraceError::UnknownHost { host: host.to_owned(), source })?;
                    found.map(|address| address.ip()).collect()
                }
            },
        };
        Ok(ConnectionFilter { addresses, port })
    }

    /// Reports whether every segment matches.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.port.is_none()
    }

    /// Reports whether one end of the connection matches.
    pub fn matches(&self, segment: &TcpSegment) -> bool {
        self.is_empty() || self.matches_end(&segment.source) || self.matches_end(&segment.destination)
    }

    fn matches_end(&self, end: &TcpEndpoint) -> bool {
        (self.addresses.is_empty() || self.addresses.contains(&end.address))
            && self.port.is_none_or(|port| port == end.port)
    }
}
