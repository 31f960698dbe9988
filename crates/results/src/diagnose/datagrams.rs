//! Limits of a test of datagrams: the place of the loss, and a sender that did not reach the requested rate.
//!
//! These rules differ from those of TCP. The rate does not adapt, so a rate above the capacity is lost, and the goodput
//! is the requested rate minus the loss. The rules have their own evidence; the findings have the same form. A ramp
//! searches for loss, so its loss is no finding.

use lfn_base::tcp_model::Prediction;
use lfn_base::units::{BitRate, Bytes, show_duration};
use serde_json::json;

use super::drops::{HostDrops, receive_drops, send_drops};
use super::limit::raise_limits;
use super::processor::busy_processes;
use super::{Cause, Finding, Remedy, figures_map};
use crate::evidence::figures::{DatagramFigures, Figures};
use crate::prediction::ExpectedRange;
use crate::udp::figures::{UdpReceived, UdpSent};
use crate::udp::ramp::RampReport;

/// Minimum achieved share of the requested rate, for a sender that kept its rate.
pub(super) const MIN_RATE_SHARE: f64 = 0.98;
/// Minimum rate of a ramp that the server's limit ended, as a share of the limit.
pub(super) const MIN_SHARE_OF_LIMIT: f64 = 0.95;
/// Minimum number of lost datagrams; fewer are chance.
pub(super) const MIN_LOST: u64 = 5;
/// Minimum lost share of the datagrams; less is chance.
pub(super) const MIN_LOST_SHARE: f64 = 1e-4;
/// Minimum number of datagrams that the full receive buffer dropped.
pub(super) const MIN_OVERFLOWS: u64 = 1;
/// Minimum drops of a host as a share of the missing datagrams: fewer drops of this test, or drops of other traffic, do
/// not explain the loss.
pub(super) const MIN_EXPLAINED_SHARE: f64 = 0.5;
/// Minimum share of the time in which the sender of a ramp is behind its schedule, for a result that is not certain.
pub(super) const MIN_LATE_SHARE: f64 = 0.05;
/// Minimum receive buffer that a remedy requests, in bytes.
const MIN_RCVBUF: u64 = 4 << 20;

/// All streams of a test of datagrams together.
struct DatagramTest<'a> {
    figures: &'a Figures,
    datagrams: &'a DatagramFigures,
    sent: u64,
    lost: u64,
    /// Datagrams dropped in the receiver's own buffer: minimum and maximum.
    receiver_drops: (u64, u64),
}

/// Finds a server limit below the requested rate.
pub(super) fn server_limit(figures: &Figures) -> Option<Finding> {
    DatagramTest::new(figures)?.server_limit()
}

/// Finds a sender that sent less than requested, or that was late in a ramp.
pub(super) fn slow_sender(figures: &Figures) -> Option<Finding> {
    DatagramTest::new(figures)?.slow_sender()
}

/// Finds datagrams that the receiver's socket buffer dropped.
pub(super) fn overflow(figures: &Figures) -> Option<Finding> {
    DatagramTest::new(figures)?.overflow()
}

/// Finds datagrams that a host's own queue or interface dropped.
pub(super) fn local_drops(figures: &Figures) -> Option<Finding> {
    DatagramTest::new(figures)?.local_drops()
}

/// Finds loss on the path, after the drops of the hosts.
pub(super) fn loss(figures: &Figures) -> Option<Finding> {
    DatagramTest::new(figures)?.loss()
}

/// Predicts the goodput of datagrams: at the requested rate, or for a ramp at any rate.
pub(super) fn predict(figures: &Figures) -> Option<(Prediction, ExpectedRange)> {
    let datagrams = &figures.datagrams;
    let requested = datagrams.sent.iter().map(|sent| sent.limit.unwrap_or(sent.requested).0);
    let requested = datagrams.ramp.is_none().then(|| BitRate(requested.fold(0, u64::saturating_add)));
    let bytes = datagrams.sent.first()?.datagram_bytes;
    Some(crate::udp::predict_datagrams(&figures.path?, bytes, requested, figures.elapsed))
}

