//! Pairs that are not measured, as lines of text.

use lfn_api::documents::UnplannedLoad;

/// Maximum listed pairs of one test; more pairs are one line.
const MAX_LISTED_PAIRS: usize = 4;

/// Returns one line for each pair without a measurement. A test with many of them has one line.
pub(super) fn unplanned_lines(pairs: &[UnplannedLoad]) -> Vec<String> {
    let of_pair = |pair: &UnplannedLoad| format!("{} {} to {}: {}", pair.test, pair.from, pair.to, pair.reason);
    let mut lines = Vec::new();
    for pairs in pairs.chunk_by(|one, other| one.test == other.test) {
        match pairs.first() {
            Some(first) if pairs.len() > MAX_LISTED_PAIRS => {
                let (test, count, others) = (&first.test, pairs.len(), pairs.len() - 1);
                let UnplannedLoad { from, to, reason, .. } = first;
                lines.push(format!("{test}: {count} pairs; {from} to {to}: {reason} (and {others} others)"));
            }
            _ => lines.extend(pairs.iter().map(of_pair)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_with_many_unmeasured_pairs_has_one_line() {
        let pair = |test: &str, to: usize| UnplannedLoad {
            test: test.to_owned(),
            from: "a".to_owned(),
            to: format!("h{to}"),
            reason: "neither host runs an agent".to_owned(),
        };
        let mut pairs: Vec<UnplannedLoad> = (0..9).map(|to| pair("path", to)).collect();
        pairs.push(pair("delay", 1));
        let expected = [
            "path: 9 pairs; a to h0: neither host runs an agent (and 8 others)",
            "delay a to h1: neither host runs an agent",
        ];
        assert_eq!(unplanned_lines(&pairs), expected);
    }
}
