//! What the inside hands to the outside: the reports of `lfn test` and `lfn copy` as they print them with `--json`, and
//! the few figures of them that the demo needs.

use lfn_core::units::BitRate;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What was measured, in the JSON of the commands themselves.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    /// For each window of [`super::published::WINDOWS`], the reports of its runs.
    pub windows: Vec<Vec<Value>>,
    /// The report of the copy.
    pub copy: Value,
}

/// Goodput of each interval past start-up of a report of `lfn test`.
pub fn steady_intervals(report: &Value) -> Vec<u64> {
    let intervals = report.pointer("/runs/0/intervals").and_then(Value::as_array);
    let steady = |interval: &&Value| interval.get("steady").and_then(Value::as_bool) == Some(true);
    let rate = |interval: &Value| interval.get("goodput_bits_per_second")?.as_u64();
    intervals.into_iter().flatten().filter(steady).filter_map(rate).collect()
}

/// The least round trip a report of `lfn test` saw, seconds.
pub fn base_rtt(report: &Value) -> Option<f64> {
    report.pointer("/runs/0/base_rtt_seconds")?.as_f64()
}

/// The window scale the receiver of a report of `lfn test` offered.
pub fn window_scale(report: &Value) -> Option<u64> {
    report.pointer("/runs/0/window_scale")?.as_u64()
}

/// The steady goodput of a report of `lfn test`.
pub fn steady_goodput(report: &Value) -> Option<BitRate> {
    report.pointer("/runs/0/steady_goodput_bits_per_second")?.as_u64().map(BitRate)
}

/// The goodput of a report of `lfn copy`.
pub fn goodput(report: &Value) -> Option<BitRate> {
    report.get("goodput_bits_per_second")?.as_u64().map(BitRate)
}
