//! Progress of a running command: one model with its printers.
//!
//! A command keeps its [`Figures`] in a [`Progress`] and changes them with each event. The printer shows them: redrawn
//! on a terminal, or as lines of text. A command that prints lines of JSON takes its times from an
//! [`IntervalTimer`] too.
//!
//! The terminal's settings stay unchanged, so a killed command leaves a working terminal.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::print::{self, terminal};

/// Interval of lines of text.
pub const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum time between two drawings of figures that change without events.
pub const REDRAW_INTERVAL: Duration = Duration::from_millis(500);

/// Minimum time between two drawings.
const MIN_REDRAW_INTERVAL: Duration = Duration::from_millis(50);

/// Figures of a running command, in the form of each printer.
pub trait Figures: Send + 'static {
    /// Returns the lines for a terminal of this size, `now` after the start.
    fn lines(&mut self, now: Duration, columns: usize, rows: usize) -> Vec<String>;

    /// Returns one line without a bar, for output that is no terminal. `None` if there is nothing to report.
    fn plain(&self) -> Option<String> {
        None
    }
}

/// Printer of the progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressPrinter {
    /// Lines on stderr that are redrawn.
    Terminal,
    /// Lines on standard output that are redrawn, below the lines of the result.
    ResultTerminal,
    /// A new line on stderr after each [`LINE_INTERVAL`].
    Lines,
    /// The progress is not shown.
    Hidden,
}

impl ProgressPrinter {
    /// Returns the printer for stderr, if it is a terminal that can move its cursor.
    pub fn stderr() -> Self {
        if terminal::can_redraw_stderr() { ProgressPrinter::Terminal } else { ProgressPrinter::Hidden }
    }

    fn is_drawn(self) -> bool {
        matches!(self, ProgressPrinter::Terminal | ProgressPrinter::ResultTerminal)
    }
}

/// Progress of one command. Clones show the same figures.
#[derive(Debug)]
pub struct Progress<F: Figures> {
    shared: Arc<Shared<F>>,
}

/// State of the clones and of the thread that redraws. `drawn` is locked before `figures`.
#[derive(Debug)]
struct Shared<F: Figures> {
    printer: ProgressPrinter,
    began: Instant,
    figures: Mutex<F>,
    lines: Mutex<IntervalTimer>,
    drawn: Mutex<Drawn>,
}

impl<F: Figures> Clone for Progress<F> {
    fn clone(&self) -> Self {
        Progress { shared: Arc::clone(&self.shared) }
    }
}

impl<F: Figures> Progress<F> {
    /// Creates the progress of a command that starts now. The first call of [`Progress::show`] prints it.
    pub fn new(figures: F, printer: ProgressPrinter) -> Self {
        let shared = Shared {
            printer,
            began: Instant::now(),
            figures: Mutex::new(figures),
            lines: Mutex::new(IntervalTimer::new(LINE_INTERVAL)),
            drawn: Mutex::default(),
        };
        Progress { shared: Arc::new(shared) }
    }

    /// Draws the figures at a fixed interval too, because they change without events.
    pub fn redraw_at_intervals(&self) {
        if !self.is_drawn() || std::mem::replace(&mut self.shared.drawn.lock().has_thread, true) {
            return;
        }
        let shared = Arc::downgrade(&self.shared);
        thread::spawn(move || {
            loop {
                thread::sleep(REDRAW_INTERVAL);
                let Some(shared) = shared.upgrade().filter(|shared| !shared.drawn.lock().is_finished) else { return };
                shared.draw();
            }
        });
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.shared.began.elapsed()
    }

    /// Returns the printer of the progress.
    pub fn printer(&self) -> ProgressPrinter {
        self.shared.printer
    }

    /// Reports whether a terminal shows the figures.
    pub fn is_drawn(&self) -> bool {
        self.shared.printer.is_drawn()
    }

    /// Changes the figures. The change is visible at the next drawing.
    pub fn update<R>(&self, change: impl FnOnce(&mut F) -> R) -> R {
        change(&mut self.shared.figures.lock())
    }

    /// Shows the figures: draws them, or prints a line if one is due.
    pub fn show(&self) {
        self.show_at(self.elapsed());
    }

    /// Does the same as [`Progress::show`] with figures of the time `now` after the start.
    pub fn show_at(&self, now: Duration) {
        match self.printer() {
            ProgressPrinter::Terminal | ProgressPrinter::ResultTerminal => self.shared.draw(),
            ProgressPrinter::Lines => {
                let line = self.update(|figures| figures.plain());
                if let Some(line) = line.filter(|_| self.shared.lines.lock().is_due(now)) {
                    print::error(format_args!("{line}\n"));
                }
            }
            ProgressPrinter::Hidden => {}
        }
    }

    /// Prints other lines. Drawn figures make room for them.
    pub fn print<R>(&self, print: impl FnOnce() -> R) -> R {
        let mut drawn = self.shared.drawn.lock();
        self.shared.write(&drawn.erase());
        let printed = print();
        self.shared.draw_now(&mut drawn);
        printed
    }

    /// Erases the figures from the terminal.
    pub fn finish(&self) {
        self.shared.finish();
    }

    /// Erases the figures from the terminal, or prints the last line of text.
    pub fn finish_with_line(&self) {
        self.finish();
        if self.printer() == ProgressPrinter::Lines
            && let Some(line) = self.update(|figures| figures.plain())
        {
            print::error(format_args!("{line}\n"));
        }
    }
}

