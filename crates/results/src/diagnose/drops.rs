//! Packets that a host itself dropped: before sending in its queueing discipline or interface, or after receiving in
//! its interface or sockets.
//!
//! These drops look like loss on the path. The places are the same for TCP and for datagrams, so they are listed here
//! once. The caller decides if a number of drops explains the goodput or the missing datagrams. The drops of TCP's
//! sockets count for TCP only.

use lfn_base::units::Bytes;
use serde_json::json;

use super::window::autotuning_command;
use super::{Cause, Finding, Remedy, figures_map, finding, path};
use crate::evidence::figures::{Figures, HostFigures};

/// Minimum number of drops for BBR, and for counters that count other events too.
pub(super) const MIN_DROPS: u64 = 5;
/// Minimum share of the packets that were dropped, for BBR and for counters that count other events too.
pub(super) const MIN_DROPPED_SHARE: f64 = 1e-4;
/// Minimum number of drops of a counter that counts only drops.
pub(super) const MIN_EXACT_DROPS: u64 = 1;

/// Finds drops of the host itself: in its queueing discipline, its interface or its sockets.
pub(super) fn local_drops(figures: &Figures) -> Option<Finding> {
    if figures.is_full() {
        return None;
    }
    let limits = |found: &HostDrops| found.explains_goodput(figures);
    let found = send_drops(&figures.sender)
        .into_iter()
        .chain(receive_drops(&figures.receiver))
        .chain(socket_drops(figures))
        .find(limits)?;
    let summary = format!(
        "{} on {} dropped {} of {} packets ({:.2} %){}",
        found.place,
        found.host.name,
        found.dropped,
        found.packets + found.dropped,
        found.share() * 100.0,
        found.consequence
    );
    let mut finding = finding(figures, Cause::LocalDrops, summary, found.remedy.clone(), figures.possible_goodput());
    finding.evidence = figures_map([
        ("dropped_packets", json!(found.dropped)),
        ("packets", json!(found.packets)),
        ("dropped_share", json!(found.share())),
    ]);
    Some(finding)
}

/// Packets that one place of a host dropped.
pub(super) struct HostDrops<'a> {
    pub(super) host: &'a HostFigures,
    pub(super) place: String,
    pub(super) dropped: u64,
    packets: u64,
    pub(super) remedy: Remedy,
    /// True if the counter counts only drops.
    is_exact: bool,
    consequence: &'static str,
}

impl<'a> HostDrops<'a> {
    /// Creates an entry without drops.
    fn new(host: &'a HostFigures, what: String, command: String, consequence: &'static str) -> Self {
        let remedy = Remedy { command, host: Some(host.name.clone()) };
        HostDrops { host, place: what, dropped: 0, packets: 0, remedy, is_exact: true, consequence }
    }

    fn share(&self) -> f64 {
        self.dropped as f64 / (self.packets + self.dropped).max(1) as f64
    }

    /// Returns true if the drops explain the goodput: more than the loss budget, and a goodput close to the formula.
    fn explains_goodput(&self, figures: &Figures) -> bool {
        let bbr = figures.streams.iter().any(|flow| flow.sender_socket.congestion.starts_with("bbr"));
        let enough = match bbr || !self.is_exact {
            true => self.dropped >= MIN_DROPS && self.share() >= MIN_DROPPED_SHARE,
            false => self.dropped >= MIN_EXACT_DROPS,
        };
        enough && (bbr || path::is_limited_by_loss(figures, self.share()))
    }
}

