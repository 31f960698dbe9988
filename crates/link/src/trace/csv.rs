//! Traces as CSV: a header with the names of the columns, and a row for each step.
//!
//! The columns are `time` and at least one of `rate`, `delay` (one-way) and `loss`, in any order. The unit is in the
//! header, `rate[mbit]`, or in the cell, `50mbit`. An empty cell keeps the previous value. A last row with only a time
//! sets the time at which the trace starts again. Without this row the last values stay.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::units::{BitRate, QuantityError, Ratio, duration_argument, parse_unit_duration};

use super::link_trace::{LinkTrace, MAX_TIME, TraceError};
use super::steps::{StepList, content_lines, truncate};
use crate::timetable::Timetable;

/// Content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnKind {
    Time,
    Rate,
    Delay,
    Loss,
}

/// Column, with the unit of cells that have none.
struct Column<'a> {
    kind: ColumnKind,
    unit: &'a str,
}

/// Timetables of a trace under construction.
struct Tables {
    rate: StepList<BitRate>,
    delay: StepList<Duration>,
    loss: StepList<Ratio>,
}

/// Reports whether this cell of a header names the time.
pub(super) fn is_time(cell: &str) -> bool {
    split(cell).is_some_and(|(name, _)| name.eq_ignore_ascii_case("time"))
}

pub(super) fn parse(name: &str, text: &str) -> Result<LinkTrace, TraceError> {
    let mut rows = content_lines(text);
    let (header_line, header) = rows.next().ok_or(TraceError::Empty)?;
    let columns = columns(header, header_line)?;
    let mut tables = Tables { rate: StepList::new(), delay: StepList::new(), loss: StepList::new() };
    let mut before: Option<Duration> = None;
    let mut period = None;
    for (line, row) in rows {
        let cells: Vec<&str> = row.split(',').take(columns.len() + 1).map(str::trim).collect();
        if cells.len() != columns.len() {
            let found = row.split(',').count();
            return Err(TraceError::Cells { line, found, expected: columns.len() });
        }
        if period.is_some() {
            return Err(TraceError::AfterEnd { line });
        }
        let at = time(&columns, &cells, line)?;
        let is_end =
            cells.iter().zip(&columns).all(|(cell, column)| cell.is_empty() || column.kind == ColumnKind::Time);
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
    Ok(LinkTrace {
        rate: given(ColumnKind::Rate).then(|| tables.rate.finish(period)).transpose()?,
        delay: given(ColumnKind::Delay).then(|| tables.delay.finish(period)).transpose()?,
        loss: given(ColumnKind::Loss).then(|| tables.loss.finish(period)).transpose()?,
        ..LinkTrace::unloaded(name)
    })
}

/// Writes one row per step of any timetable. Unchanged values are empty cells.
pub(super) fn write(trace: &LinkTrace) -> String {
    let columns: Vec<(ColumnKind, Vec<(Duration, String)>)> = [
        (ColumnKind::Rate, trace.rate.as_ref().map(|rate| texts(rate, |value| value.to_argument()))),
        (ColumnKind::Delay, trace.delay.as_ref().map(|delay| texts(delay, |value| duration_argument(*value)))),
        (ColumnKind::Loss, trace.loss.as_ref().map(|loss| texts(loss, |value| value.to_argument()))),
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
    let header = [ColumnKind::Time.name()].into_iter().chain(names).collect::<Vec<_>>().join(",");
    let rows = rows.iter().map(|(at, cells)| format!("{},{}\n", duration_argument(*at), cells.join(",")));
    format!("{header}\n{}", rows.collect::<String>())
}

fn texts<T: Copy>(table: &Timetable<T>, text: impl Fn(&T) -> String) -> Vec<(Duration, String)> {
    table.steps().iter().map(|(at, value)| (*at, text(value))).collect()
}

impl Tables {
    fn push(&mut self, at: Duration, columns: &[Column], cells: &[&str], line: usize) -> Result<(), TraceError> {
        for (column, cell) in columns.iter().zip(cells).filter(|(_, cell)| !cell.is_empty()) {
            let bad = |source| TraceError::Cell { line, column: column.kind.name(), source };
            let text = column.value(cell);
            let has_no_unit = text.ends_with(|last: char| last.is_ascii_digit());
            match column.kind {
                ColumnKind::Time => {}
                ColumnKind::Rate if has_no_unit => return Err(TraceError::RateUnit { line, cell: text }),
                ColumnKind::Rate => self.rate.push_line(at, text.parse().map_err(bad)?, line)?,
                ColumnKind::Delay => self.delay.push_line(at, parse_unit_duration(&text).map_err(bad)?, line)?,
                ColumnKind::Loss => self.loss.push_line(at, text.parse().map_err(bad)?, line)?,
            }
        }
        Ok(())
    }
}

impl Column<'_> {
    /// Returns the cell with its unit.
    fn value(&self, cell: &str) -> String {
        let has_unit = cell.ends_with(|last: char| last.is_alphabetic() || last == '%');
        // The error quotes the cell, so the cell is limited to the length of a line.
        format!("{}{}", truncate(cell), if has_unit { "" } else { self.unit })
    }
}

impl ColumnKind {
    const ALL: [ColumnKind; 4] = [ColumnKind::Time, ColumnKind::Rate, ColumnKind::Delay, ColumnKind::Loss];

    fn name(self) -> &'static str {
        match self {
            ColumnKind::Time => "time",
            ColumnKind::Rate => "rate",
            ColumnKind::Delay => "delay",
            ColumnKind::Loss => "loss",
        }
    }

    /// Checks that cells of this column can have the unit.
    fn check(self, unit: &str) -> Result<(), QuantityError> {
        let one = format!("1{unit}");
        match self {
            ColumnKind::Time | ColumnKind::Delay => parse_unit_duration(&one).map(drop),
            ColumnKind::Rate => one.parse::<BitRate>().map(drop),
            ColumnKind::Loss => one.parse::<Ratio>().map(drop),
        }
    }
}

