//! Quantities with their units: bytes, bit rates, durations and ratios.
//!
//! A unit is part of the type, never the suffix of a name. This file has the types and their arithmetic. `read` parses
//! them, `show` formats them.

mod read;
mod show;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use read::{QuantityError, parse_duration, parse_unit_bytes, parse_unit_duration};
pub use show::{counted, duration_argument, grouped, show_duration};

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct BitRate(pub u64);

/// A probability or share, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Ratio(f64);

/// A `Ratio` is never NaN: no function creates one from NaN.
impl Eq for Ratio {}

impl Bytes {
    /// Returns the number of bits; saturates.
    pub fn bits(self) -> u64 {
        self.0.saturating_mul(8)
    }

    /// Returns the rate that moves these bytes in `time`; zero if `time` is zero.
    pub fn per(self, time: Duration) -> BitRate {
        if time.is_zero() {
            return BitRate(0);
        }
        BitRate((self.0 as f64 * 8.0 / time.as_secs_f64()).round() as u64)
    }
}

impl BitRate {
    /// Returns the rate in bits per second as a float, for the models.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// Returns the bytes carried in `time`, rounded to the nearest byte. With the base RTT as `time` this is the
    /// bandwidth-delay product.
    pub fn times(self, time: Duration) -> Bytes {
        let bit_nanos = u128::from(self.0).saturating_mul(time.as_nanos());
        let bytes = bit_nanos.saturating_add(4_000_000_000) / 8_000_000_000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Returns the time to send `bytes` at this rate; `Duration::MAX` at a rate of zero.
    pub fn time_for(self, bytes: Bytes) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let nanos = u128::from(bytes.0) * 8_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Ratio {
    pub const ZERO: Ratio = Ratio(0.0);
    pub const ONE: Ratio = Ratio(1.0);

    /// Creates a ratio; `None` if `value` is outside 0 to 1 or NaN.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Ratio(value))
    }

    /// Returns the value, from 0 to 1.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Ratio {
    type Error = &'static str;

    fn try_from(value: f64) -> Result<Self, &'static str> {
        Ratio::new(value).ok_or("a ratio must be from 0 to 1")
    }
}

impl From<Ratio> for f64 {
    fn from(ratio: Ratio) -> f64 {
        ratio.0
    }
}

/// Moves the decimal point of a number without a rounding error: 0.7 % is 0.007, but 0.7 / 100 is the next smaller
/// float.
fn shift_decimal_point(number: f64, places: i32) -> f64 {
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent = exponent.parse().unwrap_or(0) + places;
    format!("{digits}e{exponent}").parse().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests;
