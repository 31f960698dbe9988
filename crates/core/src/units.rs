//! Quantities as people type and read them: bytes, bit rates, durations and ratios.
//!
//! A unit lives in the type, never in a name's suffix. Parsing accepts what users of `tc`, `iperf3` and `dd` type and
//! refuses what could be meant in two ways; printing is SI for rates and for bytes, with KiB, MiB and GiB only where
//! the number is an exact power of two times a small integer.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why a quantity could not be read; the message names the text as it was typed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number at the start, or nothing at all.
    #[error("'{text}' is not a {quantity}: expected a number and a unit, such as {example}")]
    NotANumber {
        /// What was typed.
        text: String,
        /// What was wanted: "byte count", "bit rate" …
        quantity: &'static str,
        /// A value that would be accepted.
        example: &'static str,
    },
    /// A unit nobody knows, or one that belongs to another quantity.
    #[error("'{text}': unknown unit '{unit}' for a {quantity}: use one of {allowed}")]
    UnknownUnit {
        /// What was typed.
        text: String,
        /// The part that was not understood.
        unit: String,
        /// What was wanted.
        quantity: &'static str,
        /// The units that would be accepted.
        allowed: &'static str,
    },
    /// A time that is only a number.
    #[error("'{0}' has no unit: say {0}ms or {0}s")]
    NoUnit(String),
    /// Below zero.
    #[error("'{text}': a {quantity} cannot be negative")]
    Negative {
        /// What was typed.
        text: String,
        /// What was wanted.
        quantity: &'static str,
    },
    /// Zero where something is needed.
    #[error("'{text}': a {quantity} of zero has no meaning here")]
    Zero {
        /// What was typed.
        text: String,
        /// What was wanted.
        quantity: &'static str,
    },
    /// More than can be represented.
    #[error("'{text}': too large for a {quantity}: the most is {most}")]
    TooLarge {
        /// What was typed.
        text: String,
        /// What was wanted.
        quantity: &'static str,
        /// The largest value, as text.
        most: &'static str,
    },
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct BitRate(pub u64);

/// A probability or share, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Ratio(f64);

/// It is never NaN: there is no way to make one of it.
impl Eq for Ratio {}

const KIB: f64 = 1024.0;

impl FromStr for Bytes {
    type Err = QuantityError;

    /// `4547813`, `64KiB`, `10MB`, `1.5GiB`; a bare `K`, `M`, `G`, `T` is binary, as in iperf3, dd and nettest.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const WHAT: Quantity = Quantity {
            name: "byte count",
            example: "10000000, 64KiB or 10MB",
            units: "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB (K, M, G, T are binary)",
            most: "16 EiB",
        };
        let (number, unit) = WHAT.split(text)?;
        let factor = match unit.trim_end_matches(['b', 'B']) {
            "" => 1.0,
            "k" | "K" if unit.len() == 2 => 1e3,
            "M" | "m" if unit.len() == 2 => 1e6,
            "G" | "g" if unit.len() == 2 => 1e9,
            "T" | "t" if unit.len() == 2 => 1e12,
            "k" | "K" | "Ki" | "ki" => KIB,
            "M" | "m" | "Mi" | "mi" => KIB.powi(2),
            "G" | "g" | "Gi" | "gi" => KIB.powi(3),
            "T" | "t" | "Ti" | "ti" => KIB.powi(4),
            _ => return Err(WHAT.unknown_unit(text, unit)),
        };
        WHAT.scale(text, number, factor).map(Bytes)
    }
}

impl FromStr for BitRate {
    type Err = QuantityError;

    /// `135mbit`, `135Mb/s`, `2.5Gbps`, `10G`, `155520000`: bits per second, SI multiples, as `tc` and iperf3 print.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const WHAT: Quantity = Quantity {
            name: "bit rate",
            example: "135mbit, 2.5Gb/s or 155520000",
            units: "bit, kbit, mbit, gbit, tbit, Mb/s, Gbit/s, Mbps (bits, never bytes, per second)",
            most: "18 Eb/s",
        };
        let (number, unit) = WHAT.split(text)?;
        // `MB/s` against `Mb/s` is the oldest misunderstanding of the field: a capital B is refused, not guessed.
        if unit.contains('B') {
            return Err(WHAT.unknown_unit(text, unit));
        }
        let lower = unit.to_ascii_lowercase();
        let lower = lower.strip_suffix("/s").unwrap_or(&lower);
        let stem = ["bits", "bit", "bps", "b"].iter().find_map(|tail| lower.strip_suffix(tail)).unwrap_or(lower);
        let factor = match stem {
            "" => 1.0,
            "k" => 1e3,
            "m" => 1e6,
            "g" => 1e9,
            "t" => 1e12,
            _ => return Err(WHAT.unknown_unit(text, unit)),
        };
        WHAT.scale(text, number, factor).map(BitRate)
    }
}

