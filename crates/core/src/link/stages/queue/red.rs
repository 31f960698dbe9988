//! RED (Floyd and Jacobson, 1993): drops arrivals at random, the more of them the longer the queue is on average.
//!
//! The average moves with every virtual packet that arrives, and while the line is idle as if small packets had found
//! the queue empty. What counts as queue is what counts against its limit, the packet being sent included: the kernel's
//! RED counts one packet less.

use std::fmt;

use rand::RngExt;
use rand_pcg::Pcg64;

use super::Held;
use super::settings::{DisciplineError, QueueLimit};
use crate::link::LinkConfig;
use crate::link::random::generator;
use crate::link::setting::{Parts, SettingError};
use crate::time::Instant;
use crate::units::{BitRate, Bytes, Ratio};

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
    /// What the probability rises to between them. Drops are spread evenly: the next is the first, second … of the 1/p
    /// next packets with the same probability each, so that about 2·p of all are dropped.
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

/// The average of a queue, and the next drop.
#[derive(Debug)]
pub(super) struct Average {
    /// Thresholds, in bytes or in packets.
    min: f64,
    max: f64,
    in_packets: bool,
    probability: f64,
    weight: f64,
    average: f64,
    /// Since when nothing is held, if nothing is.
    idle_since: Option<Instant>,
    /// Packets that came with the average between the thresholds since the last drop; none if the last was outside.
    since_drop: Option<u32>,
    /// Decides when the next is dropped, drawn anew after each.
    draw: f64,
    generator: Pcg64,
}

/// What becomes of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Pass,
    /// Dropped, or marked.
    Signal,
    /// Dropped, ECN-capable or not.
    Drop,
}

impl Average {
    pub(super) fn new(config: &LinkConfig, settings: &Red, now: Instant) -> Self {
        let mut average = Average {
            min: 0.0,
            max: 0.0,
            in_packets: false,
            probability: 0.0,
            weight: 0.0,
            average: 0.0,
            idle_since: Some(now),
            since_drop: None,
            draw: 0.0,
            generator: generator(config, "red"),
        };
        average.set(settings, config.queue);
        average
    }

    /// Other settings. The average goes on, unless it is measured otherwise now.
    pub(super) fn set(&mut self, settings: &Red, limit: QueueLimit) {
        let value = |threshold| match threshold {
            QueueLimit::Bytes(bytes) => bytes.0 as f64,
            QueueLimit::Packets(packets) => f64::from(packets),
        };
        let (min, max) = settings.thresholds(limit);
        let in_packets = matches!(max, QueueLimit::Packets(_));
        if in_packets != self.in_packets {
            (self.average, self.since_drop) = (0.0, None);
        }
        (self.min, self.max, self.in_packets) = (value(min), value(max), in_packets);
        (self.probability, self.weight) = (settings.probability.get(), settings.weight.get());
    }

    /// What becomes of a virtual packet that comes at `now` to a queue that holds so much, before a line of this rate.
    pub(super) fn arrive(&mut self, held: &Held, now: Instant, rate: BitRate) -> Arrival {
        match self.idle_since.take() {
            Some(since) if held.packets == 0 => {
                // Bytes of a small packet, as `tc` supposes too.
                const SMALL: f64 = 1000.0;
                let small_packets = now.saturating_since(since).as_secs_f64() * rate.as_f64() / (8.0 * SMALL);
                self.average *= (1.0 - self.weight).powf(small_packets);
            }
            _ => {
                let queue = if self.in_packets { held.packets } else { held.bytes } as f64;
                self.average += self.weight * (queue - self.average);
            }
        }
        if held.packets == 0 {
            // It may be dropped, and the queue stay idle.
            self.idle_since = Some(now);
        }
        self.decide()
    }

    /// Nothing is held any more, from `now` on.
    pub(super) fn idle(&mut self, now: Instant) {
        self.idle_since = Some(now);
    }

    fn decide(&mut self) -> Arrival {
        if self.average < self.min {
            self.since_drop = None;
            return Arrival::Pass;
        }
        if self.average >= self.max {
            self.since_drop = None;
            return Arrival::Drop;
        }
        let Some(since_drop) = self.since_drop else {
            self.since_drop = Some(0);
            self.draw = self.generator.random();
            return Arrival::Pass;
        };
        let since_drop = since_drop.saturating_add(1);
        let probability = self.probability * (self.average - self.min) / (self.max - self.min);
        if f64::from(since_drop) * probability <= self.draw {
            self.since_drop = Some(since_drop);
            return Arrival::Pass;
        }
        self.since_drop = Some(0);
        self.draw = self.generator.random();
        Arrival::Signal
    }
}
