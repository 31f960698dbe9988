//! Trace that was read: its timetables, and the errors of reading.

use std::time::Duration;

use lfn_base::framing::Layer;
use lfn_base::units::{BitRate, QuantityError, Ratio};

use crate::timetable::{Timetable, TimetableError};

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
pub(super) const MAX_TIME: Duration = Duration::from_secs(7 * 86_400);

impl LinkTrace {
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
