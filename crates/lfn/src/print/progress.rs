//! Progress of a running command: one model with its printers.
//!
//! A command keeps its [`Figures`] in a [`Progress`] and changes them with each event. The printer shows them: redrawn on
//! a terminal (with `indicatif`), or as lines of text. A command that prints lines of JSON takes its times from an
//! [`IntervalTimer`] too.
//!
//! The terminal's settings stay unchanged, so a killed command leaves a working terminal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use parking_lot::Mutex;

use crate::print::{self, terminal};

/// Interval of lines of text.
pub const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum time between two drawings of figures that change without events.
const REDRAW_INTERVAL: Duration = Duration::from_millis(500);

/// Template of indicatif that has only the key of the figures.
const TEMPLATE: &str = "{figures}";

/// Figures of a running command, in the form of each printer.
pub trait Figures: Send + 'static {
    /// Returns the lines for a terminal of this size, `now` after the start.
    fn lines(&mut self, now: Duration, columns: usize, rows: usize) -> Vec<String>;

    /// Returns one line without a bar, for output that is no terminal. `None` if there is nothing to report.
    fn plain(&self) -> Option<String> {
        None
    }
}

/// ProgressPrinter of the progress.
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
    /// Returns the printer for stderr, if it is a terminal.
    pub fn stderr() -> Self {
        if terminal::stderr_is_terminal() { ProgressPrinter::Terminal } else { ProgressPrinter::Hidden }
    }
}

/// Progress of one command. Clones show the same figures.
#[derive(Debug)]
pub struct Progress<F> {
    state: Arc<Mutex<State<F>>>,
    printer: ProgressPrinter,
    bar: ProgressBar,
    began: Instant,
}

#[derive(Debug)]
struct State<F> {
    figures: F,
    lines: IntervalTimer,
}

impl<F> Clone for Progress<F> {
    fn clone(&self) -> Self {
        Progress { state: Arc::clone(&self.state), printer: self.printer, bar: self.bar.clone(), began: self.began }
    }
}

impl<F: Figures> Progress<F> {
    /// Creates the progress of a command that starts now. The first call of [`Progress::show`] prints it.
    pub fn new(figures: F, printer: ProgressPrinter) -> Self {
        let state = Arc::new(Mutex::new(State { figures, lines: IntervalTimer::new(LINE_INTERVAL) }));
        let (target, size): (_, fn() -> (usize, usize)) = match printer {
            ProgressPrinter::Terminal => (ProgressDrawTarget::stderr(), terminal::stderr_size),
            ProgressPrinter::ResultTerminal => (ProgressDrawTarget::stdout(), terminal::stdout_size),
            ProgressPrinter::Lines | ProgressPrinter::Hidden => (ProgressDrawTarget::hidden(), terminal::stderr_size),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let (shown, began) = (Arc::clone(&state), Instant::now());
        let figures = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
            let (columns, rows) = size();
            let lines = shown.lock().figures.lines(began.elapsed(), columns, rows);
            // The buffer of indicatif takes all text.
            let _ = out.write_str(&lines.join("\n"));
        };
        // The template is a tested constant.
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.with_key("figures", figures));
        }
        Progress { state, printer, bar, began }
    }

    /// Draws the figures at a fixed interval too, because they change without events.
    pub fn redraw_at_intervals(&self) {
        if self.is_drawn() {
            self.bar.enable_steady_tick(REDRAW_INTERVAL);
        }
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the printer of the progress.
    pub fn printer(&self) -> ProgressPrinter {
        self.printer
    }

    /// Reports whether a terminal shows the figures.
    pub fn is_drawn(&self) -> bool {
        matches!(self.printer, ProgressPrinter::Terminal | ProgressPrinter::ResultTerminal)
    }

    /// Changes the figures. The change is visible at the next drawing.
    pub fn update<R>(&self, change: impl FnOnce(&mut F) -> R) -> R {
        change(&mut self.state.lock().figures)
    }

    /// Shows the figures: draws them, or prints a line if one is due.
    pub fn show(&self) {
        self.show_at(self.began.elapsed());
    }

    /// Does the same as [`Progress::show`] with figures of the time `now` after the start.
    pub fn show_at(&self, now: Duration) {
        match self.printer {
            ProgressPrinter::Terminal | ProgressPrinter::ResultTerminal => self.bar.tick(),
            ProgressPrinter::Lines => {
                let mut state = self.state.lock();
                let line = state.figures.plain();
                if let Some(line) = line.filter(|_| state.lines.is_due(now)) {
                    print::error(format_args!("{line}\n"));
                }
            }
            ProgressPrinter::Hidden => {}
        }
    }

    /// Prints other lines. Drawn figures make room for them.
    pub fn print<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }

    /// Erases the figures from the terminal.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Erases the figures from the terminal, or prints the last line of text.
    pub fn finish_with_line(&self) {
        self.finish();
        if self.printer == ProgressPrinter::Lines
            && let Some(line) = self.update(|figures| figures.plain())
        {
            print::error(format_args!("{line}\n"));
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
    fn template_is_valid() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
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
