//! The table of settings: those of the line and the path, and those of the impairments.

use std::sync::LazyLock;

use super::link_settings::LinkSettings;
use crate::link::hop_context::LinkDirection;
use crate::link::key::{Group, Key, key};
use crate::link::stages::{IMPAIRMENTS, Impairment};
use crate::link::value::Value;

/// Key prefixes of settings for one direction.
pub(super) const PREFIXES: [(&str, LinkDirection); 2] =
    [("forward-", LinkDirection::Forward), ("return-", LinkDirection::Return)];

/// Row of the table of settings.
#[derive(Clone, Copy)]
pub(super) enum SettingRow {
    Field(&'static FieldSetting),
    Impairment(&'static Impairment),
}

/// Setting of the line or the path, which is a field of [`LinkSettings`].
pub(super) struct FieldSetting {
    key: Key,
    read: fn(&mut LinkSettings, &str) -> Result<(), String>,
    write: fn(&LinkSettings) -> Option<String>,
    overlay: fn(&mut LinkSettings, &LinkSettings),
    clear: fn(&mut LinkSettings),
}

macro_rules! field {
    ($field:ident, $key:expr) => {
        FieldSetting {
            key: $key,
            read: |settings, text| {
                settings.$field = Some(Value::parse(text)?);
                Ok(())
            },
            write: |settings| settings.$field.as_ref().map(Value::write),
            overlay: |settings, over| {
                if over.$field.is_some() {
                    settings.$field.clone_from(&over.$field);
                }
            },
            clear: |settings| settings.$field = None,
        }
    };
}

const LINE: &[FieldSetting] = &[
    field!(rate, key!(Rate, "rate", "RATE", "135mbit", "Set the line rate, such as 135mbit")),
    field!(
        queue,
        key!(
            Rate,
            "queue",
            "SIZE",
            "1bdp",
            "Set the queue size: 0.5bdp, 9MB, 100p (packets) or 300ms at the line rate [default: 1bdp]"
        )
    ),
    field!(
        aqm,
        Key {
            words: &["drop-tail", "codel", "fq-codel", "red", "none"],
            ..key!(
                Rate,
                "aqm",
                "KIND",
                "fq-codel",
                "Select the queue discipline: drop-tail, codel, fq-codel or red, optionally with parameters [default: drop-tail]"
            )
        }
    ),
    field!(
        ecn,
        Key {
            words: &["on", "off"],
            ..key!(Rate, "ecn", "on|off", "on", "Mark ECN-capable packets instead of dropping them early")
        }
    ),
    field!(
        overhead,
        Key {
            words: &["ethernet-header", "ethernet", "ip", "atm-aal5", "ppp-hdlc", "ppp", "hippi"],
            ..key!(
                Rate,
                "overhead",
                "LAYER",
                "ethernet",
                "Select the layer at which the line counts bytes: ethernet-header, ethernet, ip, atm-aal5, ppp-hdlc, ppp or hippi"
            )
        }
    ),
];

const PATH: &[FieldSetting] = &[
    field!(
        trace,
        key!(
            Rate,
            "trace",
            "FILE|NAME",
            "lte-drive",
            "Change rate, delay or loss over time: a mahimahi or CSV file, starlink-handovers or lte-drive"
        )
    ),
    field!(
        rtt,
        Key {
            has_direction: false,
            ..key!(
                Delay,
                "rtt",
                "TIME",
                "539ms",
                "Set the round-trip time without queueing, half in each direction, such as 539ms"
            )
        }
    ),
    field!(delay, key!(Delay, "delay", "TIME", "270ms", "Set the one-way delay, instead of --rtt")),
];

/// All settings, in the order of the help and the reference.
pub(super) static SETTINGS: LazyLock<Vec<SettingRow>> = LazyLock::new(|| {
    let fields = |fields: &'static [FieldSetting]| fields.iter().map(SettingRow::Field);
    let impairments = |group: Group| {
        IMPAIRMENTS.iter().filter(move |impairment| impairment.key.group == group).map(SettingRow::Impairment)
    };
    let line = fields(LINE).chain(impairments(Group::Rate));
    let path = fields(PATH).chain(impairments(Group::Delay));
    line.chain(path).chain(impairments(Group::Loss)).collect()
});

/// Keys of all settings, in the order of the help and the reference.
pub static KEYS: LazyLock<Vec<&'static Key>> = LazyLock::new(|| SETTINGS.iter().map(|setting| setting.key()).collect());

impl SettingRow {
    /// Returns the setting with this name.
    pub(super) fn find(name: &str) -> Option<SettingRow> {
        SETTINGS.iter().find(|setting| setting.key().name == name).copied()
    }

    pub(super) fn key(self) -> &'static Key {
        match self {
            SettingRow::Field(field) => &field.key,
            SettingRow::Impairment(impairment) => &impairment.key,
        }
    }

    /// Sets the setting from text, or returns the error message.
    pub(super) fn read(self, settings: &mut LinkSettings, text: &str) -> Result<(), String> {
        match self {
            SettingRow::Field(field) => (field.read)(settings, text),
            SettingRow::Impairment(impairment) => settings.impairments.read(impairment, text),
        }
    }

    /// Returns the text that [`read`](Self::read) reads, if the setting is set.
    pub(super) fn write(self, settings: &LinkSettings) -> Option<String> {
        match self {
            SettingRow::Field(field) => (field.write)(settings),
            SettingRow::Impairment(impairment) => settings.impairments.write(impairment),
        }
    }

    /// Copies the setting from `over` if it is set there.
    pub(super) fn overlay(self, settings: &mut LinkSettings, over: &LinkSettings) {
        match self {
            SettingRow::Field(field) => (field.overlay)(settings, over),
            SettingRow::Impairment(impairment) => settings.impairments.overlay(impairment, &over.impairments),
        }
    }

    pub(super) fn clear(self, settings: &mut LinkSettings) {
        match self {
            SettingRow::Field(field) => (field.clear)(settings),
            SettingRow::Impairment(impairment) => settings.impairments.clear(impairment),
        }
    }
}
