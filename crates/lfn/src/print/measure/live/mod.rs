//! Live display below the table: the rate, the limits of the sender, round trips or losses, and the remaining time; for
//! both directions if both have a load. The lines are redrawn after each interval and twice a second. They are erased
//! at the end of the test.
//!
//! [`frame`] is pure: it makes lines from a [`TestState`] and a size. [`LiveDisplay`] keeps the states and writes
//! escape sequences of ECMA-48. The terminal's settings stay unchanged and the cursor rests at the start of the next
//! line, so a killed command leaves a working terminal.

mod frame;
mod state;

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lfn_measure::tester::{Test, TestProgress};

use self::frame::Style;
use self::state::TestState;
use crate::print::terminal;

/// Maximum time between two redraws.
const REDRAW_INTERVAL: Duration = Duration::from_millis(500);

/// Live display of running tests on a terminal.
pub struct LiveDisplay {
    shared: Arc<Shared>,
    clock: Option<JoinHandle<()>>,
}

struct Shared {
    screen: Mutex<Screen>,
    /// Signals the end of the tests.
    ends: Condvar,
}

struct Screen {
    /// Number and state of each test.
    states: Vec<(usize, TestState)>,
    style: Style,
    /// Width of each line on the screen.
    drawn: Vec<usize>,
    /// Start of the display.
    began: Instant,
    /// Time of the last event.
    last_event: Instant,
    is_over: bool,
}

impl LiveDisplay {
    /// Creates a display if standard output is a terminal that can show it.
    pub fn new() -> Option<Self> {
        if !terminal::can_redraw() {
            return None;
        }
        let style = Style { colours: terminal::use_colours(), unicode: terminal::use_unicode() };
        let screen = Screen {
            states: Vec::new(),
            style,
            drawn: Vec::new(),
            began: Instant::now(),
            last_event: Instant::now(),
            is_over: false,
        };
        let shared = Arc::new(Shared { screen: Mutex::new(screen), ends: Condvar::new() });
        let seen = shared.clone();
        // Without this thread the lines are drawn only after events.
        let clock = thread::Builder::new().name("live".into()).spawn(move || seen.redraw()).ok();
        Some(LiveDisplay { shared, clock })
    }

    /// Adds a test that starts.
    pub fn begin(&mut self, number: usize, test: &Test) {
        self.shared.lock().states.push((number, TestState::new(test)));
    }

    /// Updates a test after an event. `print` writes lines above the display.
    pub fn progress(&mut self, number: usize, progress: &TestProgress<'_>, print: impl FnOnce()) {
        let mut screen = self.shared.lock();
        screen.erase();
        print();
        screen.last_event = Instant::now();
        let now = screen.began.elapsed();
        screen
            .states
            .iter_mut()
            .filter(|(other, _)| *other == number)
            .for_each(|(_, state)| state.update(progress, now));
        screen.draw();
    }

    /// Removes the display, because the tests are over.
    pub fn end(&mut self) {
        let mut screen = self.shared.lock();
        screen.states.clear();
        screen.erase();
    }
}

impl Drop for LiveDisplay {
    fn drop(&mut self) {
        self.end();
        self.shared.lock().is_over = true;
        self.shared.ends.notify_all();
        self.clock.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Redraws the display until the tests are over, because intervals may be long.
    fn redraw(&self) {
        let mut screen = self.lock();
        while !screen.is_over {
            screen = self.ends.wait_timeout(screen, REDRAW_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
            if !screen.is_over && screen.last_event.elapsed() >= REDRAW_INTERVAL && !screen.states.is_empty() {
                screen.erase();
                screen.draw();
            }
        }
    }
}

impl Screen {
    /// Erases the lines and moves the cursor to the start of the first one.
    fn erase(&mut self) {
        if self.drawn.is_empty() {
            return;
        }
        // A terminal that became narrower has wrapped the lines.
        let columns = terminal::size().0.max(1);
        let up: usize = self.drawn.drain(..).map(|width| width.div_ceil(columns).max(1)).sum();
        write_screen(&format!("\r\x1b[{up}A\x1b[J"));
    }

    /// Draws the lines that fit.
    fn draw(&mut self) {
        let ((columns, rows), now) = (terminal::size(), self.began.elapsed());
        self.states.iter_mut().for_each(|(_, state)| state.tick(now));
        let states: Vec<&TestState> = self.states.iter().map(|(_, state)| state).collect();
        let lines = frame::lines(&states, columns.saturating_sub(1), rows, self.style);
        self.drawn = lines.iter().map(|line| frame::visible(line)).collect();
        write_screen(&lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    }
}

fn write_screen(text: &str) {
    if text.is_empty() {
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "its own escape sequences, and no text of others")]
    let mut out = io::stdout().lock();
    // A closed terminal shows nothing; the table reports the error.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
