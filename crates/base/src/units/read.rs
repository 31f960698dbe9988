//! Parsers for quantities that a user types.
//!
//! They accept the spellings of `tc`, `iperf3` and `dd`. They refuse ambiguous values: a time without a unit, a rate in
//! bytes.

use std::str::FromStr;
use std::time::Duration;

use super::{BitRate, Bytes, Ratio, shift_decimal_point};

/// Error of a quantity that cannot be read; the message quotes the text as the user typed it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("'{text}' is not a {quantity}: expected a number and a unit, for example {example}")]
    NotANumber {
        text: String,
        /// For example "byte count" or "bit rate".
        quantity: &'static str,
        example: &'static str,
    },
    /// An unknown unit, or a unit of another quantity.
    #[error("'{text}': unknown unit '{unit}' for a {quantity}: use one of {allowed}")]
    UnknownUnit { text: String, unit: String, quantity: &'static str, allowed: &'static str },
    #[error("'{0}' has no unit: write {0}ms or {0}s")]
    NoUnit(String),
    /// A bare number is ambiguous: `tc` and iperf3 read it as bits per second, people mean Mb/s. Remedy:
    /// [`suggestion`](Self::suggestion).
    #[error("'{text}' has no unit: write {megabits} or {text}bit")]
    NoRateUnit {
        text: String,
        /// The number as Mb/s, in the form that the parser reads.
        megabits: String,
    },
    /// A bare number of bytes is ambiguous for the size of a transfer. Remedy: [`suggestion`](Self::suggestion).
    #[error("'{0}' has no unit: write {0}GB or {0}B")]
    NoSizeUnit(String),
    #[error("'{text}': a {quantity} cannot be negative")]
    Negative { text: String, quantity: &'static str },
    #[error("'{text}': a {quantity} of zero is not allowed here")]
    Zero { text: String, quantity: &'static str },
    #[error("'{text}': too large for a {quantity}: the maximum is {max}")]
    TooLarge { text: String, quantity: &'static str, max: &'static str },
}

impl QuantityError {
    /// Returns the value with its most probable unit, if only the unit is missing, or a rate in bytes in bits.
    pub fn suggestion(&self) -> Option<String> {
        match self {
            QuantityError::NoUnit(text) => Some(format!("{text}ms")),
            QuantityError::NoRateUnit { megabits, .. } => Some(megabits.clone()),
            QuantityError::NoSizeUnit(text) => Some(format!("{text}GB")),
            QuantityError::UnknownUnit { text, quantity: RATE_NAME, .. } => rate_in_bits(text),
            _ => None,
        }
    }
}

/// Returns a rate in bytes per second, such as `10MB/s`, in bits.
fn rate_in_bits(text: &str) -> Option<String> {
    let text = text.trim();
    let amount = ["/s", "ps"].iter().find_map(|tail| text.strip_suffix(tail)).unwrap_or(text);
    let bytes: Bytes = amount.parse().ok().filter(|_| amount.ends_with('B'))?;
    Some(BitRate(bytes.0.checked_mul(8)?).to_argument())
}

/// Name of the quantity in the errors of a [`BitRate`].
const RATE_NAME: &str = "bit rate";
const KIB: f64 = 1024.0;

impl FromStr for Bytes {
    type Err = QuantityError;

    /// Reads `4547813`, `64KiB`, `10MB`, `1.5GiB`. A bare `K`, `M`, `G` or `T` is binary, as in iperf3, dd and nettest.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const QUANTITY: Quantity = Quantity {
            name: "byte count",
            example: "10000000, 64KiB or 10MB",
            units: "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB (K, M, G, T are binary)",
            max: "16 EiB",
        };
        let (number, unit) = QUANTITY.split(text)?;
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
            _ => return Err(QUANTITY.unknown_unit(text, unit)),
        };
        QUANTITY.scale(text, number, factor).map(Bytes)
    }
}

impl FromStr for BitRate {
    type Err = QuantityError;

