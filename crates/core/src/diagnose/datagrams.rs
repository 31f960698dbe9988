//! Limits of a test of datagrams: what was lost and where, and a sender that could not send what was asked.
//!
//! Its rules are not TCP's: nothing adapts, so a rate that the path does not carry is lost and not lowered, and goodput is
//! what was asked less what was lost. So they have evidence of their own; findings look the same. A ramp seeks loss, and
//! the loss it meets is no finding.

use std::collections::BTreeMap;

use serde_json::json;

use super::drops::{after_they_came, before_they_left};
use super::limit::higher;
use super::{Cause, Remedy, Evidence, Finding};
use crate::udp::figures::{Received, Sent};
use crate::udp::ramp::RampReport;
use crate::units::{BitRate, Bytes};
use crate::wire::test::{EndReport, StreamReport};

/// A sender that reached less of what it was to send could not keep its rate.
const KEPT: f64 = 0.98;
/// A ramp that came this close to what the server allows was ended by it.
const NEAR: f64 = 0.95;
/// Fewer lost datagrams, or a smaller share, may be chance: no path is without.
const LOSS: (u64, f64) = (5, 1e-4);
/// Rounds `SO_RCVBUF` up to what a human would ask for.
const BUFFER: u64 = 4 << 20;

/// All streams of a test of datagrams together.
struct Datagrams<'a> {
    evidence: &'a Evidence,
    /// Each stream's sender and receiver.
    streams: Vec<(&'a Sent, &'a Received)>,
    ramp: Option<&'a RampReport>,
    sent: u64,
    lost: u64,
    /// Lost in the receiver's own buffer: at least, and at most.
    own: (u64, u64),
    receiver: &'a EndReport,
}

/// All findings of a test of datagrams, causes before what follows from them.
pub fn diagnose_datagrams(evidence: &Evidence, sender: &EndReport, receiver: &EndReport) -> Vec<Finding> {
    let Some(test) = Datagrams::new(evidence, sender, receiver) else { return Vec::new() };
    let rules =
        [Datagrams::server_limit, Datagrams::slow_sender, Datagrams::overflow, Datagrams::drops, Datagrams::loss];
    rules.iter().filter_map(|rule| rule(&test)).collect()
}

impl<'a> Datagrams<'a> {
    fn new(evidence: &'a Evidence, sender: &'a EndReport, receiver: &'a EndReport) -> Option<Self> {
        let figures = |stream: &'a StreamReport| stream.udp.as_deref();
        let sent = sender.streams.iter().filter_map(figures);
        let ramp = sent.clone().find_map(|udp| udp.ramp.as_ref());
        let received = receiver.streams.iter().filter_map(|stream| figures(stream)?.received.as_ref());
        let streams: Vec<_> = sent.filter_map(|udp| udp.sent.as_ref()).zip(received).collect();
        let sum = |figure: fn(&Received) -> u64| {
            streams.iter().map(|(_, received)| figure(received)).fold(0, u64::saturating_add)
        };
        // What a socket counts as dropped are datagrams with a bad checksum, too (`sk_drops` in `udp_queue_rcv_one_skb`);
        // those are the path's.
        let damaged = receiver.host.as_ref().and_then(|host| host.counter("Udp.InCsumErrors")).unwrap_or(0);
        let own = |count: u64| count.saturating_sub(u64::try_from(damaged).unwrap_or(0));
        let (lost, own) = (sum(|r| r.lost), (own(sum(|r| r.own_loss().0)), own(sum(|r| r.own_loss().1))));
        let sent = streams.iter().map(|(sent, _)| sent.datagrams).fold(0, u64::saturating_add);
        (!streams.is_empty()).then_some(Datagrams { evidence, streams, ramp, sent, lost, own, receiver })
    }

    fn finding(&self, cause: Cause, summary: String, cure: Remedy, predicted: Option<BitRate>) -> Finding {
        super::finding(self.evidence, cause, summary, cure, predicted)
    }

    /// The command to try again with.
    fn again(&self, flags: &str) -> Remedy {
        self.evidence.again(&format!("--udp {flags}"))
    }