impl<'a> DatagramTest<'a> {
    fn new(figures: &'a Figures) -> Option<Self> {
        let datagrams = &figures.datagrams;
        // The drop count of a socket also has datagrams with a bad checksum (`sk_drops` in `udp_queue_rcv_one_skb`).
        // The path lost these.
        let own = |count: u64| count.saturating_sub(datagrams.damaged);
        let sum = |figure: fn(&UdpReceived) -> u64| {
            datagrams.streams().map(|(_, received)| figure(received)).fold(0, u64::saturating_add)
        };
        let receiver_drops = (own(sum(|r| r.own_loss().0)), own(sum(|r| r.own_loss().1)));
        let sent = datagrams.streams().map(|(sent, _)| sent.datagrams).fold(0, u64::saturating_add);
        let lost = sum(|r| r.lost);
        let has_streams = datagrams.streams().next().is_some();
        has_streams.then_some(DatagramTest { figures, datagrams, sent, lost, receiver_drops })
    }

    fn finding(&self, cause: Cause, summary: String, remedy: Remedy, predicted: Option<BitRate>) -> Finding {
        super::finding(self.figures, cause, summary, remedy, predicted)
    }

    /// Returns the command that repeats the test with these flags.
    fn repeat_command(&self, flags: &str) -> Remedy {
        self.figures.repeat_command(&format!("--udp {flags}"))
    }

    /// Returns the requested rate of all senders, and the part that the server allowed.
    fn requested_and_limit(&self) -> (BitRate, Option<BitRate>) {
        let requested = self.datagrams.streams().map(|(sent, _)| sent.requested.0).fold(0, u64::saturating_add);
        let limits = self.datagrams.streams().map(|(sent, _)| sent.limit.map_or(sent.requested.0, |limit| limit.0));
        let limited = self.datagrams.streams().any(|(sent, _)| sent.limit.is_some());
        (BitRate(requested), limited.then(|| BitRate(limits.fold(0, u64::saturating_add))))
    }

    /// Finds a server limit below the requested rate; for a ramp, only if the ramp reached the limit.
    fn server_limit(&self) -> Option<Finding> {
        let (requested, limit) = self.requested_and_limit();
        let limit = limit?;
        let ended_there = |ramp: &RampReport| {
            let near =
                ramp.highest_passed.is_some_and(|highest| highest.as_f64() >= MIN_SHARE_OF_LIMIT * limit.as_f64());
            near && ramp.lowest_failed.is_none()
        };
        if self.datagrams.ramp.as_ref().is_some_and(|ramp| !ended_there(ramp)) {
            return None;
        }
        let effect =
            if self.datagrams.ramp.is_some() { "the ramp ended at this rate" } else { "the sender kept this rate" };
        let summary = format!("{requested} requested, but the server limits this session to {limit}: {effect}");
        let mut finding = self.finding(Cause::ServerLimit, summary, raise_limits(self.figures, limit), None);
        finding.evidence =
            figures_map([("requested_bits_per_second", json!(requested.0)), ("limit_bits_per_second", json!(limit.0))]);
        Some(finding)
    }

    /// Finds a sender that sent less than the effective rate.
    fn slow_sender(&self) -> Option<Finding> {
        if let Some(ramp) = &self.datagrams.ramp {
            return self.late_ramp(ramp);
        }
        let (requested, limit) = self.requested_and_limit();
        let target = limit.unwrap_or(requested);
        let slow: Vec<&UdpSent> =
            self.datagrams.streams().map(|(sent, _)| sent).filter(|sent| !sent.reached(MIN_RATE_SHARE)).collect();
        let worst = slow.iter().min_by(|a, b| a.achieved.cmp(&b.achieved))?;
        let achieved = BitRate(self.datagrams.streams().map(|(sent, _)| sent.achieved.0).fold(0, u64::saturating_add));
        let host = &self.figures.sender;
        let why = match (worst.queue_full, worst.behind_schedule_share.get() * 100.0) {
            // An end without figures.
            (0, 0.0) => String::new(),
            (0, behind) => format!(": behind its schedule for {behind:.0} % of the time"),
            (full, _) => format!(": its own queue was full {full} times"),
        };
        let summary = format!("{} sent {achieved} of {target}{why}", host.name);
        let qdisc = host.qdisc.as_ref().zip(host.interface.as_ref()).filter(|_| worst.queue_full > 0);
        let remedy = match qdisc {
            Some(((kind, _), interface)) if kind != "fq" => {
                let command = format!("tc -s qdisc show dev {}", interface.name);
                Remedy { command, host: Some(host.name.clone()) }
            }
            // The kernel's segmentation may let it keep the rate.
            _ if self.figures.no_gso => {
                self.repeat_command(&format!("--pacing {}", self.per_stream(target).to_argument()))
            }
            _ => self.repeat_command(&format!("--pacing {}", self.per_stream(achieved).to_argument())),
        };
        let mut finding = self.finding(Cause::SlowSender, summary, remedy, None);
        finding.evidence = figures_map([
            ("requested_bits_per_second", json!(target.0)),
            ("sent_bits_per_second", json!(achieved.0)),
            ("behind_schedule_share", json!(worst.behind_schedule_share)),
            ("queue_full", json!(worst.queue_full)),
        ]);
        Some(finding)
    }

