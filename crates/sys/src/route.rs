//! Routes to single hosts (`rtnetlink(7)`: `RTM_GETROUTE`), as `ip route get` prints them. Any user may read them.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use netlink_packet_core::NLM_F_REQUEST;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteVia};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::netlink::Netlink;

/// Unit of the times in `struct rta_cacheinfo`: `USER_HZ` is 100 on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// The current route to a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Index of the interface (`RTA_OIF`).
    pub interface: Option<u32>,
    /// Router of the next hop (`RTA_GATEWAY`, `RTA_VIA`). `None` for a host of the same link.
    pub gateway: Option<IpAddr>,
    /// Metrics (`RTA_METRICS`) by the names of `ip route`, in the units of the kernel.
    pub metrics: Vec<(&'static str, u32)>,
    /// Congestion control of new connections (`congctl`).
    pub congestion: Option<String>,
    /// Time until an exception of the route expires, for example an MTU of path MTU discovery (RFC 1191, RFC 8201).
    pub expires: Option<Duration>,
}

impl Netlink {
    /// Returns the current route to `to` from the address `from`.
    pub fn route(&mut self, to: IpAddr, from: Option<IpAddr>) -> io::Result<Route> {
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
        Ok(described(route))
    }

    /// Returns the interface of the current route to `to` from the address `from`.
    pub fn route_interface(&mut self, to: IpAddr, from: Option<IpAddr>) -> io::Result<u32> {
        let index = self.route(to, from)?.interface;
        index.ok_or_else(|| io::Error::other(format!("{to}: no interface leads there")))
    }
}

fn described(message: RouteMessage) -> Route {
    let mut route = Route::default();
    for attribute in message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => route.interface = Some(index),
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => route.gateway = Some(address.into()),
            RouteAttribute::Gateway(RouteAddress::Inet6(address)) => route.gateway = Some(address.into()),
            RouteAttribute::Via(RouteVia::Inet(address)) => route.gateway = Some(address.into()),
            RouteAttribute::Via(RouteVia::Inet6(address)) => route.gateway = Some(address.into()),
            RouteAttribute::Metrics(metrics) => {
                for metric in metrics {
                    match metric {
                        RouteMetric::CcAlgo(name) => route.congestion = Some(name),
                        other => route.metrics.extend(named(&other)),
                    }
                }
            }
            RouteAttribute::CacheInfo(cache) => {
                route.expires = Some(cache.expires).filter(|ticks| *ticks > 0).map(|ticks| TICK * ticks);
            }
            _ => {}
        }
    }
    route
}

/// Returns a metric with its name in `ip-route(8)`.
fn named(metric: &RouteMetric) -> Option<(&'static str, u32)> {
    Some(match metric {
        RouteMetric::Lock(value) => ("lock", *value),
        RouteMetric::Mtu(value) => ("mtu", *value),
        RouteMetric::Window(value) => ("window", *value),
        RouteMetric::Rtt(value) => ("rtt", *value),
        RouteMetric::RttVar(value) => ("rttvar", *value),
        RouteMetric::SsThresh(value) => ("ssthresh", *value),
        RouteMetric::Cwnd(value) => ("cwnd", *value),
        RouteMetric::Advmss(value) => ("advmss", *value),
        RouteMetric::Reordering(value) => ("reordering", *value),
        RouteMetric::Hoplimit(value) => ("hoplimit", *value),
        RouteMetric::InitCwnd(value) => ("initcwnd", *value),
        RouteMetric::Features(value) => ("features", *value),
        RouteMetric::RtoMin(value) => ("rto_min", *value),
        RouteMetric::InitRwnd(value) => ("initrwnd", *value),
        RouteMetric::QuickAck(value) => ("quickack", *value),
        RouteMetric::FastopenNoCookie(value) => ("fastopen_no_cookie", *value),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn route_attributes_have_the_names_of_ip_route() {
        let mut message = RouteMessage::default();
        message.attributes = vec![
            RouteAttribute::Oif(7),
            RouteAttribute::Via(RouteVia::Inet6("fe80::1".parse().unwrap())),
            RouteAttribute::Metrics(vec![
                RouteMetric::InitCwnd(40),
                RouteMetric::CcAlgo("bbr".into()),
                RouteMetric::RtoMin(200),
            ]),
        ];
        let expected = Route {
            interface: Some(7),
            gateway: Some("fe80::1".parse().unwrap()),
            metrics: vec![("initcwnd", 40), ("rto_min", 200)],
            congestion: Some("bbr".into()),
            expires: None,
        };
        assert_eq!(described(message), expected);
    }

    #[test]
    fn loopback_needs_no_router() {
        let mut netlink = Netlink::open().unwrap();
        let address = Ipv4Addr::LOCALHOST.into();
        let route = netlink.route(address, None).unwrap();
        assert_eq!(route.gateway, None);
        assert_eq!(route.interface, netlink.route_interface(address, Some(address)).ok());
    }
}
