//! The demo's table: published, predicted, measured, and for every gap the reason.
//!
//! Reasons are computed, not recited: each is the model run once more under the conditions that differ, with the
//! figure that gives, so that a reader can check it against the gap.

use std::time::Duration;

use lfn_core::geometry;
use lfn_core::path::PathProfile;
use lfn_core::plan::{Plan, minimal_window_scale, predict_goodput};
use lfn_core::tcp_model::{Flow, transfer_time};
use lfn_core::units::{BitRate, Bytes, show_duration};
use serde::Serialize;
use serde_json::Value;

use super::measured::{self, Measured, base_rtt, steady_intervals, window_scale};
use super::published::{self, Window};

/// One line of the table.
#[derive(Debug, Serialize)]
pub struct Row {
    /// What is compared.
    pub what: String,
    /// As the report printed it; none where it has no such figure.
    pub published: Option<Figure>,
    /// From the path alone.
    pub predicted: Option<Figure>,
    /// On this machine, now.
    pub measured: Option<Figure>,
    /// Why they differ, or that they do not.
    pub reason: String,
}

/// A figure as text for people and as a number for programs.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// With its unit.
    pub text: String,
    /// Seconds, bytes or bit/s.
    pub value: f64,
}

/// What a window's runs showed, over the intervals past start-up of all of them.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct RateSpread {
    /// Least.
    #[serde(rename = "least_bits_per_second")]
    pub least: BitRate,
    /// Half were less.
    #[serde(rename = "median_bits_per_second")]
    pub median: BitRate,
    /// Most.
    #[serde(rename = "most_bits_per_second")]
    pub most: BitRate,
}

/// Two figures closer than this agree: a run of some twenty seconds over this path repeats within it.
const AGREE: f64 = 0.03;

