//! Reordering by distance: a packet waits until a number of later packets have passed it.
//!
//! Jitter with overtaking depends on the rate. This stage sets the exact reordering distance and delays no other
//! packet. A waiting packet leaves after a maximum time even if too few packets pass it. Otherwise the last packet of
//! an exchange would stay for ever.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{Ratio, duration_argument, parse_unit_duration};

use crate::error::{LinkError, MAX_HOLD};
use crate::hop_context::HopContext;
use crate::key::{Key, key};
use crate::outbox::Outbox;
use crate::packet::{LinkEvent, Packet};
use crate::sampler::PacketSampler;
use crate::setting::{Parts, SettingError, parse_count};
use crate::stage::{ImpairmentStage, Stage};
use crate::value::{Effects, impl_value_or_none};

pub(super) const KEY: Key = key!(
    Delay,
    "reorder",
    "RATIO:N",
    "1%:3",
    "Reorder this share of packets by N positions, such as 1%:3",
    "Share of packets that are delayed until 3 later packets have passed, for at most 50 ms (`:hold=50ms`)."
);

/// Share of packets that are reordered, and their distance.
///
/// Written `1%:3` or `1%:3:hold=20ms`; `1%` alone means a distance of 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Probability that a virtual packet waits, independent of the other packets.
    pub share: Ratio,
    /// Number of later virtual packets that pass it; at least 1. A waiting packet passes no other packet.
    pub distance: u32,
    /// Maximum time that it waits if fewer packets pass.
    pub hold: Duration,
}

/// Forwards packets and holds some of them.
pub(super) struct ReorderStage {
    settings: Reorder,
    sampler: PacketSampler,
    /// Waiting packets in order of arrival. All have the same distance left, or had it on arrival.
    waiting: VecDeque<HeldPacket>,
    /// Virtual packets that did not wait.
    passed: u64,
    /// Time of the last event. A packet with an earlier timestamp counts as arriving at this time.
    last_event_at: Instant,
    out: Outbox,
}

/// One waiting virtual packet.
struct HeldPacket {
    packet: Packet,
    /// The packet leaves when this many packets have passed since the start of the stage.
    release_after: u64,
    /// Time at which the packet leaves at the latest.
    hold_until: Instant,
}

impl Default for Reorder {
    /// Returns no reordering. After three later packets a TCP sender treats a packet as lost (RFC 5681 §3.2).
    fn default() -> Self {
        Reorder { share: Ratio::default(), distance: 3, hold: Duration::from_millis(50) }
    }
}

impl FromStr for Reorder {
    type Err = SettingError;

    /// Reads the form `SHARE[:DISTANCE][:hold=TIME]`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let default = Reorder::default();
        let mut parts = Parts::split(text, "RATIO[:PACKETS][:hold=TIME], such as 1%:3 or 1%:3:hold=20ms");
        let hold = parts.optional_key("hold", parse_unit_duration)?.unwrap_or(default.hold);
        let share = parts.next("the share of reordered packets", str::parse)?;
        let distance = parts
            .next_optional(parse_count)?
            .map_or(default.distance, |count| u32::try_from(count).unwrap_or(u32::MAX));
        parts.finish()?;
        let reorder = Reorder { share, distance, hold };
        reorder.check()?;
        Ok(reorder)
    }
}

impl_value_or_none!(Reorder, to_string);

impl Effects for Reorder {
    fn check(&self) -> Result<(), LinkError> {
        if self.distance == 0 {
            Err(LinkError::ZeroReorderDistance)
        } else if self.hold > MAX_HOLD {
            Err(LinkError::HoldTooLong(self.hold))
        } else {
            Ok(())
        }
    }

    fn max_delay(&self) -> Duration {
        if self.share.get() > 0.0 { self.hold } else { Duration::ZERO }
    }

    /// Counts three splits for each packet that waits: around the gap, and where the packet enters again.
    fn splits_per_packet(&self) -> f64 {
        3.0 * self.share.get()
    }
}

impl fmt::Display for Reorder {
    /// Writes the settings so that they can be parsed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.share.to_argument(), self.distance)?;
        if self.hold == Reorder::default().hold { Ok(()) } else { write!(f, ":hold={}", duration_argument(self.hold)) }
    }
}

