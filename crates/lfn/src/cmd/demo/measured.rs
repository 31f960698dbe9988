//! What the inside hands to the outside: the reports of `lfn test` and `lfn copy` as they print them with `--json`, and
//! the few figures of them that the demo needs.

use std::time::Duration;

use lfn_core::units::BitRate;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::published;

/// Length of the intervals that are compared: two round trips. A window leaves once in each, so that an interval that
/// is no multiple of them would hold now one, now two.
pub const INTERVAL: Duration = published::PING_RTT.saturating_mul(2);

/// What was measured, in the JSON of the commands themselves.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    /// For each window of [`super::published::WINDOWS`], the reports of its runs.
    pub windows: Vec<Vec<Value>>,
    /// The report of the copy.
    pub copy: Value,
}

/// Goodput of each interval past start-up, as the receiver of a report of `lfn test` counted it.
pub fn steady_intervals(report: &Value) -> Vec<u64> {
    let intervals = report.pointer("/runs/0/intervals").and_then(Value::as_array);
    let seconds = |interval: &Value, name: &str| interval.get(name).and_then(Value::as_f64);
    let rate = |interval: &Value| {
        // The last one is cut off by the end of the test: too short to compare.
        let whole = seconds(interval, "end_seconds")? - seconds(interval, "start_seconds")? > WHOLE;
        let steady = interval.get("steady")?.as_bool()?;
        if whole && steady { interval.get("goodput_bits_per_second")?.as_u64() } else { None }
    };
    intervals.into_iter().flatten().filter_map(rate).collect()
}

/// Nine tenths of an interval, seconds.
const WHOLE: f64 = 0.9 * INTERVAL.as_millis() as f64 / 1e3;

/// The least round trip a report of `lfn test` saw, seconds.
pub fn base_rtt(report: &Value) -> Option<f64> {
    report.pointer("/runs/0/base_rtt_seconds")?.as_f64()
}

/// The window scale the receiver of a report of `lfn test` offered.
pub fn window_scale(report: &Value) -> Option<u64> {
    report.pointer("/runs/0/window_scale")?.as_u64()
}

/// Segments that were sent again.
pub fn retransmits(report: &Value) -> Option<u64> {
    report.pointer("/runs/0/retransmits")?.as_u64()
}

/// What the first finding of a report of `lfn test` says.
pub fn finding(report: &Value) -> Option<&str> {
    report.pointer("/runs/0/findings/0/summary")?.as_str()
}

/// The steady goodput of a report of `lfn test`.
pub fn steady_goodput(report: &Value) -> Option<BitRate> {
    report.pointer("/runs/0/steady_goodput_bits_per_second")?.as_u64().map(BitRate)
}

/// The goodput of a report of `lfn copy` or `lfn test`.
pub fn goodput(report: &Value) -> Option<BitRate> {
    report.get("goodput_bits_per_second")?.as_u64().map(BitRate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_whole_intervals_past_start_up_count() {
        let interval = |start: f64, end: f64, steady: bool, rate: u64| json!({ "start_seconds": start, "end_seconds": end, "steady": steady, "goodput_bits_per_second": rate });
        let intervals = [
            interval(0.0, 1.1, false, 1),
            interval(1.1, 2.2, true, 8),
            interval(2.2, 3.3, true, 16),
            interval(3.3, 3.5, true, 2),
        ];
        assert_eq!(steady_intervals(&json!({ "runs": [{ "intervals": intervals }] })), [8, 16]);
        assert_eq!(steady_intervals(&json!({ "runs": [] })), [] as [u64; 0]);
    }
}
