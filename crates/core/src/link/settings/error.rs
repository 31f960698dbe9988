//! Why settings make no link, and what to do about it.

use std::fmt;

use super::keys::{KEYS, Key};
use super::{HopSettings, LEAST_MTU, LinkSettings, MOST_MTU};
use crate::link::trace::BUILT_IN;
use crate::link::{Direction, LinkError};
use crate::units::Bytes;

/// Why settings make no link. [`SettingsError::hint`] says what would.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No setting has this name. The hint has the nearest, if one is near.
    #[error("no setting is called '{0}'")]
    UnknownKey(String),
    /// The value cannot be read. The reason names it as it was typed.
    #[error("{key}: {reason}")]
    Value {
        /// The setting, with its direction.
        key: String,
        /// The value.
        typed: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The trace cannot be read, or is none. The reason names the line.
    #[error("{key} {name}: {reason}")]
    Trace {
        /// The setting, with its direction.
        key: String,
        /// The file.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Which of the two was meant?
    #[error("{key} is given twice: {} and {}", .values[0], .values[1])]
    Twice {
        /// The setting, with its direction.
        key: String,
        /// Both values.
        values: [String; 2],
    },
    /// No `=` between key and value.
    #[error("'{0}' is not KEY=VALUE")]
    NoPair(String),
    /// The setting is of the round trip.
    #[error("{0} has no direction of its own")]
    NoDirection(String),
    /// Two settings that cannot both hold.
    #[error("{first} and {second} contradict each other: {why}")]
    Contradiction {
        /// One.
        first: String,
        /// The other.
        second: String,
        /// Why they cannot both hold.
        why: &'static str,
    },
    /// A queue that only drops what does not fit has nothing to mark.
    #[error("ecn without an aqm marks nothing: a drop-tail queue drops only what does not fit")]
    Ecn,
    /// A jitter that is none lets nothing overtake, and draws nothing to be correlated.
    #[error("a jitter of zero neither reorders nor is it correlated")]
    Jitter,
    /// There are fewer links in the row.
    #[error("there is no link {hop}: the path has {hops}")]
    NoHop {
        /// Which was meant, counted from 1.
        hop: usize,
        /// How many there are.
        hops: usize,
    },
    /// What a link cannot be made without.
    #[error("{key} is missing{}", of(*.direction))]
    Missing {
        /// The setting.
        key: &'static str,
        /// Of one direction only.
        direction: Option<Direction>,
    },
    /// No time passes on it.
    #[error("an RTT of zero makes no path")]
    ZeroRtt,
    /// Give an MTU within the limits.
    #[error("MTU {0} is not within {LEAST_MTU} to {MOST_MTU} bytes")]
    Mtu(u32),
    /// A queue that cannot hold one packet would drop them all but by luck.
    #[error("a queue of {queue} holds no packet of {packet}")]
    Queue {
        /// What was asked for.
        queue: Bytes,
        /// A full packet with its Ethernet header.
        packet: Bytes,
    },
    /// The model cannot carry it.
    #[error("{0}")]
    Link(#[from] LinkError),
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// A setting that would be accepted; as a flag or as `KEY=VALUE`, whichever was typed.
    Set {
        /// With its direction.
        key: String,
        /// As it is typed.
        value: &'static str,
    },
    /// Anything else.
    Say(String),
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hint::Set { key, value } => write!(f, "{key}={value}"),
            Hint::Say(text) => f.write_str(text),
        }
    }
}

