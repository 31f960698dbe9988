//! Link settings by name, each set or not set.
//!
//! A [`LinkSettings`] holds the settings of one direction, a [`HopSettings`] those of both. Profiles, flags and changes
//! to a running link are such records. Later records override earlier ones, and [`EmulatedPath::new`] creates
//! [`LinkConfig`](super::LinkConfig)s from the result. One table, [`KEYS`], has the names; the flags, the reference and
//! the hints of errors come from this table. Values are text without commas or spaces, so they have the same form in a
//! flag, in TOML and on a socket. No code here reads a file: the caller provides the text of files.

mod emulated;
mod error;
mod keys;
mod value;

pub use emulated::{EmulatedPath, MAX_MTU, MIN_MTU};
pub use error::{SettingsError, SettingsHint, nearest_word};
pub use keys::{Group, KEYS, Key};
use std::fmt;
use std::time::Duration;

use super::trace::LinkTrace;
use super::{Discipline, LinkDirection, LinkJitter, LossModel, Outages, PathMtu, Policer, Reorder, Shaper};
use crate::framing::Layer;
use crate::path::QueueSize;
use crate::units::{BitRate, Ratio};

/// Settings of one direction of a hop, or of both directions. Defaults are not filled in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkSettings {
    /// Delay of both directions together, half in each. Valid for both directions only, and not together with `delay`.
    pub rtt: Option<Duration>,
    pub delay: Option<Duration>,
    /// Timetables of rate, delay and loss; `Some(None)` for none. A trace with only a name must still be
    /// [read](HopSettings::read_traces).
    pub trace: Option<Option<LinkTrace>>,
    pub rate: Option<BitRate>,
    /// Layer at which the line counts bytes.
    pub overhead: Option<Layer>,
    pub queue: Option<QueueSize>,
    pub aqm: Option<Discipline>,
    /// Whether to mark ECN-capable packets instead of dropping them early.
    pub ecn: Option<bool>,
    pub jitter: Option<LinkJitter>,
    pub reorder: Option<Reorder>,
    pub loss: Option<LossModel>,
    pub outage: Option<Outages>,
    /// Maximum length of an IP packet; `Some(None)` for no limit.
    pub path_mtu: Option<Option<PathMtu>>,
    /// `Some(None)` removes the policer of a profile.
    pub policer: Option<Option<Policer>>,
    /// `Some(None)` removes the shaper of a profile.
    pub shaper: Option<Option<Shaper>>,
    /// Share of packets that are duplicated.
    pub duplicate: Option<Ratio>,
    /// Share of packets with a flipped bit.
    pub corrupt: Option<Ratio>,
    /// Share of packets with a flipped bit and a corrected checksum.
    pub corrupt_hidden: Option<Ratio>,
}

/// Settings of one hop: of both directions, and of each direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HopSettings {
    /// Settings of both directions, unless a direction has its own.
    pub both: LinkSettings,
    /// Settings from near to far.
    pub forward: LinkSettings,
    /// Settings from far to near.
    pub back: LinkSettings,
}

impl LinkSettings {
    /// Sets one setting from text, by its key in [`KEYS`].
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingsError> {
        let key = Key::find(key)?;
        let value = value.trim();
        (key.set)(self, value).map_err(|reason| SettingsError::Value {
            key: key.name.to_owned(),
            value: value.to_owned(),
            reason,
        })
    }

    /// Applies all settings of `over` and keeps the other settings.
    pub fn overlay(&mut self, over: &LinkSettings) {
        self.remove_overridden(over);
        KEYS.iter().for_each(|key| (key.overlay)(self, over));
    }

    /// Returns the timetables, if there are any.
    pub fn timetables(&self) -> Option<&LinkTrace> {
        self.trace.as_ref()?.as_ref()
    }

    /// Removes the settings that `over` replaces. A trace and the settings that it has timetables of exclude each
    /// other.
    fn remove_overridden(&mut self, over: &LinkSettings) {
        for key in KEYS.iter().filter(|key| (key.write)(over).is_some()) {
            (key.clear)(self);
        }
        if let Some(trace) = over.timetables() {
            self.rate.take_if(|_| trace.rate.is_some());
            self.delay.take_if(|_| trace.delay.is_some());
            self.loss.take_if(|_| trace.loss.is_some());
            self.overhead.take_if(|_| trace.layer.is_some());
        }
        if let Some(Some(trace)) = &mut self.trace
            && trace.is_loaded()
        {
            trace.rate.take_if(|_| over.rate.is_some());
            trace.delay.take_if(|_| over.delay.is_some() || over.rtt.is_some());
            trace.loss.take_if(|_| over.loss.is_some());
            trace.layer.take_if(|_| over.rate.is_some() || over.overhead.is_some());
            if !trace.is_loaded() {
                self.trace = None;
            }
        }
    }

