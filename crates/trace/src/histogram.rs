//! Histogram of times with a relative error of at most 6 %.

/// Buckets per power of two.
const STEPS: u64 = 8;
/// Buckets up to 2^40 ns, about 18 minutes.
const BUCKETS: usize = 8 * 40;

/// Counts of times in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Box<[u16; BUCKETS]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: Box::new([0; BUCKETS]), total: 0 }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, nanos: u64) {
        let number = bucket(nanos);
        if self.counts[number] == u16::MAX {
            self.halve();
        }
        self.counts[number] += 1;
        self.total += 1;
    }

    /// Halves all counts, which keeps the shares of the quantiles.
    fn halve(&mut self) {
        for count in self.counts.iter_mut() {
            *count /= 2;
        }
        self.total = self.counts.iter().map(|count| u64::from(*count)).sum();
    }

    /// Returns the number of values from `from` to `to`, as exact as the buckets are.
    pub(crate) fn count_between(&self, from: u64, to: u64) -> u64 {
        let buckets = self.counts.iter().take(bucket(to) + 1).skip(bucket(from));
        buckets.map(|count| u64::from(*count)).sum()
    }

    /// Returns the value below which a share of the values is; 0 without values.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (number, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return middle(number);
            }
        }
        0
    }
}

fn bucket(nanos: u64) -> usize {
    let value = nanos.max(STEPS);
    let power = u64::from(63 - value.leading_zeros());
    let step = (value >> (power - 3)) & (STEPS - 1);
    ((power * STEPS + step) as usize).min(BUCKETS - 1)
}

fn middle(bucket: usize) -> u64 {
    let (power, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    let width = 1_u64 << power.saturating_sub(3);
    (1 << power) + step * width + width / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_have_a_small_error() {
        let mut histogram = Histogram::default();
        for value in 1..=10_000_u64 {
            histogram.add(value * 10_000);
        }
        for share in [0.01, 0.5, 0.95, 1.0] {
            let exact = 1e8 * share;
            let error = histogram.quantile(share) as f64 / exact - 1.0;
            assert!(error.abs() < 0.07, "{share}: {error}");
        }
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}
