//! Growth of the congestion window: CUBIC on a path that takes longer to refill than the test lasts.

use lfn_base::tcp_model::{self, Congestion, FlowParameters};
use serde_json::json;

use super::congestion_fit::{MAX_LOSSY_SHARE, MIN_BBR_FACTOR, MIN_REPAIR_SHARE, bbr_instead};
use crate::diagnose::shortfall::Shortfall;
use crate::diagnose::{Finding, figures_map};
use crate::evidence::figures::Figures;

/// Window of CUBIC after a loss, as a share (RFC 9438 section 4.6).
const CUBIC_BETA: f64 = 0.7;
/// Constant C of the window growth of CUBIC, segments per cubic second (RFC 9438 section 5).
const CUBIC_GROWTH: f64 = 0.4;
/// Maximum median congestion window over the need of the path: a larger window fills the path.
pub(in crate::diagnose) const MAX_WINDOW_SHARE: f64 = 0.9;

/// Finds CUBIC that a single loss slowed down for most of a test.
pub(in crate::diagnose) fn slow_growth(figures: &Figures) -> Option<Finding> {
    let shortfall = Shortfall::of(figures)?;
    let (path, flow) = (figures.path?, figures.streams.first()?);
    let needed = figures.needed_in_flight()?;
    let mss = figures.streams.iter().map(|flow| flow.mss).max().filter(|mss| *mss > 0)?;
    let window: u64 = figures.streams.iter().map(|flow| flow.cwnd.0).sum::<u64>() / u64::from(figures.stream_count());
    let segments = needed.0 as f64 / f64::from(mss);
    // Time from a loss at a full path until the window is as large again (RFC 9438 section 4.2, K).
    let repair = (segments * (1.0 - CUBIC_BETA) / CUBIC_GROWTH).cbrt();
    let parameters =
        FlowParameters { streams: figures.stream_count(), congestion: Congestion::Bbr, ..FlowParameters::default() };
    let with_bbr = tcp_model::predict_steady(&path, &parameters).goodput;
    if flow.sender_socket.congestion != "cubic"
        || repair < MIN_REPAIR_SHARE * figures.elapsed.as_secs_f64()
        || window as f64 > MAX_WINDOW_SHARE * needed.0 as f64
        || with_bbr.as_f64() < MIN_BBR_FACTOR * shortfall.goodput.as_f64()
        || figures.counters.retransmitted == 0
        || figures.course.lossy_share() > MAX_LOSSY_SHARE
    {
        return None;
    }
    let summary = format!(
        "after a loss, cubic needs {repair:.0} s to fill the {segments:.0} segments of this path again, and the test took \
         {:.0} s; bbr does not wait for this",
        figures.elapsed.as_secs_f64()
    );
    let evidence = [
        ("repair_seconds", json!(repair)),
        ("bdp_segments", json!(segments)),
        ("congestion_window_bytes", json!(window)),
        ("in_use", json!("cubic")),
    ];
    Some(bbr_instead(figures, summary, with_bbr, figures_map(evidence)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lfn_base::path::PathProfile;
    use lfn_base::units::{BitRate, Bytes};

    use super::*;
    use crate::diagnose::Cause;
    use crate::diagnose::host::tests::half_goodput;

    /// A test of 12 s over 1 Gb/s and 300 ms that lost a few segments at the end of slow start. CUBIC needs 27 s to repair
    /// a loss.
    fn after_a_loss(change: impl FnOnce(&mut Figures)) -> Option<Finding> {
        let mut figures = half_goodput();
        let rtt = Duration::from_millis(300);
        figures.path = Some(PathProfile::new(BitRate(1_000_000_000), rtt));
        (figures.base_rtt, figures.elapsed) = (rtt, Duration::from_secs(12));
        figures.goodput = BitRate(400_000_000);
        figures.steady = None;
        figures.counters.retransmitted = 40;
        let flow = &mut figures.streams[0];
        (flow.mss, flow.cwnd, flow.goodput) = (1448, Bytes(16_000_000), figures.goodput);
        flow.sender_socket.congestion = "cubic".into();
        change(&mut figures);
        slow_growth(&figures)
    }

    #[test]
    fn cubic_that_cannot_refill_the_path_in_time_is_unfit() {
        let found = after_a_loss(|_| {}).unwrap();
        assert_eq!(found.cause(), Some(Cause::CongestionControl));
        assert!(found.summary.starts_with("after a loss, cubic needs 27 s"), "{}", found.summary);
        assert!(found.remedy.command.ends_with("--congestion bbr"));
        assert!(found.gain.is_some_and(|gain| gain > BitRate(500_000_000)), "{:?}", found.gain);
    }

    #[test]
    fn cubic_that_fits_the_path_has_no_finding() {
        type Change = fn(&mut Figures);
        let cases: [(&str, Change); 5] = [
            ("no loss", |figures| figures.counters.retransmitted = 0),
            ("long test", |figures| figures.elapsed = Duration::from_secs(60)),
            ("window of the path", |figures| figures.streams[0].cwnd = Bytes(40_000_000)),
            ("bbr", |figures| figures.streams[0].sender_socket.congestion = "bbr".into()),
            ("full path", |figures| figures.goodput = BitRate(930_000_000)),
        ];
        for (case, change) in cases {
            assert_eq!(after_a_loss(change), None, "{case}");
        }
    }
}