    /// Reads `135mbit`, `135Mb/s`, `2.5Gbps`, `10G`, `155520000bit`: bits per second with SI multiples, as `tc` and
    /// iperf3 print them. Only zero needs no unit.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const QUANTITY: Quantity = Quantity {
            name: RATE_NAME,
            example: "135mbit, 2.5Gb/s or 155520000bit",
            units: "bit, kbit, mbit, gbit, tbit, Mb/s, Gbit/s, Mbps (bits, never bytes, per second)",
            max: "18 Eb/s",
        };
        let (number, unit) = QUANTITY.split(text)?;
        // `MB/s` is often confused with `Mb/s`: a capital B is an error, not a guess.
        if unit.contains('B') {
            return Err(QUANTITY.unknown_unit(text, unit));
        }
        let lower = unit.to_ascii_lowercase();
        let lower = lower.strip_suffix("/s").unwrap_or(&lower);
        let stem = ["bits", "bit", "bps", "b"].iter().find_map(|tail| lower.strip_suffix(tail)).unwrap_or(lower);
        if unit.is_empty() && number > 0.0 {
            let megabits = BitRate(QUANTITY.scale(text, number, 1e6)?).to_argument();
            return Err(QuantityError::NoRateUnit { text: text.trim().to_owned(), megabits });
        }
        let factor = match stem {
            "" => 1.0,
            "k" => 1e3,
            "m" => 1e6,
            "g" => 1e9,
            "t" => 1e12,
            _ => return Err(QUANTITY.unknown_unit(text, unit)),
        };
        QUANTITY.scale(text, number, factor).map(BitRate)
    }
}

impl FromStr for Ratio {
    type Err = QuantityError;

    /// Reads `1e-4`, `0.01`, `1%`; the maximum is 1 (100 %).
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const QUANTITY: Quantity =
            Quantity { name: "ratio", example: "1e-4 or 0.01%", units: "%, or none", max: "1 (100 %)" };
        let (number, unit) = QUANTITY.split(text)?;
        let value = match unit {
            "" => number,
            "%" => shift_decimal_point(number, -2),
            _ => return Err(QUANTITY.unknown_unit(text, unit)),
        };
        if value > 1.0 { Err(QUANTITY.too_large(text)) } else { Ok(Ratio(value)) }
    }
}

/// Reads `539ms`, `1.5s`, `60`, `250us`, `2min`, `1h`; a bare number is in seconds.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    const QUANTITY: Quantity = Quantity {
        name: "duration",
        example: "539ms, 1.5s or 10min",
        units: "ns, us, ms, s, min, h, d",
        max: "584 years",
    };
    let (number, unit) = QUANTITY.split(text)?;
    let nanos_per_unit = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "" | "s" | "sec" => 1e9,
        "min" | "m" => 60e9,
        "h" => 3600e9,
        "d" => 86_400e9,
        _ => return Err(QUANTITY.unknown_unit(text, unit)),
    };
    QUANTITY.scale(text, number, nanos_per_unit).map(Duration::from_nanos)
}

/// Reads a duration that must have a unit, because a bare number is ambiguous: `ping` reads it as ms, `tc` as µs. Zero
/// needs no unit.
pub fn parse_unit_duration(text: &str) -> Result<Duration, QuantityError> {
    let duration = parse_duration(text)?;
    let has_unit = text.trim().ends_with(|last: char| last.is_alphabetic());
    if has_unit || duration.is_zero() { Ok(duration) } else { Err(QuantityError::NoUnit(text.trim().to_owned())) }
}

/// Reads the size of a transfer, which must have a unit. Zero needs no unit.
pub fn parse_unit_bytes(text: &str) -> Result<Bytes, QuantityError> {
    let bytes: Bytes = text.parse()?;
    let has_unit = text.trim().ends_with(|last: char| last.is_alphabetic());
    if has_unit || bytes == Bytes(0) { Ok(bytes) } else { Err(QuantityError::NoSizeUnit(text.trim().to_owned())) }
}

/// Texts that a parser needs for the errors of its quantity.
struct Quantity {
    name: &'static str,
    example: &'static str,
    units: &'static str,
    max: &'static str,
}

impl Quantity {
    /// Splits `text` into a finite number of zero or more and the unit after it.
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
        QuantityError::TooLarge { text: text.to_owned(), quantity: self.name, max: self.max }
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

/// Returns the end of the number at the start of `text`: sign, digits, point, and an exponent only if digits follow it.
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
