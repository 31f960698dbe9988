//! Checks and figures of the settings of one direction of a hop.

use std::time::Duration;

use lfn_base::units::BitRate;

use super::error::{LinkError, MAX_DELAY, MAX_SLICE, check_queue_time, check_rate};
use super::stages::{IMPAIRMENTS, Impairment, LinkConfig, min_delay};

impl LinkConfig {
    /// Refuses settings that the chain cannot carry.
    pub(super) fn check(&self) -> Result<(), LinkError> {
        let rate = self.max_rate();
        if rate.0 == 0 || self.rate.period().is_none() && self.rate.values().last() == Some(BitRate(0)) {
            return Err(LinkError::ZeroRate);
        }
        check_rate(rate)?;
        if let Some(delay) = self.delay.values().find(|delay| *delay > MAX_DELAY) {
            return Err(LinkError::DelayTooLong(delay));
        }
        check_queue_time(self.queue, self.largest_packet, rate)?;
        self.discipline.check(self.queue)?;
        if self.slice > MAX_SLICE {
            return Err(LinkError::SliceTooLong(self.slice));
        }
        IMPAIRMENTS.iter().try_for_each(|impairment| (impairment.effects)(self).check())
    }

    /// Returns the minimum delay of a packet.
    pub fn min_delay(&self) -> Duration {
        min_delay(&self.delay, &self.jitter)
    }

    /// Reports whether this configuration has a setting that depends on the time since the epoch and differs from
    /// `before`: a timetable, an outage or a scheduled loss.
    pub fn has_new_timetables(&self, before: &LinkConfig) -> bool {
        let is_new =
            |impairment: &Impairment| (impairment.effects)(self).is_timed() && !(impairment.is_equal)(self, before);
        self.rate.as_constant().is_none() && self.rate != before.rate
            || self.delay.as_constant().is_none() && self.delay != before.delay
            || IMPAIRMENTS.iter().any(is_new)
    }

    /// Returns the maximum delay of a packet after it was sent, including the wait for reordering.
    pub fn max_delay(&self) -> Duration {
        let impairments = IMPAIRMENTS.iter().map(|impairment| (impairment.effects)(self).max_delay());
        impairments.fold(self.delay.values().max().unwrap_or_default(), Duration::saturating_add)
    }

    /// Returns how often the hop splits super-packets, per packet.
    pub fn splits_per_packet(&self) -> f64 {
        IMPAIRMENTS.iter().map(|impairment| (impairment.effects)(self).splits_per_packet()).sum()
    }

    /// Returns the maximum rate over all time.
    pub fn max_rate(&self) -> BitRate {
        self.rate.values().max().unwrap_or_default()
    }
}
