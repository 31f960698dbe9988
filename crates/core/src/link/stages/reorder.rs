//! Reordering by distance: a packet is held back until so many later ones have passed it.
//!
//! Unlike jitter that lets packets overtake, this says exactly how far a packet falls behind, whatever the rate, and
//! delays nothing else. What is held back is let go after a while though nothing has passed it, or the last packet of
//! an exchange would stay for ever.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::link::chance::Chance;
use crate::link::config::MOST_HOLD;
use crate::link::outbox::Outbox;
use crate::link::setting::{Parts, SettingError, count};
use crate::link::{Event, LinkConfig, LinkError, Packet, Stage};
use crate::time::Instant;
use crate::units::{Ratio, parse_unit_duration, typed_duration};

/// Which share of the packets is held back, and how far.
///
/// Written `1%:3`, or `1%:3:hold=20ms`; `1%` alone means a distance of 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Probability that a virtual packet is held back, each independently of the others.
    pub share: Ratio,
    /// How many later virtual packets pass it; at least 1. A packet that is held back itself passes nobody.
    pub distance: u32,
    /// How long it is held at most, if fewer pass it.
    pub hold: Duration,
}

/// Lets packets pass, and holds some back.
pub(super) struct Reordering {
    settings: Reorder,
    chance: Chance,
    /// In order of arrival. All have the same distance to go, or had when they came.
    held: VecDeque<Held>,
    /// Virtual packets that were not held back.
    passed: u64,
    /// When the last thing happened: a packet stamped earlier is taken to come then.
    clock: Instant,
    out: Outbox,
}

/// One virtual packet held back.
struct Held {
    packet: Packet,
    /// It goes after so many have passed since the start.
    after: u64,
    /// Or now.
    until: Instant,
}

impl Default for Reorder {
    /// None. Three later packets are what makes a TCP sender take one for lost (RFC 5681 §3.2).
    fn default() -> Self {
        Reorder { share: Ratio::default(), distance: 3, hold: Duration::from_millis(50) }
    }
}

impl FromStr for Reorder {
    type Err = SettingError;

    /// `SHARE[:DISTANCE][:hold=TIME]`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let usual = Reorder::default();
        let mut parts = Parts::all(text, "RATIO[:PACKETS][:hold=TIME], such as 1%:3 or 1%:3:hold=20ms");
        let hold = parts.key("hold", parse_unit_duration)?.unwrap_or(usual.hold);
        let share = parts.next("which share is held back", str::parse)?;
        let distance =
            parts.next_if_any(count)?.map_or(usual.distance, |count| u32::try_from(count).unwrap_or(u32::MAX));
        parts.end()?;
        let reorder = Reorder { share, distance, hold };
        reorder.check()?;
        Ok(reorder)
    }
}

impl Reorder {
    /// Refuses what no link can do.
    pub(in crate::link) fn check(&self) -> Result<(), LinkError> {
        if self.distance == 0 {
            Err(LinkError::NoDistance)
        } else if self.hold > MOST_HOLD {
            Err(LinkError::HoldTooLong(self.hold))
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for Reorder {
    /// As it would be typed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.share.typed(), self.distance)?;
        if self.hold == Reorder::default().hold { Ok(()) } else { write!(f, ":hold={}", typed_duration(self.hold)) }
    }
}

impl Reordering {
    pub(super) fn new(config: &LinkConfig) -> Self {
        Reordering {
            settings: config.reorder,
            chance: Chance::new(config, "reorder", config.reorder.share),
            held: VecDeque::new(),
            passed: 0,
            clock: Instant::ZERO,
            out: Outbox::default(),
        }
    }

    /// Forwards virtual packets that are not held back, and in between those they let go by passing.
    fn pass(&mut self, packet: Packet, now: Instant) {
        let mut gone = 0;
        while gone < packet.count {
            let left = packet.count - gone;
            let step = self.held.front().map_or(left, |held| {
                // After `set` a distance may have been longer before: what is due goes with the next to pass.
                let wanted = held.after.saturating_sub(self.passed).max(1);
                u32::try_from(wanted).map_or(left, |wanted| wanted.min(left))
            });
            self.out.forward(packet.part(gone, step), now);
            gone += step;
            self.passed += u64::from(step);
            while self.held.front().is_some_and(|held| held.after <= self.passed) {
                let Some(held) = self.held.pop_front() else { break };
                self.out.forward(held.packet, now);
            }
        }
    }

    fn hold(&mut self, packet: Packet, now: Instant) {
        let after = self.passed + u64::from(self.settings.distance);
        // What came before goes before, also after the time to hold was shortened.
        let until = (now + self.settings.hold).max(self.held.back().map_or(now, |held| held.until));
        self.held.push_back(Held { packet, after, until });
    }

    /// Lets go what was held long enough.
    fn release(&mut self, now: Instant) {
        while self.held.front().is_some_and(|held| held.until <= now) {
            let Some(held) = self.held.pop_front() else { break };
            self.out.forward(held.packet, held.until);
            self.clock = self.clock.max(held.until);
        }
    }
}

impl Stage for Reordering {
    fn push(&mut self, packet: Packet, now: Instant) {
        self.release(now);
        let now = self.clock.max(now);
        self.clock = now;
        let mut done = 0;
        while done < packet.count {
            let pass = self.chance.gap(packet.count - done);
            if pass > 0 {
                self.chance.pass(pass);
                self.pass(packet.part(done, pass), now);
                done += pass;
            }
            if done < packet.count {
                self.chance.strike();
                self.hold(packet.part(done, 1), now);
                done += 1;
            }
        }
    }

    fn pop(&mut self, now: Instant) -> Option<Event> {
        if self.out.is_empty() {
            self.release(now);
        }
        self.out.pop(now)
    }

    fn next(&self) -> Option<Instant> {
        self.out.next().or_else(|| self.held.front().map(|held| held.until))
    }

    fn set(&mut self, config: &LinkConfig, _now: Instant) {
        self.settings = config.reorder;
        self.chance.set(config.reorder.share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reordering_is_written_as_it_is_read() {
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
            ("", "'' lacks which share is held back"),
            ("2:3", "in '2:3': '2': too large for a ratio"),
            ("1%:0", "a distance of 0 packets"),
            ("1%:-1", "'-1' is not a count of packets"),
            ("1%:3:4", "do not know what to do with '4'"),
            ("1%:3:hold=soon", "'soon' is not a duration"),
            ("1%:3:hold=2min", "is above 60 s"),
        ] {
            let error = text.parse::<Reorder>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
