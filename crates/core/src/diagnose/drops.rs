//! Packets that a host itself dropped: before they left, in its queueing discipline or interface, or after they had come,
//! in its interface or its sockets.
//!
//! These look like loss on the path and are not. Where a host drops is the same for TCP and for datagrams and is listed
//! here once; whether that many explain the goodput, or what is missing, is for each to say. TCP's sockets are of TCP alone.

use std::collections::BTreeMap;

use serde_json::json;

use super::evidence::Host;
use super::window::autotuning;
use super::{Cause, Remedy, Evidence, Finding, finding, path};
use crate::units::Bytes;

/// What BBR takes no notice of, and what counters that count other things too do not show: fewer drops than this, or a
/// smaller share of packets.
const FEW: (u64, f64) = (5, 1e-4);

/// The host itself dropped packets: its queueing discipline, its interface, its sockets.
pub(super) fn local_drops(evidence: &Evidence) -> Option<Finding> {
    if evidence.is_full() {
        return None;
    }
    let limits = |found: &Dropped| found.limits(evidence);
    let found = before_they_left(&evidence.sender)
        .into_iter()
        .chain(after_they_came(&evidence.receiver))
        .chain(by_sockets(evidence))
        .find(limits)?;
    let summary = format!(
        "{} on {} dropped {} of {} packets ({:.2} %){}",
        found.what,
        found.host.name,
        found.dropped,
        found.packets + found.dropped,
        found.share() * 100.0,
        found.consequence
    );
    let mut finding = finding(evidence, Cause::LocalDrops, summary, found.cure.clone(), evidence.possible());
    finding.evidence = BTreeMap::from([
        ("dropped_packets", json!(found.dropped)),
        ("packets", json!(found.packets)),
        ("dropped_share", json!(found.share())),
    ]);
    Some(finding)
}

/// Packets that one place of a host dropped.
pub(super) struct Dropped<'a> {
    pub(super) host: &'a Host,
    pub(super) what: String,
    pub(super) dropped: u64,
    packets: u64,
    pub(super) cure: Remedy,
    /// Nothing else is counted with them.
    alone: bool,
    consequence: &'static str,
}

impl<'a> Dropped<'a> {
    /// None, yet.
    fn by(host: &'a Host, what: String, command: String, consequence: &'static str) -> Self {
        let cure = Remedy { command, host: Some(host.name.clone()) };
        Dropped { host, what, dropped: 0, packets: 0, cure, alone: true, consequence }
    }

    fn share(&self) -> f64 {
        self.dropped as f64 / (self.packets + self.dropped).max(1) as f64
    }

    /// Whether that many drops explain the goodput: more than the rate can bear, and about what they leave of it.
    fn limits(&self, evidence: &Evidence) -> bool {
        let bbr = evidence.flows.iter().any(|flow| flow.sending.congestion.starts_with("bbr"));
        let many = if bbr || !self.alone { FEW } else { (1, 0.0) };
        let enough = self.dropped >= many.0 && self.share() >= many.1;
        enough && (bbr || path::held_by_loss(evidence, self.share()))
    }
}

/// Before they left. TCP hears of a drop by its own kernel at once and shows no retransmission for it, only a congestion
/// window that falls.
pub(super) fn before_they_left(host: &Host) -> Vec<Dropped<'_>> {
    let Some(interface) = &host.interface else { return Vec::new() };
    let (name, counters) = (&interface.name, &interface.counters);
    let sending = |dropped, what: &str, command| Dropped {
        dropped,
        packets: counters.sent_packets,
        ..Dropped::by(host, format!("{what} {name}"), command, " given to it for sending")
    };
    let qdisc = host.qdisc.as_ref().map(|(kind, counters)| {
        let command = match kind.as_str() {
            "pfifo_fast" | "pfifo" | "bfifo" => format!("ip link set dev {name} txqueuelen 10000"),
            // Its packets of one flow are what it is full of (`flow_limit`, 100 unless set).
            "fq" => format!("tc qdisc replace dev {name} root fq flow_limit 1000"),
            _ => format!("tc qdisc replace dev {name} root fq"),
        };
        let what = format!("the queueing discipline {kind} of {name}");
        Dropped {
            dropped: counters.dropped_packets,
            packets: counters.sent_packets,
            ..Dropped::by(host, what, command, ", which TCP does not count as resent")
        }
    });
    let driver = sending(counters.sent_dropped, "the interface", format!("ethtool -G {name} tx 4096"));
    // No ring is too small for these: a carrier that goes, a cable, a device that gives up (`tx_errors`).
    let failed = sending(counters.sent_errors, "transmission errors of", statistics(name));
    qdisc.into_iter().chain([driver, failed]).collect()
}