/// Returns the drops before sending. TCP learns of a drop in its own kernel at once. It reduces the congestion window
/// without a retransmission.
pub(super) fn send_drops(host: &HostFigures) -> Vec<HostDrops<'_>> {
    let Some(interface) = &host.interface else { return Vec::new() };
    let (name, counters) = (&interface.name, &interface.counters);
    let sending = |dropped, what: &str, command| HostDrops {
        dropped,
        packets: counters.sent_packets,
        ..HostDrops::new(host, format!("{what} {name}"), command, " given to it for sending")
    };
    let qdisc = host.qdisc.as_ref().map(|(kind, counters)| {
        let command = match kind.as_str() {
            "pfifo_fast" | "pfifo" | "bfifo" => format!("ip link set dev {name} txqueuelen 10000"),
            // `fq` drops if one flow has too many packets in it (`flow_limit`, 100 by default).
            "fq" => format!("tc qdisc replace dev {name} root fq flow_limit 1000"),
            _ => format!("tc qdisc replace dev {name} root fq"),
        };
        let what = format!("the queueing discipline {kind} of {name}");
        HostDrops {
            dropped: counters.dropped_packets,
            packets: counters.sent_packets,
            ..HostDrops::new(host, what, command, ", which TCP does not count as resent")
        }
    });
    let driver = sending(counters.sent_dropped, "the interface", format!("ethtool -G {name} tx 4096"));
    // A larger ring does not help here: carrier loss, cable faults, device failures (`tx_errors`).
    let failed = sending(counters.sent_errors, "transmission errors of", interface_statistics(name));
    qdisc.into_iter().chain([driver, failed]).collect()
}

/// Returns the drops after receiving, before any socket had the packets.
pub(super) fn receive_drops(host: &HostFigures) -> Vec<HostDrops<'_>> {
    let Some(interface) = &host.interface else { return Vec::new() };
    let (name, counters) = (&interface.name, &interface.counters);
    let come = |dropped, what: String, command| HostDrops {
        dropped,
        packets: counters.received_packets,
        ..HostDrops::new(host, what, command, " that it received")
    };
    let ring = format!("ethtool -G {name} rx 4096");
    let backlog = "sysctl -w net.core.netdev_max_backlog=10000".to_owned();
    vec![
        come(counters.received_missed, format!("the interface {name}"), ring),
        // Damaged on the line (`rx_errors`: length, checksum, framing): a larger ring does not help.
        come(counters.received_errors, format!("receive errors of {name}"), interface_statistics(name)),
        // `rx_dropped` counts the kernel's backlog, and also frames of unknown protocols.
        HostDrops { is_exact: false, ..come(counters.received_dropped, format!("the kernel behind {name}"), backlog) },
    ]
}

/// Returns the command that shows damaged frames by their kind: cable, connector, optics.
fn interface_statistics(name: &str) -> String {
    format!("ethtool -S {name}")
}

/// Returns drops of TCP's sockets for lack of memory (`TCPRcvQDrop`, `TCPBacklogDrop`, `RcvPruned`, `PFMemallocDrop`).
fn socket_drops(figures: &Figures) -> Option<HostDrops<'_>> {
    let host = &figures.receiver;
    let counters = host.interface.as_ref()?.counters;
    let by = HostDrops::new(host, "the receiving sockets".into(), String::new(), " that it received");
    let dropped = host.sockets_dropped.unwrap_or(0);
    Some(HostDrops { dropped, packets: counters.received_packets, remedy: larger_receive_buffer(figures), ..by })
}

