//! Queue discipline with its text form: a name with parameters, `codel:target=5ms:interval=100ms`. Parameters that are not set keep the
//! default of the discipline's RFC or paper. Each discipline's file has its parameters.

use std::fmt;
use std::str::FromStr;

use lfn_base::queue_limit::QueueLimit;
use lfn_base::units::Bytes;

use super::codel::CoDel;
use super::error::DisciplineError;
use super::fq_codel::FqCoDel;
use super::red::Red;
use crate::error::LinkError;
use crate::setting::{Parts, SettingError};
use crate::value::impl_value_or_none;

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

impl_value_or_none!(Discipline, to_string);

impl Discipline {
    /// Refuses parameters that cannot work with a queue of this limit.
    pub(crate) fn check(&self, limit: QueueLimit) -> Result<(), DisciplineError> {
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
