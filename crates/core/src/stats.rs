//! Statistics of a test's intervals: medians, where start-up ends and the steady part begins, and how well the mean of
//! a rate is known.
//!
//! Slices of a rate follow each other, so a plain standard error of their mean would be far too small. [`BatchMeans`]
//! lays them into blocks several times as long as what is left of correlation (Geyer's initial positive sequence), whose
//! means are close to independent; what dependence remains between neighbouring blocks widens the error (as in Skart,
//! Tafazzoli et al. 2008), and it is never less than the autocorrelations of the slices themselves make it. Everything
//! that tells a 95 % interval tells this one.

/// The middle value, the mean of the two middle ones if there is no single one; `None` of nothing.
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

/// The value that so many of a hundred are no larger than (nearest rank), of values in their order; `None` of nothing.
pub fn nearest_rank<T: Copy>(sorted: &[T], per_cent: usize) -> Option<T> {
    sorted.get((sorted.len() * per_cent).div_ceil(100).max(1) - 1).copied()
}

/// How close to the later median a rate must come for start-up to be over.
const STEADY_SHARE: f64 = 0.9;

/// The first of these rates, one an interval, that is past start-up: at least 90 % of the median of all later ones.
///
/// The last interval has no later one to be compared with, so a run that still grows at its end has no steady part:
/// `None`. A rate that falls after its start (a queue that filled, a loss) counts as steady from there on.
pub fn steady_from(rates: &[f64]) -> Option<usize> {
    (0..rates.len())
        .find(|&i| median(&rates[i + 1..]).is_some_and(|later| later > 0.0 && rates[i] >= STEADY_SHARE * later))
}

/// An amount, and the time in which it came.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Slice {
    /// How much.
    pub amount: f64,
    /// Over so many seconds.
    pub seconds: f64,
}

/// Fewer blocks tell nothing of how far apart they lie.
pub const FEWEST_BLOCKS: usize = 8;
/// More blocks gain nothing; longer ones are surer to be independent.
const MOST_BLOCKS: usize = 30;
/// Blocks are this many times as long as the correlation.
const CORRELATIONS: f64 = 4.0;

/// The mean of a rate, and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchMeans {
    /// Of the slices that make whole blocks.
    pub mean: f64,
    /// Its standard error.
    pub error: f64,
    /// How many blocks there are.
    pub blocks: usize,
    /// Slices of each.
    pub length: usize,
    /// How many slices what happens goes on to show: the integrated autocorrelation time.
    pub correlation: f64,
}

impl BatchMeans {
    /// Of slices about as long as each other; `None` of too few of them. What does not make a whole block is taken off
    /// the front, where start-up was.
    pub fn of(slices: &[Slice]) -> Option<BatchMeans> {
        let rates: Vec<f64> = slices.iter().map(|slice| rate(std::slice::from_ref(slice))).collect();
        if rates.len() < FEWEST_BLOCKS {
            return None;
        }
        let correlation = correlation(&rates);
        let length = length(rates.len(), correlation)?;
        let blocks = slices.len() / length;
        let judged = &slices[slices.len() - blocks * length..];
        let means: Vec<f64> = judged.chunks_exact(length).map(rate).collect();
        let of_blocks = variance(&means) * dependence(&means) / blocks as f64;
        let of_slices = variance(&rates) * correlation / rates.len() as f64;
        Some(BatchMeans { mean: rate(judged), error: of_blocks.max(of_slices).sqrt(), blocks, length, correlation })
    }

    /// Half the 95 % interval.
    pub fn half(&self) -> f64 {
        student(self.freedom()) * self.error
    }

    /// Whether its blocks are as long as independence wants them; those of a short run are not.
    pub fn is_of_long_blocks(&self) -> bool {
        self.length as f64 >= CORRELATIONS * self.correlation
    }

    /// Degrees of freedom.
    pub fn freedom(&self) -> f64 {
        self.blocks.saturating_sub(1) as f64
    }
}

/// How many of so many slices make a block. A short run has to do with shorter blocks than a long one, whose dependence
/// widens the error, but not with such as are shorter than half the correlation.
fn length(slices: usize, correlation: f64) -> Option<usize> {
    let long = ((CORRELATIONS * correlation).ceil() as usize).max(slices / MOST_BLOCKS).max(1);
    let short = slices / FEWEST_BLOCKS;
    if long <= short {
        return Some(long);
    }
    (short > 0 && 2.0 * short as f64 >= correlation).then_some(short)
}

/// Half the 95 % interval of the difference of two means, each by its standard error and degrees of freedom (Welch).
pub fn apart(a: (f64, f64), b: (f64, f64)) -> f64 {
    let (first, second) = (a.0 * a.0, b.0 * b.0);
    let freedom = (first + second).powi(2) / (first * first / a.1 + second * second / b.1);
    // Of runs without any variance there is none, and no doubt either.
    if freedom.is_finite() { student(freedom) * (first + second).sqrt() } else { 0.0 }
}