/// Returns the remedy for a receive buffer that is too small: a larger request, or a larger autotuning limit.
fn larger_receive_buffer(figures: &Figures) -> Remedy {
    let host = Some(figures.receiver.name.clone());
    let needed = figures.needed_in_flight().unwrap_or_default();
    let socket = figures.streams.first().map(|flow| &flow.receiver_socket);
    let granted = socket.map_or(Bytes(0), |socket| socket.rcvbuf_granted_bytes);
    let larger = needed.max(Bytes(granted.0.saturating_mul(2)));
    match socket.and_then(|socket| socket.rcvbuf_requested_bytes) {
        Some(requested) if requested > granted => {
            Remedy { command: format!("sysctl -w net.core.rmem_max={}", larger.0), host }
        }
        Some(_) => figures.repeat_command(&format!("--rcvbuf {}", larger.0)),
        None => {
            let limits = figures.receiver.kernel.as_ref().map(|kernel| kernel.tcp_rmem_bytes).unwrap_or_default();
            Remedy { command: autotuning_command("net.ipv4.tcp_rmem", limits, needed.max(Bytes(limits[2]))), host }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lfn_base::units::BitRate;

    use super::super::host::tests::{causes, first_finding, half_goodput};
    use super::super::rule_findings;
    use super::*;
    use crate::host::QdiscCounters;

    /// A test with the goodput that a few per cent of loss leave.
    fn slowed_by_loss() -> Figures {
        let mut figures = half_goodput();
        let goodput = BitRate(200_000);
        figures.steady = figures.steady.map(|steady| crate::evidence::figures::SteadyPart { goodput, ..steady });
        figures.streams[0].goodput = goodput;
        figures.streams[0].mss = 1448;
        figures
    }

    #[test]
    fn own_queue_drops_are_found_but_not_their_consequences() {
        let counters = QdiscCounters { dropped_packets: 300, sent_packets: 9_700, ..QdiscCounters::default() };
        let mut figures = slowed_by_loss();
        figures.sender.qdisc = Some(("tbf".into(), counters));
        let found = &rule_findings(&figures)[0];
        let expected = "the queueing discipline tbf of eth0 on near.example dropped 300 of 10000 packets (3.00 %), which \
                        TCP does not count as resent";
        assert_eq!(found.summary, expected);
        assert_eq!(found.remedy.to_string(), "tc qdisc replace dev eth0 root fq   # on near.example");
        figures.streams[0].rtt = Duration::from_secs(2);
        assert_eq!(causes(&figures), [Cause::LocalDrops], "the queue is on this host");
        // One drop is enough if it explains the goodput, and no finding if it does not.
        let one = QdiscCounters { dropped_packets: 1, sent_packets: 400, ..counters };
        figures.streams[0].rtt = Duration::from_millis(540);
        figures.sender.qdisc = Some(("tbf".into(), one));
        assert_eq!(causes(&figures), [Cause::LocalDrops]);
        let steady = figures.steady;
        figures.steady = half_goodput().steady;
        assert_eq!(causes(&figures), [], "67 Mb/s with one in 400 lost");
        figures.steady = steady;
        figures.streams[0].sender_socket.congestion = "bbr".into();
        assert_eq!(causes(&figures), [], "one drop does not slow BBR down");
    }

    #[test]
    fn drops_after_the_path_are_the_receivers() {
        let ring = first_finding(|e| {
            *e = slowed_by_loss();
            let interface = e.receiver.interface.as_mut().expect("it has one");
            interface.counters.received_missed = 900;
        });
        assert!(ring.summary.starts_with("the interface eth0 on far.example dropped 900 of"), "{}", ring.summary);
        assert_eq!(ring.remedy.to_string(), "ethtool -G eth0 rx 4096   # on far.example");
        let sockets = first_finding(|e| {
            *e = slowed_by_loss();
            e.receiver.sockets_dropped = Some(900);
        });
        assert!(sockets.summary.starts_with("the receiving sockets on far.example dropped 900"), "{}", sockets.summary);
        assert!(sockets.remedy.command.starts_with("sysctl -w net.ipv4.tcp_rmem='4096 131072 "), "{}", sockets.remedy);
        let requested = first_finding(|e| {
            *e = slowed_by_loss();
            e.receiver.sockets_dropped = Some(900);
            let socket = &mut e.streams[0].receiver_socket;
            (socket.rcvbuf_requested_bytes, socket.rcvbuf_granted_bytes) = (Some(Bytes(8 << 20)), Bytes(8 << 20));
        });
        assert_eq!(requested.remedy.to_string(), "lfn test far.example --rcvbuf 16777216");
        // A larger ring does not help against damaged frames.
        let damaged = first_finding(|e| {
            *e = slowed_by_loss();
            e.receiver.interface.as_mut().expect("it has one").counters.received_errors = 900;
        });
        assert!(
            damaged.summary.starts_with("receive errors of eth0 on far.example dropped 900"),
            "{}",
            damaged.summary
        );
        assert_eq!(damaged.remedy.to_string(), "ethtool -S eth0   # on far.example");
        // A few frames of an unknown protocol are counted with the kernel's own drops.
        let unclear = |dropped| {
            let mut figures = slowed_by_loss();
            let interface = figures.receiver.interface.as_mut().expect("it has one");
            (interface.counters.received_dropped, interface.counters.received_packets) = (dropped, 400);
            figures.streams[0].rtt = Duration::from_millis(540);
            causes(&figures)
        };
        assert_eq!((unclear(4), unclear(9)), (vec![], vec![Cause::LocalDrops]));
    }
}