impl FromStr for Ratio {
    type Err = QuantityError;

    /// `1e-4`, `0.01`, `1%`: at most 1 (100 %).
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const WHAT: Quantity =
            Quantity { name: "ratio", example: "1e-4 or 0.01%", units: "%, or none", most: "1 (100 %)" };
        let (number, unit) = WHAT.split(text)?;
        let value = match unit {
            "" => number,
            "%" => shifted(number, -2),
            _ => return Err(WHAT.unknown_unit(text, unit)),
        };
        if value > 1.0 { Err(WHAT.too_large(text)) } else { Ok(Ratio(value)) }
    }
}

/// Reads `539ms`, `1.5s`, `60`, `250us`, `2min`, `1h`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    const WHAT: Quantity = Quantity {
        name: "duration",
        example: "539ms, 1.5s or 10min",
        units: "ns, us, ms, s, min, h, d",
        most: "584 years",
    };
    let (number, unit) = WHAT.split(text)?;
    let nanos_per_unit = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "" | "s" | "sec" => 1e9,
        "min" | "m" => 60e9,
        "h" => 3600e9,
        "d" => 86_400e9,
        _ => return Err(WHAT.unknown_unit(text, unit)),
    };
    WHAT.scale(text, number, nanos_per_unit).map(Duration::from_nanos)
}

/// The same where a number alone could be meant in two ways (`ping` takes it for ms, `tc` for µs): it wants a unit.
/// Zero needs none.
pub fn parse_unit_duration(text: &str) -> Result<Duration, QuantityError> {
    let duration = parse_duration(text)?;
    let has_unit = text.trim().ends_with(|last: char| last.is_alphabetic());
    if has_unit || duration.is_zero() { Ok(duration) } else { Err(QuantityError::NoUnit(text.trim().to_owned())) }
}

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

