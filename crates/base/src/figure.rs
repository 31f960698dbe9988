//! A finite number that can be printed.
//!
//! JSON has no NaN and no infinity. So every stored, sent or printed value is a count, a time, a share
//! ([`crate::units::Ratio`]) or a [`Figure`], and never a bare `f64`: `serde_json` writes a NaN as `null`. A test of
//! the schemas fails if a bare `f64` appears.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A finite number, so never NaN or infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Figure(f64);

/// Error: a number that is NaN or infinite.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is not a finite number")]
pub struct NotFinite(f64);

impl Figure {
    /// Creates a figure; `None` for NaN and for infinities.
    pub fn new(value: f64) -> Option<Self> {
        value.is_finite().then_some(Figure(value))
    }

    /// Returns the finite number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Figure {
    type Error = NotFinite;

    fn try_from(value: f64) -> Result<Self, NotFinite> {
        Figure::new(value).ok_or(NotFinite(value))
    }
}

impl From<Figure> for f64 {
    fn from(figure: Figure) -> f64 {
        figure.0
    }
}

/// Converts to seconds. Every duration is finite.
impl From<Duration> for Figure {
    fn from(time: Duration) -> Self {
        Figure(time.as_secs_f64())
    }
}

/// Serializes a float of evidence as a finite number: `#[serde(with = "finite")]`. NaN and infinities become 0.
#[expect(non_camel_case_types, reason = "serde expects the path of a module here")]
pub enum finite {}

impl finite {
    /// Writes the number, or 0 if the number is not finite.
    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(if value.is_finite() { *value } else { 0.0 })
    }

    /// Reads a finite number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Figure::deserialize(deserializer).map(Figure::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_and_infinity_are_not_figures() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Figure::new(value), None);
            assert!(Figure::try_from(value).is_err());
        }
        for text in ["null", "1e999", "NaN", "\"1\""] {
            assert!(serde_json::from_str::<Figure>(text).is_err(), "{text}");
        }
        for value in [0.0, -0.0, f64::MIN, f64::MAX, f64::MIN_POSITIVE / 2.0, 1.0 / 3.0] {
            let text = serde_json::to_string(&Figure(value)).unwrap();
            assert_eq!(serde_json::from_str::<Figure>(&text).unwrap().get().to_bits(), value.to_bits(), "{text}");
        }
        assert!(Figure::from(Duration::MAX).get().is_finite());
    }
}