    /// What the senders were to send: asked, and what the server allowed of it.
    fn rates(&self) -> (BitRate, Option<BitRate>) {
        let asked = self.streams.iter().map(|(sent, _)| sent.asked.0).fold(0, u64::saturating_add);
        let limits = self.streams.iter().map(|(sent, _)| sent.limit.map_or(sent.asked.0, |limit| limit.0));
        let limited = self.streams.iter().any(|(sent, _)| sent.limit.is_some());
        (BitRate(asked), limited.then(|| BitRate(limits.fold(0, u64::saturating_add))))
    }

    /// The server's quota held the senders below what was asked; a ramp only where it got there.
    fn server_limit(&self) -> Option<Finding> {
        let (asked, limit) = self.rates();
        let limit = limit?;
        let ended_there = |ramp: &RampReport| {
            let near = ramp.highest.is_some_and(|highest| highest.as_f64() >= NEAR * limit.as_f64());
            near && ramp.onset.is_none()
        };
        if self.ramp.is_some_and(|ramp| !ended_there(ramp)) {
            return None;
        }
        let what = if self.ramp.is_some() { "the ramp went no higher" } else { "so much was sent" };
        let summary = format!("{asked} asked, and the server allows this session {limit}: {what}");
        let mut finding = self.finding(Cause::ServerLimit, summary, higher(self.evidence), None);
        finding.evidence =
            BTreeMap::from([("asked_bits_per_second", json!(asked.0)), ("limit_bits_per_second", json!(limit.0))]);
        Some(finding)
    }

    /// It sent less than it was to.
    fn slow_sender(&self) -> Option<Finding> {
        if self.ramp.is_some() {
            return None;
        }
        let (asked, limit) = self.rates();
        let wanted = limit.unwrap_or(asked);
        let slow: Vec<&Sent> = self.streams.iter().map(|(sent, _)| *sent).filter(|sent| !sent.kept(KEPT)).collect();
        let worst = slow.iter().min_by(|a, b| a.achieved.cmp(&b.achieved))?;
        let achieved = BitRate(self.streams.iter().map(|(sent, _)| sent.achieved.0).fold(0, u64::saturating_add));
        let host = &self.evidence.sender;
        let why = match (worst.queue_full, worst.behind_share.get() * 100.0) {
            // An end that does not tell.
            (0, 0.0) => String::new(),
            (0, behind) => format!(": behind its schedule for {behind:.0} % of the time"),
            (full, _) => format!(": its own queue was full {full} times"),
        };
        let summary = format!("{} sent {achieved} of {wanted}{why}", host.name);
        let qdisc = host.qdisc.as_ref().zip(host.interface.as_ref()).filter(|_| worst.queue_full > 0);
        let cure = match qdisc {
            Some(((kind, _), interface)) if kind != "fq" => {
                let command = format!("tc -s qdisc show dev {}", interface.name);
                Remedy { command, host: Some(host.name.clone()) }
            }
            // With what the kernel cuts up itself it may keep the rate.
            _ if self.evidence.no_gso => self.again(&format!("--pacing {}", self.each(wanted).typed())),
            _ => self.again(&format!("--pacing {}", self.each(achieved).typed())),
        };
        let mut finding = self.finding(Cause::SlowSender, summary, cure, None);
        finding.evidence = BTreeMap::from([
            ("asked_bits_per_second", json!(wanted.0)),
            ("sent_bits_per_second", json!(achieved.0)),
            ("behind_share", json!(worst.behind_share)),
            ("queue_full", json!(worst.queue_full)),
        ]);
        Some(finding)
    }

    /// Datagrams arrived, and there was no room for them.
    fn overflow(&self) -> Option<Finding> {
        let (least, most) = self.own;
        if least == 0 || self.ramp.is_some() {
            return None;
        }
        let host = &self.evidence.receiver;
        let socket = self.receiver.streams.iter().find_map(|stream| stream.socket.as_ref())?;
        let (granted, asked) = (socket.rcvbuf_granted_bytes, socket.rcvbuf_asked_bytes);
        let share = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let summary = format!(
            "{share} of {} lost datagrams came as far as {} and found its receive buffer of {granted} full: they are not \
             the path's",
            self.lost, host.name
        );
        let larger = Bytes(granted.0.saturating_mul(4).max(BUFFER));
        let cure = match asked {
            // The kernel capped what was asked.
            Some(asked) if asked > granted => {
                Remedy { command: format!("sysctl -w net.core.rmem_max={}", larger.0), host: Some(host.name.clone()) }
            }
            _ => self.again(&format!("--rcvbuf {}", larger.0)),
        };
        let mut finding = self.finding(Cause::ReceiverOverflow, summary, cure, None);
        finding.evidence = BTreeMap::from([
            ("least_datagrams", json!(least)),
            ("most_datagrams", json!(most)),
            ("lost_datagrams", json!(self.lost)),
            ("rcvbuf_granted_bytes", json!(granted.0)),
        ]);
        Some(finding)
    }

