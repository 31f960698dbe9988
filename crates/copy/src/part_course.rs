//! Bytes of the parts of a copy over time: of each rank, or of each stripe. For pictures.

use std::time::Duration;

use lfn_base::units::Bytes;

/// First distance of two samples, a little less than the interval of the figures of ranks.
const FIRST_DISTANCE: Duration = Duration::from_millis(900);

/// Maximum number of samples. With more, every second sample is removed and the distance doubles.
const MAX_SAMPLES: usize = 256;

/// The bytes of all parts at some times, the earliest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartCourse {
    samples: Vec<PartSample>,
    distance: Duration,
}

/// The bytes of all parts at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSample {
    /// Time since the start of the copy.
    pub at: Duration,
    /// Total bytes of each part.
    pub bytes: Vec<Bytes>,
}

impl Default for PartCourse {
    fn default() -> Self {
        PartCourse { samples: Vec::new(), distance: FIRST_DISTANCE }
    }
}

impl PartCourse {
    /// Adds a sample, unless the last one is near. A sample of an earlier time starts again.
    pub fn add(&mut self, at: Duration, bytes: impl FnOnce() -> Vec<Bytes>) {
        let last = self.samples.last().map_or(Duration::ZERO, |last| last.at);
        if at < last {
            *self = PartCourse::default();
        } else if at < last + self.distance {
            return;
        }
        if self.samples.len() >= MAX_SAMPLES {
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.distance *= 2;
        }
        self.samples.push(PartSample { at, bytes: bytes() });
    }

    /// Adds the figures at the end of the copy. They replace a sample of nearly the same time.
    pub fn finish(&mut self, at: Duration, bytes: Vec<Bytes>) {
        if self.samples.len() > 1 && self.samples.last().is_some_and(|last| at < last.at + self.distance / 2) {
            self.samples.pop();
        }
        self.samples.push(PartSample { at, bytes });
    }

    /// Returns the samples, the earliest first.
    pub fn samples(&self) -> &[PartSample] {
        &self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_copies_have_few_samples() {
        let mut course = PartCourse::default();
        for second in 0..10_000 {
            course.add(Duration::from_secs(second), || vec![Bytes(second), Bytes(2 * second)]);
        }
        course.finish(Duration::from_millis(9_999_500), vec![Bytes(10_000), Bytes(20_000)]);
        let samples = course.samples();
        assert!((MAX_SAMPLES / 2..=MAX_SAMPLES + 1).contains(&samples.len()), "{}", samples.len());
        assert_eq!(samples.last().unwrap().bytes, [Bytes(10_000), Bytes(20_000)]);
        assert!(samples.windows(2).all(|pair| pair[0].at < pair[1].at && pair[0].bytes[1] < pair[1].bytes[1]));
    }

    #[test]
    fn earlier_time_starts_again() {
        let mut course = PartCourse::default();
        for second in [1, 2, 3, 1, 2] {
            course.add(Duration::from_secs(second), || vec![Bytes(second)]);
        }
        let times: Vec<_> = course.samples().iter().map(|sample| sample.at.as_secs()).collect();
        assert_eq!(times, [1, 2]);
    }
}