impl SettingsError {
    /// What to do about it.
    pub fn hint(&self) -> Hint {
        match self {
            SettingsError::UnknownKey(typed) => Hint::Say(match nearest(typed) {
                Some(name) => format!("did you mean {name}?"),
                None => format!("settings are {}", KEYS.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")),
            }),
            SettingsError::Value { key, typed, .. } => value_hint(key, typed),
            SettingsError::Trace { .. } => {
                let names: Vec<_> = BUILT_IN.iter().map(|trace| trace.name).collect();
                Hint::Say(format!("built in are {}; doc/emulate.md says what a file holds", names.join(" and ")))
            }
            SettingsError::Twice { key, values: [first, second] } => {
                Hint::Say(format!("leave out {key}={first} or {key}={second}"))
            }
            SettingsError::NoPair(_) => Hint::Say("rate=50mbit".to_owned()),
            SettingsError::NoDirection(_) => Hint::Say("give forward-delay and return-delay".to_owned()),
            SettingsError::Contradiction { first, second, .. } => Hint::Say(format!("leave out {first} or {second}")),
            SettingsError::Missing { key, direction } => example(&format!("{}{key}", prefix(*direction))),
            SettingsError::Ecn => example("aqm"),
            SettingsError::Jitter => example("jitter"),
            SettingsError::NoHop { hops: 1, .. } => Hint::Say("link 1 is the only one".to_owned()),
            SettingsError::NoHop { hops, .. } => Hint::Say(format!("links are counted from 1 to {hops}")),
            SettingsError::ZeroRtt => example("rtt"),
            SettingsError::Mtu(_) => Hint::Say("1500 is Ethernet's, 9000 a jumbo frame's".to_owned()),
            SettingsError::Queue { .. } => example("queue"),
            SettingsError::Link(_) => Hint::Say("check the units: 135mbit, 539ms".to_owned()),
        }
    }

    /// The same, said of a setting of one direction.
    pub(super) fn in_direction(self, direction: Direction) -> Self {
        match self {
            SettingsError::Value { key, typed, reason } => {
                SettingsError::Value { key: format!("{}{key}", prefix(Some(direction))), typed, reason }
            }
            SettingsError::UnknownKey(key) => SettingsError::UnknownKey(format!("{}{key}", prefix(Some(direction)))),
            other => other,
        }
    }
}

/// What was most likely meant by a value, or what would be accepted.
fn value_hint(key: &str, typed: &str) -> Hint {
    let (_, name) = split(key);
    let is_accepted = |value: &String| LinkSettings::default().set(name, value).is_ok();
    if let Some(meant) = meant(name, typed).filter(is_accepted) {
        return Hint::Say(format!("did you mean {meant}?"));
    }
    match name {
        "queue" => Hint::Say("100p is packets, 300ms a time at the line rate, 1bdp a BDP, 9MB bytes".to_owned()),
        "aqm" => Hint::Say("drop-tail is the default; codel, fq-codel and red drop early".to_owned()),
        _ => example(key),
    }
}

/// What was typed, with a unit or words that it may lack.
fn meant(name: &str, typed: &str) -> Option<String> {
    match name {
        "loss" | "duplicate" | "corrupt" | "corrupt-hidden" | "reorder" => {
            let (share, rest) = typed.split_at(typed.find(':').unwrap_or(typed.len()));
            if share.parse::<f64>().is_ok() {
                return Some(format!("{share}%{rest}"));
            }
        }
        "queue" => {
            let digits = typed.trim_end_matches(char::is_alphabetic);
            let unit = typed[digits.len()..].to_ascii_lowercase();
            return unit.starts_with('p').then(|| format!("{}p", digits.trim_end()));
        }
        _ => {}
    }
    let words = WORDS.iter().find(|(key, _)| *key == name).map_or(&[][..], |(_, words)| words);
    let part = |part: &str| nearest_word(part, words.iter().copied()).unwrap_or(part).to_owned();
    Some(typed.split(':').map(part).collect::<Vec<_>>().join(":")).filter(|meant| meant != typed)
}

/// The words of settings that have some.
const WORDS: &[(&str, &[&str])] = &[
    ("aqm", &["drop-tail", "codel", "fq-codel", "red", "none"]),
    ("ecn", &["on", "off"]),
    ("overhead", &["ethernet-header", "ethernet", "ip", "atm-aal5", "ppp-hdlc", "ppp", "hippi"]),
    ("jitter", &["uniform", "normal", "pareto", "reorder", "none"]),
    ("loss", &["gilbert", "burst", "nth", "steps", "none"]),
    ("outage", &["every", "flap", "none"]),
    ("path-mtu", &["black-hole", "none"]),
];

/// A value that would be accepted.
fn example(key: &str) -> Hint {
    let (_, name) = split(key);
    match Key::find(name) {
        Ok(found) => Hint::Set { key: key.to_owned(), value: found.example },
        Err(_) => Hint::Say(format!("{key}=…")),
    }
}

/// The key most like what was typed, with the same direction.
fn nearest(typed: &str) -> Option<String> {
    let (prefix, name) = split(typed);
    let best = nearest_word(name, KEYS.iter().map(|key| key.name))?;
    Some(format!("{prefix}{best}"))
}

/// Which of the words was most likely meant, if any was.
pub fn nearest_word<'a>(typed: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A quarter of the letters may be wrong, and one at least.
    let typed = typed.to_lowercase();
    let near = |word: &&str| distance(word, &typed) <= (word.len() / 4).max(1);
    words.filter(near).min_by_key(|word| distance(word, &typed))
}

fn split(key: &str) -> (&str, &str) {
    let end = HopSettings::PREFIXES.iter().find(|(prefix, _)| key.starts_with(prefix)).map_or(0, |(p, _)| p.len());
    key.split_at(end)
}

fn prefix(direction: Option<Direction>) -> &'static str {
    HopSettings::PREFIXES.iter().find(|(_, way)| Some(*way) == direction).map_or("", |(prefix, _)| prefix)
}

fn of(direction: Option<Direction>) -> &'static str {
    match direction {
        Some(Direction::Forward) => " from near to far",
        Some(Direction::Return) => " from far to near",
        None => "",
    }
}

/// Letters to insert, take away, change or swap with their neighbours to make one word of the other (optimal string
/// alignment: Levenshtein's distance with Damerau's swaps).
fn distance(one: &str, other: &str) -> usize {
    // What is longer than any key is near to none.
    let [one, other]: [Vec<char>; 2] = [one, other].map(|word| word.chars().take(64).collect());
    let mut rows = vec![vec![0; other.len() + 1]; one.len() + 1];
    (0..=one.len()).for_each(|i| rows[i][0] = i);
    (0..=other.len()).for_each(|j| rows[0][j] = j);
    for i in 1..=one.len() {
        for j in 1..=other.len() {
            let change = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            rows[i][j] = change.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                rows[i][j] = rows[i][j].min(rows[i - 2][j - 2] + 1);
            }
        }
    }
    rows[one.len()][other.len()]
}
