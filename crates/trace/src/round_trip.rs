//! Time from the capture point to one end and back.

use std::collections::VecDeque;

use crate::histogram::Histogram;

/// Share of the samples that may be of another path.
const OUTLIERS: f64 = 0.02;
/// Minimum samples for a comparison with the handshake.
const MIN_PROXY_SAMPLES: u64 = 20;
/// Minimum RTT of data for this comparison, nanoseconds.
const MIN_PROXY_RTT: u64 = 5_000_000;
/// Minimum samples for a judgement of the usual path.
const MIN_SAMPLES: u64 = 100;

/// Samples of the time to one end and back, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct EndRtt {
    pub(crate) min: Option<u64>,
    pub(crate) last: Option<u64>,
    /// Time of the handshake, and minimum of the data whose acknowledgement was not delayed.
    pub(crate) handshake: Option<u64>,
    prompt_min: Option<u64>,
    pub(crate) max: u64,
    pub(crate) samples: u64,
    /// The last two samples, and the last two that no delayed acknowledgement made.
    recent: [u64; 2],
    prompt: [u64; 2],
    prompt_samples: u64,
    /// Times above the minimum so far.
    delays: Option<Histogram>,
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
        let before = self.min.unwrap_or(nanos);
        let min = before.min(nanos);
        // Delays above a much larger minimum say nothing.
        if min < before - before / 8 {
            self.delays = None;
        }
        self.min = Some(min);
        self.last = Some(nanos);
        self.max = self.max.max(nanos);
        self.samples += 1;
        self.recent = [nanos, self.recent[0]];
        self.delays.get_or_insert_default().add(nanos - min);
    }

    /// Adds a sample of an acknowledgement that was not delayed.
    pub(crate) fn add_prompt(&mut self, nanos: u64) {
        self.add(nanos);
        self.prompt_samples += 1;
        self.prompt = [nanos, self.prompt[0]];
        self.prompt_min = Some(self.prompt_min.map_or(nanos, |least| least.min(nanos)));
    }

    /// Adds the time of the handshake.
    pub(crate) fn add_handshake(&mut self, nanos: u64) {
        self.handshake = Some(nanos);
        self.add_bound(nanos);
    }

    /// Returns the last time to this end and back without delays of acknowledgements; 0 without samples.
    pub(crate) fn settled(&self) -> u64 {
        let known = |samples: [u64; 2]| samples.into_iter().filter(|sample| *sample > 0).min().unwrap_or(0);
        let is_usual = self.prompt_samples * 4 >= self.samples;
        known(if is_usual { self.prompt } else { self.recent })
    }

    /// Adds a sample that is only a bound, such as the handshake with the work of an application.
    pub(crate) fn add_bound(&mut self, nanos: u64) {
        self.min = Some(self.min.map_or(nanos, |min| min.min(nanos)));
        self.last.get_or_insert(nanos);
    }

    /// Returns true if the handshake was far faster than each answer to data: another host answered the handshake.
    pub(crate) fn has_faster_handshake(&self) -> bool {
        let Some((handshake, data)) = self.handshake.zip(self.prompt_min) else { return false };
        self.prompt_samples >= MIN_PROXY_SAMPLES && data > MIN_PROXY_RTT && handshake * 3 < data
    }

    /// Returns the minimum of the usual path. A few packets with a much smaller RTT, and none between, took another path.
    pub(crate) fn usual_min(&self) -> Option<u64> {
        let min = match (self.handshake, self.prompt_min) {
            (Some(_), Some(data)) if self.has_faster_handshake() => data,
            _ => self.min?,
        };
        let Some(delays) = &self.delays else { return Some(min) };
        let (low, middle) = (delays.quantile(OUTLIERS), delays.quantile(0.5));
        let is_sharp = (min + low) * 21 >= (min + middle) * 20;
        let between = delays.count_between(min / 4, low - low / 4);
        if self.samples >= MIN_SAMPLES && is_sharp && low > min / 3 && between == 0 {
            return Some(min + low - (min + low) / 32);
        }
        Some(min)
    }

    /// Returns the time to this end and back that a share of the samples does not exceed.
    pub(crate) fn quantile(&self, share: f64) -> Option<u64> {
        self.delays.as_ref().map(|delays| self.min.unwrap_or(0) + delays.quantile(share))
    }

    /// Returns the bytes of memory that the lists take.
    #[cfg(test)]
    pub(crate) fn heap_bytes(&self) -> usize {
        let delays = self.delays.as_ref().map_or(0, Histogram::heap_bytes);
        delays + self.sent.capacity() * size_of::<SentTimestamp>()
    }

    /// Remembers the timestamp of a packet towards this end. With `limit` timestamps, every second one is forgotten.
    pub(crate) fn sent_timestamp(&mut self, value: u32, at: u64, limit: u16) {
        if self.last_value == Some(value) {
            return;
        }
        self.last_value = Some(value);
        self.skipped += 1;
        if self.skipped < self.stride {
            return;
        }
        self.skipped = 0;
        if self.sent.len() >= usize::from(limit) {
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
            rtt.sent_timestamp(value, u64::from(value) * 10, 32);
        }
        let mut found = 0;
        for value in 0..1000 {
            if let Some(time) = rtt.echoed_timestamp(value, u64::from(value) * 10 + 500) {
                assert_eq!(time, 500);
                found += 1;
            }
        }
        assert!(found > 10 && rtt.sent.len() <= 32, "{found}");
    }
}
