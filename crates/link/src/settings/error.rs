//! Errors of link settings, and their hints.

use std::fmt;

use lfn_base::units::Bytes;

use super::keys::{LinkSetting, PREFIXES, SETTINGS};
use super::link_settings::LinkSettings;
use crate::error::LinkError;
use crate::hop_context::LinkDirection;
use crate::trace::BUILT_IN;

/// Minimum MTU of an IPv4 link, bytes (RFC 791).
pub const MIN_MTU: u32 = 68;
/// Maximum MTU of a veth interface, bytes.
pub const MAX_MTU: u32 = 65_535;

/// Reason why settings form no link. [`SettingsError::hint`] gives a remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The hint has the most similar name, if there is one.
    #[error("unknown setting '{0}'")]
    UnknownKey(String),
    /// The value cannot be read. The reason quotes the value.
    #[error("{key}: {reason}")]
    Value {
        /// Complete key, with its direction.
        key: String,
        value: String,
        reason: String,
    },
    /// The trace cannot be read, or is not a trace. The reason has the line number.
    #[error("{key} {name}: {reason}")]
    Trace {
        /// Complete key, with its direction.
        key: String,
        /// Name of the file.
        name: String,
        reason: String,
    },
    /// One of the two values must be removed.
    #[error("{key} is given twice: {} and {}", .values[0], .values[1])]
    GivenTwice {
        /// Complete key, with its direction.
        key: String,
        values: [String; 2],
    },
    /// The text has no `=`.
    #[error("'{0}' is not KEY=VALUE")]
    NotAPair(String),
    /// The setting applies to the round trip.
    #[error("{0} cannot be set for one direction")]
    NoDirection(String),
    /// Two settings exclude each other.
    #[error("{first} and {second} contradict each other: {reason}")]
    Contradiction { first: String, second: String, reason: &'static str },
    /// A drop-tail queue drops only packets that do not fit, so it never marks.
    #[error("ecn has no effect without an aqm: a drop-tail queue never marks")]
    EcnWithoutAqm,
    /// Without a spread, packets cannot overtake and no draws can be correlated.
    #[error("a jitter of zero cannot reorder or correlate packets")]
    ZeroJitter,
    /// The path has fewer hops in series.
    #[error("no link {hop}: the number of links is {hops}")]
    UnknownHop {
        /// Requested hop, counted from 1.
        hop: usize,
        /// Number of hops of the path.
        hops: usize,
    },
    /// A required setting is missing.
    #[error("{key} is missing{}", direction_text(*.direction))]
    Missing {
        key: &'static str,
        /// Direction, if the setting is missing in one direction only.
        direction: Option<LinkDirection>,
    },
    /// The path has no delay.
    #[error("the RTT of the path is zero")]
    ZeroRtt,
    /// Remedy: set an MTU within the limits.
    #[error("MTU {0} is not within {MIN_MTU} to {MAX_MTU} bytes")]
    Mtu(u32),
    /// A queue smaller than one packet would drop almost every packet.
    #[error("a queue of {queue} is too small for a packet of {packet}")]
    QueueBelowPacket {
        queue: Bytes,
        /// Full packet with its Ethernet header.
        packet: Bytes,
    },
    /// The model refuses the configuration.
    #[error("{0}")]
    Link(#[from] LinkError),
}

/// Remedy for a settings error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingsHint {
    /// Setting that is accepted, as a flag or as `KEY=VALUE`.
    Set {
        /// Complete key, with its direction.
        key: String,
        value: String,
    },
    Text(String),
}

impl fmt::Display for SettingsHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsHint::Set { key, value } => write!(f, "{key}={value}"),
            SettingsHint::Text(text) => f.write_str(text),
        }
    }
}

impl SettingsError {
    /// Returns the remedy for this error.
    pub fn hint(&self) -> SettingsHint {
        match self {
            SettingsError::UnknownKey(value) => SettingsHint::Text(match nearest(value) {
                Some(name) => format!("did you mean {name}?"),
                None => format!("the settings are {}", setting_names().collect::<Vec<_>>().join(", ")),
            }),
            SettingsError::Value { key, value, .. } => value_hint(key, value),
            SettingsError::Trace { .. } => {
                let names: Vec<_> = BUILT_IN.iter().map(|trace| trace.name).collect();
                SettingsHint::Text(format!(
                    "the built-in traces are {}; doc/reference/emulate.md describes the file formats",
                    names.join(" and ")
                ))
            }
            SettingsError::GivenTwice { key, values: [first, second] } => {
                SettingsHint::Text(format!("remove {key}={first} or {key}={second}"))
            }
            SettingsError::NotAPair(_) => SettingsHint::Text("rate=50mbit".to_owned()),
            SettingsError::NoDirection(_) => SettingsHint::Text("set forward-delay and return-delay".to_owned()),
            SettingsError::Contradiction { first, second, .. } => {
                SettingsHint::Text(format!("remove {first} or {second}"))
            }
            SettingsError::Missing { key, direction } => example(&format!("{}{key}", prefix(*direction))),
            SettingsError::EcnWithoutAqm => example("aqm"),
            SettingsError::ZeroJitter => example("jitter"),
            SettingsError::UnknownHop { hops: 1, .. } => SettingsHint::Text("use link 1, the only link".to_owned()),
            SettingsError::UnknownHop { hops, .. } => SettingsHint::Text(format!("use a link number from 1 to {hops}")),
            SettingsError::ZeroRtt => example("rtt"),
            SettingsError::Mtu(_) => SettingsHint::Text("use 1500 for Ethernet or 9000 for jumbo frames".to_owned()),
            SettingsError::QueueBelowPacket { .. } => example("queue"),
            SettingsError::Link(_) => {
                SettingsHint::Text("check the value and its unit, such as 135mbit or 539ms".to_owned())
            }
        }
    }

