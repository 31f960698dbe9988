//! Traces as CSV: a header that names the columns, and a row for each step.
//!
//! Columns are `time` and at least one of `rate`, `delay` (one-way) and `loss`, in any order. A unit stands in the
//! header, `rate[mbit]`, or in the cell, `50mbit`. An empty cell leaves the value as it was. A last row with nothing but
//! a time says when the trace starts over; without one the last values stay.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{MOST_TIME, Steps, Trace, TraceError, lines, shortened};
use crate::link::Varying;
use crate::units::{BitRate, QuantityError, Ratio, parse_unit_duration, typed_duration};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Time,
    Rate,
    Delay,
    Loss,
}

/// A column: what it holds, and in which unit if its cells have none.
struct Column<'a> {
    kind: Kind,
    unit: &'a str,
}

/// The timetables as they grow.
struct Tables {
    rate: Steps<BitRate>,
    delay: Steps<Duration>,
    loss: Steps<Ratio>,
}

/// Whether this cell of a header names the time.
pub(super) fn is_time(cell: &str) -> bool {
    split(cell).is_some_and(|(name, _)| name.eq_ignore_ascii_case("time"))
}

pub(super) fn parse(name: &str, text: &str) -> Result<Trace, TraceError> {
    let mut rows = lines(text);
    let (header_line, header) = rows.next().ok_or(TraceError::Empty)?;
    let columns = columns(header, header_line)?;
    let mut tables = Tables { rate: Steps::new(), delay: Steps::new(), loss: Steps::new() };
    let mut before: Option<Duration> = None;
    let mut period = None;
    for (line, row) in rows {
        let cells: Vec<&str> = row.split(',').take(columns.len() + 1).map(str::trim).collect();
        if cells.len() != columns.len() {
            let found = row.split(',').count();
            return Err(TraceError::Cells { line, found, wanted: columns.len() });
        }
        if period.is_some() {
            return Err(TraceError::AfterEnd { line });
        }
        let at = time(&columns, &cells, line)?;
        let is_end = cells.iter().zip(&columns).all(|(cell, column)| cell.is_empty() || column.kind == Kind::Time);
        match before {
            None if !at.is_zero() || cells.contains(&"") => return Err(TraceError::Start { line }),
            Some(before) if at <= before => return Err(TraceError::Order { line }),
            _ if is_end => period = Some(at),
            _ => tables.push(at, &columns, &cells, line)?,
        }
        before = Some(at);
    }
    before.ok_or(TraceError::Empty)?;
    let given = |kind| columns.iter().any(|column| column.kind == kind);
    Ok(Trace {
        rate: given(Kind::Rate).then(|| tables.rate.finish(period)).transpose()?,
        delay: given(Kind::Delay).then(|| tables.delay.finish(period)).transpose()?,
        loss: given(Kind::Loss).then(|| tables.loss.finish(period)).transpose()?,
        ..Trace::named(name)
    })
}

/// Every step of every timetable in a row; what did not change is left out.
pub(super) fn write(trace: &Trace) -> String {
    let columns: Vec<(Kind, Vec<(Duration, String)>)> = [
        (Kind::Rate, trace.rate.as_ref().map(|rate| texts(rate, |value| value.typed()))),
        (Kind::Delay, trace.delay.as_ref().map(|delay| texts(delay, |value| typed_duration(*value)))),
        (Kind::Loss, trace.loss.as_ref().map(|loss| texts(loss, |value| value.typed()))),
    ]
    .into_iter()
    .filter_map(|(kind, steps)| Some((kind, steps?)))
    .collect();
    let mut rows: BTreeMap<Duration, Vec<&str>> = BTreeMap::new();
    for (column, (_, steps)) in columns.iter().enumerate() {
        for (at, text) in steps {
            rows.entry(*at).or_insert_with(|| vec![""; columns.len()])[column] = text;
        }
    }
    if let Some(period) = trace.period() {
        rows.insert(period, vec![""; columns.len()]);
    }
    let names = columns.iter().map(|(kind, _)| kind.name());
    let header = [Kind::Time.name()].into_iter().chain(names).collect::<Vec<_>>().join(",");
    let rows = rows.iter().map(|(at, cells)| format!("{},{}\n", typed_duration(*at), cells.join(",")));
    format!("{header}\n{}", rows.collect::<String>())
}