/// The 97.5 % point of Student's distribution: expansion of Cornish and Fisher in 1/ν (Abramowitz and Stegun 26.7.5),
/// within 0.5 % from ν = 4 on, 0.1 % from 9.
pub fn student(freedom: f64) -> f64 {
    const Z: f64 = 1.959_964;
    let (z3, z5, z7) = (Z.powi(3), Z.powi(5), Z.powi(7));
    Z + (z3 + Z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / (384.0 * freedom.powi(3))
}

/// The integrated autocorrelation time in slices, at least 1: sums of neighbouring pairs of autocorrelations until one
/// is not positive (Geyer 1992), or a quarter of the series is used up.
fn correlation(rates: &[f64]) -> f64 {
    let mean = average(rates);
    let at = |lag: usize| -> f64 { rates.iter().zip(&rates[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum() };
    let whole = at(0);
    if whole <= 0.0 {
        return 1.0;
    }
    let pairs = (0..rates.len() / 4).step_by(2).map(|lag| (at(lag) + at(lag + 1)) / whole);
    (2.0 * pairs.take_while(|&pair| pair > 0.0).sum::<f64>() - 1.0).max(1.0)
}

/// By how much neighbouring means that still depend on each other understate the variance of their mean.
fn dependence(means: &[f64]) -> f64 {
    let mean = average(means);
    let whole: f64 = means.iter().map(|value| (value - mean).powi(2)).sum();
    let next: f64 = means.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    if whole <= 0.0 {
        return 1.0;
    }
    let r = (next / whole).clamp(0.0, 0.8);
    (1.0 + r) / (1.0 - r)
}

fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn variance(values: &[f64]) -> f64 {
    let mean = average(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
}

fn rate(slices: &[Slice]) -> f64 {
    let amount: f64 = slices.iter().map(|slice| slice.amount).sum();
    amount / slices.iter().map(|slice| slice.seconds).sum::<f64>().max(f64::MIN_POSITIVE)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (freedom, t, within) in
            [(4.0, 2.776, 5e-3), (7.0, 2.365, 5e-3), (9.0, 2.2622, 1e-3), (29.0, 2.0452, 1e-3), (1e9, 1.960, 1e-3)]
        {
            assert!((student(freedom) / t - 1.0).abs() < within, "{freedom}: {}", student(freedom));
        }
    }

    /// What a generator of 48 bits makes of a seed, from -0.5 to 0.5.
    pub(crate) fn noise(count: usize, seed: u64) -> Vec<f64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(0x5_deec_e66d).wrapping_add(11) & ((1 << 48) - 1);
            (state >> 16) as f64 / f64::from(u32::MAX) - 0.5
        };
        (0..count).map(|_| next()).collect()
    }

    fn means(rates: &[f64]) -> Option<BatchMeans> {
        BatchMeans::of(&rates.iter().map(|&amount| Slice { amount, seconds: 1.0 }).collect::<Vec<_>>())
    }

    #[test]
    fn a_mean_needs_eight_blocks_and_knows_what_does_not_move() {
        assert_eq!(means(&[1.0; 7]), None);
        let flat = means(&[5.0; 8]).unwrap();
        assert_eq!((flat.mean, flat.error, flat.blocks, flat.length), (5.0, 0.0, 8, 1));
        let long = means(&[5.0; 155]).unwrap();
        assert_eq!((long.blocks, long.length, long.is_of_long_blocks()), (31, 5, true));
        assert!(!flat.is_of_long_blocks());
    }

    /// A rate that wanders is not made certain by many slices of it.
    #[test]
    fn what_wanders_slowly_is_known_less_well_than_noise() {
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
        assert!(slow.error > 2.0 * fast.error && slow.length > fast.length, "{slow:?} {fast:?}");
    }

    /// Ten slices, as a test of ten seconds has: of a thousand such runs 95 % hold the truth, exact to 1.4 points.
    #[test]
    fn the_interval_of_a_short_run_holds_the_truth() {
        let held = (0..1000).filter(|seed| {
            // A generator's first values are close to its seed.
            let values = noise(20, seed * 7919 + 12_345);
            means(&values[10..]).is_some_and(|found| found.mean.abs() <= found.half())
        });
        let share = held.count() as f64 / 1000.0;
        assert!(share >= 0.9, "{share}");
    }

    #[test]
    fn two_means_are_apart_by_welch() {
        // Of equal errors and freedoms the freedoms add up: 2.101 is Student's of 18.
        assert!((apart((3.0, 9.0), (3.0, 9.0)) / (2.101 * 18f64.sqrt()) - 1.0).abs() < 1e-3);
        assert_eq!(apart((0.0, 9.0), (0.0, 9.0)), 0.0);
    }

    #[test]
    fn the_median_does_not_mind_the_order() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }

    #[test]
    fn the_nearest_rank_is_a_value_that_was_there() {
        let values: Vec<u32> = (1..=20).collect();
        let at = |per_cent| nearest_rank(&values, per_cent);
        assert_eq!([at(0), at(50), at(95), at(96), at(100)], [Some(1), Some(10), Some(19), Some(20), Some(20)]);
        assert_eq!((nearest_rank(&[7], 99), nearest_rank::<u32>(&[], 50)), (Some(7), None));
    }

    #[test]
    fn start_up_ends_where_the_rate_has_arrived() {
        let slow_start = [1.0, 2.0, 4.0, 8.0, 16.0, 31.0, 32.0, 31.5, 32.0];
        assert_eq!(steady_from(&slow_start), Some(5));
        assert_eq!(steady_from(&[10.0, 10.0, 10.0]), Some(0));
        // One slow interval later on does not move it.
        assert_eq!(steady_from(&[1.0, 10.0, 10.0, 2.0, 10.0, 10.0]), Some(1));
        // Falls from a burst to the true rate.
        assert_eq!(steady_from(&[50.0, 10.0, 10.0]), Some(0));
    }

    #[test]
    fn a_run_that_still_grows_has_no_steady_part() {
        assert_eq!(steady_from(&[1.0, 2.0, 4.0, 8.0]), None);
        assert_eq!(steady_from(&[0.0, 0.0, 0.0]), None);
        assert_eq!(steady_from(&[5.0]), None);
        assert_eq!(steady_from(&[]), None);
    }
}
