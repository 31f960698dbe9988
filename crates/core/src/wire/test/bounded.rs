//! Figures from a peer, bounded before anything is reckoned with them.
//!
//! A number that no test can come to would overflow some sum far from here. So a message is looked at as a whole, whatever
//! its type, rather than each sum defended; what counts up over a test is bounded in its sum too. And a name is part of a
//! line: where it has line ends, which none has, whoever prints it would print lines of the peer's.

use std::time::Duration;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::report::Interval;
use super::request::{MOST_PARTS, TestRequest};

/// The largest count: 72 PB, 2 Tb/s for three days.
const LARGEST: u64 = 1 << 56;
/// The longest time and the largest share: 30,000 years.
const LARGEST_FLOAT: f64 = 1e12;
/// The largest sum of what all intervals of a test tell.
const LARGEST_SUM: u64 = 1 << 60;

/// A message whose figures may be reckoned with.
#[derive(Debug)]
pub struct Bounded<T>(pub T);

/// A figure that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("'{name}' of {value}, which no test comes to")]
pub struct Unbounded {
    /// Its name in JSON.
    pub name: String,
    /// As it was told.
    pub value: String,
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Bounded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        check("", &value).map_err(D::Error::custom)?;
        join_lines(&mut value);
        T::deserialize(value).map(Bounded).map_err(D::Error::custom)
    }
}

fn check(name: &str, value: &Value) -> Result<(), Unbounded> {
    match value {
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| check(name, value)),
        Value::Array(values) => values.iter().try_for_each(|value| check(name, value)),
        // A clock may stand anywhere, and no limit may be the largest number; neither is added up.
        Value::Number(number) if name.contains("nanos") || name.ends_with("_bits_per_second") => {
            match number.as_u64().or(number.as_i64().map(i64::unsigned_abs)) {
                Some(_) => Ok(()),
                None => unbounded(name, number),
            }
        }
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) if whole.unsigned_abs() <= LARGEST => Ok(()),
            (None, Some(broken)) if number.is_f64() && broken.abs() <= LARGEST_FLOAT => Ok(()),
            _ => unbounded(name, number),
        },
        _ => Ok(()),
    }
}

/// Puts a space where a text has the end of a line.
fn join_lines(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(ends_line) => *text = text.replace(ends_line, " "),
        Value::Array(values) => values.iter_mut().for_each(join_lines),
        Value::Object(fields) => fields.values_mut().for_each(join_lines),
        _ => {}
    }
}

/// As Unicode has it (UAX 14: BK, CR, LF, NL).
fn ends_line(c: char) -> bool {
    matches!(c, '\n' | '\u{b}' | '\u{c}' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn unbounded(name: &str, value: &serde_json::Number) -> Result<(), Unbounded> {
    Err(Unbounded { name: name.to_owned(), value: value.to_string() })
}

/// What a peer's intervals have told so far.
#[derive(Debug, Clone, Copy)]
pub struct Sum {
    figures: u64,
    intervals: u64,
    streams: u16,
    /// Length of an interval.
    interval: Duration,
}

impl Sum {
    /// Nothing of this test so far.
    pub fn of(request: &TestRequest) -> Self {
        Sum { figures: 0, intervals: 0, streams: request.streams, interval: request.interval }
    }

    /// Adds an interval of a test that may have begun `since`; an error if that is more than a test can come to.
    pub fn add(&mut self, interval: &Interval, since: Duration) -> Result<(), Unbounded> {
        self.intervals += 1;
        let parts = [
            ("intervals", self.intervals, self.most(since)),
            ("streams", interval.streams.len() as u64, self.streams.into()),
            ("parts", interval.parts.len() as u64, u64::from(MOST_PARTS) + 1),
        ];
        if let Some((name, value, _)) = parts.into_iter().find(|(_, value, most)| value > most) {
            return Err(Unbounded { name: name.into(), value: value.to_string() });
        }
        let udp = interval.streams.iter().filter_map(|stream| stream.udp.as_ref());
        let udp = udp.flat_map(|udp| [udp.datagrams, udp.lost, udp.reordered, udp.duplicates]);
        let figures = interval.streams.iter().map(|stream| stream.bytes).chain(udp).chain([interval.bytes]);
        self.figures = figures.fold(self.figures, u64::saturating_add);
        match self.figures <= LARGEST_SUM {
            true => Ok(()),
            false => {
                Err(Unbounded { name: "intervals".into(), value: format!("{} bytes and datagrams", self.figures) })
            }
        }
    }

    /// How many intervals there can have been in this time. Clocks differ, and so do the moments both ends count from:
    /// a quarter more and a second are left to them.
    fn most(&self, since: Duration) -> u64 {
        let time = since.as_nanos().saturating_mul(5) / 4 + Duration::from_secs(1).as_nanos();
        u64::try_from(time / self.interval.as_nanos().max(1)).unwrap_or(u64::MAX).saturating_add(16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::test::{EndReport, ServerMessage, StreamSample};

    #[test]
    fn what_no_test_comes_to_is_named() {
        let honest = ServerMessage::Report(Box::new(EndReport { bytes: 1 << 50, ..EndReport::default() }));
        let text = serde_json::to_string(&honest).unwrap();
        assert!(serde_json::from_str::<Bounded<ServerMessage>>(&text).is_ok());
        let lie = text.replace(&(1u64 << 50).to_string(), &u64::MAX.to_string());
        let said = serde_json::from_str::<Bounded<ServerMessage>>(&lie).unwrap_err().to_string();
        assert!(said.contains("'bytes' of 18446744073709551615"), "{said}");
        let long = text.replace("\"elapsed_seconds\":0.0", "\"elapsed_seconds\":1e15");
        assert_ne!(long, text);
        assert!(serde_json::from_str::<Bounded<ServerMessage>>(&long).is_err());
    }

    #[test]
    fn a_name_is_no_lines() {
        let report = EndReport { lfn_version: Some("1\r\n2\u{2028}3\u{1b}".into()), ..EndReport::default() };
        let text = serde_json::to_string(&ServerMessage::Report(Box::new(report))).unwrap();
        let Bounded(ServerMessage::Report(read)) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        assert_eq!(read.lfn_version.as_deref(), Some("1  2 3\u{1b}"));
    }

    #[test]
    fn sums_are_bounded_too() {
        let interval = Interval { bytes: LARGEST, ..Interval::default() };
        let (mut sum, hour) = (Sum::of(&TestRequest::default()), Duration::from_secs(3600));
        assert!((0..16).all(|_| sum.add(&interval, hour).is_ok()));
        assert!(sum.add(&interval, hour).is_err());
    }

    #[test]
    fn there_are_no_more_intervals_than_time_for_them() {
        let interval = Interval { streams: vec![StreamSample::default()], ..Interval::default() };
        let mut sum = Sum::of(&TestRequest { interval: Duration::from_millis(100), ..TestRequest::default() });
        let told = (1..1000).find(|_| sum.add(&interval, Duration::from_secs(8)).is_err());
        // 8 s and a quarter, one second more, and sixteen.
        assert_eq!(told, Some(100 + 10 + 16 + 1));
        let two = Interval { streams: vec![StreamSample::default(); 2], ..Interval::default() };
        let said = Sum::of(&TestRequest::default()).add(&two, Duration::ZERO).unwrap_err();
        assert_eq!(said.to_string(), "'streams' of 2, which no test comes to");
    }
}
