//! One finished run of a sweep: the figures of its test that the sweep keeps.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::path::{optional_seconds, seconds};
use lfn_base::tcp_model::{GoodputLimit, Prediction};
use lfn_base::units::BitRate;
use lfn_results::diagnose::{Finding, Verdict};
use lfn_results::measure::TestLoad;
use lfn_results::report::Run;
use serde::{Deserialize, Serialize};

/// Figures of one run of a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SweepRun {
    /// Number of the point, from 0.
    pub point: usize,
    /// Number of the block, from 0. A block runs every point once.
    pub block: u32,
    /// Start of the run: RFC 3339, UTC.
    #[cfg_attr(any(test, feature = "schema"), schemars(extend("format" = "date-time")))]
    pub started: String,
    /// Time of the run with its connections.
    #[serde(rename = "run_seconds", with = "seconds")]
    pub time: Duration,
    /// Goodput that the sweep compares: the steady goodput of a timed test, the goodput of a whole counted test.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// Half the width of the 95 % interval of this run's own goodput; null if the run is too short.
    #[serde(rename = "goodput_interval_bits_per_second")]
    pub half_width: Option<Figure>,
    /// Predicted goodput; null if the capacity of the path is unknown.
    #[serde(rename = "predicted_bits_per_second")]
    pub predicted: Option<BitRate>,
    /// Minimum goodput that agrees with the prediction.
    #[serde(rename = "expected_min_bits_per_second")]
    pub expected_min: Option<BitRate>,
    /// Maximum goodput that agrees with the prediction.
    #[serde(rename = "expected_max_bits_per_second")]
    pub expected_max: Option<BitRate>,
    /// Bottleneck of the prediction.
    pub predicted_limit: Option<GoodputLimit>,
    /// Minimum RTT of the run.
    #[serde(rename = "base_rtt_seconds", with = "optional_seconds")]
    pub base_rtt: Option<Duration>,
    /// Window scale that the receiver announced.
    pub window_scale: Option<u8>,
    /// Retransmitted segments of the test.
    pub retransmits: Option<u64>,
    /// Limit of the goodput.
    pub verdict: Verdict,
    /// Causes that limit the goodput, the largest gain first.
    pub findings: Vec<Finding>,
}

/// Place and time of a run in its sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct RunPlace {
    /// Number of the point.
    pub point: usize,
    /// Number of the block.
    pub block: u32,
    /// Start of the run: RFC 3339, UTC.
    pub started: String,
    /// Time of the run with its connections.
    pub time: Duration,
}

impl SweepRun {
    /// Returns the figures of a finished test. `counted` is the predicted goodput of a whole counted test.
    pub fn new(place: RunPlace, run: &Run, counted: Option<BitRate>) -> Self {
        let is_timed = matches!(run.evidence.request.load, TestLoad::TimeSeconds(_));
        let diagnosis = &run.diagnosis;
        let steady = diagnosis.predicted.map(|Prediction { goodput, .. }| goodput);
        let predicted = if is_timed { steady } else { counted };
        // The range of a counted test has the relative width of the steady range.
        let scale = |bound: BitRate| {
            let (steady, predicted) = (steady?.as_f64(), predicted?.as_f64());
            Some(BitRate((bound.as_f64() * predicted / steady.max(1.0)) as u64))
        };
        let expected = diagnosis.expected.as_ref();
        SweepRun {
            point: place.point,
            block: place.block,
            started: place.started,
            time: place.time,
            goodput: if is_timed { run.steady_goodput } else { run.goodput },
            half_width: run
                .estimate
                .as_ref()
                .filter(|_| is_timed)
                .and_then(|estimate| Figure::new(estimate.half_width_rate())),
            predicted,
            expected_min: expected.and_then(|range| scale(range.min)),
            expected_max: expected.and_then(|range| scale(range.max)),
            predicted_limit: diagnosis.predicted.map(|prediction| prediction.limit),
            base_rtt: Some(run.base_rtt).filter(|rtt| !rtt.is_zero()),
            window_scale: run.window_scale,
            retransmits: run.retransmits,
            verdict: diagnosis.verdict.clone(),
            findings: diagnosis.findings.clone(),
        }
    }
}
