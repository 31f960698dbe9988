//! A server that holds its clients to a rate: what was measured is then its setting and says nothing of the path.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Cause, Remedy, Evidence, Finding, finding};

/// A goodput this close to what is allowed is held there; retransmissions and the ends of a test cost some of it.
const NEAR: f64 = 0.95;

/// The goodput is what the server allows.
pub(super) fn server(evidence: &Evidence) -> Option<Finding> {
    let (limit, goodput) = (evidence.rate_limit?, evidence.judged_goodput());
    if goodput.as_f64() < NEAR * limit.as_f64() {
        return None;
    }
    let summary = format!("the server holds the test to {limit} (--max-rate, --client-rate), and it got {goodput}");
    let mut finding = finding(evidence, Cause::ServerLimit, summary, higher(evidence), evidence.possible());
    finding.evidence =
        BTreeMap::from([("rate_limit_bits_per_second", json!(limit.0)), ("goodput_bits_per_second", json!(goodput.0))]);
    Some(finding)
}

/// The server with higher limits, for whoever runs it.
pub(super) fn higher(evidence: &Evidence) -> Remedy {
    Remedy { command: "lfn serve --max-rate RATE --client-rate RATE".into(), host: Some(evidence.far.clone()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::units::BitRate;
    use crate::wire::test::EndReport;

    fn evidence(goodput: u64, limit: Option<u64>) -> Evidence {
        let report = |limit: Option<u64>| EndReport {
            bytes: goodput / 8,
            elapsed: Duration::from_secs(1),
            rate_limit: limit.map(BitRate),
            ..EndReport::default()
        };
        let rtt = Duration::from_millis(10);
        Evidence::new(None, rtt, None, ("near", &report(None)), ("far", &report(limit)), "far.example")
    }

    #[test]
    fn only_a_goodput_at_the_limit_is_the_servers_doing() {
        let found = server(&evidence(79_000_000, Some(80_000_000))).unwrap();
        assert_eq!(found.evidence["rate_limit_bits_per_second"], 80_000_000);
        assert!(found.summary.contains("80 Mb/s"), "{}", found.summary);
        assert_eq!(found.cure.to_string(), "lfn serve --max-rate RATE --client-rate RATE   (on far.example)");
        assert!(server(&evidence(60_000_000, Some(80_000_000))).is_none(), "the path is slower");
        assert!(server(&evidence(79_000_000, None)).is_none());
    }
}
