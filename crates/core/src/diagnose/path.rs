//! What the path does: loses packets, keeps them waiting, or takes only small ones; and whether the congestion control
//! that has to cope with it is the one that was asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::{Cause, Remedy, Evidence, Finding, finding};
use crate::path::PathProfile;
use crate::tcp_model::{self, Congestion, loss_budget};
use crate::units::{BitRate, Ratio, show_duration};

/// Goodput below this share of what a path without loss gives is held back.
const FULL: f64 = 0.97;
/// Where the capacity is not known: goodput within this factor of what the loss formula gives is held by loss.
const BY_FORMULA: f64 = 2.0;
/// Goodput beyond this many times the formula has losses that came together, as when a burst overran a queue. Not fewer:
/// a short test has those of its slow start among them.
const FAR_BEYOND_FORMULA: f64 = 8.0;
/// RTT this many times the base RTT means that a queue stood; loss then is congestion.
const RISEN: f64 = 1.5;
/// The same where the path is nearly full, with this share of its capacity: whose loss is not of a queue does not stay
/// there, and a short queue (1 ms of a path of 1 ms) is half empty for most of the time.
const NEARLY_FULL: (f64, f64) = (0.75, 1.15);
/// From here on BBR gives way to loss too (its first version, 15 to 20 %).
const TOO_MUCH_FOR_BBR: f64 = 0.1;
/// Less does not slow BBR down by itself, but what came behind a hole waits a round trip for it, and the window with it:
/// from this share on it is what holds a goodput below that share of the capacity. Measured with loss of 0.1, 0.5, 1 and
/// 5 %: 93, 82, 78 and 64 % over 10 ms, 81, 75, 70 and 53 % over 100 ms, 79, 77, 65 and 48 % over 300 ms; without any 93 to
/// 98 % (doc/test.md). Half of the least, because what a test happens to lose scatters.
const HINDERS_BBR: (f64, f64) = (0.0005, 0.9);
/// A window of so many BDPs has room for what comes behind holes (measured: of 1 % 98 % of the capacity over 10 ms, 93 %
/// over 100 ms).
const BEHIND_HOLES: u64 = 4;
/// Fewer segments lost are chance.
const FEWEST: u64 = 3;
/// RTT under load beyond this many base RTTs is a standing queue…
const STANDING: f64 = 2.0;
/// …if it is also this much: half of the interval after which CoDel acts (RFC 8289 §4.2). Less disturbs nobody.
const NOTICED: Duration = Duration::from_millis(50);
/// The sender's own queue takes this share of the wait, at the goodput, where it is the one that stands.
const LOCAL: f64 = 0.5;
/// A path MTU this many bytes below both interfaces is that of the path; loopback's is one byte short.
const SMALLER: u32 = 20;

