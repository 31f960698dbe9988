//! Lock-step: the sender waits for the receiver's answer to each block, so the path is idle for a round trip.

use lfn_base::units::show_duration;
use serde_json::json;

use super::{Cause, Finding, figures_map, finding};
use crate::evidence::figures::{FULL_SHARE, Figures};
use crate::prediction;

/// Minimum share of the time in which each stream waits for an answer: a path that is not full has this share to spare.
pub(super) const MIN_WAIT_SHARE: f64 = 1.0 - FULL_SHARE;

/// Finds a test in lock-step whose waits leave the path idle.
pub(super) fn lockstep(figures: &Figures) -> Option<Finding> {
    let (block, goodput) = (figures.lockstep?, figures.steady_goodput());
    // The time of one block and its answer.
    let time = block.0 as f64 * 8.0 * f64::from(figures.stream_count()) / goodput.as_f64().max(1.0);
    let share = (figures.base_rtt.as_secs_f64() / time.max(f64::MIN_POSITIVE)).min(1.0);
    if figures.is_full() || figures.streams.is_empty() || share < MIN_WAIT_SHARE {
        return None;
    }
    let summary = format!(
        "each stream sends {block}, and waits one RTT of {} for the answer before it sends again: {:.0} % of the time",
        show_duration(figures.base_rtt),
        share * 100.0
    );
    let streaming = Figures { lockstep: None, ..figures.clone() };
    let predicted = prediction::predict_test(&streaming).map(|(predicted, _)| predicted.goodput);
    let mut finding = finding(figures, Cause::LockStep, summary, figures.repeat_without("lockstep"), predicted);
    finding.evidence = figures_map([
        ("block_bytes", json!(block.0)),
        ("base_rtt_seconds", json!(figures.base_rtt.as_secs_f64())),
        ("wait_share", json!(share)),
    ]);
    Some(finding)
}

#[cfg(test)]
mod tests {
    use lfn_base::units::{BitRate, Bytes};

    use super::*;
    use crate::diagnose::{diagnose_figures, half_bdp_window};
    use crate::evidence::TypedArgument;
    use crate::measure::SocketReport;

    /// A test in lock-step with this goodput, over 539 ms.
    fn waiting(goodput: u64, block: u64) -> Figures {
        let mut figures = half_bdp_window();
        let goodput = BitRate(goodput);
        figures.goodput = goodput;
        figures.steady = None;
        figures.lockstep = Some(Bytes(block));
        let typed = |flag: Option<&str>, text: &str| TypedArgument { flag: flag.map(str::to_owned), text: text.into() };
        figures.arguments = vec![typed(None, "far.example"), typed(Some("lockstep"), "--lockstep")];
        let flow = &mut figures.streams[0];
        (flow.goodput, flow.snd_wnd, flow.busy_share) = (goodput, None, Some(0.9));
        flow.receiver_socket = SocketReport::default();
        figures
    }

    #[test]
    fn requested_lockstep_is_the_limit() {
        let diagnosis = diagnose_figures(&waiting(965_000, 64 << 10));
        assert_eq!(diagnosis.verdict.summary, "limited by an application in lock-step");
        let [found] = diagnosis.findings.as_slice() else { panic!("{:?}", diagnosis.findings) };
        assert_eq!(
            found.summary,
            "each stream sends 64 KiB, and waits one RTT of 539 ms for the answer before it sends again: 99 % of the time"
        );
        assert_eq!(found.remedy.command, "lfn test far.example");
        assert_eq!(found.predicted, path_goodput(&waiting(965_000, 64 << 10)));
    }

    /// Returns the goodput of the path without the waits.
    fn path_goodput(figures: &Figures) -> Option<BitRate> {
        figures.path.map(|path| path.payload_capacity())
    }

    #[test]
    fn a_small_wait_is_no_finding() {
        // A block of 1 GB takes 64 s, so the wait is 0.8 % of the time.
        assert_eq!(lockstep(&waiting(120_000_000, 1_000_000_000)), None);
        assert_eq!(lockstep(&waiting(129_000_000, 64 << 20)), None, "a full path");
        let streaming = Figures { lockstep: None, ..waiting(965_000, 64 << 10) };
        assert_eq!(lockstep(&streaming), None);
        // Without a capacity the waits still show.
        let unknown = Figures { path: None, ..waiting(965_000, 64 << 10) };
        assert!(lockstep(&unknown).is_some_and(|found| found.predicted.is_none()));
    }
}
