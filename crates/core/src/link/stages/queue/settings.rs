//! What a queue is set to: how much fits, and what it does with what waits.
//!
//! Both are typed as text: [`QueueLimit`] is what a [`QueueSize`](crate::path::QueueSize) comes to on a given path, and
//! a [`Discipline`] is a name with parameters, `codel:target=5ms:interval=100ms`, where what is not said keeps the
//! default of the discipline's RFC or paper. The parameters live with the disciplines.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::codel::CoDel;
use super::fq_codel::FqCoDel;
use super::red::Red;
use crate::link::LinkError;
use crate::link::setting::{Parts, SettingError};
use crate::units::{Bytes, QuantityError, show_duration};

/// How much a queue holds, the packet being sent included until its last bit is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Bytes as the line counts them, with the overhead of its layer; so nothing waits longer than these take to send.
    Bytes(Bytes),
    /// Packets, however long.
    Packets(u32),
}

impl QueueLimit {
    /// Most bytes it can hold of packets of at most `largest` bytes.
    pub fn most_bytes(self, largest: Bytes) -> Bytes {
        match self {
            QueueLimit::Bytes(bytes) => bytes,
            QueueLimit::Packets(packets) => Bytes(u64::from(packets).saturating_mul(largest.0)),
        }
    }

    /// As one types it: exact and without a space, `64KiB`, `100p`. Parsing gives the same again.
    pub fn typed(self) -> String {
        match self {
            QueueLimit::Bytes(bytes) => bytes.typed(),
            QueueLimit::Packets(packets) => format!("{packets}p"),
        }
    }
}

impl FromStr for QueueLimit {
    type Err = QuantityError;

    /// `30kB`, `65536`, `100p`, `100packets`.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        match packets(text) {
            Some(packets) => packets.map(QueueLimit::Packets),
            None => text.parse().map(QueueLimit::Bytes),
        }
    }
}

/// The number before `p` or `packets`, if the text ends so.
pub(crate) fn packets(text: &str) -> Option<Result<u32, QuantityError>> {
    let lower = text.trim().to_ascii_lowercase();
    let number = ["packets", "packet", "p"].iter().find_map(|unit| lower.strip_suffix(unit))?;
    Some(whole(number, text, "number of packets", "100p"))
}

/// A whole number that is counted, not measured.
pub(super) fn whole(
    number: &str,
    text: &str,
    quantity: &'static str,
    example: &'static str,
) -> Result<u32, QuantityError> {
    let number = number.trim();
    let text = text.to_owned();
    number.parse().map_err(|_| match number.parse::<f64>() {
        Ok(value) if value < 0.0 => QuantityError::Negative { text, quantity },
        Ok(value) if value > f64::from(u32::MAX) => QuantityError::TooLarge { text, quantity, most: "4,294,967,295" },
        _ => QuantityError::NotANumber { text, quantity, example },
    })
}

impl From<Bytes> for QueueLimit {
    fn from(bytes: Bytes) -> Self {
        QueueLimit::Bytes(bytes)
    }
}

impl fmt::Display for QueueLimit {
    /// `9.096 MB`, `100 packets`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueLimit::Bytes(bytes) => bytes.fmt(f),
            QueueLimit::Packets(1) => f.pad("1 packet"),
            QueueLimit::Packets(packets) => f.pad(&format!("{packets} packets")),
        }
    }
}

/// What a queue does with what waits: which packet goes next, and which are dropped or marked before it is full.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Discipline {
    /// First in, first out; what does not fit is dropped.
    #[default]
    DropTail,
    /// Keeps the time packets wait near a target (RFC 8289).
    CoDel(CoDel),
    /// Shares the line out between flows, with CoDel for each (RFC 8290).
    FqCoDel(FqCoDel),
    /// Drops at random, the more the longer the queue is on average (Floyd and Jacobson, 1993).
    Red(Red),
}

/// Why the parameters of a discipline make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DisciplineError {
    /// CoDel looks for a wait that stays above the target for an interval.
    #[error("codel: target {} is not below interval {} and above zero", show_duration(*target), show_duration(*interval))]
    Target {
        /// What was set.
        target: Duration,
        /// What was set, or the default.
        interval: Duration,
    },
    /// An hour is longer than any round trip.
    #[error("codel: interval {} is above 1 h", show_duration(*.0))]
    Interval(Duration),
    /// More would only take memory.
    #[error("fq-codel: flows {0} is not from 1 to {most}", most = FqCoDel::MOST_FLOWS)]
    Flows(u32),
    /// A few bytes a turn take many turns a packet; gigabytes are no turns.
    #[error(
        "fq-codel: quantum {} is not from {} to {}", .0.exact(),
        FqCoDel::LEAST_QUANTUM.exact(), FqCoDel::MOST_QUANTUM.exact()
    )]
    Quantum(Bytes),
    /// The probability rises from min to max.
    #[error("red: min {min} is not below max {max}")]
    Thresholds {
        /// What was set, or the default.
        min: QueueLimit,
        /// What was set, or the default.
        max: QueueLimit,
    },
    /// One average cannot be compared with both.
    #[error("red: min {min} and max {max} are not of one unit: give both in bytes or both in packets")]
    Units {
        /// What was set, or the default.
        min: QueueLimit,
        /// What was set, or the default.
        max: QueueLimit,
    },
    /// Zero does nothing.
    #[error("red: {0} of zero has no effect")]
    Zero(&'static str),
}

