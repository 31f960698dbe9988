//! One example of each cause of captures: its finding, its order, and the causes that it hides.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};

use super::captures::RULES;
use crate::diagnose::rules::Rule;
use crate::diagnose::{Cause, Diagnosis, VerdictLimit, diagnose};
use crate::evidence::Evidence;
use crate::evidence::capture::{CaptureEvidence, CapturePoint, Period, PeriodLimit, PolicerFit};
use crate::evidence::figures::Figures;

/// Duration of the example connections.
pub(super) const END: Duration = Duration::from_secs(10);

/// Returns a connection of ten seconds that fills its path: 90 Mb/s at RTT 50 ms, without losses.
pub(super) fn healthy() -> CaptureEvidence {
    let millis = Duration::from_millis;
    let mut capture = CaptureEvidence {
        sender: "192.0.2.1:40000".to_owned(),
        receiver: "198.51.100.1:5001".to_owned(),
        point: CapturePoint::Sender,
        duration: END,
        active: END,
        payload: Bytes(112_500_000),
        packets: 115_000,
        data_packets: 77_700,
        mss_bytes: 1448,
        periods: startup_periods(0.05),
        ..CaptureEvidence::default()
    };
    let rtt = &mut capture.rtt;
    (rtt.base, rtt.receiver_side, rtt.median, rtt.p80) = (millis(50), millis(50), millis(55), millis(57));
    (rtt.p95, rtt.max) = (millis(60), millis(70));
    let handshake = &mut capture.handshake;
    (handshake.is_complete, handshake.rtt, handshake.window_scale) = (true, Some(millis(50)), Some(7));
    (handshake.sender_offers_scaling, handshake.receiver_offers_scaling) = (true, true);
    (handshake.sack, handshake.timestamps) = (true, true);
    (handshake.receiver_mss, handshake.sender_mss) = (Some(1460), Some(1460));
    capture.faults.pure_acknowledgements = 37_000;
    capture.delivery.acknowledgements = 37_000;
    (capture.window.typical, capture.window.max) = (Bytes(3_000_000), Bytes(3_000_000));
    capture.window.max_in_flight = Bytes(700_000);
    (capture.queue.plateau, capture.queue.plateau_share) = (Some(BitRate(91_000_000)), 0.9);
    (capture.path.largest_passed_bytes, capture.application.full_packets) = (1448, 77_000);
    capture
}

/// Returns slow start for a share of the connection, then the path.
pub(super) fn startup_periods(share: f64) -> Vec<Period> {
    let end = END.mul_f64(share);
    let period = |limit, start, end| Period { limit, start, end, payload: Bytes(1_000_000) };
    vec![period(PeriodLimit::StartUp, Duration::ZERO, end), period(PeriodLimit::Path, end, END)]
}

/// Returns a bucket of 250 kB at 10 Mb/s.
pub(super) fn fit(losses: u64, explained: f64) -> PolicerFit {
    PolicerFit {
        rate: BitRate(10_000_000),
        bucket: Bytes(250_000),
        explained_share: explained,
        losses,
        connections: 1,
        delay: None,
        low_delay: None,
    }
}

pub(super) fn rule(cause: Cause) -> &'static Rule {
    RULES.iter().find(|rule| rule.cause == cause).unwrap()
}

pub(super) fn finds(rule: &Rule, capture: &CaptureEvidence) -> bool {
    (rule.find)(&Figures::of(&Evidence::of_capture(capture.clone()))).is_some()
}

