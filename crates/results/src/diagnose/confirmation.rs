//! Confidence of the findings of a test of TCP, and the step that would increase it.

use lfn_base::units::BitRate;

use super::{Cause, Confidence, Finding};
use crate::evidence::figures::Figures;

/// Sets the confidence of a finding whose rule did not set it, and the step that would increase it.
pub(super) fn complete(figures: &Figures, finding: &mut Finding) {
    let Some(cause) = finding.cause() else { return };
    let confidence = *finding.confidence.get_or_insert_with(|| usual_confidence(cause));
    if confidence != Confidence::High {
        finding.confirmation = Some(confirmation(figures, cause));
    }
}

/// Returns the confidence in a cause without other figures: high if the rule states facts or counters that no other cause
/// has.
fn usual_confidence(cause: Cause) -> Confidence {
    match cause {
        Cause::Competing | Cause::SlowReader | Cause::SlowWriter | Cause::Outage | Cause::Queueing => {
            Confidence::Medium
        }
        Cause::Loss | Cause::RandomLoss | Cause::LossBursts | Cause::Retransmissions | Cause::SendBuffer => {
            Confidence::Medium
        }
        Cause::Unexplained => Confidence::Low,
        _ => Confidence::High,
    }
}

/// Returns the step that would increase the confidence in a cause.
fn confirmation(figures: &Figures, cause: Cause) -> String {
    let repeat = |flags: &str| figures.repeat_command(flags).command;
    let trains = "send datagrams below and above the goodput";
    match cause {
        Cause::Policer | Cause::Shaper | Cause::ShortQueue if figures.trains.is_none() => {
            format!("{trains}: {}", repeat("--udp --ramp"))
        }
        Cause::Policer | Cause::Shaper | Cause::ShortQueue => {
            format!(
                "longer trains show the size of the bucket or of the queue: {}",
                repeat("--udp --ramp --ramp-step-time 2s")
            )
        }
        // The trains have sent datagrams at these rates.
        Cause::Loss | Cause::RandomLoss | Cause::LossBursts if figures.trains.is_none() => {
            let half = figures.steady_goodput().0 / 2 / 1000 * 1000;
            let rate = BitRate(half.max(8000)).to_argument();
            format!(
                "datagrams at half of the goodput show if the loss depends on the rate: {}",
                repeat(&format!("--udp --pacing {rate}"))
            )
        }
        Cause::Reordering | Cause::Duplicates | Cause::Jitter | Cause::Retransmissions if figures.trains.is_none() => {
            let quarter = figures.steady_goodput().0 / 4 / 1000 * 1000;
            let rate = BitRate(quarter.max(8000)).to_argument();
            format!(
                "datagrams at a low rate show order and jitter without a queue: {}",
                repeat(&format!("--udp --pacing {rate}"))
            )
        }
        // An examination with trains has loaded both directions.
        Cause::ReturnPath if figures.trains.is_none() => {
            format!("a test in the other direction loads the return path: {}", other_direction(figures))
        }
        Cause::Outage => {
            format!("a longer test with short intervals shows more outages: {}", repeat("--time 60 --interval 100ms"))
        }
        Cause::Queueing | Cause::SharedPath => {
            format!("probes during the load show the delay: {}", repeat("--latency"))
        }
        Cause::Proxy | Cause::Unexplained => format!("list the hops of the path: {}", repeat("--path")),
        Cause::EarlyExit | Cause::RouteMetrics | Cause::CongestionControl => {
            format!("compare with bbr, which this limit does not affect: {}", repeat("--congestion bbr"))
        }
        Cause::Competing | Cause::SlowReader | Cause::SlowWriter => {
            format!("repeat the test while no other program runs: {}", repeat(""))
        }
        _ => format!("a longer test has more evidence: {}", repeat("--time 60")),
    }
}

fn other_direction(figures: &Figures) -> String {
    if figures.has_flag("reverse") {
        figures.repeat_without("reverse").command
    } else {
        figures.repeat_command("--reverse").command
    }
}