/// More was lost than the rate can bear (the model of pathdiag), and not because a queue ran over.
pub(super) fn loss(evidence: &Evidence) -> Option<Finding> {
    let lost = Lost::of(evidence)?;
    let lossless = evidence.path.map(|path| PathProfile { loss: Ratio::default(), ..path });
    let streams = evidence.streams().max(1);
    let target = match &lossless {
        Some(path) => path.payload_capacity(),
        None => BitRate(evidence.judged_goodput().0.saturating_mul(2)),
    };
    let budget = loss_budget(lost.mss, BitRate(target.0 / u64::from(streams)), evidence.base_rtt).get();
    let congestion = evidence.flows.first()?.sending.congestion.clone();
    let bbr = congestion.starts_with("bbr");
    let held = match &lossless {
        Some(path) => evidence.judged_goodput().as_f64() < FULL * path.payload_capacity().as_f64(),
        None => follows_formula(evidence, lost.share) && evidence.rwnd_share().unwrap_or(0.0) <= 0.3,
    };
    let nearly_full = lossless
        .is_some_and(|path| evidence.judged_goodput().as_f64() >= NEARLY_FULL.0 * path.payload_capacity().as_f64());
    let enough = if nearly_full { NEARLY_FULL.1 } else { RISEN };
    // Far more than the formula makes of it is not held by it: losses that come together are one to TCP.
    let together = lossless.is_some()
        && !bbr
        && !below_formula(evidence, lost.share, if nearly_full { BY_FORMULA } else { FAR_BEYOND_FORMULA });
    let risen = evidence.rtt_under_load().as_secs_f64() > enough * evidence.base_rtt.as_secs_f64();
    if !held
        || risen
        || together
        || lost.share <= budget
        || lost.segments < FEWEST
        || (bbr && lost.share < TOO_MUCH_FOR_BBR && !hinders_bbr(evidence, lost.share))
    {
        return None;
    }
    let summary = format!(
        "{:.3} % of what was sent was lost ({} segments), where {target} over {} bears {:.4} %; RTT {} under load: no \
         queue ran over",
        lost.share * 100.0,
        lost.segments,
        show_duration(evidence.base_rtt),
        budget * 100.0,
        show_duration(evidence.rtt_under_load()),
    );
    let cure = match evidence.needed().filter(|_| lost.share < TOO_MUCH_FOR_BBR) {
        _ if !bbr => evidence.again("--congestion bbr"),
        // Room for what comes behind a hole while that is filled.
        Some(needed) => evidence.again(&format!("--congestion bbr --window {}", needed.0.saturating_mul(BEHIND_HOLES))),
        None => evidence.again(&format!("--congestion bbr --streams {}", streams.saturating_mul(2))),
    };
    let flow = tcp_model::Flow { streams, congestion: Congestion::Bbr, ..tcp_model::Flow::default() };
    let predicted = evidence.path.map(|path| tcp_model::steady(&path, &flow).goodput);
    let mut finding = finding(evidence, Cause::Loss, summary, cure, predicted);
    finding.evidence = BTreeMap::from([
        ("lost_share", json!(lost.share)),
        ("lost_segments", json!(lost.segments)),
        ("loss_budget_share", json!(budget)),
        ("base_rtt_seconds", json!(evidence.base_rtt.as_secs_f64())),
        ("rtt_under_load_seconds", json!(evidence.rtt_under_load().as_secs_f64())),
    ]);
    Some(finding)
}

fn hinders_bbr(evidence: &Evidence, share: f64) -> bool {
    let capacity = evidence.path.map(|path| path.payload_capacity().as_f64());
    share >= HINDERS_BBR.0
        && capacity.is_some_and(|capacity| evidence.judged_goodput().as_f64() < HINDERS_BBR.1 * capacity)
}

/// What all streams together lost.
struct Lost {
    share: f64,
    segments: u64,
    mss: u32,
}

impl Lost {
    /// What was sent again, without what the peer says it had already.
    fn of(evidence: &Evidence) -> Option<Lost> {
        let (mut sent, mut again, mut mss) = (0, 0, 0);
        for flow in &evidence.flows {
            let moved = flow.moved?;
            sent += moved.sent_bytes;
            again += moved.resent_bytes.saturating_sub(moved.duplicates * u64::from(flow.mss));
            mss = mss.max(flow.mss);
        }
        let share = again as f64 / (sent as f64).max(1.0);
        (sent > 0 && mss > 0).then_some(Lost { share, segments: again / u64::from(mss.max(1)), mss })
    }
}

/// Whether goodput is about what the formula makes of that loss.
fn follows_formula(evidence: &Evidence, share: f64) -> bool {
    let goodput = evidence.judged_goodput().as_f64();
    formula(evidence, share).is_some_and(|rate| goodput < BY_FORMULA * rate && goodput * BY_FORMULA > rate)
}

/// Whether goodput is no more than about what the formula makes of that loss; less may have further causes.
pub(super) fn held_by_loss(evidence: &Evidence, share: f64) -> bool {
    below_formula(evidence, share, BY_FORMULA)
}

fn below_formula(evidence: &Evidence, share: f64, times: f64) -> bool {
    let goodput = evidence.judged_goodput().as_f64();
    formula(evidence, share).is_some_and(|rate| goodput < times * rate)
}

/// What the congestion control in use makes of a share of loss on a path of any capacity.
fn formula(evidence: &Evidence, share: f64) -> Option<f64> {
    let loss = Ratio::new(share).filter(|loss| loss.get() > 0.0)?;
    let congestion = evidence.flows.first()?.sending.congestion.parse().unwrap_or_default();
    let endless = PathProfile { loss, ..PathProfile::new(BitRate(1 << 50), evidence.base_rtt) };
    let flow = tcp_model::Flow { streams: evidence.streams(), congestion, ..tcp_model::Flow::default() };
    Some(tcp_model::steady(&endless, &flow).goodput.as_f64())
}

