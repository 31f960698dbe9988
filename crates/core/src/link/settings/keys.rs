//! The table of settings: what each is called, what it takes, and where it is kept.

use super::value::Value;
use super::{LinkSettings, SettingsError};

/// One setting.
pub struct Key {
    /// As it is typed, in a flag, a profile, a link specification.
    pub name: &'static str,
    /// The same, said of one direction: from near to far, from far to near.
    pub one_way: [&'static str; 2],
    /// What stands for its value in a help text.
    pub value: &'static str,
    /// A value that would be accepted.
    pub example: &'static str,
    /// Which of the settings it stands with.
    pub group: Group,
    /// False for what is of the round trip, and cannot be said of one direction.
    pub has_direction: bool,
    /// What it is, in one sentence.
    pub help: &'static str,
    pub(super) set: fn(&mut LinkSettings, &str) -> Result<(), String>,
    pub(super) show: fn(&LinkSettings) -> Option<String>,
    pub(super) take: fn(&mut LinkSettings, &LinkSettings),
    pub(super) clear: fn(&mut LinkSettings),
}

/// What a setting is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// How much the line carries, and what waits for it.
    Rate,
    /// How long packets take, and in which order they come.
    Delay,
    /// What does not arrive, or not as it was sent.
    Loss,
}

impl Group {
    /// A heading.
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
                settings.$field = Some(Value::read(text)?);
                Ok(())
            },
            show: |settings| settings.$field.as_ref().map(Value::write),
            take: |settings, over| {
                if over.$field.is_some() {
                    settings.$field.clone_from(&over.$field);
                }
            },
            clear: |settings| settings.$field = None,
        }
    };
}

/// Every setting, in the order in which help and reference have them.
pub const KEYS: &[Key] = &[
    key!(Rate, rate, "rate", "RATE", "135mbit", "Line rate, such as 135mbit"),
    key!(
        Rate,
        queue,
        "queue",
        "SIZE",
        "1bdp",
        "Room of the queue: 0.5bdp, 9MB, 100p (packets), 300ms at the line rate [default: 1bdp]"
    ),
    key!(
        Rate,
        aqm,
        "aqm",
        "KIND",
        "fq-codel",
        "What the queue does: drop-tail, codel, fq-codel, red, each with its parameters [default: drop-tail]"
    ),
    key!(Rate, ecn, "ecn", "on|off", "on", "Mark what is ECN-capable where --aqm would drop it"),
    key!(
        Rate,
        overhead,
        "overhead",
        "LAYER",
        "ethernet",
        "Where the line counts bytes: ethernet-header, ethernet, ip, atm-aal5, ppp-hdlc, ppp, hippi"
    ),
    key!(
        Rate,
        policer,
        "policer",
        "RATE:BURST",
        "10mbit:64KB",
        "Drop what exceeds a rate and a burst, such as 10mbit:64KB"
    ),
    key!(Rate, shaper, "shaper", "RATE:BURST", "10mbit:64KB", "Hold back what exceeds a rate and a burst"),
    key!(
        Rate,
        trace,
        "trace",
        "FILE|NAME",
        "lte-drive",
        "Rate, delay or loss by timetable: a mahimahi or CSV file, starlink-handovers, lte-drive"
    ),
    Key {
        has_direction: false,
        ..key!(
            Delay,
            rtt,
            "rtt",
            "TIME",
            "539ms",
            "Round-trip time without queueing, half of it each way, such as 539ms"
        )
    },
    key!(Delay, delay, "delay", "TIME", "270ms", "One-way delay, instead of --rtt"),
    key!(
        Delay,
        jitter,
        "jitter",
        "JITTER",
        "5ms",
        "How far delays differ: 5ms (uniform), normal:5ms, pareto:5ms, with :corr=25%, :reorder"
    ),
    key!(Delay, reorder, "reorder", "RATIO:N", "1%:3", "Share of packets that N later ones pass, such as 1%:3"),
    key!(
        Loss,
        loss,
        "loss",
        "MODEL",
        "1e-4",
        "Packets lost: 1e-4 or 0.01% at random, gilbert:loss=1%:burst=4, nth:100, burst:1e-4:10, at:10s:3"
    ),
    key!(
        Loss,
        outage,
        "outage",
        "TIMES",
        "every:15s:200ms",
        "When the link is down: at:10s:500ms, every:15s:200ms, flap:up=10s:down=1s"
    ),
    key!(
        Loss,
        path_mtu,
        "path-mtu",
        "BYTES",
        "1400",
        "Longest IP packet that passes: 1400, or 1400:black-hole if nobody is told"
    ),
    key!(Loss, duplicate, "duplicate", "RATIO", "0.1%", "Share of packets that come twice"),
    key!(Loss, corrupt, "corrupt", "RATIO", "1e-5", "Share of packets with a bit flipped, as checksums tell"),
    key!(
        Loss,
        corrupt_hidden,
        "corrupt-hidden",
        "RATIO",
        "1e-6",
        "Share with a bit flipped and the checksum made right again, as only the application can tell"
    ),
];

impl Key {
    /// The setting of this name.
    pub fn find(name: &str) -> Result<&'static Key, SettingsError> {
        KEYS.iter().find(|key| key.name == name).ok_or_else(|| SettingsError::UnknownKey(name.to_owned()))
    }
}
