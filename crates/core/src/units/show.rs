//! Quantities as they are printed.
//!
//! SI for rates and for bytes, with KiB, MiB and GiB only where the number is an exact power of two times a small
//! integer; and once more as one would type them, exact, for a command that is shown to be run.

use std::fmt;
use std::time::Duration;

use super::{BitRate, Bytes, Ratio, shifted};

/// Prints a duration in the unit that reads best: `539 ms`, `12.3 s`, `60.1 µs`.
pub fn show_duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        0.0 => "0 s".to_owned(),
        s if s < 1e-6 => format!("{} ns", duration.as_nanos()),
        s if s < ROUNDS_UP * 1e-6 => format!("{} µs", significant(s * 1e6)),
        s if s < ROUNDS_UP * 1e-3 => format!("{} ms", significant(s * 1e3)),
        s if s < 600.0 => format!("{} s", significant(s)),
        s if s < 36_000.0 => format!("{:.0} min {:02.0} s", (s / 60.0).floor(), s % 60.0),
        s => format!("{} h", significant(s / 3600.0)),
    }
}

/// A duration as one would type it, to the nanosecond: `539ms`, `1500us`, `2s`. What [`super::parse_duration`] reads back.
pub fn typed_duration(duration: Duration) -> String {
    match duration.as_nanos() {
        nanos if nanos % 1_000_000_000 == 0 => format!("{}s", nanos / 1_000_000_000),
        nanos if nanos % 1_000_000 == 0 => format!("{}ms", nanos / 1_000_000),
        nanos if nanos % 1000 == 0 => format!("{}us", nanos / 1000),
        nanos => format!("{nanos}ns"),
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.binary().unwrap_or_else(|| self.decimal()))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&multiple(self.0, multiple_of(self.0), BITS))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} %", shifted(self.0, 2)))
    }
}

impl Bytes {
    /// In SI multiples alone: for what was measured, and stands beside other such figures.
    pub fn decimal(self) -> String {
        multiple(self.0, multiple_of(self.0), BYTES)
    }

    /// Figures that are compared: all in binary multiples if each is one, and otherwise all in SI of one size.
    pub fn alike<const N: usize>(all: [Bytes; N]) -> [String; N] {
        match all.iter().all(|bytes| bytes.binary().is_some()) {
            true => all.map(|bytes| bytes.to_string()),
            false => alike(all.map(|bytes| bytes.0), BYTES),
        }
    }

    /// As one types it: exact and without a space, `64KiB`, `9095625B`. Parsing gives the same again.
    pub fn typed(self) -> String {
        typed(self.0, &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)])
    }

    /// All digits, in groups of three: `9,095,625 B`. For figures a reader may want to check.
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

    /// In binary multiples, of a number that is exactly a few of them.
    fn binary(self) -> Option<String> {
        let fits = |shift: u32| self.0 != 0 && self.0.trailing_zeros() >= shift && self.0 >> shift < 10_000;
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let (shift, unit) = units.into_iter().find(|(shift, _)| fits(*shift))?;
        Some(format!("{} {unit}", self.0 >> shift))
    }
}

impl BitRate {
    /// Rates that are compared, in multiples of one size.
    pub fn alike<const N: usize>(all: [BitRate; N]) -> [String; N] {
        alike(all.map(|rate| rate.0), BITS)
    }

    /// As one types it: exact and without a space, `135mbit`. Parsing gives the same again.
    pub fn typed(self) -> String {
        const UNITS: [(&str, u64); 5] =
            [("tbit", 1_000_000_000_000), ("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)];
        typed(self.0, &UNITS)
    }
}

impl Ratio {
    /// As one types it: exact and without a space, `0.01`, `1e-7`. Parsing gives the same again.
    pub fn typed(self) -> String {
        let text = format!("{:?}", self.0);
        text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
    }
}

/// The largest of `units` that measures `value` without a rest; the last is 1. (Parsing goes over floats: beyond 2^53
/// not every number comes back.)
fn typed(value: u64, units: &[(&str, u64)]) -> String {
    let last = units.len() - 1;
    let (name, size) =
        units[..last].iter().find(|(_, size)| value >= *size && value.is_multiple_of(*size)).unwrap_or(&units[last]);
    format!("{}{name}", value / size)
}

/// From here on four significant digits are those of 1000, which the next unit says in one.
const ROUNDS_UP: f64 = 999.95;

/// SI multiples of a byte, a thousand times the one before each.
const BYTES: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];

/// The same of a bit per second.
const BITS: [&str; 5] = ["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"];

/// Which multiple reads best.
fn multiple_of(value: u64) -> usize {
    (0..BYTES.len() - 1).find(|&n| (value as f64) < ROUNDS_UP * 1000_f64.powi(n as i32)).unwrap_or(BYTES.len() - 1)
}

/// A value in a multiple of its unit.
fn multiple(value: u64, n: usize, units: [&str; 5]) -> String {
    let number = if n == 0 { value.to_string() } else { significant(value as f64 / 1000_f64.powi(n as i32)) };
    format!("{number} {}", units[n])
}

/// Values that are compared, all in the multiple of the largest; one that would lose digits there has its own.
fn alike<const N: usize>(values: [u64; N], units: [&str; 5]) -> [String; N] {
    const LEAST: f64 = 0.1;
    let largest = values.into_iter().map(multiple_of).max().unwrap_or(0);
    values.map(|value| {
        let keeps_digits = value == 0 || value as f64 >= LEAST * 1000_f64.powi(largest as i32);
        multiple(value, if keeps_digits { largest } else { multiple_of(value) }, units)
    })
}

/// Four significant digits, trailing zeros after the point removed.
fn significant(value: f64) -> String {
    let decimals = match value {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
