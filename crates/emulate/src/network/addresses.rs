//! Names and addresses of the two sides of every path.
//!
//! Path number `n` connects `lfn<n>` on the near side to `lfn<n>` on the far side, in its own networks. A command
//! selects the path by the address that it connects or binds to. The ends of the first path are called `near` and
//! `far`, the others `near1`, `far1` and so on. All addresses are private: RFC 1918, RFC 4193, and locally administered
//! Ethernet addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

use lfn_sys::netlink::MacAddress;

/// Prefix length of the IPv4 networks.
pub(super) const PREFIX_V4: u8 = 30;
/// Prefix length of the IPv6 networks.
pub(super) const PREFIX_V6: u8 = 64;
/// Minimum MTU of an interface with IPv6, bytes (RFC 8200 §5).
pub(crate) const MIN_MTU_V6: u32 = 1280;

/// Name of one of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SideName {
    Near,
    Far,
}

/// One end of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathEnd {
    side: SideName,
    path: u8,
}

impl PathEnd {
    /// Creates the end of path number `path` on `side`.
    pub(crate) fn new(side: SideName, path: u8) -> Self {
        PathEnd { side, path }
    }

    /// Returns the opposite end of the path.
    pub(crate) fn peer(self) -> Self {
        let side = match self.side {
            SideName::Near => SideName::Far,
            SideName::Far => SideName::Near,
        };
        PathEnd { side, ..self }
    }

    /// Returns the host name of this end. The middle's interface towards this end has the same name.
    pub(crate) fn name(self) -> String {
        self.numbered(match self.side {
            SideName::Near => "near",
            SideName::Far => "far",
        })
    }

    /// Returns the name of the side's interface.
    pub(crate) fn interface(self) -> String {
        format!("lfn{}", self.path)
    }

    /// Returns the environment variable with the IPv4 address of this end. The variable with the suffix `_IPV6` has the
    /// IPv6 address.
    pub(crate) fn variable(self) -> String {
        self.numbered(match self.side {
            SideName::Near => "LFN_NEAR",
            SideName::Far => "LFN_FAR",
        })
    }

    /// Returns the address in 10.73.(23 + path).0/30, a private network that is rarely used elsewhere.
    pub(crate) fn v4(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 73, 23_u8.saturating_add(self.path), self.host())
    }

    /// Returns the address in fd73:4c46:4e00:path::/64. This address has a low preference, so that `far` resolves to
    /// the IPv4 address first, independent of the resolver's own table. So connections to servers that listen only on
    /// 0.0.0.0 succeed at once, and headers are as short as predicted.
    pub(crate) fn v6(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd73, 0x4c46, 0x4e00, u16::from(self.path), 0, 0, 0, u16::from(self.host()))
    }

    /// Returns the Ethernet address of the side's interface.
    pub(crate) fn mac(self) -> MacAddress {
        self.mac_in(0)
    }

    /// Returns the Ethernet address of the middle's interface towards this end.
    pub(super) fn middle_mac(self) -> MacAddress {
        self.mac_in(1)
    }

    fn mac_in(self, place: u8) -> MacAddress {
        MacAddress([0x02, 0x4c, 0x46, place, self.path, self.host()])
    }

    fn host(self) -> u8 {
        match self.side {
            SideName::Near => 1,
            SideName::Far => 2,
        }
    }

    fn numbered(self, name: &str) -> String {
        if self.path == 0 { name.to_owned() } else { format!("{name}{}", self.path) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::error::MAX_PATHS;

    fn ends() -> impl Iterator<Item = PathEnd> {
        let paths = 0..u8::try_from(MAX_PATHS).unwrap();
        paths.flat_map(|path| [SideName::Near, SideName::Far].map(|side| PathEnd::new(side, path)))
    }

    #[test]
    fn first_path_has_names_without_number() {
        let far = PathEnd::new(SideName::Far, 0);
        assert_eq!((far.name().as_str(), far.variable().as_str()), ("far", "LFN_FAR"));
        assert_eq!((far.v4().to_string(), far.v6().to_string()), ("10.73.23.2".into(), "fd73:4c46:4e00::2".into()));
        let near = PathEnd::new(SideName::Near, 1);
        assert_eq!((near.name().as_str(), near.variable().as_str()), ("near1", "LFN_NEAR1"));
        assert_eq!((near.v4().to_string(), near.v6().to_string()), ("10.73.24.1".into(), "fd73:4c46:4e00:1::1".into()));
        assert_eq!(near.peer(), PathEnd::new(SideName::Far, 1));
    }

    #[test]
    fn ends_share_no_name_or_address() {
        assert_eq!(ends().map(PathEnd::name).collect::<BTreeSet<_>>().len(), ends().count());
        assert_eq!(ends().map(PathEnd::v4).collect::<BTreeSet<_>>().len(), ends().count());
        assert_eq!(ends().map(PathEnd::v6).collect::<BTreeSet<_>>().len(), ends().count());
        let macs = ends().flat_map(|end| [end.mac().0, end.middle_mac().0]);
        assert_eq!(macs.collect::<BTreeSet<_>>().len(), 2 * ends().count());
        // The kernel limits interface names to 15 bytes.
        assert!(ends().all(|end| end.name().len() <= 15 && end.interface().len() <= 15));
    }

    #[test]
    fn each_path_has_its_own_network() {
        let network = |end: PathEnd| u32::from(end.v4()) >> (32 - PREFIX_V4);
        for end in ends() {
            assert_eq!(network(end), network(end.peer()));
            assert_eq!(ends().filter(|other| network(*other) == network(end)).count(), 2);
        }
    }
}
