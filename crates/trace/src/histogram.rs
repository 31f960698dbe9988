//! Histogram of times with a relative error of at most 6 %.

/// Buckets per power of two.
const STEPS: u64 = 8;
/// Buckets up to 2^40 ns, about 18 minutes.
const BUCKETS: usize = 8 * 40;

/// Counts of times in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    /// Bit n is set if there are counts of times from 2^n to 2^(n+1).
    used: u64,
    /// Counts of these powers of two, in order.
    octaves: Vec<[u16; STEPS as usize]>,
    total: u64,
}

impl Histogram {
    pub(crate) fn add(&mut self, nanos: u64) {
        let number = bucket(nanos);
        let (power, step) = (number / STEPS as usize, number % STEPS as usize);
        let index = (self.used & ((1 << power) - 1)).count_ones() as usize;
        if self.used & (1 << power) == 0 {
            self.used |= 1 << power;
            self.octaves.reserve_exact(1);
            self.octaves.insert(index, [0; STEPS as usize]);
        }
        if self.octaves[index][step] == u16::MAX {
            self.halve();
        }
        self.octaves[index][step] += 1;
        self.total += 1;
    }

    /// Returns the bytes of memory that the lists take.
    #[cfg(test)]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.octaves.capacity() * size_of::<[u16; STEPS as usize]>()
    }

    /// Halves all counts, which keeps the shares of the quantiles.
    fn halve(&mut self) {
        for count in self.octaves.iter_mut().flatten() {
            *count /= 2;
        }
        self.total = self.octaves.iter().flatten().map(|count| u64::from(*count)).sum();
    }

    /// Returns the buckets in order with their counts.
    fn buckets(&self) -> impl Iterator<Item = (usize, u64)> {
        let powers = (0..64).filter(|power| self.used & (1_u64 << power) != 0);
        powers.zip(&self.octaves).flat_map(|(power, octave)| {
            let first = power * STEPS as usize;
            octave.iter().enumerate().map(move |(step, count)| (first + step, u64::from(*count)))
        })
    }

    /// Returns the number of values from `from` to `to`, as exact as the buckets are.
    pub(crate) fn count_between(&self, from: u64, to: u64) -> u64 {
        let range = bucket(from)..=bucket(to);
        self.buckets().filter(|(number, _)| range.contains(number)).map(|(_, count)| count).sum()
    }

    /// Returns the value below which a share of the values is; 0 without values.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (number, count) in self.buckets() {
            seen += count;
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
