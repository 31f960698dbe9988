//! Statistics of a test's intervals: medians, and where start-up ends and the steady part begins.

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

#[cfg(test)]
mod tests {
    use super::*;

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