/// Packets wait: round trips under load take much longer than without.
pub(super) fn queueing(evidence: &Evidence) -> Option<Finding> {
    let (base, loaded) = (evidence.base_rtt, evidence.rtt_under_load());
    let waits = loaded.saturating_sub(base);
    if base.is_zero() || loaded.as_secs_f64() <= STANDING * base.as_secs_f64() || waits < NOTICED {
        return None;
    }
    let summary = format!(
        "RTT {} under load, {} without: packets wait {} in a queue",
        show_duration(loaded),
        show_duration(base),
        show_duration(waits)
    );
    // The most that waited here at a time has to explain the wait, else the queue is further on.
    let waits_here = |bytes: u64| {
        bytes as f64 * 8.0 >= LOCAL * waits.as_secs_f64() * evidence.judged_goodput().as_f64() && bytes > 0
    };
    let local = evidence.sender.qdisc.as_ref().filter(|(_, counters)| waits_here(counters.backlog_bytes));
    let cure = match (local, &evidence.sender.interface) {
        (Some(_), Some(interface)) => Remedy {
            command: format!("tc qdisc replace dev {} root fq_codel", interface.name),
            host: Some(evidence.sender.name.clone()),
        },
        _ => {
            let each = evidence.judged_goodput().0 / u64::from(evidence.streams().max(1));
            let paced = BitRate((each as f64 * 0.95) as u64 / 1000 * 1000).typed();
            evidence.again(&format!("--pacing {paced}"))
        }
    };
    // It costs time, not goodput.
    let mut finding = finding(evidence, Cause::Queueing, summary, cure, Some(evidence.judged_goodput()));
    finding.evidence = BTreeMap::from([
        ("base_rtt_seconds", json!(base.as_secs_f64())),
        ("rtt_under_load_seconds", json!(loaded.as_secs_f64())),
        ("queueing_delay_seconds", json!(waits.as_secs_f64())),
    ]);
    Some(finding)
}

/// The path takes smaller packets than either interface.
pub(super) fn small_mtu(evidence: &Evidence) -> Option<Finding> {
    let mtu = |host: &super::Host| host.interface.as_ref().filter(|i| !i.loopback).map(|i| i.mtu_bytes);
    let (sender, receiver) = (mtu(&evidence.sender)?, mtu(&evidence.receiver)?);
    let by_tcp = evidence.flows.iter().map(|flow| flow.pmtu).filter(|mtu| *mtu > 0).min();
    // TCP learns of a small MTU from ICMP, of a black hole not at all; probes that were acknowledged tell both.
    let path = by_tcp.into_iter().chain(evidence.probed_mtu).min()?;
    let least = sender.min(receiver);
    if path.saturating_add(SMALLER) > least {
        return None;
    }
    let summary = format!(
        "packets of {path} B are the largest the path takes, {} sends {sender} B and {} {receiver} B",
        evidence.sender.name, evidence.receiver.name
    );
    let share = |mtu: u32| {
        let framing = evidence.path.map(|path| path.framing).unwrap_or_default();
        f64::from(framing.payload(mtu)) / f64::from(framing.wire_bytes_full(mtu).max(1) as u32)
    };
    let predicted = BitRate((evidence.judged_goodput().as_f64() * (share(least) / share(path)).max(1.0)) as u64);
    let cure = match evidence.probed_mtu {
        None => evidence.again("--path"),
        Some(_) if by_tcp.is_some_and(|mtu| mtu <= path) => {
            let command = format!("tracepath -n {}   # the hop after which pmtu falls", evidence.receiver.name);
            Remedy { command, host: Some(evidence.sender.name.clone()) }
        }
        // What TCP does not know it sends too large.
        Some(_) => {
            Remedy { command: "sysctl -w net.ipv4.tcp_mtu_probing=1".into(), host: Some(evidence.sender.name.clone()) }
        }
    };
    let mut finding = finding(evidence, Cause::SmallMtu, summary, cure, Some(predicted));
    finding.evidence = BTreeMap::from([
        ("path_mtu_bytes", json!(path)),
        ("sender_mtu_bytes", json!(sender)),
        ("receiver_mtu_bytes", json!(receiver)),
    ]);
    let found = [("tcp_path_mtu_bytes", by_tcp), ("probed_path_mtu_bytes", evidence.probed_mtu)];
    finding.evidence.extend(found.into_iter().filter_map(|(name, mtu)| Some((name, json!(mtu?)))));
    Some(finding)
}

