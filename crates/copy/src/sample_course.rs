//! Samples of a copy at equal distances, for the diagnosis of the finished copy.

use std::time::Duration;

use lfn_results::evidence::ProgressSample;

/// First distance of two samples, a little less than the interval of a peer's reports.
const FIRST_DISTANCE: Duration = Duration::from_millis(900);
/// Maximum samples. With more, every second sample is removed and the distance doubles.
const MAX_SAMPLES: usize = 256;

/// The samples of one session, the earliest first.
#[derive(Debug)]
pub(super) struct SampleCourse {
    samples: Vec<ProgressSample>,
    distance: Duration,
}

impl Default for SampleCourse {
    fn default() -> Self {
        SampleCourse { samples: Vec::new(), distance: FIRST_DISTANCE }
    }
}

impl SampleCourse {
    /// Adds a sample, unless the last one is near.
    pub(super) fn add(&mut self, sample: &ProgressSample) {
        let last = self.samples.last().map_or(Duration::ZERO, |last| last.at);
        if sample.at < last.saturating_add(self.distance) {
            return;
        }
        if self.samples.len() >= MAX_SAMPLES {
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.distance *= 2;
            // The last sample stays, and this one may be too near for the new distance.
            if sample.at < last.saturating_add(self.distance) {
                return;
            }
        }
        self.samples.push(*sample);
    }

    /// Returns the samples, with the last sample of the copy.
    pub(super) fn finish(mut self, last: &ProgressSample) -> Vec<ProgressSample> {
        if self.samples.last().is_none_or(|before| before.at < last.at) {
            self.samples.push(*last);
        }
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_copies_have_few_samples_at_equal_distances() {
        let mut course = SampleCourse::default();
        for tick in 1..=50_000 {
            course.add(&ProgressSample { at: Duration::from_millis(200 * tick), ..ProgressSample::default() });
        }
        let last = ProgressSample { at: Duration::from_secs(10_001), ..ProgressSample::default() };
        let samples = course.finish(&last);
        assert!((MAX_SAMPLES / 2..=MAX_SAMPLES + 1).contains(&samples.len()), "{}", samples.len());
        let distances: Vec<Duration> = samples.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
        let (inner, end) = distances.split_at(distances.len() - 1);
        assert!(inner.iter().all(|distance| *distance >= inner[0] / 2 && *distance <= inner[0] * 2), "{inner:?}");
        assert!(end[0] <= inner[0] * 2);
        assert_eq!(samples.last().map(|sample| sample.at), Some(last.at));
    }
}
