//! Return path: acknowledgements that are lost or that wait, and hosts that answer for the receiver.

use std::time::Duration;

use lfn_base::units::show_duration;
use serde_json::json;

use super::bucket::{MIN_DELAY, MIN_DELAY_SHARE};
use super::delivery::path_finding;
use crate::diagnose::shortfall::Shortfall;
use crate::diagnose::{Cause, Confidence, Finding, Remedy, figures_map};
use crate::evidence::figures::{Figures, IntervalFigures};

/// Minimum share of lost acknowledgements, without those that may be on their way when the test ends.
pub(in crate::diagnose) const MIN_LOST_SHARE: f64 = 0.05;
/// Minimum number of lost acknowledgements.
pub(in crate::diagnose) const MIN_LOST: u64 = 100;
/// Minimum share of lost acknowledgements over the share of retransmitted data.
pub(in crate::diagnose) const MIN_LOST_FACTOR: f64 = 2.0;
/// Minimum growth of the RTT over the wait of the acknowledgements.
pub(in crate::diagnose) const MIN_RISE: f64 = 0.5;
/// Maximum mean deviation of the RTT over the same wait: jitter delays each packet differently.
pub(in crate::diagnose) const MAX_DEVIATION_SHARE: f64 = 0.1;
/// Maximum variation of the RTT without load over the wait of the acknowledgements: jitter explains more.
pub(in crate::diagnose) const MAX_IDLE_WAIT: f64 = 0.5;
/// Maximum wait of the data over the wait of the acknowledgements.
pub(in crate::diagnose) const MAX_DATA_WAIT: f64 = 0.5;
/// Minimum RTT of messages over the RTT of TCP, for a host that answers for the receiver.
pub(in crate::diagnose) const MIN_MESSAGE_FACTOR: f64 = 2.0;
/// Minimum RTT of messages over the RTT of TCP under load.
pub(in crate::diagnose) const MIN_LOADED_FACTOR: f64 = 1.5;
/// Minimum difference of both.
pub(in crate::diagnose) const MIN_MESSAGE_DIFFERENCE: Duration = Duration::from_millis(5);

/// Finds acknowledgements that are lost, or that wait although the data does not.
pub(in crate::diagnose) fn return_path(figures: &Figures) -> Option<Finding> {
    let (answered, arrived) = figures.counters.answers.unwrap_or_default();
    let lost = answered.saturating_sub(arrived);
    let lost_share = lost as f64 / answered.max(1) as f64;
    let early = figures.counters.early_answers.unwrap_or_default().saturating_sub(arrived);
    let certain = lost.saturating_sub(on_their_way(figures, answered)).max(early);
    let certain_share = certain as f64 / answered.max(1) as f64;
    // A path that loses as many data packets has no fault of its return path alone.
    let data_share = figures.counters.retransmitted as f64 / figures.counters.sent.max(1) as f64;
    let is_lossy =
        certain >= MIN_LOST && certain_share >= MIN_LOST_SHARE && certain_share >= MIN_LOST_FACTOR * data_share;
    let deviation = figures.course.median_of(|at| at.rtt_deviation.as_secs_f64());
    let risen = figures.rtt_under_load().saturating_sub(figures.base_rtt).as_secs_f64();
    let waits = figures.course.waits().filter(|waits| {
        let min = MIN_DELAY.as_secs_f64().max(MIN_DELAY_SHARE * figures.base_rtt.as_secs_f64());
        waits.acknowledgements >= min
            && waits.data <= MAX_DATA_WAIT * waits.acknowledgements
            && risen >= MIN_RISE * waits.acknowledgements
            && deviation <= MAX_DEVIATION_SHARE * waits.acknowledgements
    });
    // A queue that costs no goodput is no fault of the return path: the receiver may collect acknowledgements.
    let costs = !figures.bidirectional && (figures.path.is_none() || Shortfall::of(figures).is_some());
    // Acknowledgements that wait as long without load meet jitter.
    let idle = figures.idle_rtt.map_or(0.0, |idle| idle.p90.saturating_sub(idle.min).as_secs_f64());
    let waits = waits.filter(|waits| costs && idle < MAX_IDLE_WAIT * waits.acknowledgements);
    if !is_lossy && waits.is_none() {
        return None;
    }
    let time = |seconds: f64| show_duration(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default());
    let waiting = waits.map(|waits| {
        format!(
            "acknowledgements wait {} in a queue, and data waits {}",
            time(waits.acknowledgements),
            time(waits.data)
        )
    });
    let losing =
        is_lossy.then(|| format!("{lost} of {answered} acknowledgements were lost ({:.0} %)", lost_share * 100.0));
    let summary = losing.into_iter().chain(waiting).collect::<Vec<_>>().join("; ");
    let device = figures.receiver.interface.as_ref().map(|interface| format!(" dev {}", interface.name));
    // The receiver sends the acknowledgements.
    let remedy = Remedy {
        command: format!(
            "tc -s qdisc show{}   # drops or backlog: raise the rate of this link",
            device.unwrap_or_default()
        ),
        host: Some(figures.receiver.name.clone()),
    };
    let mut finding = path_finding(figures, Cause::ReturnPath, summary, remedy);
    finding.confidence = Some(if is_lossy || figures.is_one_host { Confidence::High } else { Confidence::Medium });
    finding.evidence = figures_map([
        ("sent_acknowledgements", json!(answered)),
        ("lost_acknowledgements", json!(lost)),
        ("lost_share", json!(lost_share)),
        ("acknowledgement_wait_seconds", json!(waits.map(|waits| waits.acknowledgements))),
        ("data_wait_seconds", json!(waits.map(|waits| waits.data))),
    ]);
    Some(finding)
}