    /// Finds a sender that was late in a ramp whose result is a failed step: lateness causes bursts, which fill a queue.
    fn late_ramp(&self, ramp: &RampReport) -> Option<Finding> {
        let sent = self.datagrams.sent.first()?;
        let late = late_sender(ramp, Some(sent))?;
        let host = &self.figures.sender;
        let summary = format!("{} sent late ({late}): its bursts may have failed the steps, not the path", host.name);
        let mut finding = self.finding(Cause::SlowSender, summary, busy_processes(&host.name), None);
        finding.evidence = figures_map([("behind_schedule_share", json!(sent.behind_schedule_share))]);
        if let Some(lateness) = sent.lateness {
            finding.evidence.extend(figures_map([("p99_lateness_seconds", json!(lateness.p99.as_secs_f64()))]));
        }
        Some(finding)
    }

    /// Finds datagrams that the receiver's socket buffer dropped.
    fn overflow(&self) -> Option<Finding> {
        let (min, max) = self.receiver_drops;
        if min < MIN_OVERFLOWS || self.datagrams.ramp.is_some() {
            return None;
        }
        let host = &self.figures.receiver;
        let socket = self.datagrams.receiver_socket.as_ref()?;
        let (granted, requested) = (socket.rcvbuf_granted_bytes, socket.rcvbuf_requested_bytes);
        let count = if min == max { min.to_string() } else { format!("{min} to {max}") };
        let summary = format!(
            "{count} of {} lost datagrams arrived at {}, but its receive buffer of {granted} was full: the path did not \
lose them",
            self.lost, host.name
        );
        let larger = Bytes(granted.0.saturating_mul(4).max(MIN_RCVBUF));
        let remedy = match requested {
            // The kernel granted less than requested.
            Some(requested) if requested > granted => {
                Remedy { command: format!("sysctl -w net.core.rmem_max={}", larger.0), host: Some(host.name.clone()) }
            }
            _ => self.repeat_command(&format!("--rcvbuf {}", larger.0)),
        };
        let mut finding = self.finding(Cause::ReceiverOverflow, summary, remedy, None);
        finding.evidence = figures_map([
            ("min_datagrams", json!(min)),
            ("max_datagrams", json!(max)),
            ("lost_datagrams", json!(self.lost)),
            ("rcvbuf_granted_bytes", json!(granted.0)),
        ]);
        Some(finding)
    }

    /// Finds datagrams that a host's own queue or interface dropped.
    fn local_drops(&self) -> Option<Finding> {
        let unexplained = self.lost.saturating_sub(self.receiver_drops.1);
        if self.datagrams.ramp.is_some() || unexplained < MIN_LOST {
            return None;
        }
        let (sender, receiver) = (send_drops(&self.figures.sender), receive_drops(&self.figures.receiver));
        let explains = |found: &HostDrops| found.dropped as f64 >= MIN_EXPLAINED_SHARE * unexplained as f64;
        let found = sender.into_iter().chain(receiver).find(explains)?;
        let (what, name, dropped) = (&found.place, &found.host.name, found.dropped);
        let summary = format!("{what} on {name} dropped {dropped} packets; {unexplained} datagrams did not arrive");
        let mut finding = self.finding(Cause::LocalDrops, summary, found.remedy.clone(), None);
        finding.evidence = figures_map([("dropped_packets", json!(dropped)), ("lost_datagrams", json!(unexplained))]);
        Some(finding)
    }

