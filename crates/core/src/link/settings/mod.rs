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
pub use error::{Hint, SettingsError, nearest_word};
pub use keys::{Group, KEYS, Key};
use std::fmt;
use std::time::Duration;

use super::trace::Trace;
use super::{Direction, Discipline, Jitter, LossModel, Outages, PathMtu, Policer, Reorder, Shaper};
use crate::framing::Layer;
use crate::path::QueueSize;
use crate::units::{BitRate, Ratio};

/// What was said of one direction of a hop, or of both directions alike. Nothing is filled in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkSettings {
    /// Delay there and back together, half of it each way. Of both directions only, and not beside `delay`.
    pub rtt: Option<Duration>,
    /// One-way delay.
    pub delay: Option<Duration>,
    /// Timetables of rate, delay and loss; `Some(None)` for none. One that only has its name is still to be
    /// [read](HopSettings::read_traces).
    pub trace: Option<Option<Trace>>,
    /// Line rate.
    pub rate: Option<BitRate>,
    /// Where the bytes of the line are counted.
    pub overhead: Option<Layer>,
    /// Room of the queue.
    pub queue: Option<QueueSize>,
    /// What the queue does with what waits.
    pub aqm: Option<Discipline>,
    /// Whether it marks what is ECN-capable instead of dropping it.
    pub ecn: Option<bool>,
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
        let value = value.trim();
        (key.set)(self, value).map_err(|reason| SettingsError::Value {
            key: key.name.to_owned(),
            typed: value.to_owned(),
            reason,
        })
    }

    /// This, with everything that `over` says instead of what was said before.
    pub fn overlay(&mut self, over: &LinkSettings) {
        self.give_way(over);
        KEYS.iter().for_each(|key| (key.take)(self, over));
    }

    /// The timetables, if there are any.
    pub fn timetables(&self) -> Option<&Trace> {
        self.trace.as_ref()?.as_ref()
    }

    /// Forgets what `over` says as well. A trace and the settings of which it has timetables speak of the same things.
    fn give_way(&mut self, over: &LinkSettings) {
        for key in KEYS.iter().filter(|key| (key.show)(over).is_some()) {
            (key.clear)(self);
        }
        if let Some(trace) = over.timetables() {
            self.rate.take_if(|_| trace.rate.is_some());
            self.delay.take_if(|_| trace.delay.is_some());
            self.loss.take_if(|_| trace.loss.is_some());
            self.overhead.take_if(|_| trace.layer.is_some());
        }
        if let Some(Some(trace)) = &mut self.trace
            && trace.is_read()
        {
            trace.rate.take_if(|_| over.rate.is_some());
            trace.delay.take_if(|_| over.delay.is_some() || over.rtt.is_some());
            trace.loss.take_if(|_| over.loss.is_some());
            trace.layer.take_if(|_| over.rate.is_some() || over.overhead.is_some());
            if !trace.is_read() {
                self.trace = None;
            }
        }
    }

    /// Whether anything is said of the one-way delay.
    fn has_delay(&self) -> bool {
        self.delay.is_some() || self.timetables().is_some_and(|trace| trace.delay.is_some())
    }

    fn read_trace(
        &mut self,
        key: &str,
        read: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<(), SettingsError> {
        let Some(Some(trace)) = &mut self.trace else { return Ok(()) };
        if trace.is_read() {
            return Ok(());
        }
        let refused = |reason: &str| SettingsError::Trace {
            key: key.to_owned(),
            name: trace.name.clone(),
            reason: reason.to_owned(),
        };
        let text = read(&trace.name).map_err(|reason| refused(&reason))?;
        *trace = Trace::parse(&trace.name, &text).map_err(|error| refused(&error.to_string()))?;
        Ok(())
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

    /// `KEY=VALUE`. A key that was given before is refused: nobody means both.
    pub fn set_pair(&mut self, pair: &str) -> Result<(), SettingsError> {
        let (key, value) = pair.split_once('=').ok_or_else(|| SettingsError::NoPair(pair.to_owned()))?;
        let key = key.trim();
        if let Some((_, before)) = self.given().find(|(given, _)| given == key) {
            return Err(SettingsError::Twice { key: key.to_owned(), values: [before, value.trim().to_owned()] });
        }
        self.set(key, value)
    }

    /// Has every trace that is a file read, by a function from its name to its text; those built in are read already.
    /// Best done as soon as settings were typed: what a trace has timetables of decides what it is laid over.
    pub fn read_traces(&mut self, read: &mut dyn FnMut(&str) -> Result<String, String>) -> Result<(), SettingsError> {
        self.both.read_trace("trace", read)?;
        self.forward.read_trace("forward-trace", read)?;
        self.back.read_trace("return-trace", read)
    }

    /// This, with everything that `over` says instead of what was said before, of both directions or of one.
    pub fn overlay(&mut self, over: &HopSettings) {
        self.make_way_for_delays(over);
        self.forward.give_way(&over.both);
        self.back.give_way(&over.both);
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
        let delays = [&over.both, &over.forward, &over.back].map(LinkSettings::has_delay);
        if delays.contains(&true)
            && let Some(rtt) = self.both.rtt.take()
        {
            let [there, back] = halves(rtt);
            (self.forward.delay, self.back.delay) = (Some(there), Some(back));
        }
        if over.both.rtt.is_some() {
            [self.both.delay, self.forward.delay, self.back.delay] = [None; 3];
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
