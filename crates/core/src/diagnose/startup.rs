//! Slow start: a large part of a short test, which a longer test makes small.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::{Cause, Evidence, Finding, Remedy, finding};
use crate::prediction;
use crate::units::show_duration;

/// Minimum start-up as a share of the test, above the one interval in ten that every test starts with.
const MIN_START_UP_SHARE: f64 = 0.15;
/// Minimum steady goodput over the goodput of the whole test: a tenth is lost. A healthy test loses less to slow start,
/// and the summary shows this loss anyway.
const MIN_GAIN_FACTOR: f64 = 1.11;
/// A test with fewer round trips may have been growing until its end.
const MIN_ROUND_TRIPS: u32 = 30;
/// Maximum round trips of slow start: growth to the largest window takes 20, a longer growth has another cause.
const MAX_GROWTH_ROUND_TRIPS: u32 = 100;
/// Minimum number of intervals that show growth.
const MIN_INTERVALS: usize = 3;

/// Finds a goodput far below the steady goodput, or a goodput that still grew at the end.
pub(super) fn start_up(evidence: &Evidence) -> Option<Finding> {
    let elapsed = evidence.elapsed;
    // A user who sets the warm-up knows it.
    if evidence.omit.is_some() {
        return None;
    }
    let Some(steady) = evidence.steady else {
        // A test below its prediction is too short even if it has few intervals.
        let growing = elapsed < evidence.base_rtt * MIN_ROUND_TRIPS
            && (evidence.intervals >= MIN_INTERVALS || is_below_prediction(evidence));
        return growing.then(|| still_growing(evidence));
    };
    let share = steady.start.as_secs_f64() / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    // Start-up ends somewhere in the interval before the first steady one.
    if steady.start.saturating_sub(evidence.interval) > evidence.base_rtt * MAX_GROWTH_ROUND_TRIPS {
        return None;
    }
    if share <= MIN_START_UP_SHARE || steady.goodput.as_f64() < MIN_GAIN_FACTOR * evidence.goodput.as_f64() {
        return None;
    }
    let summary = format!(
        "growth took {} of {} ({:.0} %): {} over the whole test, {} in the steady part; run longer",
        show_duration(steady.start),
        show_duration(elapsed),
        share * 100.0,
        evidence.goodput,
        steady.goodput,
    );
    let mut finding =
        finding(evidence, Cause::StartUp, summary, longer_test(evidence, steady.start), Some(steady.goodput));
    // The gain is over the whole test, not over its steady part.
    finding.gain = Some(crate::units::BitRate(steady.goodput.0 - evidence.goodput.0));
    finding.evidence = BTreeMap::from([
        ("start_up_seconds", json!(steady.start.as_secs_f64())),
        ("elapsed_seconds", json!(elapsed.as_secs_f64())),
        ("goodput_bits_per_second", json!(evidence.goodput.0)),
        ("steady_goodput_bits_per_second", json!(steady.goodput.0)),
    ]);
    Some(finding)
}

fn is_below_prediction(evidence: &Evidence) -> bool {
    prediction::predict_test(evidence).is_some_and(|(_, expected)| evidence.steady_goodput() < expected.min)
}

fn still_growing(evidence: &Evidence) -> Finding {
    let summary = format!(
        "the goodput was still growing at the end of the test, after {} ({:.0} round trips of {}); run longer",
        show_duration(evidence.elapsed),
        evidence.elapsed.as_secs_f64() / evidence.base_rtt.as_secs_f64().max(f64::MIN_POSITIVE),
        show_duration(evidence.base_rtt),
    );
    let mut finding = finding(
        evidence,
        Cause::StartUp,
        summary,
        longer_test(evidence, evidence.elapsed),
        evidence.possible_goodput(),
    );
    finding.evidence = BTreeMap::from([
        ("elapsed_seconds", json!(evidence.elapsed.as_secs_f64())),
        ("base_rtt_seconds", json!(evidence.base_rtt.as_secs_f64())),
    ]);
    finding
}

/// Returns the command of a test with a tenth of slow start.
fn longer_test(evidence: &Evidence, start_up: Duration) -> Remedy {
    let seconds = (start_up.as_secs_f64() * 10.0).ceil().max(1.0);
    evidence.repeat_command(&format!("--time {seconds}"))
}

#[cfg(test)]
mod tests {
    use super::super::{SteadyPart, rule_findings};
    use super::*;
    use crate::diagnose::window::tests::half_bdp_window;
    use crate::units::{BitRate, Bytes};

    /// A path that was filled after `start` of 30 s.
    fn filled_after(start: u64, whole: u64) -> Evidence {
        let mut evidence = half_bdp_window();
        let goodput = BitRate(128_500_000);
        evidence.streams[0].goodput = goodput;
        evidence.streams[0].cwnd = Bytes(4_000_000);
        evidence.goodput = BitRate(whole);
        evidence.steady = Some(SteadyPart { start: Duration::from_secs(start), end: evidence.elapsed, goodput });
        evidence
    }

    #[test]
    fn long_slow_start_is_found_with_its_share() {
        let findings = rule_findings(&filled_after(6, 104_000_000));
        assert_eq!(findings.iter().map(|f| f.cause).collect::<Vec<_>>(), [Cause::StartUp]);
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
        let mut evidence = filled_after(6, 104_000_000);
        evidence.base_rtt = Duration::from_micros(20);
        evidence.streams[0].rtt = evidence.base_rtt;
        assert_eq!(rule_findings(&evidence), []);
    }

    #[test]
    fn an_omitted_warm_up_is_no_finding() {
        let mut evidence = filled_after(6, 104_000_000);
        evidence.omit = Some(Duration::from_secs(6));
        assert_eq!(rule_findings(&evidence), []);
        // No part of the test is left.
        (evidence.steady, evidence.elapsed) = (None, Duration::from_secs(5));
        assert_eq!(start_up(&evidence), None);
    }

    #[test]
    fn a_test_that_only_grew_is_found() {
        let mut evidence = filled_after(6, 20_000_000);
        evidence.steady = None;
        evidence.streams[0].goodput = evidence.goodput;
        evidence.elapsed = Duration::from_secs(5);
        assert_eq!(rule_findings(&evidence)[0].cause, Cause::StartUp);
        // Long enough, but unsteady for another reason.
        evidence.elapsed = Duration::from_secs(60);
        assert_eq!(rule_findings(&evidence), []);
    }

    #[test]
    fn steady_limits_come_before_slow_start() {
        let mut evidence = half_bdp_window();
        evidence.goodput = BitRate(50_000_000);
        evidence.steady = evidence.steady.map(|steady| SteadyPart { start: Duration::from_secs(7), ..steady });
        let causes: Vec<_> = rule_findings(&evidence).iter().map(|finding| finding.cause).collect();
        assert_eq!(causes, [Cause::ReceiveWindow, Cause::StartUp]);
    }
}
