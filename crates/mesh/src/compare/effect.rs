//! The effect of one difference: the limit that the model derives from it, and whether both days fit.

use lfn_base::tcp_model::GoodputLimit;
use lfn_base::units::BitRate;
use serde::{Deserialize, Serialize};

use super::condition::Conditions;
use super::day_log::GoodputRange;

/// Maximum goodput of a day that kept to a limit, as a share of the limit. The RTT of a day is known to whole milliseconds
/// in old logs, so a goodput may be slightly above the limit.
pub const KEPT_MAX: f64 = 1.05;

/// Minimum goodput of a day that kept to a limit, as a share of the limit. Start-up, and an RTT under load that is longer
/// than the minimum, keep a goodput below the limit, seldom below half of it.
pub const KEPT_MIN: f64 = 0.5;

/// Judgement of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Explanation {
    /// The slower day kept to the limit of this difference, and the faster day exceeded the limit.
    Explains,
    /// The slower day was below half of the limit: something else limited the slower day.
    LimitTooHigh,
    /// The slower day exceeded the limit, so the limit was not in force.
    LimitExceeded,
    /// The faster day had the same limit or a lower one.
    NoLowerLimit,
    /// The model has no value for this difference, or too few figures.
    NoModel,
}

/// Effect of a difference on the goodput of the slower day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Effect {
    pub explanation: Explanation,
    /// Predicted goodput of the faster day with the value of the slower day; null without a model.
    #[serde(rename = "limit_bits_per_second")]
    pub limit: Option<BitRate>,
    /// Bottleneck of this prediction.
    pub limited_by: Option<GoodputLimit>,
}

impl Effect {
    /// The condition has no known effect.
    pub const UNKNOWN: Effect = Effect { explanation: Explanation::NoModel, limit: None, limited_by: None };

    /// Judges a difference. `changed` has the conditions of the faster day with one value of the slower day.
    pub(super) fn of(faster: &Conditions, changed: &Conditions, slow: GoodputRange, fast: GoodputRange) -> Effect {
        let Some(prediction) = changed.predict() else { return Effect::UNKNOWN };
        let limit = prediction.goodput;
        let without = faster.predict().map(|prediction| prediction.goodput);
        let share = |goodput: BitRate| goodput.as_f64() / limit.as_f64().max(1.0);
        let explanation = if without.is_some_and(|without| without <= limit) || share(fast.median) <= KEPT_MAX {
            Explanation::NoLowerLimit
        } else if share(slow.median) > KEPT_MAX {
            Explanation::LimitExceeded
        } else if share(slow.median) < KEPT_MIN {
            Explanation::LimitTooHigh
        } else {
            Explanation::Explains
        };
        Effect { explanation, limit: Some(limit), limited_by: Some(prediction.limit) }
    }

    /// Reports whether the difference explains the change of the goodput.
    pub fn explains(&self) -> bool {
        self.explanation == Explanation::Explains
    }
}