/// Another congestion control than was asked for: a route's `congctl`, or a kernel that has it not.
pub(super) fn congestion(evidence: &Evidence) -> Option<Finding> {
    let flow = evidence.flows.iter().find(|flow| differs(flow))?;
    let used = &flow.sending.congestion;
    let (asked, by_plan) = match (&flow.sending.congestion_asked, &flow.sending.congestion_planned) {
        (Some(asked), _) => (asked, false),
        (None, planned) => (planned.as_ref()?, true),
    };
    let with = |name: &str| {
        let congestion = name.parse().ok()?;
        let flow = tcp_model::Flow { streams: evidence.streams(), congestion, ..tcp_model::Flow::default() };
        evidence.path.map(|path| tcp_model::steady(&path, &flow).goodput)
    };
    let predicted = with(asked);
    // The plan's wish counts only where it would have helped.
    let helps = predicted.is_some_and(|rate| FULL * rate.as_f64() > evidence.judged_goodput().as_f64());
    if by_plan && !helps {
        return None;
    }
    let whose = if by_plan { "by the plan" } else { "asked for" };
    let summary = format!("{asked} was {whose} and {used} is in use on {}", evidence.sender.name);
    let command = match by_plan {
        false => "ip route show table all | grep congctl   # a route's congctl overrides what a program asks".into(),
        true => format!("modprobe tcp_{asked}"),
    };
    let cure = Remedy { command, host: Some(evidence.sender.name.clone()) };
    let mut finding = finding(evidence, Cause::CongestionControl, summary, cure, predicted);
    finding.evidence = BTreeMap::from([("asked", json!(asked)), ("in_use", json!(used))]);
    Some(finding)
}

fn differs(flow: &super::Flow) -> bool {
    let socket = &flow.sending;
    let asked = socket.congestion_asked.as_ref().or(socket.congestion_planned.as_ref());
    !socket.congestion.is_empty() && asked.is_some_and(|asked| *asked != socket.congestion)
}

#[cfg(test)]
mod tests {
    use super::super::{Cause, Flow, Moved, Spread, Steady, diagnose};
    use super::*;
    use crate::diagnose::window::tests::half_window;
    use crate::host::Interface;
    use crate::units::Bytes;

    /// 100 Mb/s over 50 ms, of which a sender with an open window gets a quarter.
    fn quarter() -> Evidence {
        let mut evidence = half_window();
        let rtt = Duration::from_millis(50);
        evidence.path = Some(PathProfile::new(BitRate(100_000_000), rtt));
        evidence.base_rtt = rtt;
        let goodput = BitRate(24_000_000);
        evidence.goodput = goodput;
        evidence.steady = evidence.steady.map(|steady| Steady { goodput, ..steady });
        for host in [&mut evidence.sender, &mut evidence.receiver] {
            host.interface = Some(Interface { name: "eth0".into(), mtu_bytes: 1500, ..Interface::default() });
        }
        let wide = Spread { least: 3 << 20, median: 3 << 20, most: 3 << 20 };
        let sending = crate::wire::test::SocketReport { congestion: "cubic".into(), ..Default::default() };
        evidence.flows[0] = Flow {
            goodput,
            rtt: Duration::from_millis(51),
            snd_wnd: Some(wide),
            cwnd: Bytes(150_000),
            busy_share: Some(1.0),
            rwnd_limited: Duration::ZERO,
            mss: 1448,
            pmtu: 1500,
            moved: Some(Moved { sent_bytes: 90_000_000, resent_bytes: 0, duplicates: 0 }),
            receiving: Default::default(),
            sending,
            ..evidence.flows[0].clone()
        };
        evidence
    }

    fn lossy() -> Evidence {
        let mut evidence = quarter();
        evidence.flows[0].moved = Some(Moved { sent_bytes: 90_000_000, resent_bytes: 36_000, duplicates: 2 });
        evidence
    }

    fn causes(evidence: &Evidence) -> Vec<Cause> {
        diagnose(evidence).iter().map(|finding| finding.cause).collect()
    }

