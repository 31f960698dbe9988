//! CoDel (RFC 8289): drops when packets have waited longer than a target for a whole interval.
//!
//! The control law alone, for any queue that asks it about every packet at the moment the packet would leave: one queue
//! for [`codel`](CoDel), one for every flow of FQ-CoDel. It is pure arithmetic on the time waited and the bytes left
//! behind, and it can say until when it is sure not to drop, so that packets can be sent in slices until then.

use std::fmt;
use std::time::Duration;

use super::settings::DisciplineError;
use crate::link::setting::{Parts, SettingError};
use crate::units::{parse_duration, typed_duration};

/// What CoDel is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDel {
    /// The standing wait that is acceptable (RFC 8289 §4.3): 5 to 10 % of the interval.
    pub target: Duration,
    /// The time a burst has to drain (RFC 8289 §4.2): about the longest round trip of the traffic. The default of 100 ms
    /// is the Internet's; a longer path wants its round-trip time.
    pub interval: Duration,
}

impl Default for CoDel {
    /// 5 ms and 100 ms (RFC 8289 §4.4).
    fn default() -> Self {
        CoDel { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

impl CoDel {
    pub(super) const FORM: &'static str = "codel:target=5ms:interval=100ms";

    pub(super) fn read(parts: &mut Parts) -> Result<Self, SettingError> {
        let default = CoDel::default();
        Ok(CoDel {
            target: parts.key("target", parse_duration)?.unwrap_or(default.target),
            interval: parts.key("interval", parse_duration)?.unwrap_or(default.interval),
        })
    }

    pub(super) fn check(&self) -> Result<(), DisciplineError> {
        const MOST_INTERVAL: Duration = Duration::from_secs(3600);
        let CoDel { target, interval } = *self;
        if interval > MOST_INTERVAL {
            return Err(DisciplineError::Interval(interval));
        }
        // A target of zero would take the very first packet of an idle line for a standing queue.
        if target.is_zero() || target >= interval {
            return Err(DisciplineError::Target { target, interval });
        }
        Ok(())
    }
}

impl fmt::Display for CoDel {
    /// The parameters as typed, each behind a colon, without what is the default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = CoDel::default();
        for (name, value, default) in
            [("target", self.target, default.target), ("interval", self.interval, default.interval)]
        {
            if value != default {
                write!(f, ":{name}={}", typed_duration(value))?;
            }
        }
        Ok(())
    }
}
