//! HyStart++ (RFC 9406): leaves slow start when the round trip grows, before the queue overflows.

use std::time::Duration;

use super::Acknowledged;

/// Watches the round trips of slow start.
#[derive(Debug)]
pub(super) struct HyStart {
    /// The round ends when this segment is acknowledged.
    round_end: u64,
    /// Least round trip of the round before and of this one.
    before: Option<Duration>,
    now: Option<Duration>,
    samples: u64,
    /// In conservative slow start: the round trip it was entered with, and the rounds left.
    conservative: Option<(Duration, u32)>,
}

/// What becomes of slow start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Growth {
    /// The window grows by this share of what was acknowledged.
    Share(f64),
    /// It is over.
    Over,
}

// RFC 9406 §4.3.
const LEAST_THRESHOLD: Duration = Duration::from_millis(4);
const MOST_THRESHOLD: Duration = Duration::from_millis(16);
const DIVISOR: u32 = 8;
const SAMPLES: u64 = 8;
const CONSERVATIVE_SHARE: f64 = 0.25;
const CONSERVATIVE_ROUNDS: u32 = 5;

impl HyStart {
    pub(super) fn new() -> Self {
        HyStart { round_end: 0, before: None, now: None, samples: 0, conservative: None }
    }

    /// Takes up an acknowledgement in slow start.
    pub(super) fn acknowledged(&mut self, ack: &Acknowledged) -> Growth {
        if ack.next > self.round_end && self.end_round(ack.sent) {
            return Growth::Over;
        }
        if let Some(rtt) = ack.rtt {
            self.now = Some(self.now.map_or(rtt, |least| least.min(rtt)));
            self.samples += ack.count;
        }
        self.judge();
        Growth::Share(if self.conservative.is_some() { CONSERVATIVE_SHARE } else { 1.0 })
    }

    /// True if that was the last of conservative slow start.
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

    fn judge(&mut self) {
        let (Some(before), Some(now)) = (self.before, self.now) else { return };
        if self.samples < SAMPLES {
            return;
        }
        let threshold = (before / DIVISOR).clamp(LEAST_THRESHOLD, MOST_THRESHOLD);
        match self.conservative {
            None if now >= before + threshold => self.conservative = Some((now, CONSERVATIVE_ROUNDS)),
            // It was jitter.
            Some((baseline, _)) if now < baseline => self.conservative = None,
            _ => {}
        }
    }
}
