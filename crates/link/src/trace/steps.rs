//! Parts of all readers: lines with content, and timetables under construction.

use std::time::Duration;

use super::link_trace::{MAX_STEPS, TraceError};
use crate::timetable::Timetable;

/// Returns the lines with content and their numbers; `#` starts a comment.
pub(super) fn content_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let end_of_content = |line: &'_ str| -> usize { line.find('#').unwrap_or(line.len()) };
    (1..)
        .zip(text.lines())
        .map(move |(number, line)| (number, line[..end_of_content(line)].trim()))
        .filter(|(_, l)| !l.is_empty())
}

/// Limits text for a message: a line of a binary file may be as long as the file.
pub(super) fn truncate(text: &str) -> String {
    const MAX: usize = 40;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Timetable under construction. Equal steps are merged.
pub(super) struct StepList<T>(Vec<(Duration, T)>);

impl<T: Copy + PartialEq> StepList<T> {
    pub(super) fn new() -> Self {
        StepList(Vec::new())
    }

    /// Sets the value from `at` on.
    pub(super) fn push(&mut self, at: Duration, value: T) {
        if self.0.last().is_none_or(|(_, before)| *before != value) {
            self.0.push((at, value));
        }
    }

    /// Sets the value from `at` on; `line` is for the error.
    pub(super) fn push_line(&mut self, at: Duration, value: T, line: usize) -> Result<(), TraceError> {
        self.push(at, value);
        if self.0.len() > MAX_STEPS { Err(TraceError::TooManySteps { line }) } else { Ok(()) }
    }

    pub(super) fn finish(self, period: Option<Duration>) -> Result<Timetable<T>, TraceError> {
        Ok(Timetable::new(self.0, period)?)
    }
}