/// A duration as one would type it, to the nanosecond: `539ms`, `1500us`, `2s`. What [`parse_duration`] reads back.
pub fn typed_duration(duration: Duration) -> String {
    match duration.as_nanos() {
        nanos if nanos % 1_000_000_000 == 0 => format!("{}s", nanos / 1_000_000_000),
        nanos if nanos % 1_000_000 == 0 => format!("{}ms", nanos / 1_000_000),
        nanos if nanos % 1000 == 0 => format!("{}us", nanos / 1000),
        nanos => format!("{nanos}ns"),
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

    /// In binary multiples, of a number that is exactly a few of them.
    fn binary(self) -> Option<String> {
        let fits = |shift: u32| self.0 != 0 && self.0.trailing_zeros() >= shift && self.0 >> shift < 10_000;
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let (shift, unit) = units.into_iter().find(|(shift, _)| fits(*shift))?;
        Some(format!("{} {unit}", self.0 >> shift))
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

    /// The same as bits; saturates.
    pub fn bits(self) -> u64 {
        self.0.saturating_mul(8)
    }

    /// The rate at which these bytes in `time` move; zero if no time has passed.
    pub fn per(self, time: Duration) -> BitRate {
        if time.is_zero() {
            return BitRate(0);
        }
        BitRate((self.0 as f64 * 8.0 / time.as_secs_f64()).round() as u64)
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

    /// Bits per second as a float, for the models.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// Bytes carried in `time`, rounded to the nearest: the bandwidth-delay product when `time` is the base RTT.
    pub fn times(self, time: Duration) -> Bytes {
        let bit_nanos = u128::from(self.0).saturating_mul(time.as_nanos());
        let bytes = bit_nanos.saturating_add(4_000_000_000) / 8_000_000_000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Time to send `bytes` at this rate; `Duration::MAX` at a rate of zero.
    pub fn time_for(self, bytes: Bytes) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let nanos = u128::from(bytes.0) * 8_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Ratio {
    /// Nothing.
    pub const NONE: Ratio = Ratio(0.0);
    /// The whole, 100 %.
    pub const ALL: Ratio = Ratio(1.0);

    /// As one types it: exact and without a space, `0.01`, `1e-7`. Parsing gives the same again.
    pub fn typed(self) -> String {
        let text = format!("{:?}", self.0);
        text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
    }

    /// A ratio, if `value` lies from 0 to 1.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Ratio(value))
    }

    /// From 0 to 1.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Ratio {
    type Error = &'static str;

    fn try_from(value: f64) -> Result<Self, &'static str> {
        Ratio::new(value).ok_or("a ratio lies from 0 to 1")
    }
}

impl From<Ratio> for f64 {
    fn from(ratio: Ratio) -> f64 {
        ratio.0
    }
}

/// What a parser says of the quantity it reads.
struct Quantity {
    name: &'static str,
    example: &'static str,
    units: &'static str,
    most: &'static str,
}

impl Quantity {
    /// Splits `text` into a finite, non-negative number and the unit after it.
    fn split<'a>(&self, text: &'a str) -> Result<(f64, &'a str), QuantityError> {
        let trimmed = text.trim();
        let end = number_end(trimmed);
        let (number, unit) = trimmed.split_at(end);
        let number: f64 = number.parse().map_err(|_| QuantityError::NotANumber {
            text: text.to_owned(),
            quantity: self.name,
            example: self.example,
        })?;
        if number < 0.0 {
            return Err(QuantityError::Negative { text: text.to_owned(), quantity: self.name });
        }
        if !number.is_finite() {
            return Err(self.too_large(text));
        }
        Ok((number, unit.trim_start()))
    }

    fn scale(&self, text: &str, number: f64, factor: f64) -> Result<u64, QuantityError> {
        let value = (number * factor).round();
        if value >= u64::MAX as f64 { Err(self.too_large(text)) } else { Ok(value as u64) }
    }

    fn too_large(&self, text: &str) -> QuantityError {
        QuantityError::TooLarge { text: text.to_owned(), quantity: self.name, most: self.most }
    }

    fn unknown_unit(&self, text: &str, unit: &str) -> QuantityError {
        QuantityError::UnknownUnit {
            text: text.to_owned(),
            unit: unit.to_owned(),
            quantity: self.name,
            allowed: self.units,
        }
    }
}

/// The number with its decimal point moved: 0.7 % is 0.007, and 0.7 / 100 is the float before that.
fn shifted(number: f64, places: i32) -> f64 {
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent = exponent.parse().unwrap_or(0) + places;
    format!("{digits}e{exponent}").parse().unwrap_or(f64::NAN)
}

/// Where the number at the start of `text` ends: sign, digits, point, and an exponent only where digits follow it.
fn number_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(|b| b.is_ascii_digit() || *b == b'.') {
            at += 1;
        }
        at
    };
    let start = usize::from(matches!(bytes.first(), Some(b'-' | b'+')));
    let end = digits(start);
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
        if bytes.get(sign).is_some_and(u8::is_ascii_digit) {
            return digits(sign);
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_typed() {
        let ok = [
            ("4547813", 4_547_813),
            ("64KiB", 65_536),
            ("64K", 65_536),
            ("10MB", 10_000_000),
            ("10 MB", 10_000_000),
            ("1.5GiB", 1_610_612_736),
            ("675k", 691_200),
            ("3e6", 3_000_000),
            ("1B", 1),
            ("0", 0),
        ];
        for (text, bytes) in ok {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "MB", "-1", "1e30", "10 parsecs", "nan", "inf", "1e400", "1..2", "0x10"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_compared_is_printed_alike() {
        assert_eq!(BitRate::alike([BitRate(1_000_000), BitRate(998_000)]), ["1 Mb/s", "0.998 Mb/s"]);
        assert_eq!(BitRate::alike([BitRate(2_000_000_000), BitRate(1_230_000)]), ["2 Gb/s", "1.23 Mb/s"]);
        assert_eq!(BitRate::alike([BitRate(5_000_000), BitRate(0)]), ["5 Mb/s", "0 Mb/s"]);
        assert_eq!(Bytes::alike([Bytes(4 << 20), Bytes(208 << 10)]), ["4 MiB", "208 KiB"]);
        assert_eq!(Bytes::alike([Bytes(4 << 20), Bytes(3_000_001)]), ["4.194 MB", "3 MB"]);
        assert_eq!(Bytes::alike([Bytes(4_000_000), Bytes(212_992)]), ["4 MB", "0.213 MB"]);
        assert_eq!((Bytes(6 << 20).to_string(), Bytes(6 << 20).decimal()), ("6 MiB".into(), "6.291 MB".into()));
    }

    #[test]
    fn no_figure_is_a_thousand_of_its_unit() {
        assert_eq!(
            [999, 1000, 999_949, 999_950].map(|rate| BitRate(rate).to_string()),
            ["999 b/s", "1 kb/s", "999.9 kb/s", "1 Mb/s"]
        );
        assert_eq!(Bytes(999_999_999).to_string(), "1 GB");
        assert_eq!(BitRate(2_000_000_000_000_000).to_string(), "2000 Tb/s", "there is no larger unit");
        assert_eq!([999_940, 999_960].map(|nanos| show_duration(Duration::from_nanos(nanos))), ["999.9 µs", "1 ms"]);
        assert_eq!(show_duration(Duration::from_micros(999_960)), "1 s");
    }

    #[test]
    fn rates_are_bits_and_never_bytes() {
        let ok = [
            ("135mbit", 135_000_000),
            ("135Mb/s", 135_000_000),
            ("2.5Gbps", 2_500_000_000),
            ("10G", 10_000_000_000),
            ("155520000", 155_520_000),
            ("155.52 Mbit/s", 155_520_000),
        ];
        for (text, rate) in ok {
            assert_eq!(text.parse(), Ok(BitRate(rate)), "{text}");
        }
        for text in ["135MB/s", "-1mbit", "", "fast", "1e40gbit"] {
            assert!(text.parse::<BitRate>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_and_ratios() {
        assert_eq!(parse_duration("539ms"), Ok(Duration::from_millis(539)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2min"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        for (text, duration) in
            [("539ms", 539_000_000), ("1001us", 1_001_000), ("60s", 60_000_000_000), ("7ns", 7), ("0s", 0)]
        {
            assert_eq!(typed_duration(Duration::from_nanos(duration)), text);
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(duration)));
        }
        assert!(parse_duration("-1s").is_err() && parse_duration("5 lightyears").is_err());
        assert_eq!("1e-4".parse::<Ratio>().map(Ratio::get), Ok(1e-4));
        assert_eq!("1%".parse::<Ratio>().map(Ratio::get), Ok(0.01));
        // Where dividing by a hundred, or multiplying, misses the nearest float.
        for (per_cent, ratio) in [("0.7%", 0.007), ("7%", 0.07), ("0.57%", 0.0057), ("1e-3%", 1e-5), ("100%", 1.0)] {
            let read: Ratio = per_cent.parse().unwrap();
            assert_eq!((read.get(), read.to_string().parse()), (ratio, Ok(read)), "{per_cent}");
        }
        assert_eq!(Ratio(0.07).to_string(), "7 %");
        assert!("2".parse::<Ratio>().is_err() && "-0.1".parse::<Ratio>().is_err());
    }

    #[test]
    fn printing_is_si_for_rates_and_exact_powers_are_binary() {
        assert_eq!(BitRate(135_000_000).to_string(), "135 Mb/s");
        assert_eq!(BitRate(67_400_000).to_string(), "67.4 Mb/s");
        assert_eq!(Bytes(9_095_625).to_string(), "9.096 MB");
        assert_eq!((Bytes(0).exact(), Bytes(9_095_625).exact()), ("0 B".into(), "9,095,625 B".into()));
        assert_eq!(Bytes(65_536).to_string(), "64 KiB");
        assert_eq!(Bytes(1 << 30).to_string(), "1 GiB");
        assert_eq!(show_duration(Duration::from_millis(539)), "539 ms");
        assert_eq!(show_duration(Duration::from_micros(501_400)), "501.4 ms");
    }

    #[test]
    fn what_is_typed_is_read_back_exactly() {
        for bytes in [0, 1, 1000, 1024, 64_000, 65_536, 9_095_625, 1 << 40, 5 << 50] {
            assert_eq!(Bytes(bytes).typed().parse(), Ok(Bytes(bytes)));
            assert_eq!(BitRate(bytes).typed().parse(), Ok(BitRate(bytes)));
            let duration = Duration::from_nanos(bytes);
            assert_eq!(parse_duration(&typed_duration(duration)), Ok(duration));
        }
        for ratio in [0.0, 1.0, 1e-4, 1e-300, 1.0 / 3.0, 0.1 + 0.2] {
            assert_eq!(Ratio(ratio).typed().parse(), Ok(Ratio(ratio)));
        }
        let texts = [Bytes(65_536).typed(), BitRate(135_000_000).typed(), Ratio(1e-4).typed(), Ratio(1.0).typed()];
        assert_eq!(texts, ["64KiB", "135mbit", "0.0001", "1"]);
        assert_eq!(typed_duration(Duration::from_millis(1500)), "1500ms");
    }

    #[test]
    fn the_bandwidth_delay_products_of_the_reports() {
        // 000, 002, 004: 135 Mb/s at 539, 541 and 550 ms.
        for (ms, bytes) in [(539, 9_095_625), (541, 9_129_375), (550, 9_281_250)] {
            assert_eq!(BitRate(135_000_000).times(Duration::from_millis(ms)), Bytes(bytes));
        }
    }
}
