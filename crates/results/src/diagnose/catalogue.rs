//! The list of all findings, `lfn.findings/1`: each cause with its rules, their thresholds, evidence and sources.

use lfn_base::figure::Figure;
use serde::{Deserialize, Serialize};

use super::cause::CAUSES;
use super::rules::{Bound, Rule, rules};
use crate::evidence::LoadKind;

/// List of all findings.
///
/// A reader ignores unknown keys: later versions of `lfn.findings/1` only add keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct FindingsDocument {
    /// Name and version of the schema.
    pub schema: FindingsSchema,
    /// All causes that a finding can name.
    pub findings: Vec<ListedFinding>,
}

/// Name and version of the schema of the list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum FindingsSchema {
    #[default]
    #[serde(rename = "lfn.findings/1")]
    V1,
}

/// A cause with its rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ListedFinding {
    /// Name of the cause, as in the findings of a result.
    pub name: String,
    /// Meaning of the cause in one sentence.
    pub meaning: String,
    /// Rules that find the cause, one or more for each kind of load.
    pub rules: Vec<ListedRule>,
}

/// Conditions under which a cause is a finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ListedRule {
    /// Kind of the load: `tcp` and `datagrams` are tests.
    pub load: LoadKind,
    /// Bounds of the figures. All of them hold, except that a figure that begins with "or" starts an alternative.
    pub thresholds: Vec<ListedThreshold>,
    /// Evidence without which the rule finds nothing.
    pub needs: Vec<String>,
    /// Evidence of which the rule needs at least one kind; empty if it needs none of them.
    #[serde(default)]
    pub needs_one_of: Vec<String>,
    /// Source of the rule and of its bounds: RFC, kernel documentation, measurement, or the reason for a chosen bound.
    pub source: Option<String>,
}

/// Bound of a figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ListedThreshold {
    /// The figure in words.
    pub figure: String,
    /// Side of the bound.
    pub bound: BoundSide,
    /// Value of the bound in `unit`.
    pub value: Figure,
    /// Unit: `share` (1 is all), `factor`, `count`, `seconds`, `bits_per_second` or `bytes`.
    pub unit: String,
}

/// Side of a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BoundSide {
    /// The cause is a finding from this value on.
    AtLeast,
    /// The cause is a finding up to this value.
    AtMost,
}

/// Returns the list of all findings.
pub fn list_findings() -> FindingsDocument {
    let findings = CAUSES.iter().map(|entry| ListedFinding {
        name: entry.name.to_owned(),
        meaning: entry.meaning.to_owned(),
        rules: rules().filter(|rule| rule.cause == entry.cause).flat_map(listed_rules).collect(),
    });
    FindingsDocument { schema: FindingsSchema::V1, findings: findings.collect() }
}

/// Returns a row for each load of a rule.
fn listed_rules(rule: &'static Rule) -> impl Iterator<Item = ListedRule> {
    rule.loads.iter().map(|load| listed_rule(*load, rule))
}

fn listed_rule(load: LoadKind, rule: &Rule) -> ListedRule {
    let thresholds = rule.thresholds.iter().filter_map(|threshold| {
        let (bound, value, unit) = parts(threshold.bound);
        let (figure, unit) = (threshold.figure.to_owned(), unit.to_owned());
        Some(ListedThreshold { figure, bound, value: Figure::new(value)?, unit })
    });
    ListedRule {
        load,
        thresholds: thresholds.collect(),
        needs: rule.needs.iter().map(|kind| kind.name().to_owned()).collect(),
        needs_one_of: rule.needs_one_of.iter().map(|kind| kind.name().to_owned()).collect(),
        source: Some(rule.source.to_owned()),
    }
}

fn parts(bound: Bound) -> (BoundSide, f64, &'static str) {
    match bound {
        Bound::MinShare(share) => (BoundSide::AtLeast, share, "share"),
        Bound::MaxShare(share) => (BoundSide::AtMost, share, "share"),
        Bound::MinFactor(factor) => (BoundSide::AtLeast, factor, "factor"),
        Bound::MaxFactor(factor) => (BoundSide::AtMost, factor, "factor"),
        Bound::MinCount(count) => (BoundSide::AtLeast, count as f64, "count"),
        Bound::MaxCount(count) => (BoundSide::AtMost, count as f64, "count"),
        Bound::MinTime(time) => (BoundSide::AtLeast, time.as_secs_f64(), "seconds"),
        Bound::MaxTime(time) => (BoundSide::AtMost, time.as_secs_f64(), "seconds"),
        Bound::MinRate(rate) => (BoundSide::AtLeast, rate.as_f64(), "bits_per_second"),
        Bound::MinBytes(bytes) => (BoundSide::AtLeast, bytes.0 as f64, "bytes"),
        Bound::MaxBytes(bytes) => (BoundSide::AtMost, bytes.0 as f64, "bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listed_rule_has_bounds_and_a_source() {
        let list = list_findings();
        for finding in &list.findings {
            assert!(!finding.rules.is_empty(), "{} has no rule", finding.name);
            let has_source = |rule: &ListedRule| rule.source.as_ref().is_some_and(|source| !source.is_empty());
            assert!(finding.rules.iter().all(has_source), "{} has no source", finding.name);
            assert!(finding.rules.iter().all(|rule| !rule.thresholds.is_empty()), "{} has no bound", finding.name);
        }
        let listed: usize = list.findings.iter().map(|finding| finding.rules.len()).sum();
        assert_eq!(listed, rules().map(|rule| rule.loads.len()).sum::<usize>());
    }
}
