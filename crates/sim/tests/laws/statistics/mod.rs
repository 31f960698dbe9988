//! Shared parts of all loss tests: runs and gaps of losses, and their statistical bounds.
//!
//! This is a separate module because two test suites use it: here in virtual time, and in the tests of the binary with
//! the packets of a real kernel. Bounds are 99.99 % quantiles, so a correct implementation almost always passes, with
//! any seed.

/// One-sided 99.99 % quantile of the standard normal distribution.
pub const NORMAL: f64 = 3.719;

/// Returns the lengths of the runs of lost, or of passed, packets. The last run is skipped, because it may be
/// incomplete.
pub fn runs(outcomes: &[bool], of: bool) -> Vec<u64> {
    let mut runs = Vec::new();
    let mut length = 0;
    for outcome in outcomes {
        if *outcome == of {
            length += 1;
        } else if length > 0 {
            runs.push(length);
            length = 0;
        }
    }
    runs
}

/// Returns the distance of each loss from the previous one.
pub fn gaps(outcomes: &[bool]) -> Vec<u64> {
    let at: Vec<_> = outcomes.iter().zip(0..).filter_map(|(lost, at)| lost.then_some(at)).collect();
    at.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

pub fn mean(lengths: &[u64]) -> f64 {
    lengths.iter().sum::<u64>() as f64 / lengths.len() as f64
}

pub fn share(outcomes: &[bool]) -> f64 {
    outcomes.iter().filter(|lost| **lost).count() as f64 / outcomes.len() as f64
}

/// Checks that lengths from 1 on have a geometric distribution: the run ends after each element with probability `p`.
pub fn assert_geometric(lengths: &[u64], p: f64, what: &str) {
    assert!(lengths.len() > 50, "{what}: {} lengths are too few for a test", lengths.len());
    // The bins must not depend on the drawn values, so they are quantiles of the distribution.
    let mut ends: Vec<_> =
        (1..20).map(|part| ((1.0 - f64::from(part) / 20.0).ln() / (-p).ln_1p()).ceil().max(1.0) as u64).collect();
    ends.dedup();
    ends.push(u64::MAX);
    let longer = |end: u64| if end == u64::MAX { 0.0 } else { (1.0 - p).powf(end as f64) };
    let mut before = 1.0;
    let mut statistic = 0.0;
    for (end, observed) in ends.iter().zip(histogram(lengths, &ends)) {
        let expected = (before - longer(*end)) * lengths.len() as f64;
        before = longer(*end);
        statistic += (observed - expected).powi(2) / expected;
    }
    let limit = chi_square_limit((ends.len() - 1).max(1));
    assert!(statistic < limit, "{what}: chi-square {statistic:.1} of {} bins is above {limit:.1}", ends.len());
}

/// Checks that `observed` of `of` events match a binomial distribution.
pub fn assert_binomial(observed: f64, of: f64, p: f64, what: &str) {
    let deviation = 1.05 * NORMAL * (of * p * (1.0 - p)).sqrt() + 0.5;
    assert!((observed - of * p).abs() < deviation, "{what}: {observed} of {of} at {p}");
}

/// Returns the number of lengths in each bin.
pub fn histogram(lengths: &[u64], ends: &[u64]) -> Vec<f64> {
    let mut counts = vec![0.0; ends.len()];
    for length in lengths {
        counts[ends.partition_point(|end| end < length)] += 1.0;
    }
    counts
}

/// Returns the 99.99 % quantile of the chi-square distribution (Wilson and Hilferty, 1931).
pub fn chi_square_limit(freedom: usize) -> f64 {
    let k = freedom as f64;
    k * (1.0 - 2.0 / (9.0 * k) + NORMAL * (2.0 / (9.0 * k)).sqrt()).powi(3)
}
