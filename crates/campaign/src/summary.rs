//! The summary of a point: its mean goodput with interval next to the prediction, and the finding of a difference.

use std::collections::HashMap;

use lfn_base::figure::Figure;
use lfn_base::tcp_model::GoodputLimit;
use lfn_base::units::BitRate;
use lfn_results::diagnose::Finding;
use serde::{Deserialize, Serialize};

use crate::factor::Level;
use crate::interval::mean_goodput;
use crate::run::SweepRun;

/// Prediction of a point before its first run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PlannedPoint {
    /// Predicted goodput; `None` if the capacity of the path is unknown.
    pub predicted: Option<BitRate>,
    /// Bottleneck of the prediction.
    pub limit: Option<GoodputLimit>,
    /// Expected time of one run; `None` if unknown.
    pub time: Option<std::time::Duration>,
}

/// Result of a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PointSummary {
    /// Number of the point, from 0.
    pub point: usize,
    /// Value of each factor.
    pub levels: Vec<Level>,
    /// Number of finished runs.
    pub runs: u32,
    /// Mean goodput of the runs; null without a run.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: Option<BitRate>,
    /// Half the width of the 95 % interval of the mean; null if unknown. With one run, the interval of this run.
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
    /// Window scale that the receiver announced in the last run.
    pub window_scale: Option<u8>,
    /// Limit of the goodput in the last run, in words.
    pub limit: Option<String>,
    /// True if the mean goodput is outside of the expected range.
    pub differs: bool,
    /// Most frequent first finding of the runs; null if no run has a finding, or if the goodput agrees with the
    /// prediction.
    pub finding: Option<Finding>,
    /// Cause of the difference from the prediction and its remedy, in words; null without a difference.
    pub explanation: Option<String>,
    /// Expected time of one run, seconds; null if unknown.
    #[serde(rename = "expected_run_seconds")]
    pub expected_time: Option<Figure>,
    /// Reason why the runs of this point failed; null if the point is not given up.
    pub error: Option<String>,
}

impl PointSummary {
    /// Summarizes the runs of a point. `own` has all of them, and no others.
    pub fn new(point: usize, levels: &[Level], planned: &PlannedPoint, own: &[&SweepRun]) -> Self {
        let mean = mean_goodput(own.iter().copied());
        let last = own.last();
        let bound = |bound: fn(&SweepRun) -> Option<BitRate>| mean_rate(own.iter().filter_map(|run| bound(run)));
        let (expected_min, expected_max) = (bound(|run| run.expected_min), bound(|run| run.expected_max));
        let goodput = mean.map(|mean| BitRate(mean.mean.round() as u64));
        let differs = goodput.is_some_and(|goodput| {
            expected_min.is_some_and(|min| goodput < min) || expected_max.is_some_and(|max| goodput > max)
        });
        let finding = if differs { frequent_finding(own).cloned() } else { None };
        let is_above = goodput.zip(expected_max).is_some_and(|(goodput, max)| goodput > max);
        let limit = last.map(|run| run.verdict.summary.clone()).filter(|limit| !limit.is_empty());
        let explanation = differs.then(|| explain(finding.as_ref(), is_above, limit.as_deref()));
        PointSummary {
            point,
            levels: levels.to_vec(),
            runs: own.len() as u32,
            goodput,
            half_width: mean.and_then(|mean| Figure::new(mean.half_width?)),
            predicted: bound(|run| run.predicted).or(planned.predicted),
            expected_min,
            expected_max,
            predicted_limit: last.and_then(|run| run.predicted_limit).or(planned.limit),
            window_scale: last.and_then(|run| run.window_scale),
            limit,
            differs,
            finding,
            explanation,
            expected_time: planned.time.map(Figure::from),
            error: None,
        }
    }
}

/// Explains a goodput outside of its expected range.
fn explain(finding: Option<&Finding>, is_above: bool, limit: Option<&str>) -> String {
    match (finding, limit) {
        _ if is_above => {
            "more than the path should carry: its capacity or its RTT differs from the given one. Remedy: \
                          set --rate to the capacity of the path"
                .to_owned()
        }
        (Some(finding), _) => format!("{}: {}. Remedy: {}", finding.name, finding.summary, finding.remedy),
        (None, Some(limit)) => format!("{limit}. Remedy: lfn doctor, which finds more causes than one test"),
        (None, None) => "the runs name no limit. Remedy: lfn doctor, which finds more causes than one test".to_owned(),
    }
}

fn mean_rate(rates: impl Iterator<Item = BitRate>) -> Option<BitRate> {
    let rates: Vec<f64> = rates.map(BitRate::as_f64).collect();
    let count = rates.len() as f64;
    (!rates.is_empty()).then(|| BitRate((rates.iter().sum::<f64>() / count).round() as u64))
}

/// Returns the first finding of the runs that most of them have; the last run decides between equals.
fn frequent_finding<'a>(runs: &[&'a SweepRun]) -> Option<&'a Finding> {
    let first: Vec<&Finding> = runs.iter().filter_map(|run| run.findings.first()).collect();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    first.iter().for_each(|finding| *counts.entry(&finding.name).or_default() += 1);
    first.iter().max_by_key(|finding| counts.get(finding.name.as_str())).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::tests::run;

    fn expected(goodput: u64) -> SweepRun {
        let rate = |rate| Some(BitRate(rate));
        SweepRun { predicted: rate(100), expected_min: rate(90), expected_max: rate(110), ..run(0, goodput) }
    }

    #[test]
    fn a_point_outside_of_its_range_differs() {
        let planned = PlannedPoint::default();
        let summary = |goodput| PointSummary::new(0, &[], &planned, &[&expected(goodput), &expected(goodput + 2)]);
        let fits = summary(98);
        assert_eq!((fits.runs, fits.goodput, fits.predicted), (2, Some(BitRate(99)), Some(BitRate(100))));
        assert!(!fits.differs && summary(80).differs && summary(120).differs);
        let explained = |goodput| summary(goodput).explanation.unwrap_or_default();
        assert!(explained(98).is_empty() && explained(120).contains("--rate"), "{}", explained(120));
        assert!(explained(80).contains("lfn doctor"), "{}", explained(80));
        let unmeasured = PointSummary::new(1, &[], &planned, &[]);
        assert_eq!((unmeasured.runs, unmeasured.goodput, unmeasured.differs), (0, None, false));
    }
}
