//! RED (Floyd and Jacobson, 1993): drops arrivals at random, and more of them as the average queue grows.
//!
//! The average changes with every virtual packet that arrives. While the line is idle, it changes as if small packets
//! had found the queue empty. The queue length is the backlog that counts against the limit, including the packet on
//! the line. The kernel's RED counts one packet less.

use std::fmt;

use lfn_base::queue_limit::QueueLimit;
use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes, Ratio};
use rand::RngExt;
use rand_pcg::Pcg64;

use super::backlog::Backlog;
use super::error::DisciplineError;
use crate::hop_context::HopContext;
use crate::random::generator;
use crate::setting::{Parts, SettingError};

/// Parameters of the RED discipline.
///
/// The algorithm is the version of 1993 as in Linux, not the "gentle" one: from `max` on every packet is dropped, with
/// or without ECN (recommended by RFC 3168 §7).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Red {
    /// Average queue up to which nothing is dropped; the default is a third of `max`.
    pub min: Option<QueueLimit>,
    /// Average queue from which everything is dropped; the default is a quarter of the queue limit. The average and the
    /// queue are measured in the unit of these two values.
    pub max: Option<QueueLimit>,
    /// Drop probability at `max`. Drops are spread evenly: the next drop is equally likely for each of the next 1/p
    /// packets, so about 2·p of all packets are dropped.
    pub probability: Ratio,
    /// Weight of the present queue in the moving average, per arrival.
    pub weight: Ratio,
}

impl Default for Red {
    /// Returns the relative thresholds and the probability of 0.02 from `tc`, and the weight of 0.002 from the paper.
    fn default() -> Self {
        let ratio = |value| Ratio::new(value).unwrap_or_default();
        Red { min: None, max: None, probability: ratio(0.02), weight: ratio(0.002) }
    }
}

impl Red {
    pub(super) const FORM: &'static str = "red:min=30kB:max=90kB:p=0.02:weight=0.002";

    pub(super) fn parse(parts: &mut Parts) -> Result<Self, SettingError> {
        let default = Red::default();
        Ok(Red {
            min: parts.optional_key("min", str::parse)?,
            max: parts.optional_key("max", str::parse)?,
            probability: parts.optional_key("p", str::parse)?.unwrap_or(default.probability),
            weight: parts.optional_key("weight", str::parse)?.unwrap_or(default.weight),
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
            (QueueLimit::Bytes(low), QueueLimit::Bytes(high)) if low >= high => {
                Err(DisciplineError::Thresholds { min, max })
            }
            (QueueLimit::Packets(low), QueueLimit::Packets(high)) if low >= high => {
                Err(DisciplineError::Thresholds { min, max })
            }
            _ => Ok(()),
        }
    }

    /// Returns `min` and `max` for a queue with this limit.
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
    /// Writes each parameter that differs from the default after a colon.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Red::default();
        for (name, threshold) in [("min", self.min), ("max", self.max)] {
            if let Some(threshold) = threshold {
                write!(f, ":{name}={}", threshold.to_argument())?;
            }
        }
        for (name, value, default) in
            [("p", self.probability, default.probability), ("weight", self.weight, default.weight)]
        {
            if value != default {
                write!(f, ":{name}={}", value.to_argument())?;
            }
        }
        Ok(())
    }
}

/// Average of a queue, and the state of the next drop.
#[derive(Debug)]
pub(super) struct RedAverage {
    /// Thresholds, in bytes or packets.
    min: f64,
    max: f64,
    in_packets: bool,
    probability: f64,
    weight: f64,
    average: f64,
    /// Time since which the backlog is empty, if it is.
    idle_since: Option<Instant>,
    /// Packets that arrived with the average between the thresholds since the last drop; `None` if the last one was
    /// outside.
    since_drop: Option<u32>,
    /// Random number that decides the next drop; drawn again after each drop.
    draw: f64,
    generator: Pcg64,
}

/// Decision about an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedDecision {
    Pass,
    /// Drop, or mark if the packet is ECN-capable.
    Signal,
    /// Drop, with or without ECN.
    Drop,
}

impl RedAverage {
    pub(super) fn new(settings: &Red, limit: QueueLimit, context: &HopContext, now: Instant) -> Self {
        let mut average = RedAverage {
            min: 0.0,
            max: 0.0,
            in_packets: false,
            probability: 0.0,
            weight: 0.0,
            average: 0.0,
            idle_since: Some(now),
            since_drop: None,
            draw: 0.0,
            generator: generator(context, "red"),
        };
        average.set(settings, limit);
        average
    }

    /// Applies other settings. The average continues unless its unit changes.
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

    /// Decides about a virtual packet that arrives at `now`, for this backlog and line rate.
    pub(super) fn on_arrival(&mut self, backlog: &Backlog, now: Instant, rate: BitRate) -> RedDecision {
        match self.idle_since.take() {
            Some(since) if backlog.packets == 0 => {
                // Bytes of a small packet, the same assumption as in `tc`.
                const SMALL_PACKET: f64 = 1000.0;
                let small_packets = now.saturating_since(since).as_secs_f64() * rate.as_f64() / (8.0 * SMALL_PACKET);
                self.average *= (1.0 - self.weight).powf(small_packets);
            }
            _ => {
                let queue = if self.in_packets { backlog.packets } else { backlog.bytes } as f64;
                self.average += self.weight * (queue - self.average);
            }
        }
        if backlog.packets == 0 {
            // The packet may be dropped, and then the queue stays idle.
            self.idle_since = Some(now);
        }
        self.decide()
    }

    /// Notes that the backlog is empty from `now` on.
    pub(super) fn on_idle(&mut self, now: Instant) {
        self.idle_since = Some(now);
    }

    fn decide(&mut self) -> RedDecision {
        if self.average < self.min {
            self.since_drop = None;
            return RedDecision::Pass;
        }
        if self.average >= self.max {
            self.since_drop = None;
            return RedDecision::Drop;
        }
        let Some(since_drop) = self.since_drop else {
            self.since_drop = Some(0);
            self.draw = self.generator.random();
            return RedDecision::Pass;
        };
        let since_drop = since_drop.saturating_add(1);
        let probability = self.probability * (self.average - self.min) / (self.max - self.min);
        if f64::from(since_drop) * probability <= self.draw {
            self.since_drop = Some(since_drop);
            return RedDecision::Pass;
        }
        self.since_drop = Some(0);
        self.draw = self.generator.random();
        RedDecision::Signal
    }
}
