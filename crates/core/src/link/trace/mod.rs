//! Traces: how the rate, the delay or the loss of one direction changes with time.
//!
//! A trace comes from text, in mahimahi's format or as CSV, or is one of those built in, and is a set of timetables
//! ([`Varying`]) in the end: the stages know nothing of where they come from. Whoever has the file hands in its text.
//! What makes no sense is refused by the number of its line, and a trace never takes more memory than
//! [`MOST_STEPS`] steps, however long its text.

mod built_in;
mod csv;
mod mahimahi;

use std::time::Duration;

pub use built_in::{BUILT_IN, BuiltIn};

use super::{Varying, VaryingError};
use crate::framing::Layer;
use crate::units::{BitRate, QuantityError, Ratio};

/// Timetables of one direction, each that was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// As it was asked for: a name or a file.
    pub name: String,
    /// Of the line.
    pub rate: Option<Varying<BitRate>>,
    /// One-way.
    pub delay: Option<Varying<Duration>>,
    /// Of packets, each independently of the others.
    pub loss: Option<Varying<Ratio>>,
    /// Where the rate is counted, if the format says so.
    pub layer: Option<Layer>,
}

/// Why text is no trace. Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// Not one line that says anything.
    #[error("an empty trace")]
    Empty,
    /// Neither mahimahi's format nor CSV with a header.
    #[error("line 1: '{0}' is neither a time in whole milliseconds (mahimahi) nor a header such as time[s],rate[mbit]")]
    Format(String),
    /// A time in mahimahi's format is a whole number of milliseconds.
    #[error("line {line}: '{text}' is not a time in whole milliseconds")]
    Millis {
        /// Which.
        line: usize,
        /// All of it.
        text: String,
    },
    /// Times must not go back; in CSV every row has its own.
    #[error("line {line}: its time is not later than that of the line before")]
    Order {
        /// Which.
        line: usize,
    },
    /// A trace that repeats must take time.
    #[error("line {line}: the trace ends at 0 ms: it must take time to be repeated")]
    NoTime {
        /// The last.
        line: usize,
    },
    /// Longer than anyone waits; most likely a wrong unit.
    #[error("line {line}: its time is above 7 days")]
    TooLong {
        /// Which.
        line: usize,
    },
    /// More than a link can be.
    #[error("line {line}: so many deliveries in one millisecond are above 10 Tb/s")]
    TooFast {
        /// Which.
        line: usize,
    },
    /// Give a shorter trace, or one with longer steps.
    #[error("line {line}: more than {MOST_STEPS} steps")]
    TooManySteps {
        /// Where it became too many.
        line: usize,
    },
    /// A column nobody knows, or one that is there twice, or none of the time.
    #[error("line {line}: {reason}")]
    Header {
        /// Of the header.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A row with more or fewer cells than the header.
    #[error("line {line}: {found} cells where the header has {wanted}")]
    Cells {
        /// Which.
        line: usize,
        /// In this line.
        found: usize,
        /// In the header.
        wanted: usize,
    },
    /// A cell that cannot be read.
    #[error("line {line}: {column}: {source}")]
    Cell {
        /// Which.
        line: usize,
        /// Its column.
        column: &'static str,
        /// What is wrong.
        source: QuantityError,
    },
    /// The first row says how everything begins.
    #[error("line {line}: the first row must be at time 0 and have a value in every column")]
    Start {
        /// Which.
        line: usize,
    },
    /// A time without values ends the trace: nothing may follow.
    #[error("line {line}: a row after the one that ended the trace")]
    AfterEnd {
        /// Which.
        line: usize,
    },
    /// No other column than the time.
    #[error("line {line}: no column but the time: add rate, delay or loss")]
    NoColumns {
        /// Of the header.
        line: usize,
    },
    /// The timetable contradicts itself.
    #[error(transparent)]
    Timetable(#[from] VaryingError),
}

/// Most steps of one timetable: 24 MB of memory.
pub const MOST_STEPS: usize = 1_000_000;
/// Most time a trace may take.
const MOST_TIME: Duration = Duration::from_secs(7 * 86_400);

impl Trace {
    /// Reads a trace in either format.
    ///
    /// ```
    /// # use lfn_core::{link::trace::Trace, units::BitRate};
    /// # use std::time::Duration;
    /// let trace = Trace::parse("steps.csv", "time[s],rate\n0,50mbit\n10,5mbit\n15,\n")?;
    /// let rate = trace.rate.unwrap();
    /// assert_eq!(rate.at(Duration::from_secs(12)), BitRate(5_000_000));
    /// assert_eq!(rate.at(Duration::from_secs(16)), BitRate(50_000_000));
    /// # Ok::<(), lfn_core::link::trace::TraceError>(())
    /// ```
    pub fn parse(name: &str, text: &str) -> Result<Trace, TraceError> {
        // Spreadsheets put a byte order mark in front.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (_, first) = lines(text).next().ok_or(TraceError::Empty)?;
        if mahimahi::is_time(first) {
            mahimahi::parse(name, text)
        } else if first.split(',').any(csv::is_time) {
            csv::parse(name, text)
        } else {
            Err(TraceError::Format(shortened(first)))
        }
    }

    /// One that is built in.
    pub fn built_in(name: &str) -> Option<Trace> {
        BUILT_IN.iter().find(|trace| trace.name == name).map(BuiltIn::make)
    }

    /// The same as CSV, which [`parse`](Self::parse) reads back: a row for each step of any timetable. If they start over
    /// at different times, the first decides.
    pub fn to_csv(&self) -> String {
        csv::write(self)
    }

    /// Whether it has a timetable of anything.
    pub fn is_read(&self) -> bool {
        self.rate.is_some() || self.delay.is_some() || self.loss.is_some()
    }

    /// When it starts over, if it does.
    pub fn period(&self) -> Option<Duration> {
        let rate = self.rate.as_ref().and_then(Varying::period);
        let delay = || self.delay.as_ref().and_then(Varying::period);
        let loss = || self.loss.as_ref().and_then(Varying::period);
        rate.or_else(delay).or_else(loss)
    }

    /// One that is still to be read: nothing but its name.
    pub fn named(name: &str) -> Trace {
        Trace { name: name.to_owned(), rate: None, delay: None, loss: None, layer: None }
    }
}

/// Lines that say something, with their numbers; `#` begins a comment.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let said = |line: &'_ str| -> usize { line.find('#').unwrap_or(line.len()) };
    (1..)
        .zip(text.lines())
        .map(move |(number, line)| (number, line[..said(line)].trim()))
        .filter(|(_, l)| !l.is_empty())
}

/// For a message: a line of a binary file may be as long as the file.
fn shortened(text: &str) -> String {
    const MOST: usize = 40;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A timetable as it grows: equal steps are one.
struct Steps<T>(Vec<(Duration, T)>);

impl<T: Copy + PartialEq> Steps<T> {
    fn new() -> Self {
        Steps(Vec::new())
    }

    /// From `at` on.
    fn push(&mut self, at: Duration, value: T) {
        if self.0.last().is_none_or(|(_, before)| *before != value) {
            self.0.push((at, value));
        }
    }

    /// The same, where line `line` says so.
    fn push_line(&mut self, at: Duration, value: T, line: usize) -> Result<(), TraceError> {
        self.push(at, value);
        if self.0.len() > MOST_STEPS { Err(TraceError::TooManySteps { line }) } else { Ok(()) }
    }

    fn finish(self, period: Option<Duration>) -> Result<Varying<T>, TraceError> {
        Ok(Varying::new(self.0, period)?)
    }
}
