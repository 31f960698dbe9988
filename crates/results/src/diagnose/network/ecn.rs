//! ECN field: a path that clears it, so that its queues cannot mark packets.

use serde_json::json;

use super::delivery::path_finding;
use crate::diagnose::{Cause, Confidence, Finding, Remedy, figures_map};
use crate::evidence::figures::Figures;

/// Minimum segments that arrived without an ECN codepoint. The handshake and retransmissions have none (RFC 3168 section
/// 6.1.1 and 6.1.5), and they are fewer.
pub(in crate::diagnose) const MIN_WITHOUT_ECN: u64 = 100;

/// Finds streams with ECN whose receiver saw no packet with an ECN codepoint.
pub(in crate::diagnose) fn ecn_bleached(figures: &Figures) -> Option<Finding> {
    let counters = &figures.counters;
    let arrived = counters.without_ecn.filter(|arrived| *arrived >= MIN_WITHOUT_ECN)?;
    // A mark that arrived is an ECN codepoint.
    if !counters.ecn || counters.marked > 0 {
        return None;
    }
    let summary = format!(
        "both ends agreed on ECN, but none of {arrived} segments that arrived at {} had an ECN codepoint: a host on the path \
         clears the field",
        figures.receiver.name
    );
    let remedy = Remedy {
        command:
            "tcpdump -vni any 'ip[1] & 3 != 0'   # repeat at each router: the field is cleared before the first that \
                  prints nothing"
                .into(),
        host: Some(figures.sender.name.clone()),
    };
    let mut finding = path_finding(figures, Cause::EcnBleached, summary, remedy);
    // Marks are lost, not packets: the goodput is the same without this fault.
    finding.predicted = Some(figures.steady_goodput());
    finding.gain = Some(lfn_base::units::BitRate(0));
    finding.confidence = Some(Confidence::High);
    finding.evidence =
        figures_map([("segments_without_ecn", json!(arrived)), ("marked_segments", json!(counters.marked))]);
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::half_bdp_window;

    fn bleached(arrived: Option<u64>, ecn: bool) -> Option<Finding> {
        let mut figures = half_bdp_window();
        figures.counters.without_ecn = arrived;
        figures.counters.ecn = ecn;
        ecn_bleached(&figures)
    }

    #[test]
    fn ecn_without_any_codepoint_at_the_receiver_is_bleached() {
        let found = bleached(Some(MIN_WITHOUT_ECN), true).unwrap();
        assert_eq!(found.cause(), Some(Cause::EcnBleached));
        assert!(found.summary.contains("none of 100 segments that arrived at far.example"), "{}", found.summary);
        assert!(!found.is_limit(), "marks are lost, not packets");
    }

    #[test]
    fn a_mark_that_arrived_is_a_codepoint() {
        let mut figures = half_bdp_window();
        (figures.counters.without_ecn, figures.counters.ecn, figures.counters.marked) = (Some(5000), true, 1);
        assert_eq!(ecn_bleached(&figures), None);
    }

    #[test]
    fn seen_codepoints_few_segments_and_no_ecn_are_healthy() {
        for (arrived, ecn) in [(Some(0), true), (Some(MIN_WITHOUT_ECN - 1), true), (Some(1 << 20), false), (None, true)]
        {
            assert_eq!(bleached(arrived, ecn), None, "{arrived:?} {ecn}");
        }
    }
}