    /// Reports whether a one-way delay is set.
    fn has_delay(&self) -> bool {
        self.delay.is_some() || self.timetables().is_some_and(|trace| trace.delay.is_some())
    }

    fn read_trace(
        &mut self,
        key: &str,
        read: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<(), SettingsError> {
        let Some(Some(trace)) = &mut self.trace else { return Ok(()) };
        if trace.is_loaded() {
            return Ok(());
        }
        let refused = |reason: &str| SettingsError::Trace {
            key: key.to_owned(),
            name: trace.name.clone(),
            reason: reason.to_owned(),
        };
        let text = read(&trace.name).map_err(|reason| refused(&reason))?;
        *trace = LinkTrace::parse(&trace.name, &text).map_err(|error| refused(&error.to_string()))?;
        Ok(())
    }

    /// Returns every setting that is set, as text that [`set`](Self::set) reads, in the order of the table.
    pub fn entries(&self) -> impl Iterator<Item = (&'static Key, String)> + '_ {
        KEYS.iter().filter_map(|key| Some((key, (key.write)(self)?)))
    }
}

impl HopSettings {
    /// Key prefixes of settings for one direction.
    pub const PREFIXES: [(&'static str, LinkDirection); 2] =
        [("forward-", LinkDirection::Forward), ("return-", LinkDirection::Return)];

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
        self.direction_mut(direction).set(name, value).map_err(|error| error.in_direction(direction))
    }

    /// Sets one setting from `KEY=VALUE`. Refuses a key that is already set.
    pub fn set_pair(&mut self, pair: &str) -> Result<(), SettingsError> {
        let (key, value) = pair.split_once('=').ok_or_else(|| SettingsError::NotAPair(pair.to_owned()))?;
        let key = key.trim();
        if let Some((_, before)) = self.entries().find(|(given, _)| given == key) {
            return Err(SettingsError::GivenTwice { key: key.to_owned(), values: [before, value.trim().to_owned()] });
        }
        self.set(key, value)
    }

    /// Reads every trace that is a file, with a function from its name to its text. Built-in traces need no reading.
    /// Call this function directly after parsing, because the timetables of a trace decide which settings it replaces.
    pub fn read_traces(&mut self, read: &mut dyn FnMut(&str) -> Result<String, String>) -> Result<(), SettingsError> {
        self.both.read_trace("trace", read)?;
        self.forward.read_trace("forward-trace", read)?;
        self.back.read_trace("return-trace", read)
    }

    /// Applies all settings of `over`, for both directions or for one, and keeps the other settings.
    pub fn overlay(&mut self, over: &HopSettings) {
        self.resolve_delay_conflict(over);
        self.forward.remove_overridden(&over.both);
        self.back.remove_overridden(&over.both);
        self.both.overlay(&over.both);
        self.forward.overlay(&over.forward);
        self.back.overlay(&over.back);
    }

    /// Returns all settings of one direction.
    pub fn for_direction(&self, direction: LinkDirection) -> LinkSettings {
        let mut settings = self.both.clone();
        settings.overlay(match direction {
            LinkDirection::Forward => &self.forward,
            LinkDirection::Return => &self.back,
        });
        settings
    }

    /// Returns every setting that is set, with its complete key.
    pub fn entries(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let [forward, back] = Self::PREFIXES.map(|(prefix, _)| prefix);
        [("", &self.both), (forward, &self.forward), (back, &self.back)].into_iter().flat_map(|(prefix, settings)| {
            settings.entries().map(move |(key, value)| (format!("{prefix}{}", key.name), value))
        })
    }

    fn direction_mut(&mut self, direction: LinkDirection) -> &mut LinkSettings {
        match direction {
            LinkDirection::Forward => &mut self.forward,
            LinkDirection::Return => &mut self.back,
        }
    }

    /// Resolves `rtt` and `delay`, which exclude each other: the later one replaces the earlier one.
    fn resolve_delay_conflict(&mut self, over: &HopSettings) {
        let delays = [&over.both, &over.forward, &over.back].map(LinkSettings::has_delay);
        if delays.contains(&true)
            && let Some(rtt) = self.both.rtt.take()
        {
            let [there, back] = split_rtt(rtt);
            (self.forward.delay, self.back.delay) = (Some(there), Some(back));
        }
        if over.both.rtt.is_some() {
            [self.both.delay, self.forward.delay, self.back.delay] = [None; 3];
        }
    }
}

impl fmt::Display for HopSettings {
    /// Writes `rate=135mbit,rtt=539ms`, the form that `--link` takes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.entries().map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&pairs.join(","))
    }
}

/// Splits a round-trip time into both directions. An odd nanosecond belongs to the return direction.
fn split_rtt(rtt: Duration) -> [Duration; 2] {
    let there = rtt / 2;
    [there, rtt.saturating_sub(there)]
}
