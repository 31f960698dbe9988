//! A number that can be printed: what was computed, if it came out finite.

use serde::{Deserialize, Serialize};

/// A finite number. JSON has no NaN and no infinity, and neither is a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "f64", into = "f64")]
pub struct Figure(f64);

/// A number beyond what can be printed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is no finite number")]
pub struct NotFinite(f64);

impl Figure {
    /// Nothing of NaN and of infinities.
    pub fn new(value: f64) -> Option<Self> {
        value.is_finite().then_some(Figure(value))
    }

    /// The number.
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
