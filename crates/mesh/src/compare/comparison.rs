//! The comparison of two days and its conclusion.

use std::collections::BTreeSet;

use lfn_base::figure::Figure;
use serde::{Deserialize, Serialize};

use super::day_log::{DayLog, DirectionLog, GoodputRange};
use super::difference::{Changed, Difference, DifferenceKind, differences, is_summary};
use super::effect::Effect;

/// Minimum change of the median goodput, as a share.
const GOODPUT_CHANGE: f64 = 0.10;

/// Differences of two days of a pair, and the conclusion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct DayComparison {
    /// First host to second host.
    pub forward: DirectionComparison,
    /// Second host to first host.
    pub reverse: DirectionComparison,
    /// Conclusion for both directions.
    pub conclusion: Conclusion,
    /// The conclusion in one or more sentences.
    pub summary: String,
}

/// Differences of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct DirectionComparison {
    /// Host that sends the data.
    pub from: String,
    /// Host that receives the data.
    pub to: String,
    pub goodput: GoodputChange,
    /// Differences: those that explain the change first.
    pub differences: Vec<Difference>,
    /// No difference explains the change, but all of them together do.
    pub together: bool,
    pub conclusion: Conclusion,
}

/// Goodput of both days.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct GoodputChange {
    /// Goodput of the first day.
    pub first: Option<GoodputRange>,
    /// Goodput of the second day.
    pub second: Option<GoodputRange>,
    /// Median of the second day divided by the median of the first day; null if a day has no goodput.
    pub ratio: Option<Figure>,
    /// The medians differ by more than 10 %, and the ranges do not overlap.
    pub is_changed: bool,
}

/// Result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// A day has no goodput.
    NoGoodput,
    /// The goodput of both days is the same.
    Unchanged,
    /// A condition of the test explains the change.
    TestChanged,
    /// A figure of the path explains the change.
    NetworkChanged,
    /// Conditions of the test and figures of the path explain the change.
    BothChanged,
    /// No recorded difference explains the change.
    Unexplained,
}

/// Compares two days of the same pair.
pub fn compare(first: &DayLog, second: &DayLog) -> DayComparison {
    let forward = compare_direction(&first.forward, &second.forward);
    let reverse = compare_direction(&first.reverse, &second.reverse);
    let conclusion = forward.conclusion.and(reverse.conclusion);
    let summary = summary(&forward, &reverse, conclusion);
    DayComparison { forward, reverse, conclusion, summary }
}

fn compare_direction(first: &DirectionLog, second: &DirectionLog) -> DirectionComparison {
    let goodput = GoodputChange::of(first.goodput, second.goodput);
    let changed = differences(first, second);
    let (mut judged, together) = judge(first, second, goodput, changed);
    judged.sort_by_key(|difference| !difference.effect.explains());
    let kinds: BTreeSet<DifferenceKind> = judged
        .iter()
        .filter(|difference| difference.effect.explains() || (together && difference.effect.limit.is_some()))
        .map(|difference| difference.kind)
        .collect();
    let conclusion = match (goodput.ratio, goodput.is_changed) {
        (None, _) => Conclusion::NoGoodput,
        (Some(_), false) => Conclusion::Unchanged,
        (Some(_), true) => Conclusion::of_kinds(&kinds),
    };
    let (from, to) = (first.from.clone(), first.to.clone());
    DirectionComparison { from, to, goodput, differences: judged, together, conclusion }
}

/// Returns the differences with their effects, and whether only all of them together explain the change.
fn judge(
    first: &DirectionLog,
    second: &DirectionLog,
    goodput: GoodputChange,
    changed: Vec<Changed>,
) -> (Vec<Difference>, bool) {
    let unknown = |changed: Vec<Changed>| changed.into_iter().map(|one| one.with_effect(Effect::UNKNOWN)).collect();
    let (Some(one), Some(other), true) = (goodput.first, goodput.second, goodput.is_changed) else {
        return (unknown(changed), false);
    };
    let (slower, faster, slow, fast) = match one.median < other.median {
        true => (first.model(), second.model(), one, other),
        false => (second.model(), first.model(), other, one),
    };
    let effect = |changed: &Changed| {
        let in_model = changed.in_model(&faster, &slower);
        in_model.map_or(Effect::UNKNOWN, |in_model| Effect::of(&faster, &in_model, slow, fast))
    };
    let judged: Vec<Difference> = changed
        .into_iter()
        .map(|one| {
            let effect = effect(&one);
            one.with_effect(effect)
        })
        .collect();
    // All differences that the model knows, in one prediction.
    let mut all = faster.clone();
    let known = judged.iter().filter(|difference| difference.effect.limit.is_some());
    for difference in known {
        let changed = Changed { kind: difference.kind, name: difference.name.clone(), first: None, second: None };
        all = changed.in_model(&all, &slower).unwrap_or(all);
    }
    let is_alone = judged.iter().any(|difference| difference.effect.explains());
    let together = !is_alone && Effect::of(&faster, &all, slow, fast).explains();
    (judged, together)
}

