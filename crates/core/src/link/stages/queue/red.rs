//! RED (Floyd and Jacobson, 1993): drops arrivals at random, the more of them the longer the queue is on average.

use std::fmt;

use super::settings::{DisciplineError, QueueLimit};
use crate::link::setting::{Parts, SettingError};
use crate::units::{Bytes, Ratio};

/// What RED is set to.
///
/// It is the algorithm of 1993 as Linux has it, not the "gentle" one: from `max` on every packet is dropped, ECN or not
/// (RFC 3168 §7 recommends that).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Red {
    /// Average queue up to which nothing is dropped; a third of `max` if none.
    pub min: Option<QueueLimit>,
    /// Average queue from which everything is dropped; a quarter of the queue's limit if none. Average and queue are
    /// measured in the unit of these two.
    pub max: Option<QueueLimit>,
    /// What the probability of a drop rises to between them (that of each packet after an equal number of others:
    /// drops are spread evenly, so about twice as many are dropped).
    pub probability: Ratio,
    /// Weight of the present queue in the moving average, per arrival.
    pub weight: Ratio,
}

impl Default for Red {
    /// Thresholds relative to the limit and 0.02 as `tc` has them, the weight of 0.002 from the paper.
    fn default() -> Self {
        let ratio = |value| Ratio::new(value).unwrap_or_default();
        Red { min: None, max: None, probability: ratio(0.02), weight: ratio(0.002) }
    }
}

impl Red {
    pub(super) const FORM: &'static str = "red:min=30kB:max=90kB:p=0.02:weight=0.002";

    pub(super) fn read(parts: &mut Parts) -> Result<Self, SettingError> {
        let default = Red::default();
        Ok(Red {
            min: parts.key("min", str::parse)?,
            max: parts.key("max", str::parse)?,
            probability: parts.key("p", str::parse)?.unwrap_or(default.probability),
            weight: parts.key("weight", str::parse)?.unwrap_or(default.weight),
        })
    }

    pub(super) fn check(&self, limit: QueueLimit) -> Result<(), DisciplineError> {
        for (name, ratio) in [("p", self.probability), ("weight", self.weight)] {
            if ratio.get() == 0.0 {
                return Err(DisciplineError::Zero(name));
            }
        }
        let (min, max) = self.thresholds(limit);
        match (min, max) {
            (QueueLimit::Bytes(_), QueueLimit::Packets(_)) | (QueueLimit::Packets(_), QueueLimit::Bytes(_)) => {
                Err(DisciplineError::Units { min, max })
            }
            (QueueLimit::Bytes(least), QueueLimit::Bytes(most)) if least >= most => {
                Err(DisciplineError::Thresholds { min, max })
            }
            (QueueLimit::Packets(least), QueueLimit::Packets(most)) if least >= most => {
                Err(DisciplineError::Thresholds { min, max })
            }
            _ => Ok(()),
        }
    }

    /// `min` and `max` in a queue of this limit.
    fn thresholds(&self, limit: QueueLimit) -> (QueueLimit, QueueLimit) {
        let part = |of: QueueLimit, divisor: u32| match of {
            QueueLimit::Bytes(bytes) => QueueLimit::Bytes(Bytes(bytes.0 / u64::from(divisor))),
            QueueLimit::Packets(packets) => QueueLimit::Packets(packets.div_ceil(divisor)),
        };
        let max = self.max.unwrap_or_else(|| part(limit, 4));
        (self.min.unwrap_or_else(|| part(max, 3)), max)
    }
}

impl fmt::Display for Red {
    /// The parameters as typed, each behind a colon, without what is the default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Red::default();
        for (name, threshold) in [("min", self.min), ("max", self.max)] {
            if let Some(threshold) = threshold {
                write!(f, ":{name}={}", threshold.typed())?;
            }
        }
        for (name, value, default) in
            [("p", self.probability, default.probability), ("weight", self.weight, default.weight)]
        {
            if value != default {
                write!(f, ":{name}={}", value.typed())?;
            }
        }
        Ok(())
    }
}