impl ReorderStage {
    /// Forwards virtual packets that do not wait, and the waiting packets that they release.
    fn forward_and_release(&mut self, packet: Packet, now: Instant) {
        let mut done = 0;
        while done < packet.count {
            let left = packet.count - done;
            let step = self.waiting.front().map_or(left, |held| {
                // Before `set` the distance may have been longer: an overdue packet follows the next one that passes.
                let remaining = held.release_after.saturating_sub(self.passed).max(1);
                u32::try_from(remaining).map_or(left, |remaining| remaining.min(left))
            });
            self.out.forward(packet.part(done, step), now);
            done += step;
            self.passed += u64::from(step);
            while self.waiting.front().is_some_and(|held| held.release_after <= self.passed) {
                let Some(held) = self.waiting.pop_front() else { break };
                self.out.forward(held.packet, now);
            }
        }
    }

    fn hold(&mut self, packet: Packet, now: Instant) {
        let release_after = self.passed + u64::from(self.settings.distance);
        // The order of waiting packets stays, even after a reduction of the hold time.
        let hold_until = (now + self.settings.hold).max(self.waiting.back().map_or(now, |held| held.hold_until));
        self.waiting.push_back(HeldPacket { packet, release_after, hold_until });
    }

    /// Forwards packets whose hold time is over.
    fn release(&mut self, now: Instant) {
        while self.waiting.front().is_some_and(|held| held.hold_until <= now) {
            let Some(held) = self.waiting.pop_front() else { break };
            self.out.forward(held.packet, held.hold_until);
            self.last_event_at = self.last_event_at.max(held.hold_until);
        }
    }
}

impl Stage for ReorderStage {
    fn push(&mut self, packet: Packet, now: Instant) {
        self.release(now);
        let now = self.last_event_at.max(now);
        self.last_event_at = now;
        let mut done = 0;
        while done < packet.count {
            let pass = self.sampler.gap_up_to(packet.count - done);
            if pass > 0 {
                self.sampler.skip(pass);
                self.forward_and_release(packet.part(done, pass), now);
                done += pass;
            }
            if done < packet.count {
                self.sampler.take_hit();
                self.hold(packet.part(done, 1), now);
                done += 1;
            }
        }
    }

    fn pop(&mut self, now: Instant) -> Option<LinkEvent> {
        if self.out.is_empty() {
            self.release(now);
        }
        self.out.pop(now)
    }

    fn next_event_at(&self) -> Option<Instant> {
        self.out.next_event_at().or_else(|| self.waiting.front().map(|held| held.hold_until))
    }
}

impl ImpairmentStage for ReorderStage {
    type Settings = Reorder;

    fn new(settings: Reorder, context: &HopContext) -> Self {
        ReorderStage {
            settings,
            sampler: PacketSampler::new(context, "reorder", settings.share),
            waiting: VecDeque::new(),
            passed: 0,
            last_event_at: Instant::ZERO,
            out: Outbox::default(),
        }
    }

    fn set(&mut self, settings: Reorder, _context: &HopContext, _now: Instant) {
        self.settings = settings;
        self.sampler.set(settings.share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reorder_text_round_trips() {
        let percent = Reorder { share: Ratio::new(0.01).unwrap(), ..Reorder::default() };
        for (text, reorder, shown) in [
            ("1%:3", percent, "0.01:3"),
            ("1%", percent, "0.01:3"),
            ("0", Reorder::default(), "0:3"),
            (
                "0.01:7:hold=20ms",
                Reorder { distance: 7, hold: Duration::from_millis(20), ..percent },
                "0.01:7:hold=20ms",
            ),
            ("1%:hold=1s", Reorder { hold: Duration::from_secs(1), ..percent }, "0.01:3:hold=1s"),
        ] {
            assert_eq!(text.parse(), Ok(reorder), "{text}");
            assert_eq!(reorder.to_string(), shown);
            assert_eq!(shown.parse(), Ok(reorder), "{text}");
        }
        for (text, words) in [
            ("", "'' lacks the share of reordered packets"),
            ("2:3", "in '2:3': '2': too large for a ratio"),
            ("1%:0", "a distance of 0 packets"),
            ("1%:-1", "'-1' is not a count of packets"),
            ("1%:3:4", "unexpected '4'"),
            ("1%:3:hold=soon", "'soon' is not a duration"),
            ("1%:3:hold=2min", "is above 60 s"),
        ] {
            let error = text.parse::<Reorder>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
