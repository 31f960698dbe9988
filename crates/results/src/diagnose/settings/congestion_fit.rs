//! Congestion control and number of streams that do not fit the path.

use std::collections::BTreeMap;

use lfn_base::tcp_model::{self, Congestion, FlowParameters};
use lfn_base::units::BitRate;
use serde_json::{Value, json};

use crate::diagnose::shortfall::Shortfall;
use crate::diagnose::{Cause, Confidence, Finding, figures_map, finding};
use crate::evidence::figures::Figures;

/// Minimum time that Reno needs to repair one halving of its window on the full path, as a share of the test.
pub(in crate::diagnose) const MIN_REPAIR_SHARE: f64 = 0.5;
/// Minimum prediction with BBR over the goodput.
pub(in crate::diagnose) const MIN_BBR_FACTOR: f64 = 1.2;
/// Maximum settled intervals with losses: more are loss on the path.
pub(in crate::diagnose) const MAX_LOSSY_SHARE: f64 = 0.5;
/// Maximum loss of a path that is no fault by itself: service levels of networks allow it.
pub(in crate::diagnose) const MAX_USUAL_LOSS: f64 = 0.001;
/// Minimum prediction with BBR over the goodput, for losses that the path may have.
pub(in crate::diagnose) const MIN_USUAL_FACTOR: f64 = 1.5;
/// Minimum number of streams that can be too many.
pub(in crate::diagnose) const MIN_STREAMS: u32 = 8;
/// Maximum congestion window of each stream, segments: fewer do not repair a loss without a timeout.
pub(in crate::diagnose) const MAX_WINDOW_SEGMENTS: u64 = 4;

/// Finds Reno on a path whose window Reno grows back too slowly after a loss.
pub(in crate::diagnose) fn unfit_congestion(figures: &Figures) -> Option<Finding> {
    let shortfall = Shortfall::of(figures)?;
    let path = figures.path?;
    let congestion = figures.streams.first()?.sender_socket.congestion.clone();
    let mss = f64::from(figures.streams.iter().map(|flow| flow.mss).max().filter(|mss| *mss > 0)?);
    // One segment for each round trip, from half of the window (RFC 5681 section 3.1).
    let segments = path.bdp().0 as f64 / mss / f64::from(figures.stream_count().max(1));
    let repair = segments / 2.0 * figures.base_rtt.as_secs_f64();
    let slow = repair >= MIN_REPAIR_SHARE * figures.elapsed.as_secs_f64();
    let flow =
        FlowParameters { streams: figures.stream_count(), congestion: Congestion::Bbr, ..FlowParameters::default() };
    let with_bbr = tcp_model::predict_steady(&path, &flow).goodput;
    let better = with_bbr.as_f64() >= MIN_BBR_FACTOR * shortfall.goodput.as_f64();
    if congestion != "reno"
        || !slow
        || !better
        || figures.counters.retransmitted == 0
        || figures.course.lossy_share() > MAX_LOSSY_SHARE
    {
        return None;
    }
    let summary = format!(
        "reno grows its window by one segment for each round trip: after a loss it needs {repair:.0} s to fill this path; bbr \
         does not wait for this"
    );
    let evidence =
        [("repair_seconds", json!(repair)), ("bdp_segments", json!(segments)), ("in_use", json!(congestion))];
    Some(bbr_instead(figures, summary, with_bbr, figures_map(evidence)))
}

/// Returns true if the losses are so rare that the slow growth of Reno costs the goodput, and not the path that loses packets.
/// Trains at rates below the rate that passes show more losses than a slow stream.
pub(in crate::diagnose) fn has_rare_losses(figures: &Figures) -> bool {
    let Some(found) = unfit_congestion(figures) else { return false };
    let totals = figures.streams.iter().filter_map(|flow| flow.sent).fold((0u64, 0u64), |(sent, resent), at| {
        (sent.saturating_add(at.sent_bytes), resent.saturating_add(at.resent_bytes))
    });
    let by_trains = figures.trains.as_ref().is_none_or(|trains| trains.quiet_loss() <= MAX_USUAL_LOSS);
    let predicted = found.predicted.unwrap_or_default().as_f64();
    by_trains
        && totals.1 as f64 <= MAX_USUAL_LOSS * totals.0 as f64
        && predicted >= MIN_USUAL_FACTOR * figures.steady_goodput().as_f64()
}

/// Returns the finding of a congestion control that repairs a loss too slowly, with the goodput of BBR.
pub(super) fn bbr_instead(
    figures: &Figures,
    summary: String,
    with_bbr: BitRate,
    evidence: BTreeMap<String, Value>,
) -> Finding {
    let remedy = figures.repeat_command("--congestion bbr");
    let finding = finding(figures, Cause::CongestionControl, summary, remedy, Some(with_bbr));
    Finding { confidence: Some(Confidence::Medium), evidence, ..finding }
}

/// Finds so many streams that the share of each is a few segments.
pub(in crate::diagnose) fn too_many_streams(figures: &Figures) -> Option<Finding> {
    let streams = figures.stream_count();
    let small = |flow: &&crate::evidence::figures::StreamFigures| {
        flow.mss > 0 && flow.cwnd.0 <= MAX_WINDOW_SEGMENTS * u64::from(flow.mss)
    };
    let starved = figures.streams.iter().filter(small).count();
    if streams < MIN_STREAMS || starved * 2 < figures.streams.len() || figures.counters.timeouts == 0 {
        return None;
    }
    let shortfall = Shortfall::of(figures)?;
    let fewer = (streams / 4).max(1);
    let summary = format!(
        "{streams} streams share the path: {starved} of them have a window of {MAX_WINDOW_SEGMENTS} segments or less, and \
         {} timeouts followed",
        figures.counters.timeouts
    );
    let remedy = figures.repeat_command(&format!("--streams {fewer}"));
    let mut finding = finding(figures, Cause::StreamCount, summary, remedy, Some(shortfall.predicted.goodput));
    finding.confidence = Some(Confidence::Medium);
    finding.gain = Some(BitRate(shortfall.predicted.goodput.0.saturating_sub(shortfall.goodput.0)));
    finding.evidence = figures_map([
        ("streams", json!(streams)),
        ("starved_streams", json!(starved)),
        ("timeouts", json!(figures.counters.timeouts)),
    ]);
    Some(finding)
}
