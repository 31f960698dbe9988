//! Shaper on the sender itself: a queueing discipline of its interface with a configured rate.

use lfn_base::units::BitRate;
use serde_json::json;

use crate::diagnose::{Cause, Confidence, Finding, Remedy, figures_map, finding};
use crate::evidence::figures::Figures;
use crate::host::QdiscCounters;

/// Queueing disciplines that delay packets to keep a configured rate.
const SHAPERS: [&str; 4] = ["tbf", "htb", "hfsc", "cake"];
/// Minimum number of waits for the configured rate, as a share of the sent packets.
pub(in crate::diagnose) const MIN_DELAYED_SHARE: f64 = 0.05;
/// The same share for a rate that limits the goodput: with fewer waits, only bursts wait.
pub(in crate::diagnose) const MIN_LIMITING_SHARE: f64 = 0.3;

/// Finds a queueing discipline of the sender that keeps the goodput at its rate, or that delays bursts.
pub(in crate::diagnose) fn host_shaper(figures: &Figures) -> Option<Finding> {
    let interface = figures.sender.interface.as_ref()?;
    let (kind, counters) = figures.sender.qdisc.as_ref().filter(|(kind, _)| SHAPERS.contains(&kind.as_str()))?;
    let share = delayed_share(counters);
    // Trains measure the rate of the shaper, and not the capacity behind it.
    let is_full = figures.is_full() && !figures.is_capacity_measured;
    if is_full || share < MIN_DELAYED_SHARE {
        return None;
    }
    let is_limit = share >= MIN_LIMITING_SHARE;
    let possible = figures.possible_goodput().filter(|_| !figures.is_capacity_measured);
    let summary = format!(
        "the queueing discipline {kind} of {} on {} {}: {} waits for its rate, {} packets sent",
        interface.name,
        figures.sender.name,
        if is_limit { "limits the rate" } else { "delays bursts" },
        counters.overlimits,
        counters.sent_packets,
    );
    let remedy = Remedy {
        command: format!("tc qdisc replace dev {} root fq   # or set a higher rate of {kind}", interface.name),
        host: Some(figures.sender.name.clone()),
    };
    let mut finding = finding(figures, Cause::Shaper, summary, remedy, possible);
    if !is_limit {
        finding.gain = Some(BitRate(0));
        finding.predicted = Some(figures.steady_goodput());
    }
    finding.confidence = Some(Confidence::High);
    finding.evidence = figures_map([
        ("overlimits", json!(counters.overlimits)),
        ("sent_packets", json!(counters.sent_packets)),
        ("overlimits_share", json!(share)),
        ("goodput_bits_per_second", json!(figures.steady_goodput().0)),
    ]);
    Some(finding)
}

fn delayed_share(counters: &QdiscCounters) -> f64 {
    counters.overlimits as f64 / counters.sent_packets.max(1) as f64
}
