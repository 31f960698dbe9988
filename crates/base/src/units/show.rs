//! Formatters of quantities for people and for command lines.
//!
//! Rates and bytes have SI units. KiB, MiB and GiB appear only where the number is an exact power of two times a small
//! integer. The `to_argument` functions write an exact value as a command-line argument.

use std::fmt;
use std::time::Duration;

use super::{BitRate, Bytes, Ratio, shift_decimal_point};

/// Formats a duration in the units that read best: `539 ms`, `12.3 s`, `60.1 µs`, `7 h 10 min`.
pub fn show_duration(duration: Duration) -> String {
    const DAY: f64 = 86_400.0;
    let seconds = duration.as_secs_f64();
    match seconds {
        0.0 => "0 s".to_owned(),
        s if s < 1e-6 => format!("{} ns", duration.as_nanos()),
        s if s < NEXT_UNIT_FROM * 1e-6 => format!("{} µs", four_digits(s * 1e6)),
        s if s < NEXT_UNIT_FROM * 1e-3 => format!("{} ms", four_digits(s * 1e3)),
        s if s < 600.0 => format!("{} s", four_digits(s)),
        s if s.round() < 3600.0 => two_units(s.round() as u64, 60, ["min", "s"]),
        s if s < 2.0 * DAY => two_units((s / 60.0).round() as u64, 60, ["h", "min"]),
        s if s < 100.0 * DAY => two_units((s / 3600.0).round() as u64, 24, ["d", "h"]),
        s => format!("{:.0} d", s / DAY),
    }
}

/// Formats a count with commas: `1,234,567`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let head = digits.len() % 3;
    let (first, rest) = digits.split_at(head);
    let groups = rest.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    [first.to_owned()].into_iter().filter(|first| !first.is_empty()).chain(groups).collect::<Vec<_>>().join(",")
}

/// Returns a number with its noun: `1 packet`, `1,000 packets`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Formats a number of small units as large and small units, `size` small ones in a large one. Zero small units are
/// omitted.
fn two_units(number: u64, size: u64, [large, small]: [&str; 2]) -> String {
    match number % size {
        0 => format!("{} {large}", number / size),
        rest => format!("{} {large} {rest:02} {small}", number / size),
    }
}

/// Formats a duration as a command-line argument, exact to the nanosecond: `539ms`, `1500us`, `2s`.
/// [`super::parse_duration`] reads it back.
pub fn duration_argument(duration: Duration) -> String {
    match duration.as_nanos() {
        nanos if nanos % 1_000_000_000 == 0 => format!("{}s", nanos / 1_000_000_000),
        nanos if nanos % 1_000_000 == 0 => format!("{}ms", nanos / 1_000_000),
        nanos if nanos % 1000 == 0 => format!("{}us", nanos / 1000),
        nanos => format!("{nanos}ns"),
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_binary_units().unwrap_or_else(|| self.decimal()))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_multiple(self.0, best_multiple(self.0), BITS))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} %", shift_decimal_point(self.0, 2)))
    }
}

impl Bytes {
    /// Formats the bytes with an SI unit, never a binary unit: for measured values that are compared with each other.
    pub fn decimal(self) -> String {
        format_multiple(self.0, best_multiple(self.0), BYTES)
    }

    /// Formats several values in one unit so that a reader can compare them: binary units if every value fits one, else
    /// the same SI unit.
    pub fn in_common_unit<const N: usize>(all: [Bytes; N]) -> [String; N] {
        match all.iter().all(|bytes| bytes.to_binary_units().is_some()) {
            true => all.map(|bytes| bytes.to_string()),
            false => in_common_unit(all.map(|bytes| bytes.0), BYTES),
        }
    }

    /// Formats several values in the same SI unit, never in a binary unit.
    pub fn in_common_decimal_unit<const N: usize>(all: [Bytes; N]) -> [String; N] {
        in_common_unit(all.map(|bytes| bytes.0), BYTES)
    }

    /// Formats the bytes as a command-line argument, exact and without a space: `64KiB`, `9095625B`. The parser reads
    /// it back.
    pub fn to_argument(self) -> String {
        exact_multiple(self.0, &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)])
    }

    /// Formats all digits in groups of three, `9,095,625 B`, for figures that a reader may check.
    pub fn exact(self) -> String {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() * 4 / 3 + 2);
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        text + " B"
    }

    /// Formats a small exact multiple of a binary unit; `None` for other numbers.
    fn to_binary_units(self) -> Option<String> {
        let fits = |shift: u32| self.0 != 0 && self.0.trailing_zeros() >= shift && self.0 >> shift < 10_000;
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let (shift, unit) = units.into_iter().find(|(shift, _)| fits(*shift))?;
        Some(format!("{} {unit}", self.0 >> shift))
    }
}

impl BitRate {
    /// Formats several rates in one unit so that a reader can compare them.
    pub fn in_common_unit<const N: usize>(all: [BitRate; N]) -> [String; N] {
        in_common_unit(all.map(|rate| rate.0), BITS)
    }

    /// Formats the rate as a command-line argument, exact and without a space: `135mbit`. The parser reads it back.
    pub fn to_argument(self) -> String {
        const UNITS: [(&str, u64); 5] =
            [("tbit", 1_000_000_000_000), ("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)];
        exact_multiple(self.0, &UNITS)
    }
}

impl Ratio {
    /// Formats the ratio as a command-line argument, exact and without a space: `0.01`, `1e-7`. The parser reads it
    /// back.
    pub fn to_argument(self) -> String {
        let text = format!("{:?}", self.0);
        text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
    }
}

/// Formats `value` in the largest of `units` that divides it; the last unit is 1. The parser uses floats, so it cannot
/// read back every number above 2^53.
fn exact_multiple(value: u64, units: &[(&str, u64)]) -> String {
    let last = units.len() - 1;
    let (name, size) =
        units[..last].iter().find(|(_, size)| value >= *size && value.is_multiple_of(*size)).unwrap_or(&units[last]);
    format!("{}{name}", value / size)
}

/// From this value on, four significant digits round up to 1000, which is 1 of the next unit.
const NEXT_UNIT_FROM: f64 = 999.95;

const BYTES: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];

const BITS: [&str; 5] = ["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"];

/// Returns the index of the unit that reads best.
fn best_multiple(value: u64) -> usize {
    (0..BYTES.len() - 1).find(|&n| (value as f64) < NEXT_UNIT_FROM * 1000_f64.powi(n as i32)).unwrap_or(BYTES.len() - 1)
}

fn format_multiple(value: u64, n: usize, units: [&str; 5]) -> String {
    let number = if n == 0 { value.to_string() } else { four_digits(value as f64 / 1000_f64.powi(n as i32)) };
    format!("{number} {}", units[n])
}

/// Formats all values in the unit of the largest. A small value that would lose digits keeps its own unit.
fn in_common_unit<const N: usize>(values: [u64; N], units: [&str; 5]) -> [String; N] {
    const MIN_SHOWN: f64 = 0.1;
    let largest = values.into_iter().map(best_multiple).max().unwrap_or(0);
    values.map(|value| {
        let keeps_digits = value == 0 || value as f64 >= MIN_SHOWN * 1000_f64.powi(largest as i32);
        format_multiple(value, if keeps_digits { largest } else { best_multiple(value) }, units)
    })
}

/// Formats four significant digits without trailing zeros.
fn four_digits(value: f64) -> String {
    let decimals = match value {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
