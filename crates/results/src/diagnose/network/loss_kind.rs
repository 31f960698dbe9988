//! Kinds of losses: single ones or runs, from trains or from the recoveries of the sender.

use serde_json::json;

use super::delivery::path_finding;
use super::flat_rtt::has_flat_rtt;
use crate::diagnose::shortfall::Shortfall;
use crate::diagnose::{Cause, Confidence, Finding, figures_map, path};
use crate::evidence::figures::{Figures, TrainPlateau};

/// Minimum mean number of losses in a run, for bursts.
pub(in crate::diagnose) const MIN_RUN: f64 = 3.0;
/// Maximum of the same number, for single losses.
pub(in crate::diagnose) const MAX_SINGLE_RUN: f64 = 2.0;
/// Minimum recoveries that show the length of the runs.
pub(in crate::diagnose) const MIN_RECOVERIES: u64 = 3;
/// Minimum lost datagrams of trains that show the length of the runs.
pub(in crate::diagnose) const MIN_LOST_DATAGRAMS: u64 = 5;
/// Minimum lost share of these datagrams: less limits no congestion control on a path that is not full.
pub(in crate::diagnose) const MIN_QUIET_LOSS: f64 = 0.001;
/// Minimum needed retransmissions of a path that reorders and loses packets.
pub(in crate::diagnose) const MIN_NEEDED: u64 = 10;
/// Minimum share of the retransmissions that the receiver needed: it reports the others (RFC 2883).
pub(in crate::diagnose) const MIN_NEEDED_SHARE: f64 = 0.5;
/// Maximum lost share of the excess of trains whose runs of losses count.
const MAX_DROPPED_EXCESS: f64 = 0.1;
/// Minimum share of the intervals with losses: the overflow of a queue is rare.
pub(in crate::diagnose) const MIN_LOSSY_SHARE: f64 = 0.3;

/// Returns true if the first stream uses BBR.
pub(super) fn is_bbr(figures: &Figures) -> bool {
    figures.streams.first().is_some_and(|flow| flow.sender_socket.congestion.starts_with("bbr"))
}

/// Returns the mean number of losses that happened at once, from the recoveries of the sender. Independent losses in the
/// round trip of a recovery are subtracted.
pub(super) fn lost_run(figures: &Figures) -> Option<f64> {
    let counters = &figures.counters;
    let recoveries = counters.recoveries.filter(|count| *count >= MIN_RECOVERIES)?;
    // The overflow at the end of slow start is one event with many losses.
    let course = &figures.course;
    let early: u64 = course.intervals.iter().take(course.start_up).map(|at| at.retransmitted).sum();
    let lost = counters.retransmitted.saturating_sub(counters.duplicates).saturating_sub(early) as f64;
    let share = lost / counters.sent.max(1) as f64;
    let streams = figures.streams.len().max(1) as f64;
    let window: f64 =
        figures.streams.iter().map(|flow| flow.cwnd.0 as f64 / f64::from(flow.mss.max(1))).sum::<f64>() / streams;
    // A timeout repairs the losses of a small window, like a recovery.
    let events = recoveries.saturating_sub(u64::from(early > 0)).saturating_add(counters.timeouts);
    Some(lost / events.max(1) as f64 - share * window)
}

/// Returns the kind of a loss that limits a test.
pub(in crate::diagnose) fn loss_kind(figures: &Figures) -> Cause {
    // Trains above the rate that passes lose their excess one by one.
    let drops_excess = |plateau: TrainPlateau| plateau.dropped_excess > MAX_DROPPED_EXCESS;
    let by_trains = figures
        .trains
        .as_ref()
        .filter(|trains| trains.quiet.1 >= MIN_LOST_DATAGRAMS && !trains.plateau.is_some_and(drops_excess));
    let run = by_trains.and_then(|trains| trains.mean_loss_run).or_else(|| lost_run(figures));
    match run {
        Some(run) if run >= MIN_RUN => Cause::LossBursts,
        Some(run) if run <= MAX_SINGLE_RUN => Cause::RandomLoss,
        _ => Cause::Loss,
    }
}

