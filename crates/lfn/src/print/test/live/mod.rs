//! What a person at a terminal sees beneath the table while tests run: how the rate went, what held the sender back, the
//! round trips or the losses, and how long it will take; of both directions, where both are under load. The table above
//! stays; these few lines are drawn over themselves when an interval is over and twice a second in between, and are gone
//! when the test is.
//!
//! [`frame`] makes lines of a [`State`] and a size, and is pure. [`Live`] keeps the states and writes escape sequences of
//! ECMA-48 alone. Nothing of the terminal is changed, and the cursor rests at the beginning of the line below, so that
//! nothing has to be put back by whoever kills the command.

mod frame;
mod state;

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lfn_net::tester::{Progress, Test};

use self::frame::Style;
use self::state::State;
use crate::print::terminal;

/// How often the lines are drawn where nothing happens.
const REDRAWN: Duration = Duration::from_millis(500);

/// The lines of running tests, on a terminal.
pub struct Live {
    shared: Arc<Shared>,
    clock: Option<JoinHandle<()>>,
}

struct Shared {
    screen: Mutex<Screen>,
    /// It is over.
    ends: Condvar,
}

struct Screen {
    /// By the number of the test.
    states: Vec<(usize, State)>,
    style: Style,
    /// How wide each line on the screen is.
    drawn: Vec<usize>,
    /// When the lines began to be there.
    began: Instant,
    /// When they were last drawn for what was told.
    told: Instant,
    over: bool,
}

impl Live {
    /// If standard output is a terminal that can show it.
    pub fn new() -> Option<Self> {
        if !terminal::can_redraw() {
            return None;
        }
        let style = Style { colours: terminal::colours(), unicode: terminal::unicode() };
        let screen = Screen {
            states: Vec::new(),
            style,
            drawn: Vec::new(),
            began: Instant::now(),
            told: Instant::now(),
            over: false,
        };
        let shared = Arc::new(Shared { screen: Mutex::new(screen), ends: Condvar::new() });
        let seen = shared.clone();
        // Without it the lines are drawn at intervals only.
        let clock = thread::Builder::new().name("live".into()).spawn(move || seen.redraw()).ok();
        Some(Live { shared, clock })
    }

    /// A test is to begin.
    pub fn begin(&mut self, number: usize, test: &Test) {
        self.shared.lock().states.push((number, State::new(test)));
    }

    /// Something happened in a test: `print` writes above the lines what is to stay.
    pub fn progress(&mut self, number: usize, progress: &Progress<'_>, print: impl FnOnce()) {
        let mut screen = self.shared.lock();
        screen.erase();
        print();
        screen.told = Instant::now();
        let now = screen.began.elapsed();
        screen.states.iter_mut().filter(|(other, _)| *other == number).for_each(|(_, state)| state.take(progress, now));
        screen.draw();
    }

    /// The tests are over: takes the lines off the screen.
    pub fn end(&mut self) {
        let mut screen = self.shared.lock();
        screen.states.clear();
        screen.erase();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.end();
        self.shared.lock().over = true;
        self.shared.ends.notify_all();
        self.clock.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until it is over: time goes on where intervals are long.
    fn redraw(&self) {
        let mut screen = self.lock();
        while !screen.over {
            screen = self.ends.wait_timeout(screen, REDRAWN).unwrap_or_else(PoisonError::into_inner).0;
            if !screen.over && screen.told.elapsed() >= REDRAWN && !screen.states.is_empty() {
                screen.erase();
                screen.draw();
            }
        }
    }
}

impl Screen {
    /// Takes the lines off the screen, and leaves the cursor where the first of them began.
    fn erase(&mut self) {
        if self.drawn.is_empty() {
            return;
        }
        // A terminal that was made narrower has broken them.
        let columns = terminal::size().0.max(1);
        let up: usize = self.drawn.drain(..).map(|width| width.div_ceil(columns).max(1)).sum();
        put(&format!("\r\x1b[{up}A\x1b[J"));
    }

    /// Draws them anew, where there is room.
    fn draw(&mut self) {
        let ((columns, rows), now) = (terminal::size(), self.began.elapsed());
        self.states.iter_mut().for_each(|(_, state)| state.tick(now));
        let states: Vec<&State> = self.states.iter().map(|(_, state)| state).collect();
        let lines = frame::lines(&states, columns.saturating_sub(1), rows, self.style);
        self.drawn = lines.iter().map(|line| frame::visible(line)).collect();
        put(&lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    }
}

fn put(text: &str) {
    if text.is_empty() {
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "its own escape sequences, and no text of others")]
    let mut out = io::stdout().lock();
    // A terminal that is gone shows nothing: the table's own lines tell of it.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