/// Changes a healthy connection to one with the cause.
fn limit(capture: &mut CaptureEvidence, cause: Cause) {
    match cause {
        Cause::CapturedTwice => capture.faults.captured_twice = 57_000,
        Cause::IncompleteCapture => capture.faults.missed = Bytes(3_000_000),
        Cause::SlowReader => (capture.window.zero, capture.window.zero_windows) = (END.mul_f64(0.9), 7),
        Cause::WindowScaleAbsent => {
            (capture.handshake.receiver_offers_scaling, capture.handshake.window_scale) = (false, None);
            (capture.window.binding_share, capture.window.max) = (0.9, Bytes(65_535));
        }
        Cause::ReceiveWindow => capture.window.binding_share = 0.9,
        Cause::LockStep => (capture.application.lockstep, capture.application.lockstep_blocks) = (END, 190),
        Cause::DelayedAck => {
            (capture.application.delayed_ack, capture.application.delayed_ack_stalls) = (END.mul_f64(0.9), 200);
        }
        Cause::StartUp => {
            capture.periods = startup_periods(0.98);
            capture.startup.is_unfinished = true;
        }
        Cause::EarlyExit => {
            (capture.startup.is_early_exit, capture.queue.unused_share) = (true, 0.4);
            (capture.startup.peak_in_flight, capture.startup.later_in_flight) = (Bytes(20_000), Bytes(600_000));
        }
        Cause::Policer => {
            capture.loss.after_capture = 100;
            (capture.loss.events, capture.loss.at_flat_rtt_share) = (10, 1.0);
            capture.policer = Some(fit(100, 0.99));
        }
        Cause::Queueing => {
            (capture.rtt.median, capture.rtt.p95, capture.queue.standing_share) = (END / 50, END / 25, 0.9);
        }
        Cause::Shaper => (capture.queue.burst, capture.queue.standing_share) = (Some(Bytes(5_000_000)), 0.9),
        Cause::ShortQueue => {
            (capture.loss.after_capture, capture.loss.at_flat_rtt_share) = (100, 0.0);
            capture.queue.delay_at_loss = Some(Duration::from_millis(5));
        }
        Cause::Timeouts => (capture.loss.timeout, capture.loss.timeouts) = (END.mul_f64(0.8), 9),
        Cause::LossBursts | Cause::RandomLoss => {
            let events = if cause == Cause::RandomLoss { 500 } else { 50 };
            (capture.loss.after_capture, capture.loss.flat_losses) = (500, 500);
            (capture.loss.events, capture.loss.flat_events) = (events, events);
            capture.loss.at_flat_rtt_share = 1.0;
        }
        Cause::Overshoot => {
            (capture.loss.after_capture, capture.loss.startup_losses) = (100, 100);
            capture.queue.unused_share = 0.5;
        }
        Cause::Reordering => capture.delivery.reordered = 5000,
        Cause::Duplicates => capture.delivery.duplicated = 5000,
        Cause::Outage => {
            (capture.path.outage, capture.path.outage_start) = (END.mul_f64(0.8), Duration::from_secs(1));
        }
        Cause::SilentPeer => {
            (capture.path.is_silent_peer, capture.path.outage) = (true, END.mul_f64(0.8));
        }
        Cause::BlackHole => capture.path.black_hole = Some(Bytes(1448)),
        Cause::SmallMtu => (capture.mss_bytes, capture.path.largest_passed_bytes) = (1200, 1200),
        Cause::ReturnPath => capture.delivery.lost_acknowledgements = 9000,
        Cause::EcnMarks => capture.path.ecn_marked = 700,
        Cause::EcnBleached => capture.path.is_ecn_bleached = true,
        Cause::Proxy => capture.path.is_proxied = true,
        Cause::SlowWriter => (capture.application.idle, capture.application.pauses) = (END.mul_f64(0.9), 1000),
        other => panic!("no example of {}", other.name()),
    }
}

/// Returns a connection with these causes. The last one has the last word.
fn with(causes: &[Cause]) -> CaptureEvidence {
    let mut capture = healthy();
    for cause in causes {
        limit(&mut capture, *cause);
    }
    capture
}

fn diagnosis(capture: &CaptureEvidence) -> Diagnosis {
    diagnose(&Evidence::of_capture(capture.clone()))
}