/// Returns true if trains below the rate that passes lose datagrams: no queue and no bucket explains this.
pub(in crate::diagnose) fn is_lossy_at_any_rate(figures: &Figures) -> bool {
    figures
        .trains
        .as_ref()
        .is_some_and(|trains| trains.quiet.1 >= MIN_LOST_DATAGRAMS && trains.quiet_loss() >= MIN_QUIET_LOSS)
}

/// Returns true if losses, and not only the order of the packets, make the sender retransmit.
pub(in crate::diagnose) fn is_lossy(figures: &Figures) -> bool {
    let sent = figures.streams.iter().filter_map(|flow| Some((flow.sent?, u64::from(flow.mss.max(1)))));
    let (resent, needless) = sent.fold((0u64, 0u64), |(resent, needless), (sent, mss)| {
        (resent.saturating_add(sent.resent_bytes / mss), needless.saturating_add(sent.duplicates))
    });
    let needed = resent.saturating_sub(needless);
    let by_tcp = needed >= MIN_NEEDED && needed as f64 >= MIN_NEEDED_SHARE * resent as f64;
    by_tcp || is_lossy_at_any_rate(figures)
}

/// Finds losses that limit a test by the loss formula, or that the trains show at rates below the rate that passes.
fn any_loss(figures: &Figures) -> Option<Finding> {
    path::loss(figures).or_else(|| loss_of_trains(figures))
}

fn loss_of_trains(figures: &Figures) -> Option<Finding> {
    Shortfall::of(figures)?;
    let trains = figures.trains.as_ref().filter(|_| is_lossy_at_any_rate(figures))?;
    let (sent, lost) = trains.quiet;
    let summary = format!(
        "{lost} of {sent} datagrams were lost ({:.2} %) at rates below the rate that passes: the loss does not depend on the rate",
        trains.quiet_loss() * 100.0
    );
    let remedy = figures.repeat_command(if is_bbr(figures) { "--streams 4" } else { "--congestion bbr" });
    let mut finding = path_finding(figures, Cause::Loss, summary, remedy);
    finding.confidence = Some(Confidence::High);
    finding.evidence = figures_map([
        ("lost_datagrams", json!(lost)),
        ("sent_datagrams", json!(sent)),
        ("lost_share", json!(trains.quiet_loss())),
    ]);
    Some(finding)
}

/// Finds losses whose number the loss formula or the trains show, if they are single ones.
pub(in crate::diagnose) fn random_loss(figures: &Figures) -> Option<Finding> {
    any_loss(figures).filter(|_| loss_kind(figures) == Cause::RandomLoss).map(|found| renamed(found, Cause::RandomLoss))
}

/// Finds losses in runs: TCP slows down for each run once, so the goodput is above the loss formula.
pub(in crate::diagnose) fn loss_bursts(figures: &Figures) -> Option<Finding> {
    let by_formula = any_loss(figures).filter(|_| loss_kind(figures) == Cause::LossBursts);
    if let Some(found) = by_formula {
        return Some(renamed(found, Cause::LossBursts));
    }
    Shortfall::of(figures)?;
    let run = lost_run(figures).filter(|run| *run >= MIN_RUN)?;
    if is_bbr(figures) || !has_flat_rtt(figures) || figures.course.lossy_share() < MIN_LOSSY_SHARE {
        return None;
    }
    let lossy = figures.course.lossy_share();
    let summary = format!(
        "about {run:.0} packets are lost at once, in {:.0} % of the intervals, and no queue delays the packets before",
        lossy * 100.0
    );
    let mut finding = path_finding(figures, Cause::LossBursts, summary, figures.repeat_command("--congestion bbr"));
    finding.confidence = Some(Confidence::Low);
    finding.evidence = figures_map([
        ("lost_run", json!(run)),
        ("lossy_intervals_share", json!(lossy)),
        ("retransmitted_segments", json!(figures.counters.retransmitted)),
    ]);
    Some(finding)
}

/// Finds losses of an unknown kind.
pub(in crate::diagnose) fn loss(figures: &Figures) -> Option<Finding> {
    any_loss(figures).filter(|_| loss_kind(figures) == Cause::Loss)
}

fn renamed(found: Finding, cause: Cause) -> Finding {
    Finding { name: cause.name().to_owned(), ..found }
}