/// After they had come, before any socket had them.
pub(super) fn after_they_came(host: &Host) -> Vec<Dropped<'_>> {
    let Some(interface) = &host.interface else { return Vec::new() };
    let (name, counters) = (&interface.name, &interface.counters);
    let come = |dropped, what: String, command| Dropped {
        dropped,
        packets: counters.received_packets,
        ..Dropped::by(host, what, command, " that had come")
    };
    let ring = format!("ethtool -G {name} rx 4096");
    let backlog = "sysctl -w net.core.netdev_max_backlog=10000".to_owned();
    vec![
        come(counters.received_missed, format!("the interface {name}"), ring),
        // Damaged on the line (`rx_errors`: length, checksum, framing): no ring is too small for these.
        come(counters.received_errors, format!("receive errors of {name}"), statistics(name)),
        // `rx_dropped` counts the kernel's backlog, and frames of protocols that nobody here speaks as well.
        Dropped { alone: false, ..come(counters.received_dropped, format!("the kernel behind {name}"), backlog) },
    ]
}

/// What counts damaged frames by their kind: a cable, a plug, optics.
fn statistics(name: &str) -> String {
    format!("ethtool -S {name}")
}

/// TCP's sockets, for want of memory (`TCPRcvQDrop`, `TCPBacklogDrop`, `RcvPruned`, `PFMemallocDrop`).
fn by_sockets(evidence: &Evidence) -> Option<Dropped<'_>> {
    let host = &evidence.receiver;
    let counters = host.interface.as_ref()?.counters;
    let by = Dropped::by(host, "the receiving sockets".into(), String::new(), " that had come");
    let dropped = host.sockets_dropped.unwrap_or(0);
    Some(Dropped { dropped, packets: counters.received_packets, cure: more_memory(evidence), ..by })
}

