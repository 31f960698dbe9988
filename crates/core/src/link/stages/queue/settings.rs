//! Settings of a queue: its limit and its discipline.
//!
//! Both have a text form. [`QueueLimit`] is the value of a [`QueueSize`](crate::path::QueueSize) on a given path. A
//! [`Discipline`] is a name with parameters, `codel:target=5ms:interval=100ms`. Parameters that are not set keep the
//! default of the discipline's RFC or paper. Each discipline's file has its parameters.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::codel::CoDel;
use super::fq_codel::FqCoDel;
use super::red::Red;
use crate::link::LinkError;
use crate::link::setting::{Parts, SettingError};
use crate::units::{Bytes, QuantityError, show_duration};

/// Maximum length of a queue. The packet on the line counts until its last bit is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Bytes with the overhead of the line's layer. The maximum wait is the time to send these bytes.
    Bytes(Bytes),
    /// Packets of any length.
    Packets(u32),
}

impl QueueLimit {
    /// Returns the maximum bytes for packets of at most `largest` bytes.
    pub fn max_bytes(self, largest: Bytes) -> Bytes {
        match self {
            QueueLimit::Bytes(bytes) => bytes,
            QueueLimit::Packets(packets) => Bytes(u64::from(packets).saturating_mul(largest.0)),
        }
    }

    /// Returns the exact text without spaces, such as `64KiB` or `100p`. Parsing the text returns the same limit.
    pub fn to_argument(self) -> String {
        match self {
            QueueLimit::Bytes(bytes) => bytes.to_argument(),
            QueueLimit::Packets(packets) => format!("{packets}p"),
        }
    }
}

impl FromStr for QueueLimit {
    type Err = QuantityError;

    /// Reads `30kB`, `65536`, `100p` or `100packets`.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        match parse_packets(text) {
            Some(packets) => packets.map(QueueLimit::Packets),
            None => text.parse().map(QueueLimit::Bytes),
        }
    }
}

/// Reads the number before `p` or `packets`; `None` if the text has no such unit.
pub(crate) fn parse_packets(text: &str) -> Option<Result<u32, QuantityError>> {
    let lower = text.trim().to_ascii_lowercase();
    let number = ["packets", "packet", "p"].iter().find_map(|unit| lower.strip_suffix(unit))?;
    Some(parse_whole(number, text, "number of packets", "100p"))
}

/// Reads a whole number of things that are counted.
pub(super) fn parse_whole(
    number: &str,
    text: &str,
    quantity: &'static str,
    example: &'static str,
) -> Result<u32, QuantityError> {
    let number = number.trim();
    let text = text.to_owned();
    number.parse().map_err(|_| match number.parse::<f64>() {
        Ok(value) if value < 0.0 => QuantityError::Negative { text, quantity },
        Ok(value) if value > f64::from(u32::MAX) => QuantityError::TooLarge { text, quantity, max: "4,294,967,295" },
        _ => QuantityError::NotANumber { text, quantity, example },
    })
}

impl From<Bytes> for QueueLimit {
    fn from(bytes: Bytes) -> Self {
        QueueLimit::Bytes(bytes)
    }
}

impl fmt::Display for QueueLimit {
    /// Writes `9.096 MB` or `100 packets`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueLimit::Bytes(bytes) => bytes.fmt(f),
            QueueLimit::Packets(1) => f.pad("1 packet"),
            QueueLimit::Packets(packets) => f.pad(&format!("{packets} packets")),
        }
    }
}

/// Queue discipline: the order of sending, and early drops and marks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Discipline {
    /// First in, first out. Packets that do not fit are dropped.
    #[default]
    DropTail,
    /// Keeps the wait of packets near a target (RFC 8289).
    CoDel(CoDel),
    /// Shares the line among flows, with CoDel for each (RFC 8290).
    FqCoDel(FqCoDel),
    /// Drops at random, and more as the average queue grows (Floyd and Jacobson, 1993).
    Red(Red),
}

