//! Comparison of two days of a pair: the differences, and which of them explains the change of the goodput.
//!
//! [`DayLog`] gathers the entries of a pair and a day in both directions. [`compare`] lists the differences of two days.
//! Each difference with a known effect is judged by [`lfn_base::tcp_model`]: the model predicts the goodput of the faster day
//! with one value of the slower day. The difference explains the change if the slower day kept to this limit and the
//! faster day exceeded the limit ([`Effect`] has the tolerances). No rule knows a pair, a day or a tool.
//!
//! Days are days of UTC.

mod comparison;
mod condition;
mod day_log;
mod difference;
mod effect;
#[cfg(test)]
mod tests;

pub use comparison::{Conclusion, DayComparison, DirectionComparison, GoodputChange, compare};
pub use condition::{Conditions, SIDES, is_sided, names};
pub use day_log::{ConditionPeriod, DayLog, DirectionLog, GoodputRange, LoadRecord, Route, RttRange};
pub use difference::{Difference, DifferenceKind};
pub use effect::{Effect, Explanation, KEPT_MAX, KEPT_MIN};
