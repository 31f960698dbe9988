//! Settings of one hop, and the ways in which later settings override earlier ones.

use std::fmt;
use std::time::Duration;

use super::error::SettingsError;
use super::keys::{LinkSetting, PREFIXES, SETTINGS};
use super::link_settings::LinkSettings;
use crate::hop_context::LinkDirection;
use crate::key::Key;
use crate::trace::LinkTrace;

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
    /// Sets one setting from text, by its key in [`KEYS`](super::KEYS).
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingsError> {
        let setting = LinkSetting::find(key).ok_or_else(|| SettingsError::UnknownKey(key.to_owned()))?;
        let value = value.trim();
        setting.read(self, value).map_err(|reason| SettingsError::Value {
            key: key.to_owned(),
            value: value.to_owned(),
            reason,
        })
    }

    /// Applies all settings of `over` and keeps the other settings.
    pub fn overlay(&mut self, over: &LinkSettings) {
        self.remove_overridden(over);
        SETTINGS.iter().for_each(|setting| setting.overlay(self, over));
    }

    /// Removes the settings that `over` replaces. A trace and the settings that it has timetables of exclude each
    /// other.
    fn remove_overridden(&mut self, over: &LinkSettings) {
        for setting in SETTINGS.iter().filter(|setting| setting.write(over).is_some()) {
            setting.clear(self);
        }
        if let Some(trace) = over.timetables() {
            self.rate.take_if(|_| trace.rate.is_some());
            self.delay.take_if(|_| trace.delay.is_some());
            if trace.loss.is_some() {
                self.impairments.clear_loss();
            }
            self.overhead.take_if(|_| trace.layer.is_some());
        }
        if let Some(Some(trace)) = &mut self.trace
            && trace.is_loaded()
        {
            trace.rate.take_if(|_| over.rate.is_some());
            trace.delay.take_if(|_| over.delay.is_some() || over.rtt.is_some());
            trace.loss.take_if(|_| over.impairments.has_loss());
            trace.layer.take_if(|_| over.rate.is_some() || over.overhead.is_some());
            if !trace.is_loaded() {
                self.trace = None;
            }
        }
    }

    /// Reports whether a one-way delay is set.
    pub(super) fn has_delay(&self) -> bool {
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
        SETTINGS.iter().filter_map(|setting| Some((setting.key(), setting.write(self)?)))
    }
}

impl HopSettings {
    /// Sets one setting by its key, which may begin with `forward-` or `return-`.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingsError> {
        let Some((name, direction)) = PREFIXES.iter().find_map(|(prefix, way)| Some((key.strip_prefix(prefix)?, *way)))
        else {
            return self.both.set(key, value);
        };
        if LinkSetting::find(name).is_some_and(|setting| !setting.key().has_direction) {
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
        let [forward, back] = PREFIXES.map(|(prefix, _)| prefix);
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
pub(super) fn split_rtt(rtt: Duration) -> [Duration; 2] {
    let there = rtt / 2;
    [there, rtt.saturating_sub(there)]
}