impl Discipline {
    /// Refuses what makes no sense with a queue of this limit.
    pub(in crate::link) fn check(&self, limit: QueueLimit) -> Result<(), DisciplineError> {
        match self {
            Discipline::DropTail => Ok(()),
            Discipline::CoDel(codel) => codel.check(),
            Discipline::FqCoDel(fq_codel) => fq_codel.check(),
            Discipline::Red(red) => red.check(limit),
        }
    }

    /// Refuses what makes no sense with any queue.
    fn check_alone(&self) -> Result<(), DisciplineError> {
        let in_packets = matches!(self, Discipline::Red(Red { min: Some(QueueLimit::Packets(_)), .. }))
            || matches!(self, Discipline::Red(Red { max: Some(QueueLimit::Packets(_)), .. }));
        self.check(if in_packets { QueueLimit::Packets(u32::MAX) } else { QueueLimit::Bytes(Bytes(u64::MAX)) })
    }
}

impl FromStr for Discipline {
    type Err = SettingError;

    /// `drop-tail`, `codel`, `codel:target=5ms:interval=100ms`, `fq-codel:flows=1024:quantum=1514`,
    /// `red:min=30kB:max=90kB:p=0.02:weight=0.002`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        // `tc` writes fq_codel.
        let lower = text.trim().to_ascii_lowercase().replace('_', "-");
        let read = |name, form| Parts::after(&lower, name, form);
        let (discipline, rest) = if let Some(rest) = read("drop-tail", "drop-tail, which has no parameters") {
            (Discipline::DropTail, rest)
        } else if let Some(mut rest) = read("codel", CoDel::FORM) {
            (Discipline::CoDel(CoDel::read(&mut rest)?), rest)
        } else if let Some(mut rest) = read("fq-codel", FqCoDel::FORM) {
            (Discipline::FqCoDel(FqCoDel::read(&mut rest)?), rest)
        } else if let Some(mut rest) = read("red", Red::FORM) {
            (Discipline::Red(Red::read(&mut rest)?), rest)
        } else {
            let forms = "drop-tail, codel, fq-codel or red";
            return Err(SettingError::Unknown { text: text.to_owned(), setting: "a queue discipline", forms });
        };
        rest.end()?;
        discipline.check_alone().map_err(LinkError::from)?;
        Ok(discipline)
    }
}

impl fmt::Display for Discipline {
    /// What [`from_str`](Self::from_str) reads, without what is the default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Discipline::DropTail => f.write_str("drop-tail"),
            Discipline::CoDel(codel) => write!(f, "codel{codel}"),
            Discipline::FqCoDel(fq_codel) => write!(f, "fq-codel{fq_codel}"),
            Discipline::Red(red) => write!(f, "red{red}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disciplines_are_read_as_typed_and_printed_so_that_they_are_read_again() {
        let ok = [
            ("drop-tail", "drop-tail"),
            ("codel", "codel"),
            ("CoDel:target=5ms", "codel"),
            ("codel:target=25ms:interval=500ms", "codel:target=25ms:interval=500ms"),
            ("fq_codel", "fq-codel"),
            ("fq-codel:flows=64:quantum=9014:target=1500us", "fq-codel:flows=64:quantum=9014:target=1500us"),
            ("red", "red"),
            ("red:p=2%", "red"),
            ("red:min=30kB:max=90kB:p=0.1:weight=0.01", "red:min=30000B:max=90000B:p=0.1:weight=0.01"),
            ("red:min=20p:max=60packets", "red:min=20p:max=60p"),
        ];
        for (text, printed) in ok {
            let discipline: Discipline = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(discipline.to_string(), printed, "{text}");
            assert_eq!(printed.parse(), Ok(discipline));
        }
    }

    #[test]
    fn what_is_no_discipline_is_refused_by_name_and_value() {
        let refused = [
            ("", "'' is not a queue discipline: expected drop-tail, codel, fq-codel or red"),
            ("pie", "'pie' is not a queue discipline"),
            ("drop-tail:limit=5", "do not know what to do with 'limit=5': expected drop-tail, which has no"),
            ("codel:", "do not know what to do with ''"),
            ("codel:5ms", "do not know what to do with '5ms': expected codel:target=5ms:interval=100ms"),
            ("codel:target=5ms:target=6ms", "do not know what to do with 'target=6ms'"),
            ("codel:target=quick", "in 'codel:target=quick': 'quick' is not a duration"),
            ("codel:target=0ms", "target 0 s is not below interval 100 ms and above zero"),
            ("codel:target=200ms", "target 200 ms is not below interval 100 ms"),
            ("codel:interval=2h:target=1h", "interval 120 min 00 s is above 1 h"),
            ("fq-codel:flows=0", "flows 0 is not from 1 to 65536"),
            ("fq-codel:flows=1.5", "'1.5' is not a number of flows"),
            ("fq-codel:quantum=1", "quantum 1 B is not from 256 B"),
            ("red:p=2", "'2': too large for a ratio"),
            ("red:p=0", "p of zero has no effect"),
            ("red:min=90kB:max=30kB", "min 90 kB is not below max 30 kB"),
            ("red:min=9p:max=30kB", "not of one unit"),
        ];
        for (text, words) in refused {
            let error = match text.parse::<Discipline>() {
                Ok(discipline) => panic!("{text} is {discipline}"),
                Err(error) => error.to_string(),
            };
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