    /// Finds loss on the path, after the drops of the hosts.
    fn loss(&self) -> Option<Finding> {
        let lost = self.lost.saturating_sub(self.receiver_drops.1);
        let share = lost as f64 / self.sent.max(1) as f64;
        if self.datagrams.ramp.is_some() || lost < MIN_LOST || share < MIN_LOST_SHARE || self.local_drops().is_some() {
            return None;
        }
        let max_burst = self.datagrams.streams().map(|(_, received)| received.max_loss_burst).max().unwrap_or(0);
        // An iperf3 server reports neither.
        let reported = self.datagrams.streams().all(|(_, received)| received.overflows.is_some());
        let (percent, sent) = (share * 100.0, self.sent);
        let mut summary = match reported {
            true => format!("the path lost {percent:.3} % of the datagrams ({lost} of {sent})"),
            false => format!(
                "{percent:.3} % of the datagrams ({lost} of {sent}) were lost on the path or in the receiver's \
buffer: the place is unknown"
            ),
        };
        if max_burst > 0 {
            summary += &format!(", in bursts of up to {max_burst}");
        }
        let sent = BitRate(self.datagrams.streams().map(|(sent, _)| sent.achieved.0).fold(0, u64::saturating_add));
        let max = self.path_payload_rate().filter(|max| sent > *max);
        let remedy = match max {
            Some(max) => {
                summary +=
                    &format!("; the path carries {max} of payload in datagrams of this size, but {sent} were sent");
                self.repeat_command(&format!("--pacing {}", self.per_stream(BitRate(max.0 * 97 / 100)).to_argument()))
            }
            // The rate that arrived may arrive again.
            None if !reported => {
                self.repeat_command(&format!("--pacing {}", self.per_stream(received_rate(sent, share)).to_argument()))
            }
            // A ramp has one stream.
            None => self.figures.repeat_command("--ramp"),
        };
        let mut finding = self.finding(Cause::Loss, summary, remedy, max);
        finding.evidence = figures_map([("lost_datagrams", json!(lost)), ("lost_share", json!(share))]);
        if max_burst > 0 {
            finding.evidence.extend(figures_map([("max_loss_burst", json!(max_burst))]));
        }
        Some(finding)
    }

    /// Returns the value of `--pacing` for each stream so that all streams send `rate` together.
    fn per_stream(&self, rate: BitRate) -> BitRate {
        round_down(BitRate(rate.0 / self.datagrams.streams().count().max(1) as u64))
    }

    /// Returns the maximum payload rate of the path with datagrams of this size, if the capacity is known.
    fn path_payload_rate(&self) -> Option<BitRate> {
        let bytes = self.datagrams.sent.first().map(|sent| sent.datagram_bytes)?;
        Some(crate::udp::payload_capacity(&self.figures.path?, bytes))
    }
}

/// Describes the lateness of the sender of a ramp, if it may have failed the steps that are the result.
pub(super) fn late_sender(ramp: &RampReport, sent: Option<&UdpSent>) -> Option<String> {
    let sent = sent?;
    let behind = sent.behind_schedule_share.get();
    // Steps that passed are certain, and so is a sender that reached its maximum.
    if ramp.lowest_failed.is_none() || ramp.sender_limit || behind < MIN_LATE_SHARE {
        return None;
    }
    let p99 = sent.lateness.map(|late| format!(", {} at p99", show_duration(late.p99))).unwrap_or_default();
    Some(format!("{:.0} % of the time{p99}", behind * 100.0))
}

/// Returns the rate that arrives if this share is lost.
fn received_rate(sent: BitRate, share: f64) -> BitRate {
    BitRate((sent.as_f64() * (1.0 - share)) as u64)
}