    #[test]
    fn loss_is_named_with_bbr_where_the_path_is_left_unused() {
        let with = |goodput: u64, resent_bytes: u64| {
            let mut evidence = quarter();
            let goodput = BitRate(goodput);
            evidence.goodput = goodput;
            evidence.steady = evidence.steady.map(|steady| Steady { goodput, ..steady });
            evidence.flows[0].sending.congestion = "bbr".into();
            evidence.flows[0].moved = Some(Moved { sent_bytes: 90_000_000, resent_bytes, duplicates: 0 });
            diagnose(&evidence)
        };
        let found = with(73_000_000, 900_000);
        assert_eq!(found[0].cause, Cause::Loss);
        assert_eq!(found[0].cure.to_string(), "lfn test far.example --congestion bbr --window 2500000");
        let named = |found: Vec<super::Finding>| found.iter().any(|finding| finding.cause == Cause::Loss);
        assert!(!named(with(90_000_000, 900_000)), "the path is in use");
        assert!(named(with(76_000_000, 90_000)), "0.1 %, as over 100 ms");
        assert!(!named(with(89_000_000, 90_000)), "and as over 10 ms");
        assert!(!named(with(73_000_000, 36_000)), "so little is nothing to it");
    }

    #[test]
    fn loss_beyond_the_budget_is_named_with_both() {
        assert_eq!(causes(&quarter()), []);
        let found = &diagnose(&lossy())[0];
        let expected = "0.037 % of what was sent was lost (22 segments), where 95.64 Mb/s over 50 ms bears 0.0003 %; RTT \
                        51 ms under load: no queue ran over";
        assert_eq!((found.cause, found.summary.as_str()), (Cause::Loss, expected));
        assert_eq!(found.cure.to_string(), "lfn test far.example --congestion bbr");
        assert_eq!(found.predicted, Some(BitRate(95_640_686)));
    }

    #[test]
    fn loss_that_holds_nothing_back_is_no_finding() {
        type Change = fn(&mut Evidence);
        let cases: [(&str, Change); 7] = [
            ("far more than that loss allows", |e| {
                e.flows[0].moved = Some(Moved { sent_bytes: 90_000_000, resent_bytes: 2_000_000, duplicates: 0 });
                e.steady = e.steady.map(|steady| Steady { goodput: BitRate(50_000_000), ..steady });
            }),
            ("a short queue on a path that is nearly full", |e| {
                e.flows[0].moved = Some(Moved { sent_bytes: 90_000_000, resent_bytes: 9_000, duplicates: 0 });
                e.flows[0].rtt = Duration::from_millis(60);
                e.steady = e.steady.map(|steady| Steady { goodput: BitRate(74_000_000), ..steady });
            }),
            ("within the budget", |e| {
                e.flows[0].moved = Some(Moved { sent_bytes: 9_000_000_000, resent_bytes: 14_480, duplicates: 0 });
            }),
            ("a queue that ran over", |e| e.flows[0].rtt = Duration::from_millis(99)),
            ("sent again for nothing", |e| e.flows[0].moved = e.flows[0].moved.map(|m| Moved { duplicates: 23, ..m })),
            ("BBR does not mind", |e| e.flows[0].sending.congestion = "bbr".into()),
            ("a path that is full", |e| {
                e.steady = e.steady.map(|steady| Steady { goodput: BitRate(95_000_000), ..steady });
            }),
        ];
        for (what, change) in cases {
            let mut evidence = lossy();
            change(&mut evidence);
            assert_eq!(causes(&evidence), [], "{what}");
        }
    }

    #[test]
    fn without_a_capacity_loss_is_named_where_the_formula_fits() {
        let mut evidence = lossy();
        evidence.path = None;
        // RFC 9438: 0.037 % over 50 ms gives CUBIC about 15 Mb/s.
        let at = |evidence: &mut Evidence, goodput| {
            evidence.steady = evidence.steady.map(|steady| Steady { goodput: BitRate(goodput), ..steady });
        };
        at(&mut evidence, 12_000_000);
        assert_eq!(causes(&evidence), [Cause::Loss]);
        at(&mut evidence, 150_000_000);
        assert_eq!(causes(&evidence), [], "ten times what that loss allows: the loss is old, or not random");
    }

