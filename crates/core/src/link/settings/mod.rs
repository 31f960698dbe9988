//! What people say of a link before it is one: settings by name, each given or not.
//!
//! A [`LinkSettings`] holds what was said of one direction, a [`HopSettings`] of both; profiles, flags and changes to a
//! running link are such records laid over one another, and [`EmulatedPath::new`] makes [`LinkConfig`](super::LinkConfig)s
//! of the result. The names are in one table, [`KEYS`], from which the flags, the reference and the hints of errors
//! come. Values are text here, with neither commas nor spaces, so that they travel in a flag, in TOML and over a socket
//! alike. Nothing here reads a file: whoever names a file hands in its text.

mod emulated;
mod error;
mod keys;
mod value;

pub use emulated::{EmulatedPath, LEAST_MTU, MOST_MTU};
pub use error::{Hint, SettingsError};
pub use keys::{Group, KEYS, Key};
use std::fmt;
use std::time::Duration;

use super::{Direction, Jitter, LossModel, Outages, PathMtu, Policer, Reorder, Shaper};
use crate::path::QueueSize;
use crate::units::{BitRate, Ratio};

/// What was said of one direction of a hop, or of both directions alike. Nothing is filled in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkSettings {
    /// Delay there and back together, half of it each way. Of both directions only, and not beside `delay`.
    pub rtt: Option<Duration>,
    /// One-way delay.
    pub delay: Option<Duration>,
    /// Line rate.
    pub rate: Option<BitRate>,
    /// Room of the queue.
    pub queue: Option<QueueSize>,
    /// How the delay differs from packet to packet.
    pub jitter: Option<Jitter>,
    /// Packets held back until others have passed them.
    pub reorder: Option<Reorder>,
    /// Which packets are lost.
    pub loss: Option<LossModel>,
    /// When the link is down.
    pub outage: Option<Outages>,
    /// The longest IP packet that passes; `Some(None)` where nothing is too long.
    pub path_mtu: Option<Option<PathMtu>>,
    /// Drops what exceeds a rate and a burst; `Some(None)` for none.
    pub policer: Option<Option<Policer>>,
    /// Delays what exceeds a rate and a burst; `Some(None)` for none.
    pub shaper: Option<Option<Shaper>>,
    /// Share of packets that come twice.
    pub duplicate: Option<Ratio>,
    /// Share of packets with a bit flipped.
    pub corrupt: Option<Ratio>,
    /// Share of packets with a bit flipped and the checksum made right again.
    pub corrupt_hidden: Option<Ratio>,
}

/// What was said of one hop: of both directions, and of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HopSettings {
    /// Of both directions, where nothing more is said of one.
    pub both: LinkSettings,
    /// From near to far.
    pub forward: LinkSettings,
    /// From far to near.
    pub back: LinkSettings,
}

impl LinkSettings {
    /// Sets one setting, as text, by its key in [`KEYS`].
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingsError> {
        let key = Key::find(key)?;
        (key.set)(self, value.trim()).map_err(|reason| SettingsError::Value { key: key.name.to_owned(), reason })
    }

    /// This, with everything that `over` says instead of what was said before.
    pub fn overlay(&mut self, over: &LinkSettings) {
        KEYS.iter().for_each(|key| (key.take)(self, over));
    }

    /// Every setting that was given, as text that [`set`](Self::set) reads, in the order of the table.
    pub fn given(&self) -> impl Iterator<Item = (&'static Key, String)> + '_ {
        KEYS.iter().filter_map(|key| Some((key, (key.show)(self)?)))
    }
}

impl HopSettings {
    /// The prefix of a key that speaks of one direction only.
    pub const PREFIXES: [(&'static str, Direction); 2] =
        [("forward-", Direction::Forward), ("return-", Direction::Return)];

    /// Sets one setting by its key, which may begin with `forward-` or `return-`.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingsError> {
        let Some((name, direction)) =
            Self::PREFIXES.iter().find_map(|(prefix, way)| Some((key.strip_prefix(prefix)?, *way)))
        else {
            return self.both.set(key, value);
        };
        if Key::find(name).is_ok_and(|key| !key.has_direction) {
            return Err(SettingsError::NoDirection(name.to_owned()));
        }
        self.one_way(direction).set(name, value).map_err(|error| error.in_direction(direction))
    }

    /// `KEY=VALUE`.
    pub fn set_pair(&mut self, pair: &str) -> Result<(), SettingsError> {
        let (key, value) = pair.split_once('=').ok_or_else(|| SettingsError::NoPair(pair.to_owned()))?;
        self.set(key.trim(), value)
    }

    /// This, with everything that `over` says instead of what was said before, of both directions or of one.
    pub fn overlay(&mut self, over: &HopSettings) {
        self.make_way_for_delays(over);
        for key in KEYS {
            if (key.show)(&over.both).is_some() {
                (key.clear)(&mut self.forward);
                (key.clear)(&mut self.back);
            }
        }
        self.both.overlay(&over.both);
        self.forward.overlay(&over.forward);
        self.back.overlay(&over.back);
    }

    /// All that is said of one direction.
    pub fn of(&self, direction: Direction) -> LinkSettings {
        let mut settings = self.both.clone();
        settings.overlay(match direction {
            Direction::Forward => &self.forward,
            Direction::Return => &self.back,
        });
        settings
    }

    /// Every setting that was given, by its whole key.
    pub fn given(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let [forward, back] = Self::PREFIXES.map(|(prefix, _)| prefix);
        [("", &self.both), (forward, &self.forward), (back, &self.back)].into_iter().flat_map(|(prefix, settings)| {
            settings.given().map(move |(key, value)| (format!("{prefix}{}", key.name), value))
        })
    }

    fn one_way(&mut self, direction: Direction) -> &mut LinkSettings {
        match direction {
            Direction::Forward => &mut self.forward,
            Direction::Return => &mut self.back,
        }
    }

    /// `rtt` and `delay` speak of the same thing: what is said later of one replaces the other.
    fn make_way_for_delays(&mut self, over: &HopSettings) {
        let delays = [over.both.delay.is_some(), over.forward.delay.is_some(), over.back.delay.is_some()];
        if over.both.rtt.is_some() {
            [self.both.delay, self.forward.delay, self.back.delay] = [None; 3];
        } else if delays.contains(&true)
            && let Some(rtt) = self.both.rtt.take()
        {
            let [there, back] = halves(rtt);
            (self.forward.delay, self.back.delay) = (Some(there), Some(back));
        }
    }
}

impl fmt::Display for HopSettings {
    /// `rate=135mbit,rtt=539ms`: as `--link` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.given().map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&pairs.join(","))
    }
}

/// A round trip's share of each way; an odd nanosecond goes back.
fn halves(rtt: Duration) -> [Duration; 2] {
    let there = rtt / 2;
    [there, rtt.saturating_sub(there)]
}