/// A larger receive buffer: the one that was asked for, or what autotuning may come to.
fn more_memory(evidence: &Evidence) -> Remedy {
    let host = Some(evidence.receiver.name.clone());
    let needed = evidence.needed().unwrap_or_default();
    let socket = evidence.flows.first().map(|flow| &flow.receiving);
    let granted = socket.map_or(Bytes(0), |socket| socket.rcvbuf_granted_bytes);
    let larger = needed.max(Bytes(granted.0.saturating_mul(2)));
    match socket.and_then(|socket| socket.rcvbuf_asked_bytes) {
        Some(asked) if asked > granted => Remedy { command: format!("sysctl -w net.core.rmem_max={}", larger.0), host },
        Some(_) => evidence.again(&format!("--rcvbuf {}", larger.0)),
        None => {
            let limits = evidence.receiver.kernel.as_ref().map(|kernel| kernel.tcp_rmem_bytes).unwrap_or_default();
            Remedy { command: autotuning("net.ipv4.tcp_rmem", limits, needed.max(Bytes(limits[2]))), host }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::diagnose;
    use super::super::host::tests::{causes, first, half};
    use super::*;
    use crate::host::QdiscCounters;
    use crate::units::BitRate;

    /// Down to what some per cent of loss leave.
    fn slowed() -> Evidence {
        let mut evidence = half();
        let goodput = BitRate(200_000);
        evidence.steady = evidence.steady.map(|steady| super::super::Steady { goodput, ..steady });
        evidence.flows[0].goodput = goodput;
        evidence.flows[0].mss = 1448;
        evidence
    }

    #[test]
    fn drops_of_the_own_queue_are_named_and_what_they_look_like_is_not() {
        let counters = QdiscCounters { dropped_packets: 300, sent_packets: 9_700, ..QdiscCounters::default() };
        let mut evidence = slowed();
        evidence.sender.qdisc = Some(("tbf".into(), counters));
        let found = &diagnose(&evidence)[0];
        let expected = "the queueing discipline tbf of eth0 on near.example dropped 300 of 10000 packets (3.00 %), which \
                        TCP does not count as resent";
        assert_eq!(found.summary, expected);
        assert_eq!(found.cure.to_string(), "tc qdisc replace dev eth0 root fq   (on near.example)");
        evidence.flows[0].rtt = Duration::from_secs(2);
        assert_eq!(causes(&evidence), [Cause::LocalDrops], "the queue is its own");
        // A single one is enough where it explains the goodput, and none where it does not.
        let one = QdiscCounters { dropped_packets: 1, sent_packets: 400, ..counters };
        evidence.flows[0].rtt = Duration::from_millis(540);
        evidence.sender.qdisc = Some(("tbf".into(), one));
        assert_eq!(causes(&evidence), [Cause::LocalDrops]);
        let steady = evidence.steady;
        evidence.steady = half().steady;
        assert_eq!(causes(&evidence), [], "67 Mb/s with one in 400 lost");
        evidence.steady = steady;
        evidence.flows[0].sending.congestion = "bbr".into();
        assert_eq!(causes(&evidence), [], "BBR takes no notice of one");
    }

    #[test]
    fn drops_behind_the_path_are_the_receivers() {
        let ring = first(|e| {
            *e = slowed();
            let interface = e.receiver.interface.as_mut().expect("it has one");
            interface.counters.received_missed = 900;
        });
        assert!(ring.summary.starts_with("the interface eth0 on far.example dropped 900 of"), "{}", ring.summary);
        assert_eq!(ring.cure.to_string(), "ethtool -G eth0 rx 4096   (on far.example)");
        let sockets = first(|e| {
            *e = slowed();
            e.receiver.sockets_dropped = Some(900);
        });
        assert!(sockets.summary.starts_with("the receiving sockets on far.example dropped 900"), "{}", sockets.summary);
        assert!(sockets.cure.command.starts_with("sysctl -w net.ipv4.tcp_rmem='4096 131072 "), "{}", sockets.cure);
        let asked = first(|e| {
            *e = slowed();
            e.receiver.sockets_dropped = Some(900);
            let socket = &mut e.flows[0].receiving;
            (socket.rcvbuf_asked_bytes, socket.rcvbuf_granted_bytes) = (Some(Bytes(8 << 20)), Bytes(8 << 20));
        });
        assert_eq!(asked.cure.to_string(), "lfn test far.example --rcvbuf 16777216");
        // Damaged frames are no ring too small.
        let damaged = first(|e| {
            *e = slowed();
            e.receiver.interface.as_mut().expect("it has one").counters.received_errors = 900;
        });
        assert!(
            damaged.summary.starts_with("receive errors of eth0 on far.example dropped 900"),
            "{}",
            damaged.summary
        );
        assert_eq!(damaged.cure.to_string(), "ethtool -S eth0   (on far.example)");
        // A few frames of a protocol nobody speaks are counted with the kernel's own drops.
        let unclear = |dropped| {
            let mut evidence = slowed();
            let interface = evidence.receiver.interface.as_mut().expect("it has one");
            (interface.counters.received_dropped, interface.counters.received_packets) = (dropped, 400);
            evidence.flows[0].rtt = Duration::from_millis(540);
            causes(&evidence)
        };
        assert_eq!((unclear(4), unclear(9)), (vec![], vec![Cause::LocalDrops]));
    }
}
