//! The table of settings: those of the line and the path, and those of the impairments.

use std::sync::LazyLock;

use super::link_settings::LinkSettings;
use crate::hop_context::LinkDirection;
use crate::key::{Group, Key, key};
use crate::stages::{IMPAIRMENTS, Impairment};
use crate::value::Value;

/// Key prefixes of settings for one direction.
pub(super) const PREFIXES: [(&str, LinkDirection); 2] =
    [("forward-", LinkDirection::Forward), ("return-", LinkDirection::Return)];

/// Row of the table of settings.
#[derive(Clone, Copy)]
pub(super) enum LinkSetting {
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
    field!(rate, key!(Rate, "rate", "RATE", "135mbit", "Set the line rate, such as 135mbit", "Rate of the line.")),
    field!(
        queue,
        key!(
            Rate,
            "queue",
            "SIZE",
            "1bdp",
            "Set the queue size: 0.5bdp, 9MB, 100p (packets) or 300ms at the line rate [default: 1bdp]",
            "Size of the queue in front of the line, including the packet that is being sent: multiples of the BDP \
             (`1bdp`), bytes (`9MB`), packets (`100p`), or time at the line rate (`300ms`). The default is 1 BDP. A \
             queue in BDPs has at least ten full packets."
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
                "Select the queue discipline: drop-tail, codel, fq-codel or red, optionally with parameters \
                 [default: drop-tail]",
                "Queue management. `drop-tail` (the default). `codel:target=5ms:interval=100ms` (RFC 8289). \
                 `fq-codel:flows=1024:quantum=1514:target=…:interval=…` (RFC 8290). \
                 `red:min=30kB:max=90kB:p=0.02:weight=0.002` (Floyd and Jacobson, 1993; by default `max` is a \
                 quarter of the queue and `min` a third of `max`). For a long path, set CoDel's interval to the \
                 RTT."
            )
        }
    ),
    field!(
        ecn,
        Key {
            words: &["on", "off"],
            ..key!(
                Rate,
                "ecn",
                "on|off",
                "on",
                "Mark ECN-capable packets instead of dropping them early",
                "`on` or `off`: mark ECN-capable packets (RFC 3168) instead of dropping them."
            )
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
                "Select the layer at which the line counts bytes: ethernet-header, ethernet, ip, atm-aal5, ppp-hdlc, \
                 ppp or hippi",
                "Layer at which the line counts bytes. `ethernet-header` (IP and 14 bytes, like `tc`; the default), \
                 `ethernet` (with preamble, FCS and gap), `ip`, `atm-aal5` (whole cells), `ppp-hdlc`, `ppp`, \
                 `hippi`."
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
            "Change rate, delay or loss over time: a mahimahi or CSV file, starlink-handovers or lte-drive",
            "A file or the name of a trace: rate, delay and loss over time. See [traces](../emulate.md#traces)."
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
                "Set the round-trip time without queueing, half in each direction, such as 539ms",
                "Round trip without queueing, half of it in each direction. `rtt` has no direction."
            )
        }
    ),
    field!(
        delay,
        key!(
            Delay,
            "delay",
            "TIME",
            "270ms",
            "Set the one-way delay, instead of --rtt",
            "One-way delay. Use it instead of `rtt`; both directions need a delay."
        )
    ),
];

/// All settings, in the order of the help and the reference.
pub(super) static SETTINGS: LazyLock<Vec<LinkSetting>> = LazyLock::new(|| {
    let fields = |fields: &'static [FieldSetting]| fields.iter().map(LinkSetting::Field);
    let impairments = |group: Group| {
        IMPAIRMENTS.iter().filter(move |impairment| impairment.key.group == group).map(LinkSetting::Impairment)
    };
    let line = fields(LINE).chain(impairments(Group::Rate));
    let path = fields(PATH).chain(impairments(Group::Delay));
    line.chain(path).chain(impairments(Group::Loss)).collect()
});

/// Keys of all settings, in the order of the help and the reference.
pub static KEYS: LazyLock<Vec<&'static Key>> = LazyLock::new(|| SETTINGS.iter().map(|setting| setting.key()).collect());

impl LinkSetting {
    /// Returns the setting with this name.
    pub(super) fn find(name: &str) -> Option<LinkSetting> {
        SETTINGS.iter().find(|setting| setting.key().name == name).copied()
    }

    pub(super) fn key(self) -> &'static Key {
        match self {
            LinkSetting::Field(field) => &field.key,
            LinkSetting::Impairment(impairment) => &impairment.key,
        }
    }

    /// Sets the setting from text, or returns the error message.
    pub(super) fn read(self, settings: &mut LinkSettings, text: &str) -> Result<(), String> {
        match self {
            LinkSetting::Field(field) => (field.read)(settings, text),
            LinkSetting::Impairment(impairment) => settings.impairments.read(impairment, text),
        }
    }

    /// Returns the text that [`read`](Self::read) reads, if the setting is set.
    pub(super) fn write(self, settings: &LinkSettings) -> Option<String> {
        match self {
            LinkSetting::Field(field) => (field.write)(settings),
            LinkSetting::Impairment(impairment) => settings.impairments.write(impairment),
        }
    }

    /// Copies the setting from `over` if it is set there.
    pub(super) fn overlay(self, settings: &mut LinkSettings, over: &LinkSettings) {
        match self {
            LinkSetting::Field(field) => (field.overlay)(settings, over),
            LinkSetting::Impairment(impairment) => settings.impairments.overlay(impairment, &over.impairments),
        }
    }

    pub(super) fn clear(self, settings: &mut LinkSettings) {
        match self {
            LinkSetting::Field(field) => (field.clear)(settings),
            LinkSetting::Impairment(impairment) => settings.impairments.clear(impairment),
        }
    }
}
