//! Repeated outages: the rate falls again and again with timeouts of the sender, and other intervals are clean.

use std::time::Duration;

use lfn_base::units::{BitRate, show_duration};
use serde_json::json;

use super::loss_kind::MAX_SINGLE_RUN;
use crate::diagnose::shortfall::Shortfall;
use crate::diagnose::{Cause, Confidence, Finding, Remedy, figures_map, finding};
use crate::evidence::figures::{Figures, IntervalFigures, TrainFigures};

/// Minimum number of outages.
pub(in crate::diagnose) const MIN_OUTAGES: usize = 2;
/// Maximum goodput of an interval with a part of an outage, as a share of the goodput of clean intervals.
pub(in crate::diagnose) const MAX_GOODPUT_SHARE: f64 = 0.85;
/// Maximum share of the other intervals with losses: random loss has losses in almost every interval.
pub(in crate::diagnose) const MAX_LOSSY_SHARE: f64 = 0.5;
/// Maximum goodput of an interval in which nothing arrives, as a share of the goodput of clean intervals.
pub(in crate::diagnose) const MAX_SILENT_SHARE: f64 = 0.01;
/// Minimum number of intervals without a part of an outage.
pub(in crate::diagnose) const MIN_OTHER_INTERVALS: usize = 2;
/// Minimum lost share of single datagrams below the rate that passes, for timeouts without an outage.
pub(in crate::diagnose) const MIN_TIMEOUT_LOSS: f64 = 0.05;
/// Intervals after an outage in which the streams repair its losses.
const RECOVERY: usize = 1;

/// Finds several outages: intervals with a timeout and a low goodput between intervals without losses, or times in which no
/// datagram was answered.
pub(in crate::diagnose) fn outages(figures: &Figures) -> Option<Finding> {
    if searches_mtu(figures) || loses_single_packets(figures) {
        return None;
    }
    by_timeouts(figures).or_else(|| by_silences(figures))
}

/// Returns true if TCP itself searches the size of packets that a black hole passes (RFC 4821): it times out meanwhile.
pub(in crate::diagnose) fn searches_mtu(figures: &Figures) -> bool {
    let passed = |size: u32| figures.streams.iter().any(|flow| flow.pmtu > 0 && flow.pmtu <= size);
    figures.black_hole.is_some_and(passed)
}

/// Returns true if the trains lose so many single datagrams that TCP loses retransmissions too: it times out at any time.
fn loses_single_packets(figures: &Figures) -> bool {
    let is_single = |trains: &&TrainFigures| trains.mean_loss_run.is_some_and(|run| run <= MAX_SINGLE_RUN);
    figures.trains.as_ref().filter(is_single).is_some_and(|trains| trains.quiet_loss() >= MIN_TIMEOUT_LOSS)
}

/// Finds times in which no datagram was answered, in a test that timed out in them.
fn by_silences(figures: &Figures) -> Option<Finding> {
    let silences = &figures.silences;
    let goodput = Shortfall::of(figures)?.goodput;
    if silences.len() < MIN_OUTAGES || figures.counters.timeouts == 0 {
        return None;
    }
    let time: Duration = silences.iter().map(|silence| silence.end.saturating_sub(silence.start)).sum();
    let summary = format!(
        "no datagram was answered {} times in {}, for {} together, and {} timed out {} times; few are lost in between",
        silences.len(),
        show_duration(figures.elapsed),
        show_duration(time),
        figures.sender.name,
        figures.counters.timeouts,
    );
    let predicted = figures.possible_goodput();
    let remedy = Remedy { command: format!("ping -D -i 0.2 {}", figures.far_network_name()), host: None };
    let mut finding = finding(figures, Cause::Outage, summary, remedy, predicted);
    finding.gain = predicted.map(|predicted| BitRate(predicted.0.saturating_sub(goodput.0)));
    finding.confidence = Some(Confidence::Medium);
    finding.evidence = figures_map([
        ("outages", json!(silences.len())),
        ("lost_seconds", json!(time.as_secs_f64())),
        ("timeouts", json!(figures.counters.timeouts)),
    ]);
    Some(finding)
}

