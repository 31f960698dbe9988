//! Table of the demo: published, predicted and measured figures, with an explanation of each difference.
//!
//! Explanations are computed. Each runs the model again with the conditions of 1995 and prints the result, so that a
//! reader can compare it with the difference.

use std::time::Duration;

use lfn_api::documents::{DemoFigure, DemoResults, DemoRow, HostComparison, RateSpread};
use lfn_base::figure::Figure;
use lfn_base::geometry;
use lfn_base::path::PathProfile;
use lfn_base::plan::{Plan, minimal_window_scale, predict_goodput};
use lfn_base::tcp_model::{FlowParameters, transfer_time};
use lfn_base::units::{BitRate, Bytes, show_duration};
use lfn_campaign::published::{self, Window};
use serde_json::Value;

use super::measured::{self, base_rtt, steady_intervals, window_scale};

/// Compares the run with the settings of this host with the runs at one BDP.
pub fn compare_hosts(measured: &DemoResults) -> Option<HostComparison> {
    let at_bdp = published::WINDOWS.iter().position(|window| window.share == 1.0)?;
    let default_host = &measured.default_host;
    let steady = spread(std::slice::from_ref(default_host)).map(|spread| spread.median);
    Some(HostComparison {
        default_host: steady.or_else(|| measured::run_goodput(default_host))?,
        tuned: spread(measured.windows.get(at_bdp)?)?.median,
        finding: measured::finding(default_host).map(str::to_owned),
    })
}

/// Returns the lines of the comparison, without indentation.
pub fn comparison_lines(comparison: &HostComparison) -> Vec<String> {
    let HostComparison { default_host, tuned, finding } = comparison;
    let ratio = tuned.as_f64() / default_host.as_f64().max(1.0);
    let remark = if agree(default_host.as_f64(), tuned.as_f64()) || ratio < 1.0 {
        "this host needs no tuning for this path".to_owned()
    } else {
        format!("{ratio:.1} times as fast")
    };
    let mut lines = vec![
        format!("default host: {:>10}", default_host.to_string()),
        format!("tuned:        {:>10}  {remark}", tuned.to_string()),
    ];
    lines.extend(finding.iter().filter(|_| ratio > 1.0 + MAX_DIFFERENCE).map(|why| format!("why: {why}")));
    lines
}

/// Maximum relative difference of two figures that agree. Runs of about twenty seconds over this path repeat within it.
const MAX_DIFFERENCE: f64 = 0.03;

/// Returns all rows of the table.
pub fn rows(path: &PathProfile, plan: &Plan, measured: &DemoResults) -> Vec<DemoRow> {
    let mut rows = vec![rtt_row(measured), bdp_row(path, measured)];
    for (window, reports) in published::WINDOWS.iter().zip(&measured.windows) {
        rows.push(scale_row(window, reports));
    }
    for (window, reports) in published::WINDOWS.iter().zip(&measured.windows) {
        rows.push(window_row(path, window, reports));
    }
    rows.push(copy_row(path, plan, &measured.copy));
    rows
}

/// Returns the spread of the steady intervals of all reports.
pub fn spread(reports: &[Value]) -> Option<RateSpread> {
    let mut rates: Vec<u64> = reports.iter().flat_map(steady_intervals).collect();
    rates.sort_unstable();
    let (min, max) = (*rates.first()?, *rates.last()?);
    Some(RateSpread { min: BitRate(min), median: BitRate(rates[rates.len() / 2]), max: BitRate(max) })
}

fn rtt_row(measured: &DemoResults) -> DemoRow {
    let slant = geometry::slant_range_on_sphere(40.0, 3960.0, 22_300.0);
    let predicted = Duration::from_secs_f64(4.0 * slant / 186_400.0);
    let ping = published::PING_RTT;
    let rtt = measured.windows.iter().flatten().filter_map(base_rtt).reduce(f64::min);
    DemoRow {
        quantity: "base RTT".into(),
        published: Some(figure(format!("{} by ping", show_duration(ping)), ping.as_secs_f64())),
        predicted: Some(time(predicted)),
        measured: rtt.map(|seconds| time(Duration::from_secs_f64(seconds))),
        reason: format!(
            "{} is the time for the way up and down, twice (the report rounds the angles and gets {}); terminals, gateways and hosts added the other {} of the \
             ping. The emulated path has {}.",
            show_duration(predicted),
            show_duration(published::GEOMETRIC_RTT),
            show_duration(ping.saturating_sub(predicted)),
            show_duration(ping)
        ),
    }
}