/// Rounds down to two digits, for a value that the user types.
fn round_down(rate: BitRate) -> BitRate {
    let unit = 10u64.pow(rate.0.checked_ilog10().unwrap_or(0).saturating_sub(1));
    BitRate(rate.0 / unit * unit)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lfn_base::path::PathProfile;

    use super::*;
    use crate::diagnose::diagnose;
    use crate::evidence::{Evidence, HostNames};
    use crate::host::{HostReport, Interface, InterfaceCounters, Qdisc, QdiscCounters};
    use crate::measure::{EndReport, SocketReport, StreamReport, TestRequest, UdpRequest};
    use crate::udp::figures::UdpFigures;

    const MBIT: u64 = 1_000_000;

    /// Both ends of a test at 50 Mb/s without loss.
    fn healthy() -> (UdpSent, UdpReceived, SocketReport) {
        let sent = UdpSent {
            datagrams: 50_000,
            datagram_bytes: 1000,
            requested: BitRate(50 * MBIT),
            achieved: BitRate(50 * MBIT - 7000),
            gso: true,
            ..UdpSent::default()
        };
        let received =
            UdpReceived { datagrams: 50_000, overflows: Some(0), max_merged_datagrams: 1, ..UdpReceived::default() };
        let socket = SocketReport { rcvbuf_granted_bytes: Bytes(425_984), ..SocketReport::default() };
        (sent, received, socket)
    }

    fn found(
        sent: UdpSent,
        received: UdpReceived,
        socket: SocketReport,
        host: HostReport,
        path: Option<PathProfile>,
    ) -> Vec<Finding> {
        findings(sent, received, socket, None, host, path, false)
    }

    fn findings(
        sent: UdpSent,
        received: UdpReceived,
        socket: SocketReport,
        ramp: Option<RampReport>,
        host: HostReport,
        path: Option<PathProfile>,
        no_gso: bool,
    ) -> Vec<Finding> {
        let end = |figures| EndReport {
            elapsed: Duration::from_secs(8),
            bytes: received.datagrams * 1000,
            streams: vec![StreamReport {
                udp: Some(Box::new(figures)),
                socket: Some(socket.clone()),
                ..StreamReport::default()
            }],
            host: Some(host.clone()),
            ..EndReport::default()
        };
        let sender = end(UdpFigures { sent: Some(sent), ramp, ..UdpFigures::default() });
        let receiver = end(UdpFigures { received: Some(received.clone()), ..UdpFigures::default() });
        let rtt = Duration::from_millis(20);
        let udp = UdpRequest { no_gso, ..UdpRequest::default() };
        let request = TestRequest { udp: Some(Box::new(udp)), ..TestRequest::default() };
        let hosts = HostNames { near: "near".into(), far: "far".into() };
        diagnose(&Evidence { path, hosts, ..Evidence::of_test(request, rtt, sender, receiver) }).findings
    }

    fn causes(findings: &[Finding]) -> Vec<Cause> {
        findings.iter().filter_map(Finding::cause).collect()
    }

    #[test]
    fn a_healthy_test_has_no_findings() {
        let (sent, received, socket) = healthy();
        assert_eq!(found(sent, received, socket, HostReport::default(), None), []);
    }

    #[test]
    fn path_loss_differs_from_receiver_drops() {
        let (sent, received, socket) = healthy();
        let lost = UdpReceived { lost: 500, datagrams: 49_500, max_loss_burst: 7, ..received };
        let path = found(sent.clone(), lost.clone(), socket.clone(), HostReport::default(), None);
        assert_eq!(causes(&path), [Cause::Loss]);
        assert!(path[0].summary.contains("1.000 % of the datagrams (500 of 50000), in bursts of up to 7"), "{path:?}");
        assert_eq!(path[0].remedy.command, "lfn test far --ramp");

        let own = UdpReceived { overflows: Some(498), ..lost };
        let own = found(sent, own, socket, HostReport::default(), None);
        assert_eq!(causes(&own), [Cause::ReceiverOverflow], "the other two are chance");
        assert_eq!(own[0].remedy.command, "lfn test far --udp --rcvbuf 4194304");
    }

    #[test]
    fn a_rate_above_the_capacity_is_found_with_the_capacity() {
        let (sent, received, socket) = healthy();
        let lost = UdpReceived { lost: 25_000, datagrams: 25_000, ..received };
        let path = PathProfile::new(BitRate(25 * MBIT), Duration::from_millis(20));
        let findings = found(sent, lost, socket, HostReport::default(), Some(path));
        assert_eq!(causes(&findings), [Cause::Loss]);
        // 1000 of 1042 bytes: 23.99 Mb/s of payload.
        assert_eq!(findings[0].predicted, Some(BitRate(23_992_322)));
        assert!(findings[0].remedy.command.starts_with("lfn test far --udp --pacing 23"), "{}", findings[0].remedy);
    }

    #[test]
    fn a_slow_sender_differs_from_a_limited_one() {
        let (sent, received, socket) = healthy();
        let slow = UdpSent {
            achieved: BitRate(30 * MBIT),
            behind_schedule_share: lfn_base::units::Ratio::new(0.9).unwrap(),
            ..sent.clone()
        };
        let slow = found(slow, received.clone(), socket.clone(), HostReport::default(), None);
        assert_eq!(causes(&slow), [Cause::SlowSender]);
        assert!(slow[0].summary.contains("near sent 30 Mb/s of 50 Mb/s: behind its schedule for 90 %"), "{slow:?}");

        let held = UdpSent { achieved: BitRate(30 * MBIT), limit: Some(BitRate(30 * MBIT)), ..sent };
        let held = found(held, received, socket, HostReport::default(), None);
        assert_eq!(causes(&held), [Cause::ServerLimit]);
    }

    #[test]
    fn an_end_with_few_figures_has_careful_findings() {
        let (sent, received, socket) = healthy();
        let lost = UdpReceived {
            lost: 25_000,
            datagrams: 25_000,
            overflows: None,
            max_merged_datagrams: 0,
            ..received.clone()
        };
        let loss = found(sent.clone(), lost, socket.clone(), HostReport::default(), None);
        assert_eq!(causes(&loss), [Cause::Loss]);
        assert!(loss[0].summary.ends_with("buffer: the place is unknown"), "{loss:?}");
        assert_eq!(loss[0].remedy.command, "lfn test far --udp --pacing 24mbit", "iperf3 has no ramp");
        assert!(!loss[0].evidence.contains_key("max_loss_burst"), "{loss:?}");
        let slow = UdpSent { achieved: BitRate(30 * MBIT), ..sent };
        let slow = found(slow, received, socket, HostReport::default(), None);
        assert_eq!(slow[0].summary, "near sent 30 Mb/s of 50 Mb/s");
    }

    #[test]
    fn drops_of_the_own_queue_are_not_path_loss() {
        let (sent, received, socket) = healthy();
        let lost = UdpReceived { lost: 500, datagrams: 49_500, ..received };
        let counters = QdiscCounters { dropped_packets: 499, sent_packets: 49_501, ..QdiscCounters::default() };
        let qdisc = Qdisc { kind: "tbf".into(), handle: "1:".into(), parent: "root".into(), counters };
        let interface = Interface {
            name: "eth0".into(),
            mtu_bytes: 1500,
            rate: None,
            loopback: false,
            kind: None,
            counters: InterfaceCounters::default(),
        };
        let host = HostReport { interface: Some(interface), qdiscs: vec![qdisc], ..HostReport::default() };
        let findings = found(sent, lost, socket, host, None);
        assert_eq!(causes(&findings), [Cause::LocalDrops]);
        assert_eq!(findings[0].remedy.to_string(), "tc qdisc replace dev eth0 root fq   # on near");
    }

    #[test]
    fn a_ramp_is_limited_by_the_server_at_its_limit_only() {
        let (sent, received, socket) = healthy();
        let sent = UdpSent { requested: BitRate(100_000 * MBIT), limit: Some(BitRate(500 * MBIT)), ..sent };
        let of = |highest: u64, onset: Option<u64>| {
            let (highest, onset) = (Some(BitRate(highest * MBIT)), onset.map(|rate| BitRate(rate * MBIT)));
            let ramp = RampReport { highest_passed: highest, lowest_failed: onset, ..RampReport::default() };
            let (sent, received, socket) = (sent.clone(), received.clone(), socket.clone());
            causes(&findings(sent, received, socket, Some(ramp), HostReport::default(), None, false))
        };
        assert_eq!(of(500, None), [Cause::ServerLimit]);
        assert_eq!(of(92, Some(94)), [], "the path carries less");
        assert_eq!(of(490, Some(499)), [], "the path carries less than the limit, too");
        assert_eq!(of(200, None), [], "the sender reached its maximum");
    }

    #[test]
    fn bad_checksums_are_no_overflow() {
        let (sent, received, socket) = healthy();
        let lost = UdpReceived { lost: 500, datagrams: 49_500, overflows: Some(500), ..received };
        let of = |damaged: i64| {
            let counters = [("Udp.InCsumErrors".to_owned(), damaged)].into();
            let host = HostReport { counters: Some(counters), ..HostReport::default() };
            causes(&found(sent.clone(), lost.clone(), socket.clone(), host, None))
        };
        assert_eq!(of(0), [Cause::ReceiverOverflow]);
        assert_eq!(of(500), [Cause::Loss]);
        assert_eq!(of(100), [Cause::ReceiverOverflow, Cause::Loss]);
    }

    #[test]
    fn the_remedy_suggests_gso_only_if_it_was_off() {
        let (sent, received, socket) = healthy();
        // One datagram at a time: nothing to segment, and so no GSO.
        let sent = UdpSent { achieved: BitRate(30 * MBIT), gso: false, burst_datagrams: 1, ..sent };
        let of = |no_gso| {
            let (sent, received, socket) = (sent.clone(), received.clone(), socket.clone());
            findings(sent, received, socket, None, HostReport::default(), None, no_gso)[0].remedy.to_string()
        };
        assert_eq!(
            (of(false).as_str(), of(true).as_str()),
            ("lfn test far --udp --pacing 30mbit", "lfn test far --udp --pacing 50mbit")
        );
    }
}
