//! Course of a run: throughput, queue and drops of each direction over time, with a bounded number of samples.

use std::sync::Arc;
use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::live::{LiveDirection, LiveFigures, LiveOptions};

/// Time between two samples of a short run.
const INTERVAL: Duration = Duration::from_millis(100);
/// Maximum samples. With more, each two samples become one.
const MAX_SAMPLES: usize = 1200;

/// Figures of a part of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CourseSample {
    /// Start of the part, since the link started.
    #[serde(rename = "start_seconds")]
    pub start: f64,
    /// End of the part, since the link started.
    #[serde(rename = "end_seconds")]
    pub end: f64,
    /// Figures of the parallel paths, in order.
    pub paths: Vec<PathCourse>,
}

/// Figures of both directions of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathCourse {
    pub near_to_far: DirectionCourse,
    pub far_to_near: DirectionCourse,
}

/// Figures of a direction in a part of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DirectionCourse {
    /// Forwarded bytes in this part.
    #[serde(rename = "throughput_bits_per_second")]
    pub throughput: BitRate,
    /// Bytes in the queues of all links at the end of the part; after a merge, the larger value.
    #[serde(rename = "queued_bytes")]
    pub queued: Bytes,
    /// Time to send these queues at the rate of the slowest link.
    #[serde(rename = "queue_seconds")]
    pub queue_delay: f64,
    /// Packets that the link dropped in this part.
    pub dropped: u64,
}

impl DirectionCourse {
    fn of(figures: &LiveDirection) -> Self {
        DirectionCourse {
            throughput: figures.rate,
            queued: figures.queued,
            queue_delay: figures.wait.as_secs_f64(),
            dropped: figures.newly_dropped,
        }
    }

    /// Returns the figures of two parts together. `share` is the share of the time of the first part.
    fn merged(self, later: Self, share: f64) -> Self {
        let throughput = share * self.throughput.as_f64() + (1.0 - share) * later.throughput.as_f64();
        DirectionCourse {
            throughput: BitRate(throughput as u64),
            queued: self.queued.max(later.queued),
            queue_delay: self.queue_delay.max(later.queue_delay),
            dropped: self.dropped.saturating_add(later.dropped),
        }
    }
}

impl CourseSample {
    fn merged(self, later: Self) -> Self {
        let share = ((self.end - self.start) / (later.end - self.start)).clamp(0.0, 1.0);
        let share = if share.is_nan() { 0.5 } else { share };
        let merged = |(one, other): (PathCourse, PathCourse)| PathCourse {
            near_to_far: one.near_to_far.merged(other.near_to_far, share),
            far_to_near: one.far_to_near.merged(other.far_to_near, share),
        };
        let paths = self.paths.into_iter().zip(later.paths).map(merged).collect();
        CourseSample { start: self.start, end: later.end, paths }
    }
}

/// Samples of a running emulation.
#[derive(Clone, Debug, Default)]
pub(super) struct CourseRecorder(Arc<Mutex<Course>>);

#[derive(Debug, Default)]
struct Course {
    samples: Vec<CourseSample>,
    /// Merged samples since the last one that is complete, with the number of raw samples.
    open: Option<(CourseSample, u32)>,
    /// Raw samples of a complete one: a power of two. 0 stands for 1.
    width: u32,
}

impl CourseRecorder {
    /// Returns the options of the thread that records.
    pub(super) fn options(&self) -> LiveOptions {
        let course = Arc::clone(&self.0);
        let show = move |figures: Option<&LiveFigures>| {
            if let Some(figures) = figures {
                course.lock().add(figures);
            }
        };
        LiveOptions { interval: INTERVAL, show: Arc::new(show) }
    }

    /// Returns the samples in the order of their times.
    pub(super) fn finish(&self) -> Vec<CourseSample> {
        let mut course = self.0.lock();
        let open = course.open.take().map(|(sample, _)| sample);
        std::mem::take(&mut course.samples).into_iter().chain(open).collect()
    }
}

impl Course {
    fn add(&mut self, figures: &LiveFigures) {
        let end = figures.elapsed.as_secs_f64();
        let before = self.open.as_ref().map(|(sample, _)| sample.end).or(self.samples.last().map(|last| last.end));
        let path = |[forth, back]: &[LiveDirection; 2]| PathCourse {
            near_to_far: DirectionCourse::of(forth),
            far_to_near: DirectionCourse::of(back),
        };
        let paths = figures.paths.iter().map(path).collect();
        let sample = CourseSample { start: before.unwrap_or(0.0), end, paths };
        let (open, count) = match self.open.take() {
            Some((open, count)) => (open.merged(sample), count + 1),
            None => (sample, 1),
        };
        if count < self.width.max(1) {
            self.open = Some((open, count));
            return;
        }
        self.samples.push(open);
        if self.samples.len() >= MAX_SAMPLES {
            let mut samples = std::mem::take(&mut self.samples).into_iter();
            while let Some(first) = samples.next() {
                self.samples.push(match samples.next() {
                    Some(second) => first.merged(second),
                    None => first,
                });
            }
            self.width = self.width.max(1).saturating_mul(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_have_few_samples_with_all_bytes() {
        let recorder = CourseRecorder::default();
        let options = recorder.options();
        for number in 1..=10_000_u32 {
            let direction = LiveDirection { rate: BitRate(1000), newly_dropped: 1, ..LiveDirection::default() };
            let queued = LiveDirection { queued: Bytes(number.into()), ..direction };
            let figures = LiveFigures { elapsed: INTERVAL * number, paths: vec![[queued, direction]] };
            (options.show)(Some(&figures));
        }
        let samples = recorder.finish();
        assert!((MAX_SAMPLES / 2..=MAX_SAMPLES).contains(&samples.len()), "{}", samples.len());
        assert!(samples.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!(samples.iter().map(|sample| sample.paths[0].near_to_far.dropped).sum::<u64>(), 10_000);
        assert!(samples.iter().all(|sample| sample.paths[0].far_to_near.throughput.0.abs_diff(1000) <= 2));
        assert_eq!(samples.last().map(|last| last.paths[0].near_to_far.queued), Some(Bytes(10_000)));
    }
}