fn columns(header: &str, line: usize) -> Result<Vec<Column<'_>>, TraceError> {
    let header_error = |reason: String| TraceError::Header { line, reason };
    let mut columns: Vec<Column> = Vec::new();
    for cell in header.split(',') {
        let column = split(cell).and_then(|(name, unit)| {
            let kind = ColumnKind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))?;
            Some(Column { kind, unit })
        });
        let Some(column) = column else {
            return Err(header_error(format!(
                "unknown column '{}': use time, rate, delay or loss",
                truncate(cell.trim())
            )));
        };
        if !column.unit.is_empty() {
            column.kind.check(column.unit).map_err(|e| header_error(format!("{}: {e}", column.kind.name())))?;
        }
        if columns.iter().any(|other| other.kind == column.kind) {
            return Err(header_error(format!("duplicate column {}", column.kind.name())));
        }
        columns.push(column);
    }
    if columns.len() < 2 { Err(TraceError::NoColumns { line }) } else { Ok(columns) }
}

/// Splits `rate[mbit]` into the name and the unit.
fn split(cell: &str) -> Option<(&str, &str)> {
    let cell = cell.trim();
    match cell.split_once('[') {
        None => Some((cell, "")),
        Some((name, rest)) => Some((name.trim_end(), rest.strip_suffix(']')?.trim())),
    }
}

fn time(columns: &[Column], cells: &[&str], line: usize) -> Result<Duration, TraceError> {
    let bad = |source| TraceError::Cell { line, column: ColumnKind::Time.name(), source };
    let column = columns.iter().zip(cells).find(|(column, _)| column.kind == ColumnKind::Time);
    let text = column.map_or(String::new(), |(column, cell)| column.value(cell));
    let at = parse_unit_duration(&text).map_err(bad)?;
    if at > MAX_TIME { Err(TraceError::TooLong { line }) } else { Ok(at) }
}
