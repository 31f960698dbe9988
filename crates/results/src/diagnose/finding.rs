//! A finding: one diagnosed cause with its evidence and its remedy.

use std::collections::BTreeMap;

use lfn_base::units::BitRate;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Cause;
use crate::evidence::figures::Figures;

/// One cause that limits a load, with its evidence and its remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Finding {
    /// Name of the cause that limits the test. The name is text, because later versions know more causes.
    pub name: String,
    /// Explanation in one or two sentences with the figures.
    pub summary: String,
    /// Figures that show the cause; the end of each key is the unit.
    pub evidence: BTreeMap<String, Value>,
    /// Command that removes the cause.
    pub remedy: Remedy,
    /// Confidence in the cause; absent if the rule always states facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Confidence>,
    /// Step that would increase the confidence, with its command; absent at high confidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<String>,
    /// Goodput predicted after the remedy; null if unknown.
    #[serde(rename = "predicted_goodput_bits_per_second")]
    pub predicted: Option<BitRate>,
    /// Goodput that the cause costs: the goodput predicted without the cause minus the current goodput; null if unknown. A
    /// remedy that leaves the cause in place, as pacing below a policer, predicts less.
    #[serde(rename = "gain_bits_per_second")]
    pub gain: Option<BitRate>,
}

/// Confidence in a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Few signs, or another cause has the same signs.
    Low,
    /// Clear signs, of which a part was inferred.
    Medium,
    /// Signs that no other cause has.
    High,
}

impl Confidence {
    /// Returns the confidence in one word.
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}

/// Command that removes a cause, and the host to run it on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Remedy {
    /// Command line, ready to paste. The remedy of a coupled run may be an edit of its coupling file.
    pub command: String,
    /// Host of the command; none is the host of the test.
    pub host: Option<String>,
}

impl Finding {
    /// Returns the cause; none if only a later version knows the cause.
    pub fn cause(&self) -> Option<Cause> {
        Cause::from_name(&self.name)
    }

    /// Returns true unless the goodput would be the same without this cause.
    pub fn is_limit(&self) -> bool {
        self.gain != Some(BitRate(0))
    }
}

impl std::fmt::Display for Remedy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.host {
            // A comment, so that the line works when pasted.
            Some(host) => write!(f, "{}   # on {host}", self.command),
            None => f.write_str(&self.command),
        }
    }
}

/// Creates a finding; its gain is `predicted` minus the goodput in `figures`.
pub(super) fn finding(
    figures: &Figures,
    cause: Cause,
    summary: String,
    remedy: Remedy,
    predicted: Option<BitRate>,
) -> Finding {
    let gain = predicted.map(|predicted| BitRate(predicted.0.saturating_sub(figures.steady_goodput().0)));
    let (evidence, confidence) = (BTreeMap::new(), None);
    Finding {
        name: cause.name().to_owned(),
        summary,
        evidence,
        remedy,
        confidence,
        confirmation: None,
        predicted,
        gain,
    }
}

/// Returns the evidence of a finding. A figure that is not a finite number is null in JSON, and is not evidence.
pub(super) fn figures_map(figures: impl IntoIterator<Item = (&'static str, Value)>) -> BTreeMap<String, Value> {
    figures.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_figure_that_is_not_finite_is_dropped() {
        let figures = [("good", json!(1.5)), ("bad", json!(f64::NAN)), ("worse", json!(f64::INFINITY))];
        assert_eq!(json!(figures_map(figures)), json!({ "good": 1.5 }));
    }
}