impl GoodputChange {
    fn of(first: Option<GoodputRange>, second: Option<GoodputRange>) -> Self {
        let both = first.zip(second);
        let ratio = both.and_then(|(first, second)| Figure::new(second.median.as_f64() / first.median.as_f64()));
        let is_changed = both.is_some_and(|(first, second)| {
            let [low, high] = if first.median < second.median { [first, second] } else { [second, first] };
            low.max < high.min && high.median.as_f64() > low.median.as_f64() * (1.0 + GOODPUT_CHANGE)
        });
        GoodputChange { first, second, ratio, is_changed }
    }
}

impl Conclusion {
    fn of_kinds(kinds: &BTreeSet<DifferenceKind>) -> Self {
        match (kinds.contains(&DifferenceKind::Test), kinds.contains(&DifferenceKind::Network)) {
            (true, true) => Conclusion::BothChanged,
            (true, false) => Conclusion::TestChanged,
            (false, true) => Conclusion::NetworkChanged,
            (false, false) => Conclusion::Unexplained,
        }
    }

    /// Joins the conclusions of both directions. An unexplained change of one direction remains unexplained.
    fn and(self, other: Conclusion) -> Conclusion {
        use Conclusion::{BothChanged, NoGoodput, Unchanged, Unexplained};
        match (self, other) {
            (one, other) if one == other => one,
            (NoGoodput, other) | (other, NoGoodput) | (Unchanged, other) | (other, Unchanged) => other,
            (Unexplained, _) | (_, Unexplained) => Unexplained,
            _ => BothChanged,
        }
    }
}

/// Returns the conclusion in sentences.
fn summary(forward: &DirectionComparison, reverse: &DirectionComparison, conclusion: Conclusion) -> String {
    let mut text = match conclusion {
        Conclusion::NoGoodput => return "A day has no goodput to compare.".to_owned(),
        Conclusion::Unchanged => return "The goodput is the same on both days.".to_owned(),
        Conclusion::TestChanged => "The test changed.".to_owned(),
        Conclusion::NetworkChanged => "The network changed.".to_owned(),
        Conclusion::BothChanged => "The test and the network changed.".to_owned(),
        Conclusion::Unexplained => "No recorded difference explains the change.".to_owned(),
    };
    let causes = [causes(forward), causes(reverse)];
    match causes.as_slice() {
        [Some(one), Some(other)] if one == other => {
            text.push_str(&format!(" In both directions, {one} {} the change.", explain(one)));
        }
        both => {
            for (direction, causes) in [forward, reverse].into_iter().zip(both) {
                let Some(causes) = causes else { continue };
                let verb = explain(causes);
                text.push_str(&format!(" From {} to {}, {causes} {verb} the change.", direction.from, direction.to));
            }
        }
    }
    let has_network = [forward, reverse].iter().any(|direction| direction.has(DifferenceKind::Network));
    if conclusion == Conclusion::TestChanged && !has_network {
        text.push_str(" No figure of the path differs.");
    }
    text
}

/// Returns the verb for one cause or several.
fn explain(causes: &str) -> &'static str {
    if causes.contains(" and ") { "explain" } else { "explains" }
}

/// Returns the differences that explain a change with their values; `None` without one.
fn causes(direction: &DirectionComparison) -> Option<String> {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let is_cause = |difference: &&Difference| {
        difference.effect.explains() || (direction.together && difference.effect.limit.is_some())
    };
    let causes: Vec<String> = direction
        .differences
        .iter()
        .filter(is_cause)
        .map(|cause| format!("{} ({} → {})", cause.name, value(&cause.first), value(&cause.second)))
        .collect();
    (!causes.is_empty()).then(|| causes.join(" and "))
}

impl DirectionComparison {
    /// Reports whether a difference of this kind exists, other than one that repeats others.
    pub fn has(&self, kind: DifferenceKind) -> bool {
        self.differences.iter().any(|difference| difference.kind == kind && !is_summary(&difference.name))
    }
}
