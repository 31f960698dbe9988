//! One row of `result` or `latest`, and its entry.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};
use rusqlite::types::Value;
use rusqlite::{Connection, Row};

use super::dictionary::Dictionary;
use crate::entry::{Entry, EntryFinding, EntryKind, Marks, Outcome};

/// Columns in the order of [`values`].
pub(super) const COLUMNS: &str = "pair, kind, time, test, duration, bytes, goodput, predicted, capacity, base_rtt, rtt, \
     max_rtt, one_way_delay, packets, lost, retransmits, hops, outcome, findings, conditions, marks";

/// Number of the columns.
pub(super) const COLUMN_COUNT: usize = 21;

/// Separates the texts of a list in the dictionary. No host name, address or name of a finding contains it.
const SEPARATOR: char = '\n';

/// Returns the number of a kind.
pub(super) fn kind_number(kind: EntryKind) -> i64 {
    match kind {
        EntryKind::Load => 0,
        EntryKind::Latency => 1,
        EntryKind::Path => 2,
        EntryKind::Counters => 3,
    }
}

fn kind_of(number: i64) -> EntryKind {
    match number {
        0 => EntryKind::Load,
        1 => EntryKind::Latency,
        2 => EntryKind::Path,
        _ => EntryKind::Counters,
    }
}

fn outcome_number(outcome: Outcome) -> i64 {
    match outcome {
        Outcome::Good => 0,
        Outcome::Limited => 1,
        Outcome::Failed => 2,
        Outcome::Unknown => 3,
    }
}

fn outcome_of(number: i64) -> Outcome {
    match number {
        0 => Outcome::Good,
        1 => Outcome::Limited,
        2 => Outcome::Failed,
        _ => Outcome::Unknown,
    }
}

fn marks_number(marks: Marks) -> i64 {
    i64::from(marks.own_load)
        | i64::from(marks.maintenance) << 1
        | i64::from(marks.clock) << 2
        | i64::from(marks.imported) << 3
}

/// Returns the marks of a number of [`marks_number`].
pub(super) fn marks_of(number: i64) -> Marks {
    let bit = |place: u32| number >> place & 1 == 1;
    Marks { own_load: bit(0), maintenance: bit(1), clock: bit(2), imported: bit(3) }
}

/// Returns a time of an entry as the archive stores it: milliseconds since 1970.
pub(super) fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Returns a stored time as time since 1970.
pub(super) fn of_milliseconds(number: i64) -> Duration {
    Duration::from_millis(u64::try_from(number).unwrap_or(0))
}

fn microseconds(time: Option<Duration>) -> Value {
    time.map_or(Value::Null, |time| integer(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
}

fn integer(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn optional(number: Option<u64>) -> Value {
    number.map_or(Value::Null, integer)
}

/// Returns the columns of an entry. New texts are stored in the dictionary.
pub(super) fn values(
    dictionary: &mut Dictionary,
    sql: &Connection,
    entry: &Entry,
) -> rusqlite::Result<[Value; COLUMN_COUNT]> {
    let pair = dictionary.pair(sql, &entry.from, &entry.to)?;
    let mut text = |body: String| match body.is_empty() {
        true => Ok(Value::Null),
        false => dictionary.text(sql, &body).map(Value::Integer),
    };
    let names: Vec<&str> = entry.findings.iter().map(|finding| finding.name.as_str()).collect();
    let conditions: Vec<String> = entry.conditions.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let separator = SEPARATOR.to_string();
    Ok([
        Value::Integer(pair),
        Value::Integer(kind_number(entry.kind)),
        Value::Integer(milliseconds(entry.time)),
        // The test is a part of the key, so it is never null; 0 is no test.
        match text(entry.test.clone())? {
            Value::Null => Value::Integer(0),
            id => id,
        },
        optional(entry.duration.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))),
        optional(entry.bytes.map(|bytes| bytes.0)),
        optional(entry.goodput.map(|rate| rate.0)),
        optional(entry.predicted.map(|rate| rate.0)),
        optional(entry.capacity.map(|rate| rate.0)),
        microseconds(entry.base_rtt),
        microseconds(entry.rtt),
        microseconds(entry.max_rtt),
        microseconds(entry.one_way_delay),
        optional(entry.packets),
        optional(entry.lost_packets),
        optional(entry.retransmits),
        text(entry.hops.iter().map(|hop| format!("{hop}{SEPARATOR}")).collect())?,
        Value::Integer(outcome_number(entry.outcome)),
        text(names.join(&separator))?,
        text(conditions.join(&separator))?,
        Value::Integer(marks_number(entry.marks)),
    ])
}

/// Returns the entry of a row, without its detail.
pub(super) fn entry(dictionary: &mut Dictionary, sql: &Connection, row: &Row<'_>) -> rusqlite::Result<Entry> {
    let (from, to) = dictionary.names(sql, row.get(0)?)?;
    let number = |column: usize| -> rusqlite::Result<Option<u64>> {
        Ok(row.get::<_, Option<i64>>(column)?.map(|number| u64::try_from(number).unwrap_or(0)))
    };
    let time = |column: usize| Ok::<_, rusqlite::Error>(number(column)?.map(Duration::from_micros));
    let mut text = |column: usize| -> rusqlite::Result<String> {
        row.get::<_, Option<i64>>(column)?
            .filter(|&id| id != 0)
            .map_or(Ok(String::new()), |id| dictionary.body(sql, id))
    };
    let (test, hops, findings, conditions) = (text(3)?, text(16)?, text(18)?, text(19)?);
    let finding =
        |name: &str| EntryFinding { name: name.to_owned(), summary: String::new(), remedy: String::new(), host: None };
    let pair = |line: &str| line.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    Ok(Entry {
        test,
        duration: number(4)?.map(Duration::from_millis),
        bytes: number(5)?.map(Bytes),
        goodput: number(6)?.map(BitRate),
        predicted: number(7)?.map(BitRate),
        capacity: number(8)?.map(BitRate),
        base_rtt: time(9)?,
        rtt: time(10)?,
        max_rtt: time(11)?,
        one_way_delay: time(12)?,
        packets: number(13)?,
        lost_packets: number(14)?,
        retransmits: number(15)?,
        hops: hops.split_terminator(SEPARATOR).map(str::to_owned).collect(),
        outcome: outcome_of(row.get(17)?),
        findings: findings.split(SEPARATOR).filter(|name| !name.is_empty()).map(finding).collect(),
        conditions: conditions.split(SEPARATOR).filter_map(pair).collect(),
        marks: marks_of(row.get(20)?),
        ..Entry::new(kind_of(row.get(1)?), from, to, of_milliseconds(row.get(2)?))
    })
}
