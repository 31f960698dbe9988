//! Host of a ticket: an address at which other hosts reach this host.
//!
//! The bare host name seldom resolves on another host, so the ticket has an address of an interface. A full name of
//! this host is only an alternative, and only if it resolves to one of these addresses.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lfn_sys::netlink::Netlink;

/// Maximum time to resolve the name of this host.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of alternatives: a host with containers may have hundreds of addresses.
const MAX_ALTERNATIVES: usize = 5;

/// The host of a ticket, and the other addresses of the server.
#[derive(Debug, PartialEq, Eq)]
pub struct TicketHost {
    pub host: String,
    /// Other addresses at which clients may reach the server, best first.
    pub alternatives: Vec<String>,
    /// Clients on other hosts cannot reach the server at this address.
    pub is_local: bool,
}

impl TicketHost {
    /// Uses this host name or address, chosen by the user.
    pub fn chosen(host: &str) -> Self {
        let address: Option<IpAddr> = host.parse().ok();
        let is_local = address.is_some_and(|address| address.is_loopback()) || host == "localhost";
        TicketHost { host: host.to_owned(), alternatives: Vec::new(), is_local }
    }

    /// Chooses the host for a server that listens on `bind`, or on every address.
    pub fn find(bind: Option<IpAddr>) -> Self {
        match bind {
            Some(address) if !address.is_unspecified() => TicketHost::chosen(&address.to_string()),
            _ => {
                let mut addresses = order(interface_addresses(), &default_sources());
                addresses.retain(|address| bind.is_none_or(|bind| bind.is_ipv6() || address.is_ipv4()));
                TicketHost::from_candidates(&addresses, full_name(&addresses))
            }
        }
    }

    fn from_candidates(addresses: &[IpAddr], name: Option<String>) -> Self {
        let Some((best, others)) = addresses.split_first() else {
            return TicketHost::chosen(&Ipv4Addr::LOCALHOST.to_string());
        };
        let alternatives = name.into_iter().chain(others.iter().map(ToString::to_string));
        TicketHost {
            alternatives: alternatives.take(MAX_ALTERNATIVES).collect(),
            ..TicketHost::chosen(&best.to_string())
        }
    }
}

/// Returns the lasting addresses of connected interfaces that other hosts may reach.
fn interface_addresses() -> Vec<IpAddr> {
    let read = || {
        let mut netlink = Netlink::open()?;
        let connected: HashSet<u32> = netlink.connected_interfaces()?.into_iter().collect();
        let lasting = netlink.addresses()?.into_iter().filter(|address| address.is_lasting);
        Ok::<_, std::io::Error>(lasting.filter(|it| connected.contains(&it.interface)).map(|it| it.address).collect())
    };
    // Without netlink the user can still name the host.
    read().unwrap_or_default()
}

/// Returns this host's addresses on the default routes. Connecting a UDP socket sends nothing.
fn default_sources() -> Vec<IpAddr> {
    // Documentation addresses (RFC 5737, RFC 3849) are on no interface, so the default route applies.
    let routes: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
    ];
    let source = |(from, to): (IpAddr, IpAddr)| {
        let socket = UdpSocket::bind((from, 0)).ok()?;
        socket.connect((to, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    routes.into_iter().filter_map(source).collect()
}

/// Sorts the addresses: those of the default routes first, then public before private ones, and IPv4 before IPv6.
fn order(mut addresses: Vec<IpAddr>, default_sources: &[IpAddr]) -> Vec<IpAddr> {
    addresses.retain(is_reachable);
    // The sort is stable, so the kernel's order remains within a class.
    addresses.sort_by_key(|address| (!default_sources.contains(address), is_private(address), address.is_ipv6()));
    // A private IPv4 address on a default route comes before an IPv6 address, since many clients have no IPv6.
    if let Some(at) = addresses.iter().position(|address| default_sources.contains(address) && address.is_ipv4()) {
        addresses[..=at].rotate_right(1);
    }
    addresses.dedup();
    addresses
}

/// Reports whether another host may reach the address without a scope.
fn is_reachable(address: &IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || is_link_local)
}

/// Reports whether the address is valid only within a site (RFC 1918, RFC 6598, RFC 4193).
fn is_private(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || matches!(v4.octets(), [100, 64..=127, ..]),
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}

/// Returns the name of this host if it is a full name and resolves to one of the addresses.
fn full_name(addresses: &[IpAddr]) -> Option<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if !name.contains('.') || addresses.is_empty() {
        return None;
    }
    let (sender, resolved) = mpsc::channel();
    let query = name.clone();
    // A resolver without network answers after many seconds, and this name is optional.
    let resolve = move || sender.send((query.as_str(), 0).to_socket_addrs().map(Iterator::collect::<Vec<_>>));
    thread::Builder::new().name("resolver".into()).spawn(resolve).ok()?;
    let found = resolved.recv_timeout(RESOLVE_TIMEOUT).ok()?.ok()?;
    found.iter().any(|found| addresses.contains(&found.ip())).then_some(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn addresses_of_default_routes_come_first() {
        let all = [
            "127.0.0.1",
            "::1",
            "169.254.1.1",
            "fe80::1",
            "fd00::1",
            "172.17.0.1",
            "2001:db8::5",
            "10.0.0.2",
            "198.51.100.7",
            "100.64.0.1",
        ];
        let ordered = order(addresses(&all), &[]);
        let expected = ["198.51.100.7", "2001:db8::5", "172.17.0.1", "10.0.0.2", "100.64.0.1", "fd00::1"];
        assert_eq!(ordered, addresses(&expected));
        let ordered = order(addresses(&all), &addresses(&["10.0.0.2", "2001:db8::5"]));
        let expected = ["10.0.0.2", "2001:db8::5", "198.51.100.7", "172.17.0.1", "100.64.0.1", "fd00::1"];
        assert_eq!(ordered, addresses(&expected));
    }

    #[test]
    fn host_is_never_a_bare_name() {
        let found = TicketHost::from_candidates(&addresses(&["192.0.2.1", "2001:db8::5"]), Some("a.example".into()));
        let alternatives = vec!["a.example".to_owned(), "2001:db8::5".to_owned()];
        assert_eq!(found, TicketHost { host: "192.0.2.1".into(), alternatives, is_local: false });
        let alone = TicketHost::from_candidates(&[], None);
        assert!(alone.is_local && alone.host == "127.0.0.1", "{alone:?}");
    }

    #[test]
    fn bound_address_is_the_host() {
        assert!(TicketHost::find(Some(Ipv4Addr::LOCALHOST.into())).is_local);
        let bound = TicketHost::find(Some("2001:db8::5".parse().unwrap()));
        assert_eq!(bound, TicketHost { host: "2001:db8::5".into(), alternatives: vec![], is_local: false });
        assert!(TicketHost::chosen("localhost").is_local && !TicketHost::chosen("far.example").is_local);
    }
}
