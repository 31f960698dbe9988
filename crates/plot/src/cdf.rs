//! Distributions: the share of values that are at most a value.

use crate::model::{Point, point};

/// Returns the steps of the distribution of values, in percent. Values that are no numbers are ignored.
pub fn cdf(values: &[f64]) -> Vec<Point> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let bins: Vec<(f64, u64)> = sorted.into_iter().map(|value| (value, 1)).collect();
    steps(&bins)
}

/// Returns the distribution of counted values, in percent, as a line through the upper bounds of the bins. The bins are in
/// the order of their bounds.
pub fn cdf_of_bins(bins: &[(f64, u64)]) -> Vec<Point> {
    let total: u64 = bins.iter().map(|(_, count)| *count).fold(0, u64::saturating_add);
    let mut below: u64 = 0;
    let share = |count: u64| 100.0 * count as f64 / total.max(1) as f64;
    let mut points = Vec::with_capacity(bins.len());
    for (bound, count) in bins {
        below = below.saturating_add(*count);
        points.push(point(*bound, share(below)));
    }
    points
}

fn steps(bins: &[(f64, u64)]) -> Vec<Point> {
    let mut steps = Vec::with_capacity(2 * bins.len());
    let mut before = 0.0;
    for upper in cdf_of_bins(bins) {
        steps.push(point(upper.x, before));
        steps.push(upper);
        before = upper.y;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_rises_to_all_values() {
        let steps = cdf(&[3.0, 1.0, f64::NAN, 1.0, 2.0]);
        assert_eq!(steps.first(), Some(&point(1.0, 0.0)));
        assert_eq!(steps.last(), Some(&point(3.0, 100.0)));
        assert!(steps.contains(&point(1.0, 50.0)) && steps.windows(2).all(|pair| pair[0].y <= pair[1].y));
        assert!(cdf(&[]).is_empty());
    }

    #[test]
    fn bins_add_up_to_all_values() {
        assert_eq!(cdf_of_bins(&[(1e-6, 3), (2e-6, 1)]), [point(1e-6, 75.0), point(2e-6, 100.0)]);
    }
}