    /// A host's own queue or interface dropped them.
    fn drops(&self) -> Option<Finding> {
        let unexplained = self.lost.saturating_sub(self.own.1);
        if self.ramp.is_some() || unexplained < LOSS.0 {
            return None;
        }
        let (sender, receiver) = (before_they_left(&self.evidence.sender), after_they_came(&self.evidence.receiver));
        // Drops of other traffic, or of a few of ours, do not explain the loss.
        let found = sender.into_iter().chain(receiver).find(|found| found.dropped.saturating_mul(2) >= unexplained)?;
        let (what, name, dropped) = (&found.what, &found.host.name, found.dropped);
        let summary = format!("{what} on {name} dropped {dropped} packets; {unexplained} datagrams did not come");
        let mut finding = self.finding(Cause::LocalDrops, summary, found.cure.clone(), None);
        finding.evidence =
            BTreeMap::from([("dropped_packets", json!(dropped)), ("lost_datagrams", json!(unexplained))]);
        Some(finding)
    }

    /// What is left was lost on the path.
    fn loss(&self) -> Option<Finding> {
        let lost = self.lost.saturating_sub(self.own.1);
        let share = lost as f64 / self.sent.max(1) as f64;
        if self.ramp.is_some() || lost < LOSS.0 || share < LOSS.1 || self.drops().is_some() {
            return None;
        }
        let longest = self.streams.iter().map(|(_, received)| received.longest_burst).max().unwrap_or(0);
        // An iperf3 server tells neither.
        let told = self.streams.iter().all(|(_, received)| received.overflows.is_some());
        let (percent, sent) = (share * 100.0, self.sent);
        let mut summary = match told {
            true => format!("the path lost {percent:.3} % of the datagrams ({lost} of {sent})"),
            false => format!(
                "{percent:.3} % of the datagrams ({lost} of {sent}) did not arrive, or found no room in the receiver's \
                 buffer: which of the two is not told"
            ),
        };
        if longest > 0 {
            summary += &format!(", up to {longest} in a row");
        }
        let sent = BitRate(self.streams.iter().map(|(sent, _)| sent.achieved.0).fold(0, u64::saturating_add));
        let most = self.carried().filter(|most| sent > *most);
        let cure = match most {
            Some(most) => {
                summary += &format!("; it carries {most} of payload in such datagrams, and {sent} were sent");
                self.again(&format!("--pacing {}", self.each(BitRate(most.0 * 97 / 100)).typed()))
            }
            // What arrived may arrive again.
            None if !told => self.again(&format!("--pacing {}", self.each(arrived(sent, share)).typed())),
            // Of one stream.
            None => Remedy { command: format!("lfn test {} --ramp", self.evidence.again), host: None },
        };
        let mut finding = self.finding(Cause::Loss, summary, cure, most);
        finding.evidence = BTreeMap::from([("lost_datagrams", json!(lost)), ("lost_share", json!(share))]);
        if longest > 0 {
            finding.evidence.insert("longest_burst", json!(longest));
        }
        Some(finding)
    }

    /// What `--pacing` takes for all streams to send `rate` together.
    fn each(&self, rate: BitRate) -> BitRate {
        rounded(BitRate(rate.0 / self.streams.len().max(1) as u64))
    }

    /// The most payload the path carries in datagrams of this size, if its capacity is known.
    fn carried(&self) -> Option<BitRate> {
        let bytes = self.streams.first().map(|(sent, _)| sent.datagram_bytes)?;
        Some(crate::udp::carried(&self.evidence.path?, bytes))
    }
}