impl<F: Figures> Shared<F> {
    /// Draws the figures, unless they were drawn just now.
    fn draw(&self) {
        let mut drawn = self.drawn.lock();
        if drawn.at.is_none_or(|at| at.elapsed() >= MIN_REDRAW_INTERVAL) {
            self.draw_now(&mut drawn);
        }
    }

    fn draw_now(&self, drawn: &mut Drawn) {
        if drawn.is_finished || !self.printer.is_drawn() {
            return;
        }
        let (columns, rows) =
            if self.printer == ProgressPrinter::Terminal { terminal::stderr_size() } else { terminal::stdout_size() };
        let lines = self.figures.lock().lines(self.began.elapsed(), columns, rows);
        self.write(&drawn.replace(&lines));
        drawn.at = Some(Instant::now());
    }

    fn finish(&self) {
        let mut drawn = self.drawn.lock();
        self.write(&drawn.erase());
        drawn.is_finished = true;
    }

    /// Writes to the terminal. Figures on a terminal that is gone are no error of the command.
    fn write(&self, text: &str) {
        match self.printer {
            ProgressPrinter::Terminal => print::draw_stderr(text),
            ProgressPrinter::ResultTerminal => print::draw_stdout(text),
            ProgressPrinter::Lines | ProgressPrinter::Hidden => {}
        }
    }
}

impl<F: Figures> Drop for Shared<F> {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Lines on the terminal. The cursor is at the start of the first line, so that the echo of a key moves no line, and a
/// program on the same terminal writes over the line.
#[derive(Debug, Default)]
struct Drawn {
    lines: usize,
    at: Option<Instant>,
    /// A thread redraws the figures.
    has_thread: bool,
    is_finished: bool,
}

impl Drawn {
    /// Returns the text that replaces the drawn lines by these. A single line also replaces the text of other programs
    /// in its row.
    fn replace(&mut self, lines: &[String]) -> String {
        if let ([line], 0 | 1) = (lines, self.lines) {
            self.lines = 1;
            return format!("\r{line}\x1b[K\r");
        }
        let erase = self.erase();
        self.lines = lines.len();
        match lines.len() {
            0 => erase,
            1 => format!("{erase}{}\r", lines[0]),
            more => format!("{erase}{}\r\x1b[{}A", lines.join("\r\n"), more - 1),
        }
    }

    /// Returns the text that erases the drawn lines. It erases nothing below a single line.
    fn erase(&mut self) -> String {
        match std::mem::take(&mut self.lines) {
            0 => String::new(),
            1 => "\r\x1b[K".to_owned(),
            _ => "\r\x1b[J".to_owned(),
        }
    }
}

/// Decides when a line is due: at once, and then after each interval.
#[derive(Debug)]
pub struct IntervalTimer {
    interval: Duration,
    last: Option<Duration>,
}

impl IntervalTimer {
    /// Creates a timer that is due at once.
    pub fn new(interval: Duration) -> Self {
        IntervalTimer { interval, last: None }
    }

    /// Reports whether a line is due at `now`, and starts the next interval if it is.
    pub fn is_due(&mut self, now: Duration) -> bool {
        let is_due = self.last.is_none_or(|last| now >= last + self.interval);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}

/// Returns a bar: blocks, or in ASCII hash signs. `share` is between 0 and 1.
pub fn bar(share: f64, columns: usize, unicode: bool) -> String {
    let full = ((share * columns as f64) as usize).min(columns);
    let [done, open] = if unicode { ["█", "░"] } else { ["#", "-"] };
    done.repeat(full) + &open.repeat(columns - full)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count(u64);

    impl Figures for Count {
        fn lines(&mut self, _: Duration, _: usize, _: usize) -> Vec<String> {
            vec![self.0.to_string()]
        }
    }

    #[test]
    fn lines_are_replaced_and_erased_in_place() {
        let mut drawn = Drawn::default();
        assert_eq!(drawn.erase(), "");
        assert_eq!(drawn.replace(&["a".into(), "b".into()]), "a\r\nb\r\x1b[1A");
        assert_eq!(drawn.replace(&["c".into()]), "\r\x1b[Jc\r");
        assert_eq!(drawn.replace(&["d".into()]), "\rd\x1b[K\r");
        assert_eq!(drawn.erase(), "\r\x1b[K");
        assert_eq!(drawn.erase(), "");
    }

    #[test]
    fn a_line_is_due_at_once_and_after_each_interval() {
        let mut timer = IntervalTimer::new(LINE_INTERVAL);
        let due: Vec<u64> = (3..20).filter(|second| timer.is_due(Duration::from_secs(*second))).collect();
        assert_eq!(due, [3, 8, 13, 18]);
    }

    #[test]
    fn clones_share_the_figures_of_any_printer() {
        for printer in [
            ProgressPrinter::Terminal,
            ProgressPrinter::ResultTerminal,
            ProgressPrinter::Lines,
            ProgressPrinter::Hidden,
        ] {
            let progress = Progress::new(Count(0), printer);
            let other = progress.clone();
            other.update(|count| count.0 += 1);
            assert_eq!(progress.print(|| progress.update(|count| count.0)), 1);
        }
    }

    #[test]
    fn a_bar_has_the_width_and_the_share() {
        for (share, text) in [(0.0, "----"), (0.5, "##--"), (0.99, "###-"), (1.0, "####"), (1.5, "####")] {
            assert_eq!(bar(share, 4, false), text);
        }
        assert_eq!(bar(0.5, 4, true), "██░░");
    }
}
