//! Statistics of the intervals of a test: medians, the end of start-up, and the accuracy of a mean rate.
//!
//! Consecutive samples of a rate depend on each other, so a plain standard error of their mean is far too small.
//! [`BatchMeans`] groups the samples into blocks several times as long as their correlation (Geyer's initial positive
//! sequence). The means of these blocks are nearly independent. The remaining dependence between neighbouring blocks
//! widens the error (as in Skart, Tafazzoli et al. 2008). The error is never smaller than the autocorrelation of the
//! samples requires. Every 95 % interval in lfn is this one.

/// Returns the middle value, or the mean of the two middle values; `None` for an empty slice.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Returns the nearest-rank percentile of sorted values: `per_cent` per cent of the values are no larger. `None` for an
/// empty slice.
pub fn nearest_rank<T: Copy>(sorted: &[T], per_cent: usize) -> Option<T> {
    sorted.get((sorted.len() * per_cent).div_ceil(100).max(1) - 1).copied()
}

/// Minimum share of the later median that a rate needs to be steady.
const STEADY_SHARE: f64 = 0.9;

/// Returns the index of the first rate after start-up: at least 90 % of the median of all later rates. `rates` has one
/// rate per interval.
///
/// The last interval has no later interval for comparison, so a run that still grows at its end has no steady part:
/// `None`. A rate that falls after the start (a queue that filled, a loss) counts as steady from there on.
pub fn find_steady_start(rates: &[f64]) -> Option<usize> {
    (0..rates.len())
        .find(|&i| median(&rates[i + 1..]).is_some_and(|later| later > 0.0 && rates[i] >= STEADY_SHARE * later))
}

/// An amount, and the seconds in which it was received.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RateSample {
    pub amount: f64,
    pub seconds: f64,
}

/// Minimum number of blocks: fewer do not show how much blocks differ.
pub const MIN_BLOCKS: usize = 8;
/// Maximum number of blocks: more blocks add no accuracy, and longer blocks are closer to independent.
const MAX_BLOCKS: usize = 30;
/// Length of a block as a multiple of the correlation time.
const BLOCK_CORRELATION_TIMES: f64 = 4.0;

/// The mean of a rate, and its accuracy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchMeans {
    /// Mean of the samples that fill whole blocks.
    pub mean: f64,
    pub error: f64,
    pub blocks: usize,
    /// Samples in each block.
    pub block_length: usize,
    /// Integrated autocorrelation time, in samples.
    pub correlation: f64,
}

impl BatchMeans {
    /// Computes the mean of samples of about the same length; `None` for too few samples. Samples that fill no whole
    /// block are removed from the front, where start-up is.
    pub fn from_samples(slices: &[RateSample]) -> Option<BatchMeans> {
        let rates: Vec<f64> = slices.iter().map(|slice| rate(std::slice::from_ref(slice))).collect();
        if rates.len() < MIN_BLOCKS {
            return None;
        }
        let correlation = autocorrelation_time(&rates);
        let length = choose_block_length(rates.len(), correlation)?;
        let blocks = slices.len() / length;
        let used = &slices[slices.len() - blocks * length..];
        let means: Vec<f64> = used.chunks_exact(length).map(rate).collect();
        let block_variance = variance(&means) * variance_inflation(&means) / blocks as f64;
        let sample_variance = variance(&rates) * correlation / rates.len() as f64;
        Some(BatchMeans {
            mean: rate(used),
            error: block_variance.max(sample_variance).sqrt(),
            blocks,
            block_length: length,
            correlation,
        })
    }

    /// Returns half the width of the 95 % interval.
    pub fn half_width(&self) -> f64 {
        student_quantile(self.degrees_of_freedom()) * self.error
    }

    /// Returns whether the blocks are long enough to be independent. The blocks of a short run are not.
    pub fn has_long_blocks(&self) -> bool {
        self.block_length as f64 >= BLOCK_CORRELATION_TIMES * self.correlation
    }

    /// Returns the degrees of freedom of the mean.
    pub fn degrees_of_freedom(&self) -> f64 {
        self.blocks.saturating_sub(1) as f64
    }
}

