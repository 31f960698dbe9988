//! Messages of an addresses session: a client requests the addresses of the server's host, to find paths for stripes.
//!
//! The server answers with one message and ends the session.

use core::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Maximum duration of a session.
pub const MAX_SESSION_TIME: Duration = Duration::from_secs(30);

/// Maximum addresses of one host.
pub const MAX_ADDRESSES: usize = 64;

/// The client's request for the addresses of the server's host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressesRequest {}

/// The server's answer with its addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressesReply {
    /// Addresses of interfaces that are up, at most [`MAX_ADDRESSES`].
    pub addresses: Vec<HostAddress>,
}

/// An address of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostAddress {
    /// Index of the interface. Addresses of one interface are one path.
    pub interface: u32,
    pub address: IpAddr,
    /// Prefix length of the address's network.
    pub prefix: u8,
}

impl HostAddress {
    /// Returns whether an address belongs to the network of this address.
    pub fn contains(&self, other: IpAddr) -> bool {
        let same = |this: u128, other: u128, bits: u32| {
            let length = u32::from(self.prefix).min(bits);
            (this ^ other).checked_shr(bits - length).unwrap_or(0) == 0
        };
        match (self.address, other) {
            (IpAddr::V4(this), IpAddr::V4(other)) => same(this.to_bits().into(), other.to_bits().into(), 32),
            (IpAddr::V6(this), IpAddr::V6(other)) => same(this.to_bits(), other.to_bits(), 128),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Request;

    #[test]
    fn address_contains_its_network() {
        let host = |address: &str, prefix| HostAddress { interface: 1, address: address.parse().unwrap(), prefix };
        let contains = |host: HostAddress, other: &str| host.contains(other.parse().unwrap());
        assert!(contains(host("10.0.1.1", 24), "10.0.1.2") && !contains(host("10.0.1.1", 24), "10.0.2.2"));
        assert!(contains(host("10.0.1.1", 0), "10.0.2.2") && contains(host("fd00::1", 0), "fe00::1"));
        assert!(contains(host("10.0.1.1", 32), "10.0.1.1") && !contains(host("10.0.1.1", 255), "10.0.1.2"));
        assert!(contains(host("fd00::1", 64), "fd00::2") && !contains(host("fd00::1", 64), "10.0.0.1"));
    }

    #[test]
    fn messages_match_protocol_doc() {
        let request = serde_json::to_value(Request::Addresses(AddressesRequest {})).unwrap();
        assert_eq!(request, serde_json::json!({ "verb": "addresses" }));
        let reply = r#"{"addresses":[{"interface":2,"address":"10.0.1.2","prefix":24,"later":1}],"later":[]}"#;
        let reply: AddressesReply = serde_json::from_str(reply).unwrap();
        assert_eq!(reply.addresses[0].prefix, 24);
    }
}
