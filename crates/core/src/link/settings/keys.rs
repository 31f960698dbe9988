//! Table of settings: their names, values and fields.

use super::value::Value;
use super::{LinkSettings, SettingsError};

/// One setting of a link.
pub struct Key {
    /// Name in a flag, a profile and a link specification.
    pub name: &'static str,
    /// Names for one direction: near to far, far to near.
    pub one_way: [&'static str; 2],
    /// Placeholder of the value in a help text.
    pub value: &'static str,
    /// Value that is accepted.
    pub example: &'static str,
    pub group: Group,
    /// False for a setting of the round trip, which cannot be set for one direction.
    pub has_direction: bool,
    pub help: &'static str,
    pub(super) set: fn(&mut LinkSettings, &str) -> Result<(), String>,
    pub(super) write: fn(&LinkSettings) -> Option<String>,
    pub(super) overlay: fn(&mut LinkSettings, &LinkSettings),
    pub(super) clear: fn(&mut LinkSettings),
}

/// Topic of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Rate,
    Delay,
    Loss,
}

impl Group {
    /// Returns the heading of the group.
    pub fn title(self) -> &'static str {
        match self {
            Group::Rate => "Rate and queue",
            Group::Delay => "Delay and order",
            Group::Loss => "Loss and faults",
        }
    }
}

macro_rules! key {
    ($group:ident, $field:ident, $name:literal, $value:literal, $example:literal, $help:literal) => {
        Key {
            name: $name,
            one_way: [concat!("forward-", $name), concat!("return-", $name)],
            value: $value,
            example: $example,
            group: Group::$group,
            has_direction: true,
            help: $help,
            set: |settings, text| {
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

/// All settings, in the order of the help and the reference.
pub const KEYS: &[Key] = &[
    key!(Rate, rate, "rate", "RATE", "135mbit", "Set the line rate, such as 135mbit"),
    key!(
        Rate,
        queue,
        "queue",
        "SIZE",
        "1bdp",
        "Set the queue size: 0.5bdp, 9MB, 100p (packets) or 300ms at the line rate [default: 1bdp]"
    ),
    key!(
        Rate,
        aqm,
        "aqm",
        "KIND",
        "fq-codel",
        "Select the queue discipline: drop-tail, codel, fq-codel or red, optionally with parameters [default: drop-tail]"
    ),
    key!(Rate, ecn, "ecn", "on|off", "on", "Mark ECN-capable packets instead of dropping them early"),
    key!(
        Rate,
        overhead,
        "overhead",
        "LAYER",
        "ethernet",
        "Select the layer at which the line counts bytes: ethernet-header, ethernet, ip, atm-aal5, ppp-hdlc, ppp or hippi"
    ),
    key!(
        Rate,
        policer,
        "policer",
        "RATE:BURST",
        "10mbit:64KB",
        "Drop packets that exceed a rate and a burst, such as 10mbit:64KB"
    ),
    key!(Rate, shaper, "shaper", "RATE:BURST", "10mbit:64KB", "Delay packets that exceed a rate and a burst"),
    key!(
        Rate,
        trace,
        "trace",
        "FILE|NAME",
        "lte-drive",
        "Change rate, delay or loss over time: a mahimahi or CSV file, starlink-handovers or lte-drive"
    ),
    Key {
        has_direction: false,
        ..key!(
            Delay,
            rtt,
            "rtt",
            "TIME",
            "539ms",
            "Set the round-trip time without queueing, half in each direction, such as 539ms"
        )
    },
    key!(Delay, delay, "delay", "TIME", "270ms", "Set the one-way delay, instead of --rtt"),
    key!(
        Delay,
        jitter,
        "jitter",
        "JITTER",
        "5ms",
        "Vary the delay: 5ms (uniform), normal:5ms or pareto:5ms, optionally with :corr=25% or :reorder"
    ),
    key!(Delay, reorder, "reorder", "RATIO:N", "1%:3", "Reorder this share of packets by N positions, such as 1%:3"),
    key!(
        Loss,
        loss,
        "loss",
        "MODEL",
        "1e-4",
        "Lose packets: 1e-4 or 0.01% at random, gilbert:loss=1%:burst=4, nth:100, burst:1e-4:10, at:10s:3"
    ),
    key!(
        Loss,
        outage,
        "outage",
        "TIMES",
        "every:15s:200ms",
        "Take the link down: at:10s:500ms, every:15s:200ms, flap:up=10s:down=1s"
    ),
    key!(
        Loss,
        path_mtu,
        "path-mtu",
        "BYTES",
        "1400",
        "Limit the length of IP packets: 1400, or 1400:black-hole to send no ICMP message"
    ),
    key!(Loss, duplicate, "duplicate", "RATIO", "0.1%", "Duplicate this share of packets"),
    key!(Loss, corrupt, "corrupt", "RATIO", "1e-5", "Flip a bit in this share of packets, so that checksums detect it"),
    key!(
        Loss,
        corrupt_hidden,
        "corrupt-hidden",
        "RATIO",
        "1e-6",
        "Flip a bit and correct the checksum, so that only the application can detect it"
    ),
];

impl Key {
    /// Returns the setting with this name.
    pub fn find(name: &str) -> Result<&'static Key, SettingsError> {
        KEYS.iter().find(|key| key.name == name).ok_or_else(|| SettingsError::UnknownKey(name.to_owned()))
    }
}