fn causes(capture: &CaptureEvidence) -> Vec<Cause> {
    diagnosis(capture).findings.iter().filter_map(crate::diagnose::Finding::cause).collect()
}

#[test]
fn a_healthy_connection_is_limited_by_the_path() {
    let diagnosis = diagnosis(&healthy());
    assert_eq!(diagnosis.findings, []);
    assert_eq!(diagnosis.verdict.limit, VerdictLimit::ProbablyPath);
    assert!(diagnosis.verdict.summary.starts_with("limited by the path"), "{}", diagnosis.verdict.summary);
}

#[test]
fn each_cause_alone_is_the_only_finding() {
    for rule in RULES {
        assert_eq!(causes(&with(&[rule.cause])), [rule.cause], "{}", rule.cause.name());
    }
}

#[test]
fn each_finding_has_remedy_confidence_and_evidence() {
    for rule in RULES {
        let found = diagnosis(&with(&[rule.cause])).findings.remove(0);
        let name = rule.cause.name();
        assert!(found.remedy.host.is_some_and(|host| !host.is_empty()), "{name}");
        assert!(!found.remedy.command.is_empty() && !found.summary.is_empty(), "{name}");
        assert!(found.confidence.is_some() && found.gain.is_some(), "{name}");
        assert!(found.evidence.contains_key("time_share") && found.evidence.len() > 1, "{name}");
    }
}

#[test]
fn consequences_of_a_finding_are_not_findings() {
    let mut hidden_pairs = 0;
    for root in RULES.iter().map(|rule| rule.cause) {
        let consequences = RULES.iter().filter(|rule| !rule.cause.is_root_cause(&[root, rule.cause]));
        for hidden in consequences {
            let capture = with(&[hidden.cause, root]);
            let found = causes(&capture);
            if !finds(rule(root), &capture) {
                continue;
            }
            assert!(!found.contains(&hidden.cause), "{} behind {}", hidden.cause.name(), root.name());
            assert!(found.contains(&root), "{} with {}", root.name(), hidden.cause.name());
            hidden_pairs += u32::from(finds(hidden, &capture));
        }
    }
    assert!(hidden_pairs >= 20, "{hidden_pairs}");
}

#[test]
fn faults_of_the_capture_come_first() {
    let capture = with(&[Cause::Timeouts, Cause::LockStep, Cause::CapturedTwice, Cause::IncompleteCapture]);
    let found = causes(&capture);
    assert_eq!(found[..2], [Cause::CapturedTwice, Cause::IncompleteCapture]);
    assert!(found.len() > 2, "{found:?}");
}

#[test]
fn other_findings_are_sorted_by_their_time() {
    let all = [Cause::EcnBleached, Cause::Duplicates, Cause::ReceiveWindow, Cause::Timeouts, Cause::Reordering];
    let shares: Vec<f64> =
        diagnosis(&with(&all)).findings.iter().map(|found| found.evidence["time_share"].as_f64().unwrap()).collect();
    assert_eq!(shares.len(), all.len());
    assert!(shares.is_sorted_by(|a, b| a >= b), "{shares:?}");
}

#[test]
fn a_blind_capture_has_no_finding_of_the_path() {
    for is_one_way in [true, false] {
        let mut capture = with(&[Cause::Timeouts, Cause::ReceiveWindow, Cause::SmallMtu]);
        capture.faults.is_one_way = is_one_way;
        capture.faults.pure_acknowledgements = 0;
        capture.handshake.is_complete = false;
        assert_eq!(causes(&capture), [Cause::IncompleteCapture]);
    }
}

#[test]
fn pauses_between_parts_of_bulk_data_rank_last() {
    let mut capture = with(&[Cause::SlowWriter, Cause::Timeouts]);
    assert_eq!(causes(&capture), [Cause::SlowWriter, Cause::Timeouts]);
    capture.application.pauses = 3;
    assert_eq!(causes(&capture), [Cause::Timeouts, Cause::SlowWriter]);
}
