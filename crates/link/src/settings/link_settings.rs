//! Record of the settings of one direction, each set or not set.

use std::collections::BTreeSet;
use std::time::Duration;

use lfn_base::framing::Layer;
use lfn_base::path::QueueSize;
use lfn_base::units::BitRate;

use crate::stages::{Discipline, IMPAIRMENTS, Impairment, LinkConfig, LossModel};
use crate::trace::LinkTrace;

/// Settings of one direction of a hop, or of both directions. Defaults are not filled in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkSettings {
    /// Delay of both directions together, half in each. Valid for both directions only, and not together with `delay`.
    pub rtt: Option<Duration>,
    pub delay: Option<Duration>,
    /// Timetables of rate, delay and loss; `Some(None)` for none. A trace with only a name must still be
    /// [read](super::HopSettings::read_traces).
    pub trace: Option<Option<LinkTrace>>,
    pub rate: Option<BitRate>,
    /// Layer at which the line counts bytes.
    pub overhead: Option<Layer>,
    pub queue: Option<QueueSize>,
    pub aqm: Option<Discipline>,
    /// Whether to mark ECN-capable packets instead of dropping them early.
    pub ecn: Option<bool>,
    pub impairments: ImpairmentSettings,
}

/// Settings of impairments, each set or not set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImpairmentSettings {
    /// Names of the settings that are set.
    names: BTreeSet<&'static str>,
    /// Values of the settings that are set. All other fields have their default.
    values: LinkConfig,
}

impl LinkSettings {
    /// Returns the timetables, if there are any.
    pub fn timetables(&self) -> Option<&LinkTrace> {
        self.trace.as_ref()?.as_ref()
    }
}

impl ImpairmentSettings {
    /// Creates settings with a loss only.
    pub(super) fn with_loss(loss: LossModel) -> Self {
        let values = LinkConfig { loss, ..LinkConfig::default() };
        ImpairmentSettings { names: BTreeSet::from([LOSS]), values }
    }

    /// Returns a configuration with these settings. All other fields have their default.
    pub(super) fn config(&self) -> LinkConfig {
        self.values.clone()
    }

    /// Reports whether the loss is set.
    pub(super) fn has_loss(&self) -> bool {
        self.names.contains(LOSS)
    }

    /// Removes the setting of the loss.
    pub(super) fn clear_loss(&mut self) {
        IMPAIRMENTS.iter().filter(|impairment| impairment.key.name == LOSS).for_each(|loss| self.clear(loss));
    }

    pub(super) fn read(&mut self, impairment: &'static Impairment, text: &str) -> Result<(), String> {
        (impairment.read)(&mut self.values, text)?;
        self.names.insert(impairment.key.name);
        Ok(())
    }

    pub(super) fn write(&self, impairment: &Impairment) -> Option<String> {
        self.names.contains(impairment.key.name).then(|| (impairment.write)(&self.values))
    }

    pub(super) fn overlay(&mut self, impairment: &'static Impairment, over: &ImpairmentSettings) {
        if over.names.contains(impairment.key.name) {
            (impairment.copy)(&mut self.values, &over.values);
            self.names.insert(impairment.key.name);
        }
    }

    pub(super) fn clear(&mut self, impairment: &Impairment) {
        if self.names.remove(impairment.key.name) {
            (impairment.copy)(&mut self.values, &LinkConfig::default());
        }
    }
}

/// Setting that a trace may replace.
const LOSS: &str = "loss";
