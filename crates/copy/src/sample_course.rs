//! Samples of a copy at equal distances, for the diagnosis of the finished copy.

use std::time::Duration;

use lfn_results::evidence::ProgressSample;

/// First distance of two samples, a little less than the interval of a peer's reports.
const FIRST_DISTANCE: Duration = Duration::from_millis(900);
/// Maximum age of the other side's counters in a sample. Older counters belong to another interval, so the next report is
/// awaited.
const MAX_PEER_AGE: Duration = Duration::from_millis(50);
/// Maximum distance of two samples while fresh counters are awaited, over the usual distance.
const MAX_DISTANCE_FACTOR: u32 = 2;
/// Minimum distance of the last sample over the usual distance; a nearer sample is replaced by the last one.
const MIN_LAST_SHARE: f64 = 0.5;
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
        let latest = last.saturating_add(self.distance.saturating_mul(MAX_DISTANCE_FACTOR));
        let is_stale = sample.peer_age > MAX_PEER_AGE && sample.at < latest;
        if sample.at < last.saturating_add(self.distance) || is_stale {
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
        let is_near = |before: &ProgressSample| {
            last.at.saturating_sub(before.at).as_secs_f64() < MIN_LAST_SHARE * self.distance.as_secs_f64()
        };
        // A short copy keeps its samples.
        if self.samples.len() > 1 && self.samples.last().is_some_and(is_near) {
            self.samples.pop();
        }
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

    /// Returns the times of the samples of an upload of 5.3 s, in milliseconds. The peer reports every 204 ms.
    fn times(observations: impl Iterator<Item = u64>) -> Vec<u128> {
        let mut course = SampleCourse::default();
        for at in observations {
            let peer_age = Duration::from_millis(at % 204);
            course.add(&ProgressSample { at: Duration::from_millis(at), peer_age, ..ProgressSample::default() });
        }
        let last = ProgressSample { at: Duration::from_millis(5300), ..ProgressSample::default() };
        course.finish(&last).iter().map(|sample| sample.at.as_millis()).collect()
    }

    #[test]
    fn samples_have_fresh_counters_of_both_sides() {
        let times = times((0..5300).step_by(4));
        assert!(times[..times.len() - 1].iter().all(|at| at % 204 <= 50), "{times:?}");
        assert_eq!(times, [1020, 2040, 3060, 4080, 5300]);
    }

    #[test]
    fn samples_without_fresh_counters_are_farther_apart() {
        assert_eq!(times((0..5300).step_by(204).map(|at| at + 150)), [1986, 3822, 5300]);
    }
}
