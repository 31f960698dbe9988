//! Names and addresses of the two sides, path by path: one place that knows them all.
//!
//! Path number `n` joins `lfn<n>` of the near side to `lfn<n>` of the far side in networks of its own, so that a command
//! chooses the path by the address it dials or binds to. The first path's ends are called `near` and `far`, the
//! others' `near1`, `far1` and so on. Everything here is private address space: RFC 1918, RFC 4193, and locally
//! administered Ethernet addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

use lfn_sys::netlink::Mac;

/// Length of the network prefix of an IPv4 address here.
pub(super) const PREFIX_V4: u8 = 30;
/// Length of the network prefix of an IPv6 address here.
pub(super) const PREFIX_V6: u8 = 64;
/// Smallest MTU with which the kernel has IPv6 on an interface, bytes (RFC 8200 §5).
pub(in crate::emulator) const LEAST_MTU_V6: u32 = 1280;

/// One of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::emulator) enum SideName {
    /// Where CMD runs.
    Near,
    /// The other one.
    Far,
}

/// One end of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::emulator) struct End {
    side: SideName,
    path: u8,
}

impl End {
    /// The end of path number `path` on `side`.
    pub(in crate::emulator) fn new(side: SideName, path: u8) -> Self {
        End { side, path }
    }

    /// The end that this one is joined to.
    pub(in crate::emulator) fn peer(self) -> Self {
        let side = match self.side {
            SideName::Near => SideName::Far,
            SideName::Far => SideName::Near,
        };
        End { side, ..self }
    }

    /// Its host name, which is also the name of the middle's interface towards it.
    pub(in crate::emulator) fn name(self) -> String {
        self.numbered(match self.side {
            SideName::Near => "near",
            SideName::Far => "far",
        })
    }

    /// The side's interface.
    pub(in crate::emulator) fn interface(self) -> String {
        format!("lfn{}", self.path)
    }

    /// The environment variable that holds its IPv4 address; with `_IPV6` behind it the one for IPv6.
    pub(in crate::emulator) fn variable(self) -> String {
        self.numbered(match self.side {
            SideName::Near => "LFN_NEAR",
            SideName::Far => "LFN_FAR",
        })
    }

    /// In 10.73.(23 + path).0/30: private, and hardly anybody's choice.
    pub(in crate::emulator) fn v4(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 73, 23_u8.saturating_add(self.path), self.host())
    }

    /// In fd73:4c46:4e00:path::/64. It is given as a second choice, so that `far` means the IPv4 address unless asked
    /// otherwise, whichever of the two a resolver's own table puts first: servers that listen on 0.0.0.0 alone are met
    /// at once, and headers are as short as predicted.
    pub(in crate::emulator) fn v6(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd73, 0x4c46, 0x4e00, u16::from(self.path), 0, 0, 0, u16::from(self.host()))
    }

    /// Of the side's interface.
    pub(in crate::emulator) fn mac(self) -> Mac {
        self.mac_in(0)
    }

    /// Of the middle's interface towards it.
    pub(super) fn middle_mac(self) -> Mac {
        self.mac_in(1)
    }

    fn mac_in(self, place: u8) -> Mac {
        Mac([0x02, 0x4c, 0x46, place, self.path, self.host()])
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
    use crate::emulator::setup::MOST_PATHS;

    fn ends() -> impl Iterator<Item = End> {
        let paths = 0..u8::try_from(MOST_PATHS).unwrap();
        paths.flat_map(|path| [SideName::Near, SideName::Far].map(|side| End::new(side, path)))
    }

    #[test]
    fn the_first_path_has_the_plain_names() {
        let far = End::new(SideName::Far, 0);
        assert_eq!((far.name().as_str(), far.variable().as_str()), ("far", "LFN_FAR"));
        assert_eq!((far.v4().to_string(), far.v6().to_string()), ("10.73.23.2".into(), "fd73:4c46:4e00::2".into()));
        let near = End::new(SideName::Near, 1);
        assert_eq!((near.name().as_str(), near.variable().as_str()), ("near1", "LFN_NEAR1"));
        assert_eq!((near.v4().to_string(), near.v6().to_string()), ("10.73.24.1".into(), "fd73:4c46:4e00:1::1".into()));
        assert_eq!(near.peer(), End::new(SideName::Far, 1));
    }

    #[test]
    fn no_two_ends_share_anything() {
        assert_eq!(ends().map(End::name).collect::<BTreeSet<_>>().len(), ends().count());
        assert_eq!(ends().map(End::v4).collect::<BTreeSet<_>>().len(), ends().count());
        assert_eq!(ends().map(End::v6).collect::<BTreeSet<_>>().len(), ends().count());
        let macs = ends().flat_map(|end| [end.mac().0, end.middle_mac().0]);
        assert_eq!(macs.collect::<BTreeSet<_>>().len(), 2 * ends().count());
        // The kernel takes names of interfaces up to 15 bytes.
        assert!(ends().all(|end| end.name().len() <= 15 && end.interface().len() <= 15));
    }

    #[test]
    fn both_ends_of_a_path_are_in_one_network_and_other_paths_in_others() {
        let network = |end: End| u32::from(end.v4()) >> (32 - PREFIX_V4);
        for end in ends() {
            assert_eq!(network(end), network(end.peer()));
            assert_eq!(ends().filter(|other| network(*other) == network(end)).count(), 2);
        }
    }
}