/// All rows.
pub fn rows(path: &PathProfile, plan: &Plan, measured: &Measured) -> Vec<Row> {
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

/// The intervals past start-up of all runs together.
pub fn spread(reports: &[Value]) -> Option<RateSpread> {
    let mut rates: Vec<u64> = reports.iter().flat_map(steady_intervals).collect();
    rates.sort_unstable();
    let (least, most) = (*rates.first()?, *rates.last()?);
    Some(RateSpread { least: BitRate(least), median: BitRate(rates[rates.len() / 2]), most: BitRate(most) })
}

fn rtt_row(measured: &Measured) -> Row {
    let slant = geometry::slant_range_on_sphere(40.0, 3960.0, 22_300.0);
    let predicted = Duration::from_secs_f64(4.0 * slant / 186_400.0);
    let ping = published::PING_RTT;
    let rtt = measured.windows.iter().flatten().filter_map(base_rtt).reduce(f64::min);
    Row {
        what: "base RTT".into(),
        published: Some(Figure { text: format!("{} by ping", show_duration(ping)), value: ping.as_secs_f64() }),
        predicted: Some(time(predicted)),
        measured: rtt.map(|seconds| time(Duration::from_secs_f64(seconds))),
        reason: format!(
            "{} is the way up and down twice (the report rounds its angles to {}); terminals, gateways and hosts added the other {} of the \
             ping, and the path emulated here has all {}.",
            show_duration(predicted),
            show_duration(published::GEOMETRIC_RTT),
            show_duration(ping.saturating_sub(predicted)),
            show_duration(ping)
        ),
    }
}

fn bdp_row(path: &PathProfile, measured: &Measured) -> Row {
    let bdp = path.bdp();
    let rtt = measured.windows.iter().flatten().filter_map(base_rtt).reduce(f64::min);
    let found = rtt.map(|seconds| path.capacity.times(Duration::from_secs_f64(seconds)));
    Row {
        what: "BDP = buffer".into(),
        published: Some(bytes(published::WINDOWS[1].bytes)),
        predicted: Some(bytes(bdp)),
        measured: found.map(bytes),
        reason: format!("{} × {}; measured with the RTT found.", path.capacity, show_duration(path.base_rtt)),
    }
}

fn scale_row(window: &Window, reports: &[Value]) -> Row {
    let predicted = minimal_window_scale(window.bytes);
    let measured = reports.iter().find_map(window_scale);
    let shift = |scale: f64| Figure { text: format!("{scale}"), value: scale };
    let reason = match (predicted, measured) {
        (Some(p), Some(m)) if u64::from(p) == m && p == window.scale => {
            let short = 65_535_u64 << (p - 1);
            format!("65,535 << {p} holds {}, << {} only {}.", window.bytes.exact(), p - 1, Bytes(short).exact())
        }
        (_, Some(_)) => "the kernel picks the scale from the buffer or clamp set before the SYN.".into(),
        _ => "no run reported a scale.".into(),
    };
    Row {
        what: format!("wscale at {} BDP", window.share),
        published: Some(shift(window.scale.into())),
        predicted: predicted.map(|scale| shift(scale.into())),
        measured: measured.map(|scale| shift(scale as f64)),
        reason,
    }
}

fn window_row(path: &PathProfile, window: &Window, reports: &[Value]) -> Row {
    let predicted = predict_goodput(path, Some(window.bytes), 1).goodput;
    let measured = spread(reports);
    let mut reason = why_1995(path, window, predicted);
    reason.push(' ');
    reason.push_str(&why_now(predicted, measured, reports));
    Row {
        what: format!("goodput at {} BDP", window.share),
        published: Some(rate(window.goodput)),
        predicted: Some(rate(predicted)),
        measured: measured.map(|s| Figure {
            text: format!("{:.1} ({:.1}–{:.1}) Mb/s", mega(s.median), mega(s.least), mega(s.most)),
            value: s.median.as_f64(),
        }),
        reason,
    }
}

/// Why the published goodput is not today's steady one.
fn why_1995(path: &PathProfile, window: &Window, predicted: BitRate) -> String {
    if agree(window.goodput.as_f64(), predicted.as_f64()) {
        return "1995 and prediction agree.".into();
    }
    let excess = Bytes(window.bytes.0.saturating_sub(path.bdp().0));
    if let Some(queue) = path.queue.filter(|queue| excess > Bytes(0) && excess <= *queue) {
        return format!(
            "1995 lost packets: {excess} beyond the BDP overflowed a queue, and without selective acknowledgements \
             each loss drained the pipe. Here the queue of {queue} holds the excess.",
        );
    }
    let Some((time, goodput)) = as_then(path, Some(window.bytes), Bytes(1_000_000_000)) else {
        return "the report gives no cause.".into();
    };
    let mut reason = format!(
        "1995 timed 1 GB from a cold start, here only what is past start-up counts: with HIPPI's 64 KB packets and \
         delayed acknowledgements 1 GB takes {}, which is {goodput}.",
        show_duration(time)
    );
    if !agree(window.goodput.as_f64(), goodput.as_f64()) {
        reason.push_str(&format!(
            " The rest was not TCP's: raw HIPPI blocks over the same terminal moved at {} on average, {} at best.",
            published::RAW_HIPPI,
            published::RAW_HIPPI_BEST
        ));
    }
    reason
}

/// Why what was measured is not what was predicted.
fn why_now(predicted: BitRate, spread: Option<RateSpread>, reports: &[Value]) -> String {
    let Some(spread) = spread else { return "No run got past start-up.".into() };
    if agree(spread.median.as_f64(), predicted.as_f64()) {
        let share = spread.median.as_f64() / predicted.as_f64() * 100.0;
        return format!("Measured is {share:.1} % of predicted.");
    }
    let finding = reports.iter().find_map(measured::finding);
    let retransmits: u64 = reports.iter().filter_map(measured::retransmits).sum();
    match finding {
        Some(finding) => format!("Measured differs: {finding}"),
        None => format!(
            "Measured differs, and no rule of `lfn test` names the cause; {retransmits} packets were sent again: \
             was this machine busy?"
        ),
    }
}

fn copy_row(path: &PathProfile, plan: &Plan, report: &Value) -> Row {
    let seconds = report.get("seconds").and_then(Value::as_f64);
    let measured = seconds.map(Duration::from_secs_f64);
    let predicted = plan.predicted.time;
    let slower = PathProfile { capacity: published::RAW_HIPPI_BEST, ..*path };
    let then = |path| as_then(path, Some(Bytes(10_000_000)), published::TRANSFER).map(|(time, _)| time);
    let mut reason = String::new();
    if let (Some(full), Some(slower)) = (then(path), then(&slower)) {
        reason = format!(
            "In 1995 start-up grew from one 64 KB packet by half a window per round trip: {} by that model, {} at the \
             {} that raw HIPPI blocks reached; the other {} the report leaves open. Linux starts with ten packets and \
             doubles.",
            show_duration(full),
            show_duration(slower),
            published::RAW_HIPPI_BEST,
            show_duration(published::TRANSFER_TIME.saturating_sub(slower))
        );
    }
    if let (Some(measured), Some(predicted)) = (measured, predicted) {
        let extra = measured.as_secs_f64() - predicted.as_secs_f64();
        let per_rtt = extra / path.base_rtt.as_secs_f64();
        reason.push_str(&format!(
            " Measured is {extra:+.1} s ({per_rtt:+.1} round trips) of predicted, TLS, checksum and the word that all \
             is on disk included."
        ));
    }
    Row {
        what: format!("time to move {}", published::TRANSFER),
        published: Some(time(published::TRANSFER_TIME)),
        predicted: predicted.map(time),
        measured: measured.map(time),
        reason,
    }
}

/// A transfer as the hosts of 1995 made it: HIPPI's packets of 64 KB, one of them first, delayed acknowledgements.
fn as_then(path: &PathProfile, window: Option<Bytes>, size: Bytes) -> Option<(Duration, BitRate)> {
    let path = PathProfile { mtu: 65_280, ..*path };
    let flow = Flow { window, initial_window: 1, delayed_ack: true, ..Flow::default() };
    let time = transfer_time(&path, &flow, size)?.total();
    Some((time, size.per(time)))
}

fn mega(rate: BitRate) -> f64 {
    rate.as_f64() / 1e6
}

fn agree(a: f64, b: f64) -> bool {
    (a - b).abs() <= AGREE * a.abs().max(b.abs())
}

fn time(value: Duration) -> Figure {
    Figure { text: show_duration(value), value: value.as_secs_f64() }
}

fn bytes(value: Bytes) -> Figure {
    Figure { text: value.exact(), value: value.0 as f64 }
}

fn rate(value: BitRate) -> Figure {
    Figure { text: value.to_string(), value: value.as_f64() }
}