/// Returns the number of samples per block. A short run uses shorter blocks than a long one, and their dependence
/// widens the error. A block is never shorter than half the correlation time: `None` if the run is too short for it.
fn choose_block_length(slices: usize, correlation: f64) -> Option<usize> {
    let long = ((BLOCK_CORRELATION_TIMES * correlation).ceil() as usize).max(slices / MAX_BLOCKS).max(1);
    let short = slices / MIN_BLOCKS;
    if long <= short {
        return Some(long);
    }
    (short > 0 && 2.0 * short as f64 >= correlation).then_some(short)
}

/// Returns half the width of the 95 % interval of the difference of two means (Welch). Each mean has a standard error
/// and degrees of freedom.
pub fn welch_half_width(errors: [f64; 2], freedoms: [f64; 2]) -> f64 {
    let (first, second) = (errors[0] * errors[0], errors[1] * errors[1]);
    let freedom = (first + second).powi(2) / (first * first / freedoms[0] + second * second / freedoms[1]);
    // Runs without any variance have no degrees of freedom, and no uncertainty either.
    if freedom.is_finite() { student_quantile(freedom) * (first + second).sqrt() } else { 0.0 }
}

/// Returns the 97.5 % quantile of Student's distribution. Expansion of Cornish and Fisher in 1/ν (Abramowitz and Stegun
/// 26.7.5): error below 0.5 % from ν = 4 on, below 0.1 % from ν = 9 on.
pub fn student_quantile(freedom: f64) -> f64 {
    const Z: f64 = 1.959_964;
    let (z3, z5, z7) = (Z.powi(3), Z.powi(5), Z.powi(7));
    Z + (z3 + Z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / (384.0 * freedom.powi(3))
}

/// Returns the integrated autocorrelation time in samples, at least 1. It sums neighbouring pairs of autocorrelations
/// until a pair is not positive (Geyer 1992), or until a quarter of the series is used.
fn autocorrelation_time(rates: &[f64]) -> f64 {
    let mean = average(rates);
    let at = |lag: usize| -> f64 { rates.iter().zip(&rates[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum() };
    let total = at(0);
    if total <= 0.0 {
        return 1.0;
    }
    let pairs = (0..rates.len() / 4).step_by(2).map(|lag| (at(lag) + at(lag + 1)) / total);
    (2.0 * pairs.take_while(|&pair| pair > 0.0).sum::<f64>() - 1.0).max(1.0)
}

/// Returns the factor by which dependent neighbouring means understate the variance of their mean.
fn variance_inflation(means: &[f64]) -> f64 {
    let mean = average(means);
    let total: f64 = means.iter().map(|value| (value - mean).powi(2)).sum();
    let next: f64 = means.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    if total <= 0.0 {
        return 1.0;
    }
    let r = (next / total).clamp(0.0, 0.8);
    (1.0 + r) / (1.0 - r)
}

fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn variance(values: &[f64]) -> f64 {
    let mean = average(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
}

fn rate(slices: &[RateSample]) -> f64 {
    let amount: f64 = slices.iter().map(|slice| slice.amount).sum();
    amount / slices.iter().map(|slice| slice.seconds).sum::<f64>().max(f64::MIN_POSITIVE)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn student_quantiles_match_the_tables() {
        for (freedom, t, within) in
            [(4.0, 2.776, 5e-3), (7.0, 2.365, 5e-3), (9.0, 2.2622, 1e-3), (29.0, 2.0452, 1e-3), (1e9, 1.960, 1e-3)]
        {
            assert!((student_quantile(freedom) / t - 1.0).abs() < within, "{freedom}: {}", student_quantile(freedom));
        }
    }

    /// Generates uniform values from -0.5 to 0.5 with a 48-bit generator.
    pub(crate) fn noise(count: usize, seed: u64) -> Vec<f64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(0x5_deec_e66d).wrapping_add(11) & ((1 << 48) - 1);
            (state >> 16) as f64 / f64::from(u32::MAX) - 0.5
        };
        (0..count).map(|_| next()).collect()
    }

    fn means(rates: &[f64]) -> Option<BatchMeans> {
        BatchMeans::from_samples(&rates.iter().map(|&amount| RateSample { amount, seconds: 1.0 }).collect::<Vec<_>>())
    }

    #[test]
    fn mean_needs_eight_blocks() {
        assert_eq!(means(&[1.0; 7]), None);
        let flat = means(&[5.0; 8]).unwrap();
        assert_eq!((flat.mean, flat.error, flat.blocks, flat.block_length), (5.0, 0.0, 8, 1));
        let long = means(&[5.0; 155]).unwrap();
        assert_eq!((long.blocks, long.block_length, long.has_long_blocks()), (31, 5, true));
        assert!(!flat.has_long_blocks());
    }

    /// Many samples of a slowly varying rate do not make its mean accurate.
    #[test]
    fn slow_variation_widens_the_error() {
        let wandering: Vec<f64> = noise(400, 3)
            .iter()
            .scan(0.0, |at, step| {
                *at = 0.9 * *at + step;
                Some(100.0 + *at)
            })
            .collect();
        let mut shuffled = wandering.clone();
        shuffled.sort_by_key(|value| ((value * 1e6) as u64).wrapping_mul(0x9e37_79b9) % 1009);
        let (slow, fast) = (means(&wandering).unwrap(), means(&shuffled).unwrap());
        assert!(slow.error > 2.0 * fast.error && slow.block_length > fast.block_length, "{slow:?} {fast:?}");
    }

    /// Ten samples, as in a test of ten seconds. In 95 % of a thousand runs the interval contains the true mean, with
    /// an accuracy of 1.4 points.
    #[test]
    fn interval_of_a_short_run_contains_the_mean() {
        let covered = (0..1000).filter(|seed| {
            // A generator's first values are close to its seed.
            let values = noise(20, seed * 7919 + 12_345);
            means(&values[10..]).is_some_and(|found| found.mean.abs() <= found.half_width())
        });
        let share = covered.count() as f64 / 1000.0;
        assert!(share >= 0.9, "{share}");
    }

    #[test]
    fn welch_interval_of_two_means() {
        // With equal errors and equal degrees of freedom, the degrees of freedom add up: 2.101 is Student's quantile
        // for 18.
        assert!((welch_half_width([3.0; 2], [9.0; 2]) / (2.101 * 18f64.sqrt()) - 1.0).abs() < 1e-3);
        assert_eq!(welch_half_width([0.0; 2], [9.0; 2]), 0.0);
    }

    #[test]
    fn median_ignores_the_order() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }

    #[test]
    fn nearest_rank_is_one_of_the_values() {
        let values: Vec<u32> = (1..=20).collect();
        let at = |per_cent| nearest_rank(&values, per_cent);
        assert_eq!([at(0), at(50), at(95), at(96), at(100)], [Some(1), Some(10), Some(19), Some(20), Some(20)]);
        assert_eq!((nearest_rank(&[7], 99), nearest_rank::<u32>(&[], 50)), (Some(7), None));
    }

    #[test]
    fn start_up_ends_at_the_steady_rate() {
        let slow_start = [1.0, 2.0, 4.0, 8.0, 16.0, 31.0, 32.0, 31.5, 32.0];
        assert_eq!(find_steady_start(&slow_start), Some(5));
        assert_eq!(find_steady_start(&[10.0, 10.0, 10.0]), Some(0));
        // One slow interval later does not change the result.
        assert_eq!(find_steady_start(&[1.0, 10.0, 10.0, 2.0, 10.0, 10.0]), Some(1));
        // The rate falls from a burst to its true value.
        assert_eq!(find_steady_start(&[50.0, 10.0, 10.0]), Some(0));
    }

    #[test]
    fn a_run_that_still_grows_has_no_steady_part() {
        assert_eq!(find_steady_start(&[1.0, 2.0, 4.0, 8.0]), None);
        assert_eq!(find_steady_start(&[0.0, 0.0, 0.0]), None);
        assert_eq!(find_steady_start(&[5.0]), None);
        assert_eq!(find_steady_start(&[]), None);
    }
}
