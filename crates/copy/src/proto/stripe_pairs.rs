//! Pairs of addresses for stripes: the order in which they are tried, and the pairs that are kept.
//!
//! Several addresses of one interface are one path. So each interface of either host is in at most one stripe. Pairs of
//! one subnet are better than pairs that need a router.

use std::collections::BTreeMap;

use lfn_session::wire::addresses::HostAddress;

/// Maximum pairs that are tried.
pub const MAX_PAIRS: usize = 64;

/// A pair of an address of this host and an address of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressPair {
    pub near: HostAddress,
    pub far: HostAddress,
}

impl AddressPair {
    /// Returns whether both addresses are in the same subnet.
    pub fn is_direct(&self) -> bool {
        self.near.contains(self.far.address) && self.far.contains(self.near.address)
    }

    fn interfaces(&self) -> (u32, u32) {
        (self.near.interface, self.far.interface)
    }
}

/// Returns the pairs to try, at most [`MAX_PAIRS`]: those of one subnet first. Addresses that both hosts have, such as
/// those of a local bridge for containers, are omitted unless they are loopback addresses.
pub fn candidates(near: &[HostAddress], far: &[HostAddress]) -> Vec<AddressPair> {
    let is_own = |far: &HostAddress| !far.address.is_loopback() && near.iter().any(|near| near.address == far.address);
    let pairs = near.iter().flat_map(|near| far.iter().map(move |far| (near, far)));
    let possible = pairs.filter(|(near, far)| {
        near.address.is_ipv4() == far.address.is_ipv4()
            && near.address.is_loopback() == far.address.is_loopback()
            && !is_own(far)
    });
    let mut pairs: Vec<AddressPair> =
        possible.map(|(near, far)| AddressPair { near: near.clone(), far: far.clone() }).collect();
    pairs.sort_by_key(|pair| !pair.is_direct());
    pairs.truncate(MAX_PAIRS);
    pairs
}

/// Returns the pairs to keep from those that work: as many as possible, with each interface in one pair. Direct pairs
/// come first and stay.
pub fn select(working: &[AddressPair]) -> Vec<AddressPair> {
    let (direct, routed): (Vec<_>, Vec<_>) = working.iter().cloned().partition(AddressPair::is_direct);
    let mut kept = match_interfaces(&direct);
    let is_free = |pair: &AddressPair| {
        let (near, far) = pair.interfaces();
        kept.iter().all(|kept| kept.interfaces().0 != near && kept.interfaces().1 != far)
    };
    let routed: Vec<_> = routed.into_iter().filter(is_free).collect();
    kept.extend(match_interfaces(&routed));
    kept
}

/// Returns a maximum matching of the interfaces of both hosts (augmenting paths).
fn match_interfaces(pairs: &[AddressPair]) -> Vec<AddressPair> {
    // Pair of each far interface.
    let mut matched: BTreeMap<u32, &AddressPair> = BTreeMap::new();
    let mut tried = Vec::new();
    for pair in pairs {
        let near = pair.near.interface;
        if !tried.contains(&near) {
            tried.push(near);
            augment(near, pairs, &mut matched, &mut Vec::new());
        }
    }
    // The order of the first addresses of this host.
    let is_kept = |pair: &&AddressPair| matched.values().any(|kept| kept == pair);
    pairs.iter().filter(is_kept).cloned().collect()
}

/// Finds a far interface for a near interface, and moves other pairs if this is necessary.
fn augment<'a>(
    near: u32,
    pairs: &'a [AddressPair],
    matched: &mut BTreeMap<u32, &'a AddressPair>,
    visited: &mut Vec<u32>,
) -> bool {
    for pair in pairs.iter().filter(|pair| pair.near.interface == near) {
        let far = pair.far.interface;
        if visited.contains(&far) {
            continue;
        }
        visited.push(far);
        let holder = matched.get(&far).map(|held| held.near.interface);
        if holder.is_none_or(|holder| augment(holder, pairs, matched, visited)) {
            matched.insert(far, pair);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn host(interface: u32, address: &str) -> HostAddress {
        let address: std::net::IpAddr = address.parse().unwrap();
        HostAddress { interface, address, prefix: if address.is_ipv4() { 24 } else { 64 } }
    }

    fn texts(pairs: &[AddressPair]) -> Vec<String> {
        pairs.iter().map(|pair| format!("{}={}", pair.near.address, pair.far.address)).collect()
    }

    #[test]
    fn pairs_of_one_subnet_are_tried_first() {
        let near = [host(1, "10.0.1.1"), host(2, "10.0.2.1"), host(2, "fd00::1")];
        let far = [host(7, "10.0.2.2"), host(8, "10.0.1.2"), host(8, "fd00:9::2")];
        let pairs = candidates(&near, &far);
        assert_eq!(texts(&pairs)[..2], ["10.0.1.1=10.0.1.2", "10.0.2.1=10.0.2.2"]);
        assert_eq!(texts(&pairs)[2..], ["10.0.1.1=10.0.2.2", "10.0.2.1=10.0.1.2", "fd00::1=fd00:9::2"]);
        assert_eq!(texts(&select(&pairs)), ["10.0.1.1=10.0.1.2", "10.0.2.1=10.0.2.2"]);
    }

    #[test]
    fn addresses_of_both_hosts_are_omitted() {
        let near = [host(1, "10.0.1.1"), host(3, "172.17.0.1")];
        let far = [host(1, "10.0.1.2"), host(3, "172.17.0.1")];
        assert_eq!(texts(&candidates(&near, &far)), ["10.0.1.1=10.0.1.2", "172.17.0.1=10.0.1.2"]);
        let lo = [host(1, "127.0.0.1")];
        assert_eq!(texts(&candidates(&lo, &lo)), ["127.0.0.1=127.0.0.1"]);
    }

    #[test]
    fn both_addresses_of_an_interface_are_one_stripe() {
        let near = [host(1, "10.0.1.1"), host(1, "fd00::1")];
        let far = [host(1, "10.0.1.2"), host(1, "fd00::2")];
        let pairs = candidates(&near, &far);
        assert_eq!(pairs.len(), 2);
        assert_eq!(texts(&select(&pairs)), ["10.0.1.1=10.0.1.2"]);
        // If IPv4 does not work, IPv6 is used.
        assert_eq!(texts(&select(&pairs[1..])), ["fd00::1=fd00::2"]);
    }

    #[test]
    fn as_many_interfaces_as_possible_are_used() {
        let pair = |near, far| AddressPair {
            near: host(near, &format!("10.{near}.0.1")),
            far: host(far, &format!("10.9.{far}.2")),
        };
        // The first interface reaches two of the server's, the second one only one of them.
        let kept = select(&[pair(1, 1), pair(1, 2), pair(2, 1)]);
        assert_eq!(texts(&kept), ["10.1.0.1=10.9.2.2", "10.2.0.1=10.9.1.2"]);
    }

    #[test]
    fn tried_pairs_are_limited() {
        let all: Vec<_> = (0..20).map(|number| host(number, &format!("10.0.{number}.1"))).collect();
        let far: Vec<_> = (0..20).map(|number| host(number, &format!("10.0.{number}.2"))).collect();
        let pairs = candidates(&all, &far);
        assert_eq!(pairs.len(), MAX_PAIRS);
        assert_eq!(pairs.iter().filter(|pair| pair.is_direct()).count(), 20);
    }
}
