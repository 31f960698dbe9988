//! Labels of the axes.

use std::time::Duration;

use crate::format;

/// The quantity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    BitsPerSecond,
    Seconds,
    /// A ratio from 0 to 1, shown as percent.
    Ratio,
}

/// The labels of the values: from 0 to the first label above the largest value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ValueTicks {
    pub ticks: Vec<f64>,
    /// Largest label, at the top of the axis.
    pub max: f64,
    /// Size of one unit of the labels.
    pub scale: f64,
    pub unit: &'static str,
}

/// Returns at most six labels at 1, 2 or 5 times a power of ten.
pub(super) fn value_ticks(quantity: Quantity, highest: f64) -> ValueTicks {
    const RATES: [(f64, &str); 5] = [(1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"), (1.0, "b/s")];
    const TIMES: [(f64, &str); 3] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")];
    let (units, least): (&[(f64, &str)], f64) = match quantity {
        Quantity::BitsPerSecond => (&RATES, 1.0),
        Quantity::Seconds => (&TIMES, 1e-6),
        Quantity::Ratio => (&[(0.01, "%")], 0.001),
    };
    let highest = highest.max(least);
    let (scale, unit) = units.iter().find(|(size, _)| highest >= *size).or(units.last()).copied().unwrap_or((1.0, ""));
    let rough = highest / scale / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(power * 10.0) * scale;
    let intervals = (highest / step * 0.999).ceil().max(1.0);
    let max = if quantity == Quantity::Ratio { (intervals * step).min(1.0) } else { intervals * step };
    let ticks = (0..=intervals as u32).map(|place| f64::from(place) * step).filter(|tick| *tick <= max * 1.001);
    ValueTicks { ticks: ticks.collect(), max, scale, unit }
}

/// Formats a value with at most three significant decimals.
pub(super) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 || v == 0.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A label of the time axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TimeTick {
    pub time: Duration,
    pub label: String,
}

/// Returns at most nine labels at full hours or days in UTC.
pub(super) fn time_ticks(since: Duration, until: Duration) -> Vec<TimeTick> {
    const HOUR: u64 = 3600;
    /// Distances of labels, in hours.
    const STEPS: [u64; 12] = [1, 2, 3, 6, 12, 24, 48, 120, 168, 336, 720, 1440];
    let (first, last) = (since.as_secs(), until.as_secs());
    let step = STEPS
        .map(|hours| hours * HOUR)
        .into_iter()
        .find(|step| (last - first.min(last)) / step <= 8)
        .unwrap_or(2880 * HOUR);
    let start = first.div_ceil(step) * step;
    let times = (0..9).map(|place| start + place * step).take_while(|time| *time <= last);
    times.map(|time| TimeTick { time: Duration::from_secs(time), label: label(time, step) }).collect()
}

fn label(time: u64, step: u64) -> String {
    const DAY: u64 = 86_400;
    let text = format::minute(Duration::from_secs(time));
    let is_day = step >= DAY || time.is_multiple_of(DAY);
    text.chars().skip(if is_day { 5 } else { 11 }).take(5).collect()
}
