//! HyStart++ (RFC 9406): leaves slow start when the RTT grows, before the queue overflows.

use std::time::Duration;

use super::algorithm::AckSample;

/// Observes the RTT during slow start.
#[derive(Debug)]
pub(super) struct HyStart {
    /// The round ends when this segment is acknowledged.
    round_end: u64,
    /// Minimum RTT of the previous round and of the current one.
    before: Option<Duration>,
    now: Option<Duration>,
    samples: u64,
    /// In conservative slow start: the RTT at its start, and the remaining rounds.
    conservative: Option<(Duration, u32)>,
}

/// Growth of the window in slow start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Growth {
    /// The window grows by this share of the acknowledged segments.
    Share(f64),
    /// Slow start is over.
    Over,
}

// RFC 9406 §4.3.
const MIN_RTT_THRESHOLD: Duration = Duration::from_millis(4);
const MAX_RTT_THRESHOLD: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const MIN_SAMPLES: u64 = 8;
const CONSERVATIVE_SHARE: f64 = 0.25;
const CONSERVATIVE_ROUNDS: u32 = 5;

impl HyStart {
    pub(super) fn new() -> Self {
        HyStart { round_end: 0, before: None, now: None, samples: 0, conservative: None }
    }

    /// Handles an acknowledgement in slow start.
    pub(super) fn on_ack(&mut self, ack: &AckSample) -> Growth {
        if ack.next > self.round_end && self.end_round(ack.sent) {
            return Growth::Over;
        }
        if let Some(rtt) = ack.rtt {
            self.now = Some(self.now.map_or(rtt, |before| before.min(rtt)));
            self.samples += ack.count;
        }
        self.update_phase();
        Growth::Share(if self.conservative.is_some() { CONSERVATIVE_SHARE } else { 1.0 })
    }

    /// Returns true if this was the last round of conservative slow start.
    fn end_round(&mut self, sent: u64) -> bool {
        self.round_end = sent;
        self.before = self.now.take();
        self.samples = 0;
        match &mut self.conservative {
            Some((_, rounds)) => {
                *rounds -= 1;
                *rounds == 0
            }
            None => false,
        }
    }

    fn update_phase(&mut self) {
        let (Some(before), Some(now)) = (self.before, self.now) else { return };
        if self.samples < MIN_SAMPLES {
            return;
        }
        let threshold = (before / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESHOLD, MAX_RTT_THRESHOLD);
        match self.conservative {
            None if now >= before + threshold => self.conservative = Some((now, CONSERVATIVE_ROUNDS)),
            // The increase was jitter.
            Some((baseline, _)) if now < baseline => self.conservative = None,
            _ => {}
        }
    }
}