fn by_timeouts(figures: &Figures) -> Option<Finding> {
    let settled = figures.course.settled();
    let usual = figures.course.peak()?.as_f64();
    // The timeout of an outage at the end of an interval is in the next one.
    let has_timeout =
        |number: usize| settled[number].timeouts > 0 || settled.get(number + 1).is_some_and(|next| next.timeouts > 0);
    let is_low: Vec<bool> = settled.iter().map(|at| at.goodput.as_f64() < MAX_GOODPUT_SHARE * usual).collect();
    let is_silent = |at: &IntervalFigures| at.goodput.as_f64() <= MAX_SILENT_SHARE * usual;
    let timed_out: Vec<bool> = (0..settled.len()).map(|number| is_low[number] && has_timeout(number)).collect();
    // The timeouts of a long outage are several intervals apart.
    let is_next =
        |number: usize| timed_out.get(number + 1).is_some_and(|next| *next) || (number > 0 && timed_out[number - 1]);
    let dips: Vec<bool> = (0..settled.len())
        .map(|number| timed_out[number] || (is_silent(&settled[number]) && is_next(number)))
        .collect();
    let starts: Vec<Duration> = (0..settled.len())
        .filter(|&number| dips[number] && (number == 0 || !dips[number - 1]))
        .map(|number| settled[number].start)
        .collect();
    // The streams repair the losses of an outage after it, and then grow slowly.
    let disturbed = |number: usize| {
        let recovers =
            settled[number].retransmitted > 0 && (number.saturating_sub(RECOVERY)..number).any(|at| dips[at]);
        dips[number] || recovers
    };
    let others: Vec<&IntervalFigures> =
        (0..settled.len()).filter(|&number| !disturbed(number)).map(|number| &settled[number]).collect();
    let lossy = others.iter().filter(|at| at.retransmitted > 0).count() as f64 / others.len().max(1) as f64;
    // Losses that cost neither a timeout nor goodput do not explain intervals in which nothing arrives.
    let is_calm = |at: &&IntervalFigures| at.timeouts == 0 && at.goodput.as_f64() >= MAX_GOODPUT_SHARE * usual;
    let calm = others.iter().filter(|at| is_calm(at)).count() * 10 >= others.len() * 9
        && settled.iter().filter(|at| is_silent(at)).count() >= starts.len();
    if starts.len() < MIN_OUTAGES || others.len() < MIN_OTHER_INTERVALS || (lossy > MAX_LOSSY_SHARE && !calm) {
        return None;
    }
    let gaps: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    let period = lfn_base::stats::median(&gaps)?;
    let missing: f64 = settled.iter().map(|at| (1.0 - at.goodput.as_f64() / usual).max(0.0) * at.seconds()).sum();
    let lost_time = Duration::try_from_secs_f64(missing).unwrap_or_default();
    let summary = format!(
        "{} interruptions in {}, about every {}: together they cost {} of sending time, and {} timed out {} times; the \
         other intervals keep their goodput",
        starts.len(),
        show_duration(figures.elapsed),
        show_duration(Duration::try_from_secs_f64(period).unwrap_or_default()),
        show_duration(lost_time),
        figures.sender.name,
        figures.counters.timeouts,
    );
    let usual = BitRate(usual as u64);
    // The streams also lose the time in which they grow back.
    let predicted = figures.possible_goodput().unwrap_or(usual);
    let remedy = Remedy { command: format!("ping -D -i 0.2 {}", figures.far_network_name()), host: None };
    let mut finding = finding(figures, Cause::Outage, summary, remedy, Some(predicted));
    let goodput = figures.course.goodput().unwrap_or(figures.goodput);
    finding.gain = Some(BitRate(predicted.0.saturating_sub(goodput.0)));
    finding.confidence = Some(if starts.len() > MIN_OUTAGES { Confidence::High } else { Confidence::Medium });
    finding.evidence = figures_map([
        ("outages", json!(starts.len())),
        ("period_seconds", json!(period)),
        ("lost_seconds", json!(lost_time.as_secs_f64())),
        ("timeouts", json!(figures.counters.timeouts)),
    ]);
    Some(finding)
}
