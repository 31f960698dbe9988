//! Time from the capture point to one end and back.

use std::collections::VecDeque;

use crate::histogram::Histogram;

/// Maximum number of remembered timestamps.
const MAX_TIMESTAMPS: usize = 64;

/// Samples of the time to one end and back, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct EndRtt {
    pub(crate) min: Option<u64>,
    pub(crate) last: Option<u64>,
    pub(crate) max: u64,
    pub(crate) samples: u64,
    histogram: Option<Histogram>,
    sent: VecDeque<SentTimestamp>,
    /// Every n-th timestamp is remembered.
    stride: u32,
    skipped: u32,
    last_value: Option<u32>,
    last_echo: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct SentTimestamp {
    value: u32,
    at: u64,
}

impl EndRtt {
    pub(crate) fn add(&mut self, nanos: u64) {
        self.min = Some(self.min.map_or(nanos, |min| min.min(nanos)));
        self.last = Some(nanos);
        self.max = self.max.max(nanos);
        self.samples += 1;
        self.histogram.get_or_insert_default().add(nanos);
    }

    /// Adds a sample that is only a bound, such as the handshake with the work of an application.
    pub(crate) fn add_bound(&mut self, nanos: u64) {
        self.min = Some(self.min.map_or(nanos, |min| min.min(nanos)));
        self.last.get_or_insert(nanos);
    }

    pub(crate) fn quantile(&self, share: f64) -> Option<u64> {
        self.histogram.as_ref().map(|histogram| histogram.quantile(share))
    }

    /// Remembers the timestamp of a packet towards this end.
    pub(crate) fn sent_timestamp(&mut self, value: u32, at: u64) {
        if self.last_value == Some(value) {
            return;
        }
        self.last_value = Some(value);
        self.skipped += 1;
        if self.skipped < self.stride {
            return;
        }
        self.skipped = 0;
        if self.sent.len() >= MAX_TIMESTAMPS {
            let mut keep = false;
            self.sent.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride = self.stride.max(1) * 2;
        }
        self.sent.push_back(SentTimestamp { value, at });
    }

    /// Returns the time since the packet with this timestamp, when this end echoes the timestamp for the first time.
    pub(crate) fn echoed_timestamp(&mut self, echo: u32, at: u64) -> Option<u64> {
        if self.last_echo == Some(echo) {
            return None;
        }
        self.last_echo = Some(echo);
        while let Some(first) = self.sent.front() {
            let age = echo.wrapping_sub(first.value) as i32;
            if age < 0 {
                return None;
            }
            let sent = *first;
            self.sent.pop_front();
            if age == 0 {
                if self.sent.is_empty() {
                    self.stride = 0;
                }
                return Some(at.saturating_sub(sent.at));
            }
        }
        self.stride = 0;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo_of_a_timestamp_gives_the_time() {
        let mut rtt = EndRtt::default();
        for value in 0..1000 {
            rtt.sent_timestamp(value, u64::from(value) * 10);
        }
        let mut found = 0;
        for value in 0..1000 {
            if let Some(time) = rtt.echoed_timestamp(value, u64::from(value) * 10 + 500) {
                assert_eq!(time, 500);
                found += 1;
            }
        }
        assert!(found > 10 && rtt.sent.len() <= MAX_TIMESTAMPS, "{found}");
    }
}
