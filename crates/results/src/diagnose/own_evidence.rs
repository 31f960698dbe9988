//! Findings with evidence of their own: another finding that explains the same signs does not remove them.

use super::consequences::LOSSES;
use super::network::delivery;
use super::settings::congestion_fit;
use super::{Cause, Finding};
use crate::evidence::figures::Figures;

/// Causes that explain a delay that varies without load.
const VARYING_DELAY: [Cause; 5] =
    [Cause::SharedPath, Cause::Competing, Cause::Processor, Cause::Reordering, Cause::Outage];
/// Causes on the hosts that explain trains whose rates rise.
const OTHER_PROGRAMS: [Cause; 2] = [Cause::Competing, Cause::Processor];

/// Returns true if the finding does not follow from the other causes in `found`, although its signs usually do.
pub(super) fn has_own_evidence(figures: &Figures, finding: &Finding, found: &[Cause]) -> bool {
    let Some(cause) = finding.cause() else { return false };
    // Returns true if the cause is a root cause without these others.
    let is_root_without = |ignored: &[Cause]| {
        let others: Vec<Cause> = found.iter().copied().filter(|other| !ignored.contains(other)).collect();
        cause.is_root_cause(&others)
    };
    let has_root = |causes: &[Cause]| found.iter().any(|other| causes.contains(other) && other.is_root_cause(found));
    match cause {
        // Another congestion control does not notice rare losses, so Reno does not fit the path.
        Cause::CongestionControl => {
            is_fact(finding) || (congestion_fit::has_rare_losses(figures) && is_root_without(LOSSES))
        }
        // Jitter without load does not explain a wait under load that is much longer.
        Cause::Queueing => delivery::has_queue_beyond_jitter(figures) && is_root_without(&[Cause::Jitter]),
        // The counter of a queueing discipline.
        Cause::Shaper if finding.evidence.contains_key("overlimits") => !has_root(&[Cause::LocalDrops]),
        // A bucket has one rate.
        Cause::SharedPath => {
            figures.trains.as_ref().is_some_and(|trains| trains.rising.is_some()) && !has_root(&OTHER_PROGRAMS)
        }
        // No load explains a delay that varies without load.
        Cause::Jitter => delivery::idle_variation(figures).is_some() && !has_root(&VARYING_DELAY),
        _ => is_fact(finding),
    }
}

/// Returns true for another congestion control than requested: a fact, and no consequence of a loss.
pub(super) fn is_fact(finding: &Finding) -> bool {
    finding.evidence.contains_key("requested")
}
