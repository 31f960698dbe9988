//! Checks that the figures of a peer are in a plausible range before they are used in calculations.
//!
//! An impossible figure would overflow a sum elsewhere. Each message is therefore checked as a whole, whatever its
//! type, instead of each sum. Totals over a test are checked too. Line ends in texts are replaced, because a name with
//! a line end would let the peer print its own lines.

use std::time::Duration;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::limits::MAX_PARTS;
use super::report::Interval;
use super::request::TestRequest;

/// Maximum count: 72 PB, 2 Tb/s for three days.
const MAX_COUNT: u64 = 1 << 56;
/// Maximum time and maximum share: 30,000 years.
const MAX_FLOAT: f64 = 1e12;
/// Maximum sum of all intervals of a test.
const MAX_SUM: u64 = 1 << 60;

/// A message with all figures in range.
#[derive(Debug)]
pub struct Bounded<T>(pub T);

/// A figure that is out of range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("'{name}' of {value} is out of range")]
pub struct OutOfRange {
    /// Name of the figure in JSON.
    pub name: String,
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

fn check(name: &str, value: &Value) -> Result<(), OutOfRange> {
    match value {
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| check(name, value)),
        Value::Array(values) => values.iter().try_for_each(|value| check(name, value)),
        Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(whole), _, _) => check_whole(name, whole.into()).map(drop),
            (None, Some(whole), _) => check_whole(name, whole.into()).map(drop),
            (None, None, Some(broken)) => check_broken(name, broken),
            (None, None, None) => Err(out_of_range(name, number)),
        },
        _ => Ok(()),
    }
}

/// Checks a whole number. Returns false for clock values, which may be anything, and for rates, of which a limit may be the
/// maximum number: neither is summed.
pub(crate) fn check_whole(name: &str, value: i128) -> Result<bool, OutOfRange> {
    let is_summed = !has_any_range(name);
    if is_summed && value.unsigned_abs() > MAX_COUNT.into() { Err(out_of_range(name, value)) } else { Ok(is_summed) }
}

/// Checks a number with a fraction.
pub(crate) fn check_broken(name: &str, value: f64) -> Result<(), OutOfRange> {
    if has_any_range(name) || value.abs() > MAX_FLOAT { Err(out_of_range(name, value)) } else { Ok(()) }
}

fn has_any_range(name: &str) -> bool {
    name.contains("nanos") || name.ends_with("_bits_per_second")
}

/// Replaces line ends in texts by spaces.
fn join_lines(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(ends_line) => *text = text.replace(ends_line, " "),
        Value::Array(values) => values.iter_mut().for_each(join_lines),
        Value::Object(fields) => fields.values_mut().for_each(join_lines),
        _ => {}
    }
}

