//! Slow start: a large part of a short test, which a longer test makes small.

use std::time::Duration;

use lfn_base::units::show_duration;
use serde_json::json;

use super::{Cause, Finding, Remedy, figures_map, finding};
use crate::evidence::figures::Figures;
use crate::prediction;

/// Minimum start-up as a share of the test, above the one interval in ten that every test starts with.
pub(super) const MIN_START_UP_SHARE: f64 = 0.15;
/// Minimum steady goodput over the goodput of the whole test: a tenth is lost. A healthy test loses less to slow start,
/// and the summary shows this loss anyway.
pub(super) const MIN_GAIN_FACTOR: f64 = 1.11;
/// Maximum round trips of a test that may have been growing until its end.
pub(super) const MAX_TEST_ROUND_TRIPS: u32 = 30;
/// Maximum round trips of slow start: growth to the largest window takes 20, a longer growth has another cause.
pub(super) const MAX_GROWTH_ROUND_TRIPS: u32 = 100;
/// Minimum number of intervals that show growth.
pub(super) const MIN_INTERVALS: usize = 3;

/// Finds a goodput far below the steady goodput, or a goodput that still grew at the end.
pub(super) fn start_up(figures: &Figures) -> Option<Finding> {
    let elapsed = figures.elapsed;
    // A user who sets the warm-up knows it.
    if figures.omit.is_some() {
        return None;
    }
    let Some(steady) = figures.steady else {
        // A test below its prediction is too short even if it has few intervals.
        let growing = elapsed < figures.base_rtt * MAX_TEST_ROUND_TRIPS
            && (figures.intervals >= MIN_INTERVALS || is_below_prediction(figures));
        return growing.then(|| still_growing(figures));
    };
    let share = steady.start.as_secs_f64() / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    // Start-up ends somewhere in the interval before the first steady one.
    if steady.start.saturating_sub(figures.interval) > figures.base_rtt * MAX_GROWTH_ROUND_TRIPS {
        return None;
    }
    if share <= MIN_START_UP_SHARE || steady.goodput.as_f64() < MIN_GAIN_FACTOR * figures.goodput.as_f64() {
        return None;
    }
    let summary = format!(
        "growth took {} of {} ({:.0} %): {} over the whole test, {} in the steady part; run longer",
        show_duration(steady.start),
        show_duration(elapsed),
        share * 100.0,
        figures.goodput,
        steady.goodput,
    );
    let mut finding =
        finding(figures, Cause::StartUp, summary, longer_test(figures, steady.start), Some(steady.goodput));
    // The gain is over the whole test, not over its steady part.
    finding.gain = Some(lfn_base::units::BitRate(steady.goodput.0 - figures.goodput.0));
    finding.evidence = figures_map([
        ("start_up_seconds", json!(steady.start.as_secs_f64())),
        ("elapsed_seconds", json!(elapsed.as_secs_f64())),
        ("goodput_bits_per_second", json!(figures.goodput.0)),
        ("steady_goodput_bits_per_second", json!(steady.goodput.0)),
    ]);
    Some(finding)
}

fn is_below_prediction(figures: &Figures) -> bool {
    prediction::predict_test(figures).is_some_and(|(_, expected)| figures.steady_goodput() < expected.min)
}

fn still_growing(figures: &Figures) -> Finding {
    let summary = format!(
        "the goodput was still growing at the end of the test, after {} ({:.0} round trips of {}); run longer",
        show_duration(figures.elapsed),
        figures.elapsed.as_secs_f64() / figures.base_rtt.as_secs_f64().max(f64::MIN_POSITIVE),
        show_duration(figures.base_rtt),
    );
    let mut finding =
        finding(figures, Cause::StartUp, summary, longer_test(figures, figures.elapsed), figures.possible_goodput());
    finding.evidence = figures_map([
        ("elapsed_seconds", json!(figures.elapsed.as_secs_f64())),
        ("base_rtt_seconds", json!(figures.base_rtt.as_secs_f64())),
    ]);
    finding
}

/// Returns the command of a test with a tenth of slow start.
fn longer_test(figures: &Figures, start_up: Duration) -> Remedy {
    let seconds = (start_up.as_secs_f64() * 10.0).ceil().max(1.0);
    figures.repeat_command(&format!("--time {seconds}"))
}

#[cfg(test)]
mod tests {
    use lfn_base::units::{BitRate, Bytes};

    use super::super::rule_findings;
    use super::*;
    use crate::diagnose::window::tests::half_bdp_window;
    use crate::evidence::figures::SteadyPart;

    /// A path that was filled after `start` of 30 s.
    fn filled_after(start: u64, whole: u64) -> Figures {
        let mut figures = half_bdp_window();
        let goodput = BitRate(128_500_000);
        figures.streams[0].goodput = goodput;
        figures.streams[0].cwnd = Bytes(4_000_000);
        figures.goodput = BitRate(whole);
        figures.steady = Some(SteadyPart { start: Duration::from_secs(start), end: figures.elapsed, goodput });
        figures
    }

    #[test]
    fn long_slow_start_is_found_with_its_share() {
        let findings = rule_findings(&filled_after(6, 104_000_000));
        assert_eq!(findings.iter().filter_map(Finding::cause).collect::<Vec<_>>(), [Cause::StartUp]);
        let expected =
            "growth took 6 s of 30 s (20 %): 104 Mb/s over the whole test, 128.5 Mb/s in the steady part; run longer";
        assert_eq!(findings[0].summary, expected);
        assert_eq!(findings[0].gain, Some(BitRate(24_500_000)));
        assert_eq!(findings[0].remedy.to_string(), "lfn test far.example --time 60");
    }

    #[test]
    fn short_slow_start_is_no_finding() {
        assert_eq!(rule_findings(&filled_after(2, 120_000_000)), []);
        // A long time, but only a small loss.
        assert_eq!(rule_findings(&filled_after(10, 127_000_000)), []);
        // Thousands of round trips: a noisy host, not slow start.
        let mut figures = filled_after(6, 104_000_000);
        figures.base_rtt = Duration::from_micros(20);
        figures.streams[0].rtt = figures.base_rtt;
        assert_eq!(rule_findings(&figures), []);
    }

    #[test]
    fn an_omitted_warm_up_is_no_finding() {
        let mut figures = filled_after(6, 104_000_000);
        figures.omit = Some(Duration::from_secs(6));
        assert_eq!(rule_findings(&figures), []);
        // No part of the test is left.
        (figures.steady, figures.elapsed) = (None, Duration::from_secs(5));
        assert_eq!(start_up(&figures), None);
    }

    #[test]
    fn a_test_that_only_grew_is_found() {
        let mut figures = filled_after(6, 20_000_000);
        figures.steady = None;
        figures.streams[0].goodput = figures.goodput;
        figures.elapsed = Duration::from_secs(5);
        assert_eq!(rule_findings(&figures)[0].cause(), Some(Cause::StartUp));
        // Long enough, but unsteady for another reason.
        figures.elapsed = Duration::from_secs(60);
        assert_eq!(rule_findings(&figures), []);
    }

    #[test]
    fn steady_limits_come_before_slow_start() {
        let mut figures = half_bdp_window();
        figures.goodput = BitRate(50_000_000);
        figures.steady = figures.steady.map(|steady| SteadyPart { start: Duration::from_secs(7), ..steady });
        let causes: Vec<_> = rule_findings(&figures).iter().filter_map(Finding::cause).collect();
        assert_eq!(causes, [Cause::ReceiveWindow, Cause::StartUp]);
    }
}
