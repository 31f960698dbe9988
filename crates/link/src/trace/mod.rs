//! Traces: changes of the rate, the delay or the loss of one direction over time.
//!
//! A trace is text in mahimahi's format or CSV, or is built in. It becomes a set of timetables ([`Timetable`](super::timetable::Timetable)), so the
//! stages do not know its format. The caller provides the text of a file. Errors have the number of the line. A trace
//! uses the memory of at most [`MAX_STEPS`] steps, however long its text is.

mod built_in;
mod csv;
mod link_trace;
mod mahimahi;
mod steps;

pub use built_in::{BUILT_IN, BuiltInTrace};
pub use link_trace::{LinkTrace, MAX_STEPS, TraceError};
use steps::{content_lines, truncate};

impl LinkTrace {
    /// Reads a trace in either format.
    ///
    /// ```
    /// # use lfn_base::units::BitRate;
    /// # use lfn_link::trace::LinkTrace;
    /// # use std::time::Duration;
    /// let trace = LinkTrace::parse("steps.csv", "time[s],rate\n0,50mbit\n10,5mbit\n15,\n")?;
    /// let rate = trace.rate.unwrap();
    /// assert_eq!(rate.value_at(Duration::from_secs(12)), BitRate(5_000_000));
    /// assert_eq!(rate.value_at(Duration::from_secs(16)), BitRate(50_000_000));
    /// # Ok::<(), lfn_link::trace::TraceError>(())
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
}