/// Line ends of Unicode (UAX 14: BK, CR, LF, NL).
fn ends_line(c: char) -> bool {
    matches!(c, '\n' | '\u{b}' | '\u{c}' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Maximum digits of a number in a message.
const MAX_DIGITS: usize = 40;

fn out_of_range(name: &str, value: impl ToString) -> OutOfRange {
    let text = value.to_string();
    let is_long = text.len() > MAX_DIGITS;
    let value = if is_long { format!("{}…", text.get(..MAX_DIGITS).unwrap_or_default()) } else { text };
    OutOfRange { name: name.to_owned(), value }
}

/// Totals of the intervals that a peer reported.
#[derive(Debug, Clone, Copy)]
pub struct ReportedTotals {
    figures: u64,
    intervals: u64,
    streams: u16,
    interval: Duration,
}

impl ReportedTotals {
    /// Creates empty totals for a test.
    pub fn of(request: &TestRequest) -> Self {
        ReportedTotals { figures: 0, intervals: 0, streams: request.streams, interval: request.interval }
    }

    /// Adds an interval of a test that began at most `since` ago. Returns an error if the totals exceed the limits of a
    /// test.
    pub fn add(&mut self, interval: &Interval, since: Duration) -> Result<(), OutOfRange> {
        self.intervals += 1;
        let parts = [
            ("intervals", self.intervals, self.max_intervals(since)),
            ("streams", interval.streams.len() as u64, self.streams.into()),
            ("parts", interval.slices.len() as u64, u64::from(MAX_PARTS) + 1),
        ];
        if let Some((name, value, _)) = parts.into_iter().find(|(_, value, most)| value > most) {
            return Err(OutOfRange { name: name.into(), value: value.to_string() });
        }
        let udp = interval.streams.iter().filter_map(|stream| stream.udp.as_ref());
        let udp = udp.flat_map(|udp| [udp.datagrams, udp.lost, udp.reordered, udp.duplicates]);
        let figures = interval.streams.iter().map(|stream| stream.bytes).chain(udp).chain([interval.bytes]);
        self.figures = figures.fold(self.figures, u64::saturating_add);
        match self.figures <= MAX_SUM {
            true => Ok(()),
            false => {
                Err(OutOfRange { name: "intervals".into(), value: format!("{} bytes and datagrams", self.figures) })
            }
        }
    }

    /// Returns the maximum count of intervals in this time. Clocks and start times of both ends differ, so a quarter
    /// and one second are added.
    fn max_intervals(&self, since: Duration) -> u64 {
        let time = since.as_nanos().saturating_mul(5) / 4 + Duration::from_secs(1).as_nanos();
        u64::try_from(time / self.interval.as_nanos().max(1)).unwrap_or(u64::MAX).saturating_add(16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{EndReport, ServerMessage, StreamSample};

    #[test]
    fn out_of_range_figures_are_rejected() {
        let honest = ServerMessage::Report(Box::new(EndReport { bytes: 1 << 50, ..EndReport::default() }));
        let text = serde_json::to_string(&honest).unwrap();
        assert!(serde_json::from_str::<Bounded<ServerMessage>>(&text).is_ok());
        let lie = text.replace(&(1u64 << 50).to_string(), &u64::MAX.to_string());
        let error_text = serde_json::from_str::<Bounded<ServerMessage>>(&lie).unwrap_err().to_string();
        assert!(error_text.contains("'bytes' of 18446744073709551615"), "{error_text}");
        let long = text.replace("\"elapsed_seconds\":0.0", "\"elapsed_seconds\":1e15");
        assert_ne!(long, text);
        assert!(serde_json::from_str::<Bounded<ServerMessage>>(&long).is_err());
    }

    #[test]
    fn line_ends_become_spaces() {
        let report = EndReport { lfn_version: Some("1\r\n2\u{2028}3\u{1b}".into()), ..EndReport::default() };
        let text = serde_json::to_string(&ServerMessage::Report(Box::new(report))).unwrap();
        let Bounded(ServerMessage::Report(read)) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        assert_eq!(read.lfn_version.as_deref(), Some("1  2 3\u{1b}"));
    }

    #[test]
    fn sums_are_limited() {
        let interval = Interval { bytes: MAX_COUNT, ..Interval::default() };
        let (mut sum, hour) = (ReportedTotals::of(&TestRequest::default()), Duration::from_secs(3600));
        assert!((0..16).all(|_| sum.add(&interval, hour).is_ok()));
        assert!(sum.add(&interval, hour).is_err());
    }

    #[test]
    fn interval_count_is_limited_by_time() {
        let interval = Interval { streams: vec![StreamSample::default()], ..Interval::default() };
        let mut sum =
            ReportedTotals::of(&TestRequest { interval: Duration::from_millis(100), ..TestRequest::default() });
        let told = (1..1000).find(|_| sum.add(&interval, Duration::from_secs(8)).is_err());
        // 8 s plus a quarter, plus one second, plus sixteen.
        assert_eq!(told, Some(100 + 10 + 16 + 1));
        let two = Interval { streams: vec![StreamSample::default(); 2], ..Interval::default() };
        let error_text = ReportedTotals::of(&TestRequest::default()).add(&two, Duration::ZERO).unwrap_err();
        assert_eq!(error_text.to_string(), "'streams' of 2 is out of range");
    }
}