fn bdp_row(path: &PathProfile, measured: &DemoResults) -> DemoRow {
    let bdp = path.bdp();
    let rtt = measured.windows.iter().flatten().filter_map(base_rtt).reduce(f64::min);
    let found = rtt.map(|seconds| path.capacity.times(Duration::from_secs_f64(seconds)));
    DemoRow {
        quantity: "BDP = buffer".into(),
        published: Some(bytes(published::WINDOWS[1].bytes)),
        predicted: Some(bytes(bdp)),
        measured: found.map(bytes),
        reason: format!(
            "{} × {}; the measured value uses the measured RTT.",
            path.capacity,
            show_duration(path.base_rtt)
        ),
    }
}

fn scale_row(window: &Window, reports: &[Value]) -> DemoRow {
    let predicted = minimal_window_scale(window.bytes);
    let measured = reports.iter().find_map(window_scale);
    let shift = |scale: f64| figure(format!("{scale}"), scale);
    let reason = match (predicted, measured) {
        (Some(p), Some(m)) if u64::from(p) == m && p == window.scale => {
            let short = 65_535_u64 << (p - 1);
            format!(
                "65,535 << {p} can hold {}; << {} holds only {}.",
                window.bytes.exact(),
                p - 1,
                Bytes(short).exact()
            )
        }
        (_, Some(_)) => "the kernel chooses the scale from the buffer or the window clamp set before the SYN.".into(),
        _ => "no run reported a scale.".into(),
    };
    DemoRow {
        quantity: format!("wscale at {} BDP", window.share),
        published: Some(shift(window.scale.into())),
        predicted: predicted.map(|scale| shift(scale.into())),
        measured: measured.map(|scale| shift(scale as f64)),
        reason,
    }
}

fn window_row(path: &PathProfile, window: &Window, reports: &[Value]) -> DemoRow {
    let predicted = predict_goodput(path, Some(window.bytes), 1).goodput;
    let measured = spread(reports);
    let mut reason = explain_published(path, window, predicted);
    reason.push(' ');
    reason.push_str(&explain_measured(predicted, measured, reports));
    DemoRow {
        quantity: format!("goodput at {} BDP", window.share),
        published: Some(rate(window.goodput)),
        predicted: Some(rate(predicted)),
        measured: measured.map(|s| {
            let text = format!("{:.1} ({:.1}–{:.1}) Mb/s", mega(s.median), mega(s.min), mega(s.max));
            figure(text, s.median.as_f64())
        }),
        reason,
    }
}

/// Explains the difference between the published and the predicted goodput.
fn explain_published(path: &PathProfile, window: &Window, predicted: BitRate) -> String {
    if agree(window.goodput.as_f64(), predicted.as_f64()) {
        return "1995 and the prediction agree.".into();
    }
    let excess = Bytes(window.bytes.0.saturating_sub(path.bdp().0));
    if let Some(queue) = path.queue.filter(|queue| excess > Bytes(0) && excess <= *queue) {
        return format!(
            "1995 lost packets: {excess} beyond the BDP overflowed a queue. Without selective acknowledgements \
             each loss emptied the path. Here the queue of {queue} holds the excess.",
        );
    }
    let Some((time, goodput)) = predict_for_1995(path, Some(window.bytes), Bytes(1_000_000_000)) else {
        return "the report names no cause.".into();
    };
    let mut reason = format!(
        "1995 timed 1 GB with slow start; here only the steady part counts. With HIPPI's 64 KB packets and \
         delayed acknowledgements, 1 GB takes {}, which is {goodput}.",
        show_duration(time)
    );
    if !agree(window.goodput.as_f64(), goodput.as_f64()) {
        reason.push_str(&format!(
            " TCP does not explain the rest: raw HIPPI blocks through the same terminal reached {} on average, {} at best.",
            published::RAW_HIPPI,
            published::RAW_HIPPI_BEST
        ));
    }
    reason
}

/// Explains the difference between the measured and the predicted goodput.
fn explain_measured(predicted: BitRate, spread: Option<RateSpread>, reports: &[Value]) -> String {
    let Some(spread) = spread else { return "No run reached the steady part.".into() };
    if agree(spread.median.as_f64(), predicted.as_f64()) {
        let share = spread.median.as_f64() / predicted.as_f64() * 100.0;
        return format!("The measured goodput is {share:.1} % of the prediction.");
    }
    let finding = reports.iter().find_map(measured::finding);
    let retransmits: u64 = reports.iter().filter_map(measured::retransmits).sum();
    match finding {
        Some(finding) => format!("The measured goodput differs: {finding}"),
        None => format!(
            "The measured goodput differs, and `lfn test` found no cause ({retransmits} retransmissions): \
             was this machine busy?"
        ),
    }
}

