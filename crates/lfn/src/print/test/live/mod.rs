//! Live display below the table: the rate, the limits of the sender, round trips or losses, and the remaining time; for
//! both directions if both have a load. The lines are redrawn after each interval and twice a second. They are erased
//! at the end of the test.
//!
//! [`frame`] is pure: it makes lines from a [`TestState`] and a size.

mod frame;
mod state;

use std::time::Duration;

use lfn_measure::tester::{Test, TestProgress};

use self::frame::Style;
use self::state::TestState;
use crate::print::progress::{Figures, Progress, ProgressPrinter};
use crate::print::terminal;

/// Live display of running tests on a terminal.
pub struct LiveDisplay {
    /// Progress of the tests that run now.
    running: Option<Progress<RunningTests>>,
}

/// States of the running tests.
struct RunningTests {
    /// Number and state of each test.
    states: Vec<(usize, TestState)>,
    style: Style,
}

impl LiveDisplay {
    /// Creates a display if standard output is a terminal that can show it.
    pub fn new() -> Option<Self> {
        terminal::can_redraw().then_some(LiveDisplay { running: None })
    }

    /// Adds a test that starts.
    pub fn begin(&mut self, number: usize, test: &Test) {
        let progress = self.running.get_or_insert_with(|| {
            let style = Style { colours: terminal::use_colours(), unicode: terminal::use_unicode() };
            let tests = RunningTests { states: Vec::new(), style };
            Progress::new(tests, ProgressPrinter::ResultTerminal)
        });
        progress.update(|tests| tests.states.push((number, TestState::new(test))));
    }

    /// Updates a test after an event. `print` writes lines above the display.
    pub fn progress(&mut self, number: usize, event: &TestProgress<'_>, print: impl FnOnce()) {
        let Some(progress) = &self.running else { return print() };
        let now = progress.elapsed();
        progress.update(|tests| {
            let states = tests.states.iter_mut().filter(|(other, _)| *other == number);
            states.for_each(|(_, state)| state.update(event, now));
        });
        progress.print(print);
        if matches!(event, TestProgress::Connected(..)) {
            // Intervals may be long, and the time advances.
            progress.redraw_at_intervals();
        }
    }

    /// Removes the display, because the tests are over.
    pub fn end(&mut self) {
        if let Some(progress) = self.running.take() {
            progress.finish();
        }
    }
}

impl Drop for LiveDisplay {
    fn drop(&mut self) {
        self.end();
    }
}

impl Figures for RunningTests {
    fn lines(&mut self, now: Duration, columns: usize, rows: usize) -> Vec<String> {
        self.states.iter_mut().for_each(|(_, state)| state.tick(now));
        let states: Vec<&TestState> = self.states.iter().map(|(_, state)| state).collect();
        frame::lines(&states, columns.saturating_sub(1), rows, self.style)
    }
}