    #[test]
    fn a_standing_queue_is_named_on_a_full_path_too() {
        let mut evidence = quarter();
        evidence.steady = evidence.steady.map(|steady| Steady { goodput: BitRate(95_500_000), ..steady });
        evidence.flows[0].rtt = Duration::from_millis(250);
        let found = &diagnose(&evidence)[0];
        assert_eq!(found.summary, "RTT 250 ms under load, 50 ms without: packets wait 200 ms in a queue");
        assert_eq!(found.cure.to_string(), "lfn test far.example --pacing 90725kbit");
        assert_eq!(found.gain, Some(BitRate(0)), "it costs time, not goodput");
        // 200 ms at 95.5 Mb/s are 2.4 MB: what waits on the sender's own interface is the queue, or next to nothing of it.
        let mut backlog = |backlog_bytes| {
            let counters = crate::host::QdiscCounters { backlog_bytes, ..Default::default() };
            evidence.sender.qdisc = Some(("pfifo_fast".into(), counters));
            diagnose(&evidence)[0].cure.to_string()
        };
        assert_eq!(backlog(2_000_000), "tc qdisc replace dev eth0 root fq_codel   (on near.example)");
        assert_eq!(backlog(3_000), "lfn test far.example --pacing 90725kbit");
        evidence.flows[0].rtt = Duration::from_millis(98);
        assert_eq!(causes(&evidence), [], "less than twice");
        (evidence.base_rtt, evidence.flows[0].rtt) = (Duration::from_millis(1), Duration::from_millis(30));
        assert_eq!(causes(&evidence), [], "thirty times, but nobody notices");
    }

    #[test]
    fn an_mtu_below_both_interfaces_is_the_paths() {
        let mut evidence = quarter();
        evidence.flows[0].pmtu = 1400;
        let found = &diagnose(&evidence)[0];
        let expected =
            "packets of 1400 B are the largest the path takes, near.example sends 1500 B and far.example 1500 B";
        assert_eq!((found.cause, found.summary.as_str()), (Cause::SmallMtu, expected));
        assert!(found.gain.unwrap().0 > 0);
        for host in [&mut evidence.sender, &mut evidence.receiver] {
            host.interface.as_mut().unwrap().mtu_bytes = 9000;
        }
        assert_eq!(causes(&evidence), [Cause::SmallMtu]);
        evidence.receiver.interface.as_mut().unwrap().mtu_bytes = 1400;
        assert_eq!(causes(&evidence), [], "one of the interfaces is as small");
        evidence.receiver.interface = None;
        assert_eq!(causes(&evidence), [], "a far end that does not tell");
    }

    #[test]
    fn what_probes_found_counts_where_tcp_was_never_told() {
        let mut evidence = quarter();
        evidence.probed_mtu = Some(1400);
        let found = &diagnose(&evidence)[0];
        assert_eq!(found.cause, Cause::SmallMtu);
        assert!(found.summary.starts_with("packets of 1400 B are the largest"), "{}", found.summary);
        assert_eq!(found.cure.to_string(), "sysctl -w net.ipv4.tcp_mtu_probing=1   (on near.example)");
        assert_eq!(
            (&found.evidence["tcp_path_mtu_bytes"], &found.evidence["probed_path_mtu_bytes"]),
            (&json!(1500), &json!(1400))
        );
        // TCP knows: what is left is to find the hop.
        evidence.flows[0].pmtu = 1400;
        assert!(diagnose(&evidence)[0].cure.command.starts_with("tracepath -n far.example"));
        (evidence.probed_mtu, evidence.flows[0].pmtu) = (Some(1500), 1500);
        assert_eq!(causes(&evidence), [], "probes of full size arrived");
        (evidence.probed_mtu, evidence.flows[0].pmtu) = (Some(1400), 0);
        assert_eq!(causes(&evidence), [Cause::SmallMtu], "a sender that does not tell of its TCP");
    }

    #[test]
    fn another_congestion_control_than_asked_for_is_named() {
        let mut evidence = quarter();
        evidence.flows[0].sending.congestion_asked = Some("bbr".into());
        let found = &diagnose(&evidence)[0];
        assert_eq!(found.summary, "bbr was asked for and cubic is in use on near.example");
        assert!(found.cure.command.starts_with("ip route show table all | grep congctl"));
        // It comes first: all else was found with another congestion control.
        let moved = evidence.flows[0].moved;
        evidence.flows[0].moved = lossy().flows[0].moved;
        assert_eq!(causes(&evidence), [Cause::CongestionControl, Cause::Loss]);
        evidence.flows[0].moved = moved;
        // The plan's wish is named where it would have helped, and not on a full path.
        let socket = &mut evidence.flows[0].sending;
        (socket.congestion_asked, socket.congestion_planned) = (None, Some("bbr".into()));
        assert_eq!(causes(&evidence), [Cause::CongestionControl]);
        evidence.steady = evidence.steady.map(|steady| Steady { goodput: BitRate(95_000_000), ..steady });
        assert_eq!(causes(&evidence), []);
    }
}