/// Returns the maximum number of acknowledgements that are on their way when the test ends: those of the last round trip. All
/// of them count as sent after start-up.
fn on_their_way(figures: &Figures, answered: u64) -> u64 {
    let settled: f64 = match figures.course.intervals.is_empty() {
        true => figures.elapsed.as_secs_f64(),
        false => figures.course.settled().iter().map(IntervalFigures::seconds).sum(),
    };
    let round_trip = figures.rtt_under_load().max(figures.base_rtt).as_secs_f64();
    (answered as f64 * (round_trip / settled.max(f64::MIN_POSITIVE)).min(1.0)) as u64
}

/// Finds a host on the path that answers for the receiver: messages take much longer than segments.
pub(in crate::diagnose) fn proxy(figures: &Figures) -> Option<Finding> {
    let message = figures.message_rtt.unwrap_or_default();
    let segment = figures.handshake_rtt;
    let is_late = !segment.is_zero()
        && message.as_secs_f64() >= MIN_MESSAGE_FACTOR * segment.as_secs_f64()
        && message >= segment + MIN_MESSAGE_DIFFERENCE
        // A queue delays segments and messages alike.
        && message.as_secs_f64() >= MIN_LOADED_FACTOR * figures.rtt_under_load().as_secs_f64();
    if !is_late && !figures.counters.scales_differ {
        return None;
    }
    let scales = if figures.counters.scales_differ { "the window scales of both ends do not match" } else { "" };
    let times = match is_late {
        true => format!(
            "RTT of the handshake {}, time from a message to its answer at least {}",
            show_duration(segment),
            show_duration(message)
        ),
        false => String::new(),
    };
    let signs: Vec<&str> = [scales, &times].into_iter().filter(|sign| !sign.is_empty()).collect();
    let summary = format!("another host answers for the receiver: {}", signs.join("; "));
    let mut finding = path_finding(figures, Cause::Proxy, summary, figures.repeat_command("--path"));
    finding.confidence = Some(if signs.len() == 2 { Confidence::High } else { Confidence::Medium });
    finding.evidence = figures_map([
        ("handshake_rtt_seconds", json!(segment.as_secs_f64())),
        ("message_rtt_seconds", json!(figures.message_rtt.map(|rtt| rtt.as_secs_f64()))),
        ("window_scales_differ", json!(figures.counters.scales_differ)),
    ]);
    Some(finding)
}
