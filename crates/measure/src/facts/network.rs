//! The interface and the route towards the other end, and the values that TCP stored of earlier connections.
//!
//! Everything comes from sockets of the current network namespace. `/sys/class/net` shows the namespace in which it was
//! mounted.

use std::io;

use lfn_base::figure::Figure;
use lfn_base::units::BitRate;
use lfn_results::host::facts::{Duplex, HostFacts, InterfaceFacts, Ring, RouteFacts, TcpMetrics};
use lfn_results::host::machine_files::offloads;
use lfn_sys::ethtool::{self, LinkSettings};
use lfn_sys::netlink::Netlink;
use lfn_sys::route::Route;
use lfn_sys::tcp_metrics::{StoredMetrics, stored_metrics};
use lfn_sys::traffic::InterfaceStats;
use rustix::io::Errno;

use super::Ends;
use super::sources::{Sources, note};
use crate::load;

/// Handle of the parent of a root discipline (`TC_H_ROOT`).
const ROOT: u32 = u32::MAX;

/// Reads the facts of the network.
pub(super) fn read(sources: &Sources, facts: &mut HostFacts) {
    let Some(ends) = sources.ends else { return };
    match stored_metrics(ends.peer, ends.local) {
        Ok(stored) => facts.stored_metrics = stored.map(tcp_metrics),
        Err(error) => note(facts, "stored TCP metrics", &error),
    }
    let opened = Netlink::open().and_then(|mut netlink| Ok((route(&mut netlink, ends)?, netlink)));
    let (route, mut netlink) = match opened {
        Ok(opened) => opened,
        Err(error) => return note(facts, &format!("route to {}", ends.peer), &error),
    };
    facts.route = Some(route_facts(&route));
    let Some(index) = route.interface else {
        return facts.unreadable.push(format!("route to {}: no interface leads there", ends.peer));
    };
    match netlink.interface_stats(index) {
        Ok(stats) => facts.interface = Some(interface(&mut netlink, index, &stats, facts)),
        Err(error) => note(facts, &format!("interface towards {}", ends.peer), &error),
    }
}

fn route(netlink: &mut Netlink, ends: Ends) -> io::Result<Route> {
    netlink.route(ends.peer, ends.local).or_else(|_| netlink.route(ends.peer, None))
}

fn route_facts(route: &Route) -> RouteFacts {
    RouteFacts {
        gateway: route.gateway.map(|address| address.to_string()),
        metrics: route.metrics.iter().map(|(name, value)| ((*name).to_owned(), u64::from(*value))).collect(),
        congestion: route.congestion.clone(),
        expires_seconds: route.expires.map(Figure::from),
    }
}

fn tcp_metrics(stored: StoredMetrics) -> TcpMetrics {
    TcpMetrics {
        ssthresh_segments: stored.ssthresh,
        cwnd_segments: stored.cwnd,
        reordering_segments: stored.reordering,
        rtt_seconds: stored.rtt.map(Figure::from),
        age_seconds: stored.age.map(Figure::from),
    }
}

fn interface(netlink: &mut Netlink, index: u32, stats: &InterfaceStats, facts: &mut HostFacts) -> InterfaceFacts {
    let name = stats.name.as_str();
    let mut interface = InterfaceFacts {
        name: name.to_owned(),
        loopback: stats.is_loopback,
        kind: stats.kind.clone(),
        mtu_bytes: stats.mtu,
        transmit_queue_packets: stats.transmit_queue,
        carrier_changes: stats.carrier_changes.map(u64::from),
        counters: Some(load::interface_counters(stats)),
        received_crc_errors: Some(stats.received_crc_errors),
        collisions: Some(stats.collisions),
        ..InterfaceFacts::default()
    };
    match netlink.qdisc_stats(index) {
        Ok(disciplines) => {
            let root = disciplines.iter().find(|discipline| discipline.parent == ROOT);
            interface.root_qdisc = root.map(|discipline| discipline.kind.clone());
            let queues = disciplines.iter().filter(|discipline| discipline.kind != "noqueue");
            interface.qdiscs = queues.map(load::qdisc).collect();
        }
        Err(error) => note(facts, &format!("queueing disciplines of {name}"), &error),
    }
    if let Some(driver) = supported(ethtool::driver(name), &format!("driver of {name}"), facts) {
        interface.driver = Some(driver).filter(|driver| !driver.is_empty());
    }
    let link = supported(ethtool::link_settings(name), &format!("link rate of {name}"), facts);
    // Old drivers have only the earlier request.
    let speed = || ethtool::link_speed_megabits(name).ok().flatten();
    let LinkSettings { megabits, duplex, max_common_megabits } =
        link.unwrap_or_else(|| LinkSettings { megabits: speed(), ..LinkSettings::default() });
    let rate = |megabits: u32| BitRate(u64::from(megabits) * 1_000_000);
    (interface.rate, interface.max_rate) = (megabits.map(rate), max_common_megabits.map(rate));
    interface.duplex = duplex.map(|duplex| match duplex {
        ethtool::Duplex::Half => Duplex::Half,
        ethtool::Duplex::Full => Duplex::Full,
    });
    let features = supported(ethtool::changeable_features(name), &format!("offloads of {name}"), facts);
    interface.offloads = offloads(&features.unwrap_or_default());
    // Drivers without rings report zero, or an error.
    let rings = supported(ethtool::ring_parameters(name), &format!("rings of {name}"), facts);
    let ring = |packets, max_packets| (max_packets > 0).then_some(Ring { packets, max_packets });
    if let Some(rings) = rings {
        interface.receive_ring = ring(rings.receive, rings.max_receive);
        interface.transmit_ring = ring(rings.send, rings.max_send);
    }
    interface
}

/// Returns the answer of a driver. A driver that does not support the request is no failure.
fn supported<T>(answer: io::Result<T>, what: &str, facts: &mut HostFacts) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => None,
        Err(error) => {
            note(facts, what, &error);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_request_is_no_failure() {
        let mut facts = HostFacts::default();
        let error = |errno: Errno| Err::<(), _>(io::Error::from(errno));
        assert_eq!(supported(error(Errno::OPNOTSUPP), "rings of eth0", &mut facts), None);
        assert!(facts.unreadable.is_empty());
        supported(error(Errno::ACCESS), "rings of eth0", &mut facts);
        assert_eq!(facts.unreadable, ["rings of eth0: permission denied"]);
    }
}
