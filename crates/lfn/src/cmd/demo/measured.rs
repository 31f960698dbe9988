//! Figures that the demo takes from the documents of `lfn test` and `lfn copy`.

use std::time::Duration;

use lfn_base::units::BitRate;
use lfn_campaign::published;
use serde_json::Value;

/// Length of the compared intervals: two round trips. The sender transmits one window in each round trip. An interval
/// that is not a multiple of the RTT would contain one window more or less.
pub const INTERVAL: Duration = published::PING_RTT.saturating_mul(2);

/// Returns the goodput of each steady interval of a report of `lfn test`, in bit/s, counted by the receiver.
pub fn steady_intervals(report: &Value) -> Vec<u64> {
    let intervals = report.pointer("/runs/0/intervals").and_then(Value::as_array);
    let seconds = |interval: &Value, name: &str| interval.get(name).and_then(Value::as_f64);
    let rate = |interval: &Value| {
        // The end of the test cuts the last interval. It is too short to compare.
        let is_complete = seconds(interval, "end_seconds")? - seconds(interval, "start_seconds")? > MIN_SECONDS;
        let steady = interval.get("steady")?.as_bool()?;
        if is_complete && steady { interval.get("goodput_bits_per_second")?.as_u64() } else { None }
    };
    intervals.into_iter().flatten().filter_map(rate).collect()
}

/// Nine tenths of an interval, in seconds.
const MIN_SECONDS: f64 = 0.9 * INTERVAL.as_millis() as f64 / 1e3;

/// Returns the minimum RTT in a report of `lfn test`, in seconds.
pub fn base_rtt(report: &Value) -> Option<f64> {
    report.pointer("/runs/0/base_rtt_seconds")?.as_f64()
}

/// Returns the window scale that the receiver of a report of `lfn test` offered.
pub fn window_scale(report: &Value) -> Option<u64> {
    report.pointer("/runs/0/window_scale")?.as_u64()
}

/// Returns the number of retransmitted segments.
pub fn retransmits(report: &Value) -> Option<u64> {
    report.pointer("/runs/0/retransmits")?.as_u64()
}

/// Returns the summary of the first finding in a report of `lfn test`.
pub fn finding(report: &Value) -> Option<&str> {
    report.pointer("/runs/0/findings/0/summary")?.as_str()
}

/// Returns the steady goodput in a report of `lfn test`.
pub fn steady_goodput(report: &Value) -> Option<BitRate> {
    report.pointer("/runs/0/steady_goodput_bits_per_second")?.as_u64().map(BitRate)
}

/// Returns the goodput of the first run in a report of `lfn test`, with slow start.
pub fn run_goodput(report: &Value) -> Option<BitRate> {
    report.pointer("/runs/0/goodput_bits_per_second")?.as_u64().map(BitRate)
}

/// Returns the goodput in a report of `lfn copy` or `lfn test`.
pub fn goodput(report: &Value) -> Option<BitRate> {
    report.get("goodput_bits_per_second")?.as_u64().map(BitRate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_complete_steady_intervals_count() {
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
