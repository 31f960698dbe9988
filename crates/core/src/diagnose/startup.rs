//! Start-up: how much of a test went into growing, which more time would make small.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::{Cause, Remedy, Evidence, Finding, finding};
use crate::units::show_duration;

/// Growth of less than this share of the test is not worth a word; more than the one interval in ten that every test
/// begins with.
const SHARE: f64 = 0.15;
/// Goodput past start-up must be this much more than over the whole test: a tenth of it is lost. Less is what slow start
/// takes of a healthy test, told in the summary anyhow.
const WORTH: f64 = 1.11;
/// A test shorter than this many round trips may well have been growing all the time.
const ROUND_TRIPS: u32 = 30;
/// What takes more round trips than this to get going is something else: slow start to the largest window takes 20.
const GROWTH: u32 = 100;
/// Fewer intervals do not show a growth.
const FEWEST: usize = 3;

/// Goodput over the whole test is well below what it was once past start-up, or start-up never ended.
pub(super) fn start_up(evidence: &Evidence) -> Option<Finding> {
    let elapsed = evidence.elapsed;
    // Who leaves out a warm-up knows of it.
    if evidence.omitted.is_some() {
        return None;
    }
    let Some(steady) = evidence.steady else {
        let growing = elapsed < evidence.base_rtt * ROUND_TRIPS && evidence.intervals >= FEWEST;
        return growing.then(|| never_ended(evidence));
    };
    let share = steady.start.as_secs_f64() / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    // Start-up ends somewhere in the interval before the first steady one.
    if steady.start.saturating_sub(evidence.interval) > evidence.base_rtt * GROWTH {
        return None;
    }
    if share <= SHARE || steady.goodput.as_f64() < WORTH * evidence.goodput.as_f64() {
        return None;
    }
    let summary = format!(
        "{} of {} ({:.0} %) went into growth: {} over the whole test, {} past start-up",
        show_duration(steady.start),
        show_duration(elapsed),
        share * 100.0,
        evidence.goodput,
        steady.goodput,
    );
    let mut finding = finding(evidence, Cause::StartUp, summary, longer(evidence, steady.start), Some(steady.goodput));
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

fn never_ended(evidence: &Evidence) -> Finding {
    let summary = format!(
        "goodput still grew when the test ended after {}, {:.0} round trips of {}",
        show_duration(evidence.elapsed),
        evidence.elapsed.as_secs_f64() / evidence.base_rtt.as_secs_f64().max(f64::MIN_POSITIVE),
        show_duration(evidence.base_rtt),
    );
    let mut finding =
        finding(evidence, Cause::StartUp, summary, longer(evidence, evidence.elapsed), evidence.possible());
    finding.evidence = BTreeMap::from([
        ("elapsed_seconds", json!(evidence.elapsed.as_secs_f64())),
        ("base_rtt_seconds", json!(evidence.base_rtt.as_secs_f64())),
    ]);
    finding
}

/// A test in which start-up is a tenth.
fn longer(evidence: &Evidence, start_up: Duration) -> Remedy {
    let seconds = (start_up.as_secs_f64() * 10.0).ceil().max(1.0);
    evidence.again(&format!("--time {seconds}"))
}

#[cfg(test)]
mod tests {
    use super::super::{Steady, diagnose};
    use super::*;
    use crate::diagnose::window::tests::half_window;
    use crate::units::{BitRate, Bytes};

    /// A path that was filled in the end, after `start` of 30 s.
    fn filled_after(start: u64, whole: u64) -> Evidence {
        let mut evidence = half_window();
        let goodput = BitRate(128_500_000);
        evidence.flows[0].goodput = goodput;
        evidence.flows[0].cwnd = Bytes(4_000_000);
        evidence.goodput = BitRate(whole);
        evidence.steady = Some(Steady { start: Duration::from_secs(start), end: evidence.elapsed, goodput });
        evidence
    }

    #[test]
    fn long_growth_is_a_finding_with_its_share() {
        let findings = diagnose(&filled_after(6, 104_000_000));
        assert_eq!(findings.iter().map(|f| f.cause).collect::<Vec<_>>(), [Cause::StartUp]);
        let expected = "6 s of 30 s (20 %) went into growth: 104 Mb/s over the whole test, 128.5 Mb/s past start-up";
        assert_eq!(findings[0].summary, expected);
        assert_eq!(findings[0].gain, Some(BitRate(24_500_000)));
        assert_eq!(findings[0].cure.to_string(), "lfn test far.example --time 60");
    }

    #[test]
    fn short_growth_is_none() {
        assert_eq!(diagnose(&filled_after(2, 120_000_000)), []);
        // Much time but nothing lost in it.
        assert_eq!(diagnose(&filled_after(10, 127_000_000)), []);
        // Thousands of round trips: a noisy host, not slow start.
        let mut evidence = filled_after(6, 104_000_000);
        evidence.base_rtt = Duration::from_micros(20);
        evidence.flows[0].rtt = evidence.base_rtt;
        assert_eq!(diagnose(&evidence), []);
    }

    #[test]
    fn a_warm_up_left_out_on_purpose_is_none() {
        let mut evidence = filled_after(6, 104_000_000);
        evidence.omitted = Some(Duration::from_secs(6));
        assert_eq!(diagnose(&evidence), []);
        // Nothing was left of the test.
        (evidence.steady, evidence.elapsed) = (None, Duration::from_secs(5));
        assert_eq!(start_up(&evidence), None);
    }

    #[test]
    fn a_test_that_only_grew_says_so() {
        let mut evidence = filled_after(6, 20_000_000);
        evidence.steady = None;
        evidence.flows[0].goodput = evidence.goodput;
        evidence.elapsed = Duration::from_secs(5);
        assert_eq!(diagnose(&evidence)[0].cause, Cause::StartUp);
        // Long enough, but unsteady for another reason.
        evidence.elapsed = Duration::from_secs(60);
        assert_eq!(diagnose(&evidence), []);
    }

    #[test]
    fn what_limits_the_steady_part_comes_before_start_up() {
        let mut evidence = half_window();
        evidence.goodput = BitRate(50_000_000);
        evidence.steady = evidence.steady.map(|steady| Steady { start: Duration::from_secs(7), ..steady });
        let causes: Vec<_> = diagnose(&evidence).iter().map(|finding| finding.cause).collect();
        assert_eq!(causes, [Cause::ReceiveWindow, Cause::StartUp]);
    }
}