fn texts<T: Copy>(table: &Varying<T>, text: impl Fn(&T) -> String) -> Vec<(Duration, String)> {
    table.steps().iter().map(|(at, value)| (*at, text(value))).collect()
}

impl Tables {
    fn push(&mut self, at: Duration, columns: &[Column], cells: &[&str], line: usize) -> Result<(), TraceError> {
        for (column, cell) in columns.iter().zip(cells).filter(|(_, cell)| !cell.is_empty()) {
            let bad = |source| TraceError::Cell { line, column: column.kind.name(), source };
            let text = column.value(cell);
            match column.kind {
                Kind::Time => {}
                Kind::Rate => self.rate.push_line(at, text.parse().map_err(bad)?, line)?,
                Kind::Delay => self.delay.push_line(at, parse_unit_duration(&text).map_err(bad)?, line)?,
                Kind::Loss => self.loss.push_line(at, text.parse().map_err(bad)?, line)?,
            }
        }
        Ok(())
    }
}

impl Column<'_> {
    /// A cell with its unit.
    fn value(&self, cell: &str) -> String {
        let has_unit = cell.ends_with(|last: char| last.is_alphabetic() || last == '%');
        // What is wrong with a cell is told in its own words: no more of them than fit on a line.
        format!("{}{}", shortened(cell), if has_unit { "" } else { self.unit })
    }
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Time, Kind::Rate, Kind::Delay, Kind::Loss];

    fn name(self) -> &'static str {
        match self {
            Kind::Time => "time",
            Kind::Rate => "rate",
            Kind::Delay => "delay",
            Kind::Loss => "loss",
        }
    }

    /// Whether its cells can have this unit.
    fn check(self, unit: &str) -> Result<(), QuantityError> {
        let one = format!("1{unit}");
        match self {
            Kind::Time | Kind::Delay => parse_unit_duration(&one).map(drop),
            Kind::Rate => one.parse::<BitRate>().map(drop),
            Kind::Loss => one.parse::<Ratio>().map(drop),
        }
    }
}

fn columns(header: &str, line: usize) -> Result<Vec<Column<'_>>, TraceError> {
    let wrong = |reason: String| TraceError::Header { line, reason };
    let mut columns: Vec<Column> = Vec::new();
    for cell in header.split(',') {
        let known = split(cell).and_then(|(name, unit)| {
            let kind = Kind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))?;
            Some(Column { kind, unit })
        });
        let Some(column) = known else {
            return Err(wrong(format!("column '{}' is none of time, rate, delay, loss", shortened(cell.trim()))));
        };
        if !column.unit.is_empty() {
            column.kind.check(column.unit).map_err(|e| wrong(format!("{}: {e}", column.kind.name())))?;
        }
        if columns.iter().any(|other| other.kind == column.kind) {
            return Err(wrong(format!("two columns are called {}", column.kind.name())));
        }
        columns.push(column);
    }
    if columns.len() < 2 { Err(TraceError::NoColumns { line }) } else { Ok(columns) }
}

/// `rate[mbit]`: the name and the unit.
fn split(cell: &str) -> Option<(&str, &str)> {
    let cell = cell.trim();
    match cell.split_once('[') {
        None => Some((cell, "")),
        Some((name, rest)) => Some((name.trim_end(), rest.strip_suffix(']')?.trim())),
    }
}

fn time(columns: &[Column], cells: &[&str], line: usize) -> Result<Duration, TraceError> {
    let bad = |source| TraceError::Cell { line, column: Kind::Time.name(), source };
    let column = columns.iter().zip(cells).find(|(column, _)| column.kind == Kind::Time);
    let text = column.map_or(String::new(), |(column, cell)| column.value(cell));
    let at = parse_unit_duration(&text).map_err(bad)?;
    if at > MOST_TIME { Err(TraceError::TooLong { line }) } else { Ok(at) }
}
