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

/// Goodput of each whole interval past start-up, as the receiver of a report of `lfn test` counted it.
pub fn steady_intervals(report: &Value) -> Vec<u64> {
    let seconds = |value: &Value, name: &str| value.get(name).and_then(Value::as_f64);
    let Some(steady) = report.get("steady") else { return Vec::new() };
    let (Some(from), Some(to)) = (seconds(steady, "start_seconds"), seconds(steady, "end_seconds")) else {
        return Vec::new();
    };
    let rate = |interval: &Value| {
        let (start, end) = (seconds(interval, "start_seconds")?, seconds(interval, "end_seconds")?);
        let whole = start >= from && end <= to && end - start > WHOLE;
        whole.then_some((interval.get("bytes")?.as_f64()? * 8.0 / (end - start)).round() as u64)
    };
    let intervals = report.pointer("/far/intervals").and_then(Value::as_array);
    intervals.into_iter().flatten().filter_map(rate).collect()
}

/// An interval of a second that is shorter is the last one, cut off by the end of the test.
const WHOLE: f64 = 0.9;

/// The least round trip a report of `lfn test` saw, seconds.
pub fn base_rtt(report: &Value) -> Option<f64> {
    report.get("rtt_seconds")?.as_f64()
}

/// The window scale the receiver of a report of `lfn test` offered.
pub fn window_scale(report: &Value) -> Option<u64> {
    report.get("window_scale")?.as_u64()
}

/// Segments that were sent again.
pub fn retransmits(report: &Value) -> Option<u64> {
    report.get("retransmitted_segments")?.as_u64()
}

/// What the first finding of a report of `lfn test` says.
pub fn finding(report: &Value) -> Option<&str> {
    report.pointer("/findings/0/summary")?.as_str()
}

/// The steady goodput of a report of `lfn test`.
pub fn steady_goodput(report: &Value) -> Option<BitRate> {
    report.pointer("/steady/goodput_bits_per_second")?.as_u64().map(BitRate)
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
        let interval =
            |start: f64, end: f64, bytes: u64| json!({"start_seconds": start, "end_seconds": end, "bytes": bytes});
        let report = json!({
            "steady": { "start_seconds": 1.0, "end_seconds": 3.2 },
            "far": { "intervals": [
                interval(0.0, 1.0, 1), interval(1.0, 2.0, 1_000_000), interval(2.0, 3.0, 2_000_000),
                interval(3.0, 3.2, 100),
            ]},
        });
        assert_eq!(steady_intervals(&report), [8_000_000, 16_000_000]);
        assert_eq!(steady_intervals(&json!({ "steady": null })), [] as [u64; 0]);
    }
}
