//! Traces: changes of the rate, the delay or the loss of one direction over time.
//!
//! A trace is text in mahimahi's format or CSV, or is built in. It becomes a set of timetables ([`Timetable`]), so the
//! stages do not know its format. The caller provides the text of a file. Errors have the number of the line. A trace
//! uses the memory of at most [`MAX_STEPS`] steps, however long its text is.

mod built_in;
mod csv;
mod mahimahi;

use std::time::Duration;

pub use built_in::{BUILT_IN, BuiltInTrace};

use super::{Timetable, TimetableError};
use crate::framing::Layer;
use crate::units::{BitRate, QuantityError, Ratio};

/// Timetables of one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkTrace {
    /// Name as given: a built-in name or a file.
    pub name: String,
    pub rate: Option<Timetable<BitRate>>,
    pub delay: Option<Timetable<Duration>>,
    /// Loss of packets, each independently.
    pub loss: Option<Timetable<Ratio>>,
    /// Layer at which the rate is counted, if the format defines one.
    pub layer: Option<Layer>,
}

/// Reason why text is not a trace. Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// No line has content.
    #[error("the trace is empty")]
    Empty,
    /// The text is not in mahimahi's format and not CSV with a header.
    #[error("line 1: '{0}' is not a time in whole milliseconds (mahimahi) or a CSV header such as time[s],rate[mbit]")]
    Format(String),
    /// A time in mahimahi's format is a whole number of milliseconds.
    #[error("line {line}: '{text}' is not a time in whole milliseconds")]
    Millis {
        line: usize,
        /// Beginning of the line.
        text: String,
    },
    /// Times must not decrease. In CSV they must increase.
    #[error("line {line}: the time is not later than on the previous line")]
    Order { line: usize },
    /// A trace that repeats must have a length.
    #[error("line {line}: the trace ends at 0 ms, so it cannot repeat")]
    ZeroLength { line: usize },
    /// The time is unreasonably long; the unit is probably wrong.
    #[error("line {line}: the time is above 7 days")]
    TooLong { line: usize },
    /// The rate exceeds the maximum of a link.
    #[error("line {line}: the deliveries of this millisecond exceed 10 Tb/s")]
    TooFast { line: usize },
    /// Remedy: use a shorter trace, or longer steps.
    #[error("line {line}: more than {MAX_STEPS} steps")]
    TooManySteps {
        /// Line of the first step that exceeds the limit.
        line: usize,
    },
    /// A column is unknown or occurs twice, or the time is missing.
    #[error("line {line}: {reason}")]
    Header {
        /// Line of the header.
        line: usize,
        reason: String,
    },
    /// A row has more or fewer cells than the header.
    #[error("line {line}: {found} cells, but the header has {expected}")]
    Cells {
        line: usize,
        /// Number of cells in this line.
        found: usize,
        /// Number of cells in the header.
        expected: usize,
    },
    /// A cell cannot be read.
    #[error("line {line}: {column}: {source}")]
    Cell { line: usize, column: &'static str, source: QuantityError },
    /// A rate has its unit in the header or in the cell.
    #[error("line {line}: rate: '{cell}' has no unit: write rate[mbit] in the header, or {cell}mbit")]
    RateUnit {
        line: usize,
        /// Text of the cell.
        cell: String,
    },
    /// The first row sets all initial values.
    #[error("line {line}: the first row must be at time 0 and have a value in every column")]
    Start { line: usize },
    /// A row with only a time ends the trace.
    #[error("line {line}: a row after the end of the trace")]
    AfterEnd { line: usize },
    /// The header has no column except the time.
    #[error("line {line}: the only column is the time: add rate, delay or loss")]
    NoColumns {
        /// Line of the header.
        line: usize,
    },
    /// The timetable is refused.
    #[error(transparent)]
    Timetable(#[from] TimetableError),
}

/// Maximum steps of one timetable: 24 MB of memory.
pub const MAX_STEPS: usize = 1_000_000;
/// Maximum length of a trace.
const MAX_TIME: Duration = Duration::from_secs(7 * 86_400);

impl LinkTrace {
    /// Reads a trace in either format.
    ///
    /// ```
    /// # use lfn_core::{link::trace::LinkTrace, units::BitRate};
    /// # use std::time::Duration;
    /// let trace = LinkTrace::parse("steps.csv", "time[s],rate\n0,50mbit\n10,5mbit\n15,\n")?;
    /// let rate = trace.rate.unwrap();
    /// assert_eq!(rate.value_at(Duration::from_secs(12)), BitRate(5_000_000));
    /// assert_eq!(rate.value_at(Duration::from_secs(16)), BitRate(50_000_000));
    /// # Ok::<(), lfn_core::link::trace::TraceError>(())
    /// ```
    pub fn parse(name: &str, text: &str) -> Result<LinkTrace, TraceError> {
        // Spreadsheets write a byte order mark first.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (_, first) = content_lines(text).next().ok_or(TraceError::Empty)?;
        if mahimahi::is_time(first) {
            mahimahi::parse(name, text)
        } else if first.split(',').any(csv::is_time) {
            csv::parse(name, text)
        } else {
            Err(TraceError::Format(truncate(first)))
        }
    }

    /// Returns a built-in trace.
    pub fn built_in(name: &str) -> Option<LinkTrace> {
        BUILT_IN.iter().find(|trace| trace.name == name).map(BuiltInTrace::load)
    }

    /// Writes the trace as CSV, which [`parse`](Self::parse) reads: one row for each step of any timetable. If the
    /// timetables have different periods, the first one is written.
    pub fn to_csv(&self) -> String {
        csv::write(self)
    }

    /// Reports whether the trace has a timetable.
    pub fn is_loaded(&self) -> bool {
        self.rate.is_some() || self.delay.is_some() || self.loss.is_some()
    }

    /// Returns the time after which the trace starts again.
    pub fn period(&self) -> Option<Duration> {
        let rate = self.rate.as_ref().and_then(Timetable::period);
        let delay = || self.delay.as_ref().and_then(Timetable::period);
        let loss = || self.loss.as_ref().and_then(Timetable::period);
        rate.or_else(delay).or_else(loss)
    }

    /// Creates a trace that is read later and has only a name.
    pub fn unloaded(name: &str) -> LinkTrace {
        LinkTrace { name: name.to_owned(), rate: None, delay: None, loss: None, layer: None }
    }
}

/// Returns the lines with content and their numbers; `#` starts a comment.
fn content_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let end_of_content = |line: &'_ str| -> usize { line.find('#').unwrap_or(line.len()) };
    (1..)
        .zip(text.lines())
        .map(move |(number, line)| (number, line[..end_of_content(line)].trim()))
        .filter(|(_, l)| !l.is_empty())
}

/// Limits text for a message: a line of a binary file may be as long as the file.
fn truncate(text: &str) -> String {
    const MAX: usize = 40;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Timetable under construction. Equal steps are merged.
struct StepList<T>(Vec<(Duration, T)>);

impl<T: Copy + PartialEq> StepList<T> {
    fn new() -> Self {
        StepList(Vec::new())
    }

    /// Sets the value from `at` on.
    fn push(&mut self, at: Duration, value: T) {
        if self.0.last().is_none_or(|(_, before)| *before != value) {
            self.0.push((at, value));
        }
    }

    /// Sets the value from `at` on; `line` is for the error.
    fn push_line(&mut self, at: Duration, value: T, line: usize) -> Result<(), TraceError> {
        self.push(at, value);
        if self.0.len() > MAX_STEPS { Err(TraceError::TooManySteps { line }) } else { Ok(()) }
    }

    fn finish(self, period: Option<Duration>) -> Result<Timetable<T>, TraceError> {
        Ok(Timetable::new(self.0, period)?)
    }
}