fn copy_row(path: &PathProfile, plan: &Plan, report: &Value) -> DemoRow {
    let seconds = report.get("seconds").and_then(Value::as_f64);
    let measured = seconds.map(Duration::from_secs_f64);
    let predicted = plan.predicted.time;
    let slower = PathProfile { capacity: published::RAW_HIPPI_BEST, ..*path };
    let then = |path| predict_for_1995(path, Some(Bytes(10_000_000)), published::TRANSFER).map(|(time, _)| time);
    let mut reason = String::new();
    if let (Some(full), Some(slower)) = (then(path), then(&slower)) {
        reason = format!(
            "In 1995 slow start grew from one 64 KB packet by half a window per round trip: {} in this model, {} at the \
             {} that raw HIPPI blocks reached; the report does not explain the other {}. Linux starts with ten packets and \
             doubles per round trip.",
            show_duration(full),
            show_duration(slower),
            published::RAW_HIPPI_BEST,
            show_duration(published::TRANSFER_TIME.saturating_sub(slower))
        );
    }
    if let (Some(measured), Some(predicted)) = (measured, predicted) {
        let extra = measured.as_secs_f64() - predicted.as_secs_f64();
        let per_rtt = extra / path.base_rtt.as_secs_f64();
        let comparison = if extra < 0.0 { "shorter" } else { "longer" };
        reason.push_str(&format!(
            " The measured time is {:.1} s {comparison} than predicted ({per_rtt:+.1} round trips), including TLS, checksums and \
             flushing.",
            extra.abs()
        ));
    }
    DemoRow {
        quantity: format!("time to move {}", published::TRANSFER),
        published: Some(time(published::TRANSFER_TIME)),
        predicted: predicted.map(time),
        measured: measured.map(time),
        reason,
    }
}

/// Predicts a transfer between hosts of 1995: HIPPI's packets of 64 KB, an initial window of one packet, delayed
/// acknowledgements.
fn predict_for_1995(path: &PathProfile, window: Option<Bytes>, size: Bytes) -> Option<(Duration, BitRate)> {
    let path = PathProfile { mtu: 65_280, ..*path };
    let flow = FlowParameters { window, initial_window: 1, delayed_ack: true, ..FlowParameters::default() };
    let time = transfer_time(&path, &flow, size)?.total();
    Some((time, size.per(time)))
}

fn mega(rate: BitRate) -> f64 {
    rate.as_f64() / 1e6
}

fn agree(a: f64, b: f64) -> bool {
    (a - b).abs() <= MAX_DIFFERENCE * a.abs().max(b.abs())
}

fn time(value: Duration) -> DemoFigure {
    figure(show_duration(value), value.as_secs_f64())
}

fn bytes(value: Bytes) -> DemoFigure {
    figure(value.exact(), value.0 as f64)
}

fn rate(value: BitRate) -> DemoFigure {
    figure(value.to_string(), value.as_f64())
}

/// Creates a figure. All values come from counts and times, so they are finite.
fn figure(text: String, value: f64) -> DemoFigure {
    DemoFigure { text, value: Figure::new(value).unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(rate: u64, finding: Option<&str>) -> Value {
        let interval = |second: f64| json!({ "start_seconds": second, "end_seconds": second + 1.1, "steady": true, "goodput_bits_per_second": rate });
        let findings: Vec<Value> = finding.iter().map(|text| json!({ "summary": text })).collect();
        json!({ "runs": [{ "intervals": [interval(0.0), interval(1.1)], "findings": findings }] })
    }

    fn results(default_host: Value, tuned: u64) -> DemoResults {
        let windows = published::WINDOWS.map(|window| {
            let rate = if window.share == 1.0 { tuned } else { 1 };
            vec![report(rate, None)]
        });
        DemoResults { default_host, windows: windows.to_vec(), copy: Value::Null }
    }

    #[test]
    fn tuned_host_is_compared_with_the_default_host() {
        let results = results(report(40_000_000, Some("the send buffer")), 129_000_000);
        let lines = comparison_lines(&compare_hosts(&results).unwrap());
        let expected =
            ["default host:    40 Mb/s", "tuned:          129 Mb/s  3.2 times as fast", "why: the send buffer"];
        assert_eq!(lines, expected);
    }

    #[test]
    fn fast_default_host_needs_no_tuning() {
        let results = results(report(128_500_000, Some("start-up")), 129_000_000);
        let lines = comparison_lines(&compare_hosts(&results).unwrap());
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].ends_with("this host needs no tuning for this path"), "{lines:?}");
    }
}