    /// Adds the direction to the key of the error.
    pub(super) fn in_direction(self, direction: LinkDirection) -> Self {
        match self {
            SettingsError::Value { key, value, reason } => {
                SettingsError::Value { key: format!("{}{key}", prefix(Some(direction))), value, reason }
            }
            SettingsError::UnknownKey(key) => SettingsError::UnknownKey(format!("{}{key}", prefix(Some(direction)))),
            other => other,
        }
    }
}

/// Suggests the value that was probably intended, or an example.
fn value_hint(key: &str, value: &str) -> SettingsHint {
    let (_, name) = split(key);
    let setting = LinkSetting::find(name);
    let is_accepted = |value: &String| {
        setting.is_some_and(|setting| setting.read(&mut LinkSettings::default(), value.trim()).is_ok())
    };
    if value.parse::<f64>().is_ok() {
        // Only the unit is missing.
        let complete = ["mbit", "ms"].map(|unit| format!("{value}{unit}")).into_iter().find(is_accepted);
        if let Some(value) = complete.filter(|_| matches!(name, "rate" | "rtt" | "delay" | "jitter")) {
            return SettingsHint::Set { key: key.to_owned(), value };
        }
    }
    if let Some(suggestion) = suggestion(name, value, &is_accepted) {
        return SettingsHint::Text(format!("did you mean {suggestion}?"));
    }
    match name {
        "queue" => SettingsHint::Text(
            "use packets (100p), a time at the line rate (300ms), a BDP (1bdp) or bytes (9MB)".to_owned(),
        ),
        "aqm" => SettingsHint::Text("use drop-tail, codel, fq-codel or red".to_owned()),
        _ => example(key),
    }
}

/// Adds a percent sign or a unit that is probably missing, or corrects the words of a value.
fn suggestion(name: &str, value: &str, is_accepted: &dyn Fn(&String) -> bool) -> Option<String> {
    let (share, rest) = value.split_at(value.find(':').unwrap_or(value.len()));
    if share.parse::<f64>().is_ok()
        && let Some(ratio) = Some(format!("{share}%{rest}")).filter(is_accepted)
    {
        return Some(ratio);
    }
    if name == "queue" {
        let digits = value.trim_end_matches(char::is_alphabetic);
        let unit = value[digits.len()..].to_ascii_lowercase();
        return Some(format!("{}p", digits.trim_end())).filter(|packets| unit.starts_with('p') && is_accepted(packets));
    }
    let words = LinkSetting::find(name).map_or(&[][..], |setting| setting.key().words);
    let part = |part: &str| nearest_word(part, words.iter().copied()).unwrap_or(part).to_owned();
    let corrected = value.split(':').map(part).collect::<Vec<_>>().join(":");
    Some(corrected).filter(|corrected| corrected != value && is_accepted(corrected))
}

/// Returns a setting with a value that is accepted.
fn example(key: &str) -> SettingsHint {
    let (_, name) = split(key);
    match LinkSetting::find(name) {
        Some(found) => SettingsHint::Set { key: key.to_owned(), value: found.key().example.to_owned() },
        None => SettingsHint::Text(format!("{key}=…")),
    }
}

fn setting_names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|setting| setting.key().name)
}

/// Returns the key most similar to `value`, with the same direction.
fn nearest(value: &str) -> Option<String> {
    let (prefix, name) = split(value);
    let best = nearest_word(name, setting_names())?;
    Some(format!("{prefix}{best}"))
}

/// Returns the word most similar to `value`, if one is similar enough.
pub fn nearest_word<'a>(value: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A word longer than every key is similar to none.
    let value: String = value.to_lowercase().chars().take(64).collect();
    // A quarter of the letters may be wrong, but at least one.
    let near = |word: &&str| strsim::osa_distance(word, &value) <= (word.len() / 4).max(1);
    words.filter(near).min_by_key(|word| strsim::osa_distance(word, &value))
}

fn split(key: &str) -> (&str, &str) {
    let end = PREFIXES.iter().find(|(prefix, _)| key.starts_with(prefix)).map_or(0, |(p, _)| p.len());
    key.split_at(end)
}

fn prefix(direction: Option<LinkDirection>) -> &'static str {
    PREFIXES.iter().find(|(_, way)| Some(*way) == direction).map_or("", |(prefix, _)| prefix)
}

fn direction_text(direction: Option<LinkDirection>) -> &'static str {
    match direction {
        Some(LinkDirection::Forward) => " for the direction from near to far",
        Some(LinkDirection::Return) => " for the direction from far to near",
        None => "",
    }
}
