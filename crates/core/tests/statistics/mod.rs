//! What is the same in every test of losses: runs and gaps of them, and what chance allows these to be.
//!
//! A module of its own because it judges the link twice: in virtual time here, and from outside, by the packets of a real
//! kernel, in the tests of the binary. Bounds are 99.99 % quantiles: what is right passes nearly always, for any seed.

#![allow(dead_code, reason = "every test binary compiles this and none uses all of it")]

/// Of the standard normal distribution at 99.99 %, one-sided.
pub const NORMAL: f64 = 3.719;

/// How long each run of lost, or of passed, packets is; the last, which may go on, is left out.
pub fn runs(fates: &[bool], of: bool) -> Vec<u64> {
    let mut runs = Vec::new();
    let mut length = 0;
    for fate in fates {
        if *fate == of {
            length += 1;
        } else if length > 0 {
            runs.push(length);
            length = 0;
        }
    }
    runs
}

/// How far each loss is from the one before it.
pub fn gaps(fates: &[bool]) -> Vec<u64> {
    let at: Vec<_> = fates.iter().zip(0..).filter_map(|(lost, at)| lost.then_some(at)).collect();
    at.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

pub fn mean(lengths: &[u64]) -> f64 {
    lengths.iter().sum::<u64>() as f64 / lengths.len() as f64
}

pub fn share(fates: &[bool]) -> f64 {
    fates.iter().filter(|lost| **lost).count() as f64 / fates.len() as f64
}

/// Lengths from 1 on, each as often as the last of it is one after which something happens with probability `p`.
pub fn assert_geometric(lengths: &[u64], p: f64, what: &str) {
    assert!(lengths.len() > 50, "{what}: {} are too few to tell", lengths.len());
    // The bins must not follow what was drawn: by the quantiles of the distribution itself.
    let mut ends: Vec<_> =
        (1..20).map(|part| ((1.0 - f64::from(part) / 20.0).ln() / (-p).ln_1p()).ceil().max(1.0) as u64).collect();
    ends.dedup();
    ends.push(u64::MAX);
    let longer = |end: u64| if end == u64::MAX { 0.0 } else { (1.0 - p).powf(end as f64) };
    let mut before = 1.0;
    let mut statistic = 0.0;
    for (end, seen) in ends.iter().zip(histogram(lengths, &ends)) {
        let expected = (before - longer(*end)) * lengths.len() as f64;
        before = longer(*end);
        statistic += (seen - expected).powi(2) / expected;
    }
    let limit = chi_square_limit((ends.len() - 1).max(1));
    assert!(statistic < limit, "{what}: chi-square {statistic:.1} of {} bins is above {limit:.1}", ends.len());
}

/// As many of `of` as a binomial distribution has.
pub fn assert_binomial(seen: f64, of: f64, p: f64, what: &str) {
    let deviation = 1.05 * NORMAL * (of * p * (1.0 - p)).sqrt() + 0.5;
    assert!((seen - of * p).abs() < deviation, "{what}: {seen} of {of} at {p}");
}

/// How many of `lengths` fall into each bin.
pub fn histogram(lengths: &[u64], ends: &[u64]) -> Vec<f64> {
    let mut counts = vec![0.0; ends.len()];
    for length in lengths {
        counts[ends.partition_point(|end| end < length)] += 1.0;
    }
    counts
}

/// What chi-square stays below 9,999 times of 10,000 (Wilson and Hilferty, 1931).
pub fn chi_square_limit(freedom: usize) -> f64 {
    let k = freedom as f64;
    k * (1.0 - 2.0 / (9.0 * k) + NORMAL * (2.0 / (9.0 * k)).sqrt()).powi(3)
}
