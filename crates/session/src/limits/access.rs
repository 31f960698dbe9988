//! Lists of addresses and prefixes that may connect. The server checks them before it reads from a connection.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};

/// Allowed and denied addresses. An address on both lists is denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Allowed prefixes; an empty list allows every address.
    pub allow: Vec<Prefix>,
    pub deny: Vec<Prefix>,
}

/// An address or a prefix, for example `192.0.2.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix(IpNet);

/// Error: the text is no address and no prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an address or prefix (examples: 192.0.2.1, 192.0.2.0/24, 2001:db8::/32)")]
pub struct PrefixError(String);

impl Access {
    /// Returns whether `address` may connect.
    pub fn permits(&self, address: IpAddr) -> bool {
        // A dual-stack socket reports IPv4 clients as IPv4-mapped IPv6 addresses.
        let address = address.to_canonical();
        let on = |list: &[Prefix]| list.iter().any(|prefix| prefix.0.contains(&address));
        !on(&self.deny) && (self.allow.is_empty() || on(&self.allow))
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let net = match text.trim().parse::<IpAddr>() {
            Ok(address) => Ok(IpNet::from(address.to_canonical())),
            Err(_) => text.trim().parse::<IpNet>(),
        };
        net.map(|net| Prefix(as_ipv4(net.trunc()))).map_err(|_| PrefixError(text.to_owned()))
    }
}

/// Converts a prefix of IPv4-mapped addresses to a prefix of IPv4 addresses, as clients are compared in that form.
fn as_ipv4(net: IpNet) -> IpNet {
    /// Length of `::ffff:0:0/96`, the prefix of IPv4-mapped addresses (RFC 4291 §2.5.5.2).
    const MAPPED_PREFIX: u8 = 96;
    let IpNet::V6(v6) = net else { return net };
    let mapped = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(MAPPED_PREFIX));
    mapped.and_then(|(address, length)| Ipv4Net::new(address, length).ok()).map_or(net, IpNet::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn permits(access: &Access, address: &str) -> bool {
        access.permits(address.parse().unwrap())
    }

    #[test]
    fn deny_overrides_allow() {
        assert!(permits(&Access::default(), "192.0.2.1"));
        let access = Access { allow: list(&["192.0.2.0/24", "2001:db8::/32"]), deny: list(&["192.0.2.7"]) };
        assert!(permits(&access, "192.0.2.1") && permits(&access, "2001:db8::1"));
        assert!(permits(&access, "::ffff:192.0.2.1"), "IPv4-mapped address");
        for address in ["192.0.2.7", "::ffff:192.0.2.7", "192.0.3.1", "2001:db9::1", "::1"] {
            assert!(!permits(&access, address), "{address}");
        }
        let access = Access { allow: Vec::new(), deny: list(&["::/0"]) };
        assert!(permits(&access, "192.0.2.1") && !permits(&access, "::1"));
    }

    #[test]
    fn prefix_is_truncated_to_its_network() {
        assert_eq!("::ffff:192.0.2.0/120".parse::<Prefix>(), "192.0.2.0/24".parse());
        assert_eq!("::ffff:0:0/96".parse::<Prefix>(), "0.0.0.0/0".parse());
        let access = Access { allow: Vec::new(), deny: list(&["::ffff:127.0.0.0/104"]) };
        assert!(!permits(&access, "127.1.2.3") && permits(&access, "192.0.2.1") && permits(&access, "::1"));
        assert_eq!("192.0.2.77/24".parse::<Prefix>(), "192.0.2.0/24".parse());
        for text in ["192.0.2.0/33", "192.0.2", "", "host", "2001:db8::/129", "/8"] {
            assert_eq!(text.parse::<Prefix>(), Err(PrefixError(text.into())));
        }
    }
}