/// What is left of a rate of which a share is lost.
fn arrived(sent: BitRate, share: f64) -> BitRate {
    BitRate((sent.as_f64() * (1.0 - share)) as u64)
}

/// To two digits, downwards: what is to be typed.
fn rounded(rate: BitRate) -> BitRate {
    let unit = 10u64.pow(rate.0.checked_ilog10().unwrap_or(0).saturating_sub(1));
    BitRate(rate.0 / unit * unit)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::host::{HostReport, Interface, InterfaceCounters, Qdisc, QdiscCounters};
    use crate::path::PathProfile;
    use crate::udp::figures::UdpFigures;
    use crate::wire::test::SocketReport;

    const MBIT: u64 = 1_000_000;

    /// Both ends of a test at 50 Mb/s of which nothing was lost.
    fn healthy() -> (Sent, Received, SocketReport) {
        let sent = Sent {
            datagrams: 50_000,
            datagram_bytes: 1000,
            asked: BitRate(50 * MBIT),
            achieved: BitRate(50 * MBIT - 7000),
            gso: true,
            ..Sent::default()
        };
        let received = Received { datagrams: 50_000, overflows: Some(0), merged: 1, ..Received::default() };
        let socket = SocketReport { rcvbuf_granted_bytes: Bytes(425_984), ..SocketReport::default() };
        (sent, received, socket)
    }

    fn found(parts: (Sent, Received, SocketReport), host: HostReport, path: Option<PathProfile>) -> Vec<Finding> {
        judged(parts, None, host, path, false)
    }

    fn judged(
        (sent, received, socket): (Sent, Received, SocketReport),
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
        let mut evidence = Evidence::new(path, rtt, None, ("near", &sender), ("far", &receiver), "far");
        evidence.no_gso = no_gso;
        diagnose_datagrams(&evidence, &sender, &receiver)
    }

    fn causes(findings: &[Finding]) -> Vec<Cause> {
        findings.iter().map(|finding| finding.cause).collect()
    }

    #[test]
    fn a_healthy_test_has_no_findings() {
        assert_eq!(found(healthy(), HostReport::default(), None), []);
    }

    #[test]
    fn loss_of_the_path_is_not_that_of_the_receivers_buffer() {
        let (sent, received, socket) = healthy();
        let lost = Received { lost: 500, datagrams: 49_500, longest_burst: 7, ..received };
        let path = found((sent.clone(), lost.clone(), socket.clone()), HostReport::default(), None);
        assert_eq!(causes(&path), [Cause::Loss]);
        assert!(path[0].summary.contains("1.000 % of the datagrams (500 of 50000), up to 7 in a row"), "{path:?}");
        assert_eq!(path[0].cure.command, "lfn test far --ramp");

        let own = Received { overflows: Some(498), ..lost };
        let own = found((sent, own, socket), HostReport::default(), None);
        assert_eq!(causes(&own), [Cause::ReceiverOverflow], "the two left over are no loss");
        assert_eq!(own[0].cure.command, "lfn test far --udp --rcvbuf 4194304");
    }

    #[test]
    fn more_than_the_path_carries_is_said_with_the_rate_it_does() {
        let (sent, received, socket) = healthy();
        let lost = Received { lost: 25_000, datagrams: 25_000, ..received };
        let path = PathProfile::new(BitRate(25 * MBIT), Duration::from_millis(20));
        let findings = found((sent, lost, socket), HostReport::default(), Some(path));
        assert_eq!(causes(&findings), [Cause::Loss]);
        // 1000 of 1042 bytes: 23.99 Mb/s of payload.
        assert_eq!(findings[0].predicted, Some(BitRate(23_992_322)));
        assert!(findings[0].cure.command.starts_with("lfn test far --udp --pacing 23"), "{}", findings[0].cure);
    }

    #[test]
    fn a_sender_that_falls_behind_and_one_that_is_held_are_told_apart() {
        let (sent, received, socket) = healthy();
        let slow =
            Sent { achieved: BitRate(30 * MBIT), behind_share: crate::units::Ratio::new(0.9).unwrap(), ..sent.clone() };
        let slow = found((slow, received.clone(), socket.clone()), HostReport::default(), None);
        assert_eq!(causes(&slow), [Cause::SlowSender]);
        assert!(slow[0].summary.contains("near sent 30 Mb/s of 50 Mb/s: behind its schedule for 90 %"), "{slow:?}");

        let held = Sent { achieved: BitRate(30 * MBIT), limit: Some(BitRate(30 * MBIT)), ..sent };
        let held = found((held, received, socket), HostReport::default(), None);
        assert_eq!(causes(&held), [Cause::ServerLimit]);
    }

    #[test]
    fn of_an_end_that_tells_little_no_more_is_said() {
        let (sent, received, socket) = healthy();
        let lost = Received { lost: 25_000, datagrams: 25_000, overflows: None, merged: 0, ..received.clone() };
        let loss = found((sent.clone(), lost, socket.clone()), HostReport::default(), None);
        assert_eq!(causes(&loss), [Cause::Loss]);
        assert!(loss[0].summary.ends_with("buffer: which of the two is not told"), "{loss:?}");
        assert_eq!(loss[0].cure.command, "lfn test far --udp --pacing 24mbit", "it knows no ramp");
        assert!(!loss[0].evidence.contains_key("longest_burst"), "{loss:?}");
        let slow = Sent { achieved: BitRate(30 * MBIT), ..sent };
        let slow = found((slow, received, socket), HostReport::default(), None);
        assert_eq!(slow[0].summary, "near sent 30 Mb/s of 50 Mb/s");
    }

    #[test]
    fn drops_of_the_own_queue_are_no_loss_of_the_path() {
        let (sent, received, socket) = healthy();
        let lost = Received { lost: 500, datagrams: 49_500, ..received };
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
        let findings = found((sent, lost, socket), host, None);
        assert_eq!(causes(&findings), [Cause::LocalDrops]);
        assert_eq!(findings[0].cure.to_string(), "tc qdisc replace dev eth0 root fq   (on near)");
    }

    #[test]
    fn a_ramp_is_limited_by_the_server_only_where_it_got_there() {
        let (sent, received, socket) = healthy();
        let sent = Sent { asked: BitRate(100_000 * MBIT), limit: Some(BitRate(500 * MBIT)), ..sent };
        let of = |highest: u64, onset: Option<u64>| {
            let (highest, onset) = (Some(BitRate(highest * MBIT)), onset.map(|rate| BitRate(rate * MBIT)));
            let ramp = RampReport { highest, onset, ..RampReport::default() };
            let parts = (sent.clone(), received.clone(), socket.clone());
            causes(&judged(parts, Some(ramp), HostReport::default(), None, false))
        };
        assert_eq!(of(500, None), [Cause::ServerLimit]);
        assert_eq!(of(92, Some(94)), [], "the path carries less");
        assert_eq!(of(490, Some(499)), [], "it does so below the limit, too");
        assert_eq!(of(200, None), [], "its sender could do no more");
    }

    #[test]
    fn bad_checksums_are_no_overflow() {
        let (sent, received, socket) = healthy();
        let lost = Received { lost: 500, datagrams: 49_500, overflows: Some(500), ..received };
        let of = |damaged: i64| {
            let counters = std::collections::BTreeMap::from([("Udp.InCsumErrors".to_owned(), damaged)]);
            let host = HostReport { counters: Some(counters), ..HostReport::default() };
            causes(&found((sent.clone(), lost.clone(), socket.clone()), host, None))
        };
        assert_eq!(of(0), [Cause::ReceiverOverflow]);
        assert_eq!(of(500), [Cause::Loss]);
        assert_eq!(of(100), [Cause::ReceiverOverflow, Cause::Loss]);
    }

    #[test]
    fn a_slow_sender_is_told_to_use_gso_only_if_it_was_switched_off() {
        let (sent, received, socket) = healthy();
        // One datagram at a time: nothing to cut, and so no GSO.
        let sent = Sent { achieved: BitRate(30 * MBIT), gso: false, burst_datagrams: 1, ..sent };
        let of = |no_gso| {
            let parts = (sent.clone(), received.clone(), socket.clone());
            judged(parts, None, HostReport::default(), None, no_gso)[0].cure.to_string()
        };
        assert_eq!(
            (of(false).as_str(), of(true).as_str()),
            ("lfn test far --udp --pacing 30mbit", "lfn test far --udp --pacing 50mbit")
        );
    }
}
