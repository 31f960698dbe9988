//! Rate limit of the server: the measured goodput is then the server's setting, not a property of the path.

use lfn_base::units::BitRate;
use serde_json::json;

use super::{Cause, Finding, Remedy, figures_map, finding};
use crate::evidence::figures::Figures;

/// Minimum goodput as a share of the limit. Retransmissions and the ends of a test take the rest.
pub(super) const MIN_SHARE_OF_LIMIT: f64 = 0.95;

/// Maximum limit as a share of the payload capacity, for a limit that is not reached.
pub(super) const MAX_SHARE_OF_CAPACITY: f64 = 0.9;
/// Maximum goodput as a share of such a limit: another cause keeps the goodput below it.
pub(super) const MAX_SHARE_OF_HIDDEN_LIMIT: f64 = 0.8;

/// Finds a goodput that is equal to the server's rate limit, or a limit below the capacity that another cause hides.
pub(super) fn server_limit(figures: &Figures) -> Option<Finding> {
    let (limit, goodput) = (figures.rate_limit?, figures.steady_goodput());
    // The pauses of BBR, which empties the path for a round trip every ten seconds, are not in the usual rate.
    let usual = figures.course.plateau().map_or(goodput, |(usual, _)| usual.max(goodput));
    let is_reached = usual.as_f64() >= MIN_SHARE_OF_LIMIT * limit.as_f64();
    let capacity = figures.path.map_or(0.0, |path| path.payload_capacity().as_f64());
    let is_hidden = usual.as_f64() <= MAX_SHARE_OF_HIDDEN_LIMIT * limit.as_f64()
        && limit.as_f64() <= MAX_SHARE_OF_CAPACITY * capacity
        && !figures.bidirectional;
    if !is_reached && !is_hidden {
        return None;
    }
    let effect = if is_reached { "limits the test" } else { "will limit the test after the other causes:" };
    let summary = format!("the server {effect} to {limit} (--max-rate, --client-rate); the goodput was {goodput}");
    let mut finding =
        finding(figures, Cause::ServerLimit, summary, raise_limits(figures, limit), figures.possible_goodput());
    if !is_reached {
        finding.gain = Some(BitRate(0));
        finding.predicted = Some(goodput);
    }
    finding.evidence =
        figures_map([("rate_limit_bits_per_second", json!(limit.0)), ("goodput_bits_per_second", json!(goodput.0))]);
    Some(finding)
}

/// Returns the command that starts the server with higher limits.
///
/// The new limit is the capacity of the path, or twice the old limit.
pub(super) fn raise_limits(figures: &Figures, limit: BitRate) -> Remedy {
    let capacity = figures.path.map(|path| path.capacity).filter(|capacity| *capacity > limit);
    server_limits(figures, capacity.unwrap_or(BitRate(limit.0.saturating_mul(2))))
}

/// Returns the command that starts the server with this limit. The limit may be the rate of a token instead, which has no
/// report of its own: a new token then has the new rate.
pub(super) fn server_limits(figures: &Figures, rate: BitRate) -> Remedy {
    let rate = rate.to_argument();
    let command = format!(
        "lfn serve --max-rate {rate} --client-rate {rate}   # if a token limits the rate: lfn token add NAME --rate {rate}"
    );
    Remedy { command, host: Some(figures.far.clone()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lfn_base::path::PathProfile;
    use lfn_base::units::BitRate;

    use super::*;
    use crate::evidence::figures::IntervalFigures;
    use crate::evidence::{Evidence, HostNames};
    use crate::measure::{EndReport, TestRequest};

    fn limited(goodput: u64, limit: Option<u64>) -> Figures {
        let report = |limit: Option<u64>| EndReport {
            bytes: goodput / 8,
            elapsed: Duration::from_secs(1),
            rate_limit: limit.map(BitRate),
            ..EndReport::default()
        };
        let rtt = Duration::from_millis(10);
        let mut evidence = Evidence::of_test(TestRequest::default(), rtt, report(None), report(limit));
        evidence.hosts = HostNames { near: "near".into(), far: "far.example".into() };
        Figures::of(&evidence)
    }

    #[test]
    fn only_a_goodput_at_the_limit_is_a_finding() {
        let found = server_limit(&limited(79_000_000, Some(80_000_000))).unwrap();
        assert_eq!(found.evidence["rate_limit_bits_per_second"], 80_000_000);
        assert!(found.summary.contains("80 Mb/s"), "{}", found.summary);
        let remedy = "lfn serve --max-rate 160mbit --client-rate 160mbit   # if a token limits the rate: \
                      lfn token add NAME --rate 160mbit   # on far.example";
        assert_eq!(found.remedy.to_string(), remedy);
        assert!(server_limit(&limited(60_000_000, Some(80_000_000))).is_none(), "the path is slower");
        let mut hidden = limited(5_000_000, Some(80_000_000));
        hidden.path = Some(PathProfile::new(BitRate(200_000_000), Duration::from_millis(10)));
        let found = server_limit(&hidden).unwrap();
        assert!(!found.is_limit() && found.summary.contains("after the other causes: to 80 Mb/s"), "{}", found.summary);
        assert!(server_limit(&limited(79_000_000, None)).is_none());
        // A pause of BBR.
        let mut paused = limited(71_000_000, Some(80_000_000));
        let interval = |goodput| IntervalFigures { goodput: BitRate(goodput), ..IntervalFigures::default() };
        paused.course.intervals = [40_000_000, 79_500_000, 79_600_000, 2_000_000, 79_500_000].map(interval).to_vec();
        paused.course.start_up = 1;
        assert!(server_limit(&paused).is_some());
    }
}