/// Reason why the parameters of a discipline are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DisciplineError {
    /// CoDel reacts to a wait that stays above the target for an interval.
    #[error("codel: target {} is not above zero and below interval {}", show_duration(*target), show_duration(*interval))]
    Target {
        target: Duration,
        /// Configured or default value.
        interval: Duration,
    },
    /// An hour exceeds every round-trip time.
    #[error("codel: interval {} is above 1 h", show_duration(*.0))]
    Interval(Duration),
    /// More flows would only use memory.
    #[error("fq-codel: flows {0} is not from 1 to {max}", max = FqCoDel::MAX_FLOWS)]
    FlowQueues(u32),
    /// With a few bytes a packet needs many turns, and gigabytes leave no turns.
    #[error(
        "fq-codel: quantum {} is not from {} to {}", .0.exact(),
        FqCoDel::MIN_QUANTUM.exact(), FqCoDel::MAX_QUANTUM.exact()
    )]
    Quantum(Bytes),
    /// The probability rises from min to max.
    #[error("red: min {min} is not below max {max}")]
    Thresholds {
        /// Configured or default value.
        min: QueueLimit,
        /// Configured or default value.
        max: QueueLimit,
    },
    /// The average has one unit and cannot be compared with both.
    #[error("red: min {min} and max {max} have different units: give both in bytes or both in packets")]
    Units {
        /// Configured or default value.
        min: QueueLimit,
        /// Configured or default value.
        max: QueueLimit,
    },
    /// A value of zero has no effect.
    #[error("red: {0} of zero has no effect")]
    Zero(&'static str),
}

impl Discipline {
    /// Refuses parameters that cannot work with a queue of this limit.
    pub(in crate::link) fn check(&self, limit: QueueLimit) -> Result<(), DisciplineError> {
        match self {
            Discipline::DropTail => Ok(()),
            Discipline::CoDel(codel) => codel.check(),
            Discipline::FqCoDel(fq_codel) => fq_codel.check(),
            Discipline::Red(red) => red.check(limit),
        }
    }

    /// Refuses parameters that cannot work with any queue.
    fn check_alone(&self) -> Result<(), DisciplineError> {
        let in_packets = matches!(self, Discipline::Red(Red { min: Some(QueueLimit::Packets(_)), .. }))
            || matches!(self, Discipline::Red(Red { max: Some(QueueLimit::Packets(_)), .. }));
        self.check(if in_packets { QueueLimit::Packets(u32::MAX) } else { QueueLimit::Bytes(Bytes(u64::MAX)) })
    }
}

impl FromStr for Discipline {
    type Err = SettingError;

    /// Reads `drop-tail`, `codel`, `codel:target=5ms:interval=100ms`, `fq-codel:flows=1024:quantum=1514` or
    /// `red:min=30kB:max=90kB:p=0.02:weight=0.002`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        // `tc` writes fq_codel.
        let lower = text.trim().to_ascii_lowercase().replace('_', "-");
        let read = |name, form| Parts::after_optional_name(&lower, name, form);
        let (discipline, rest) = if let Some(rest) = read("drop-tail", "drop-tail, which has no parameters") {
            (Discipline::DropTail, rest)
        } else if let Some(mut rest) = read("codel", CoDel::FORM) {
            (Discipline::CoDel(CoDel::parse(&mut rest)?), rest)
        } else if let Some(mut rest) = read("fq-codel", FqCoDel::FORM) {
            (Discipline::FqCoDel(FqCoDel::parse(&mut rest)?), rest)
        } else if let Some(mut rest) = read("red", Red::FORM) {
            (Discipline::Red(Red::parse(&mut rest)?), rest)
        } else {
            let forms = "drop-tail, codel, fq-codel or red";
            return Err(SettingError::Unknown { text: text.to_owned(), setting: "a queue discipline", forms });
        };
        rest.finish()?;
        discipline.check_alone().map_err(LinkError::from)?;
        Ok(discipline)
    }
}

impl fmt::Display for Discipline {
    /// Writes the text that [`from_str`](Self::from_str) reads, without default values.
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
    fn discipline_text_round_trips() {
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
    fn invalid_disciplines_are_refused() {
        let refused = [
            ("", "'' is not a queue discipline: expected drop-tail, codel, fq-codel or red"),
            ("pie", "'pie' is not a queue discipline"),
            ("drop-tail:limit=5", "unexpected 'limit=5': expected drop-tail, which has no"),
            ("codel:", "unexpected ''"),
            ("codel:5ms", "unexpected '5ms': expected codel:target=5ms:interval=100ms"),
            ("codel:target=5ms:target=6ms", "unexpected 'target=6ms'"),
            ("codel:target=quick", "in 'codel:target=quick': 'quick' is not a duration"),
            ("codel:target=0ms", "target 0 s is not above zero and below interval 100 ms"),
            ("codel:target=200ms", "target 200 ms is not above zero and below interval 100 ms"),
            ("codel:interval=2h:target=1h", "interval 2 h is above 1 h"),
            ("fq-codel:flows=0", "flows 0 is not from 1 to 65536"),
            ("fq-codel:flows=1.5", "'1.5' is not a number of flows"),
            ("fq-codel:quantum=1", "quantum 1 B is not from 256 B"),
            ("red:p=2", "'2': too large for a ratio"),
            ("red:p=0", "p of zero has no effect"),
            ("red:min=90kB:max=30kB", "min 90 kB is not below max 30 kB"),
            ("red:min=9p:max=30kB", "have different units"),
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
