//! Progress of a sweep: one line on stderr for each finished run, or one JSON line on standard output.

use std::io::{self, Write};
use std::time::Duration;

use lfn_api::sweep::SweepProgress;
use lfn_api::test::TestEvent;
use lfn_base::units::{Bytes, show_duration};
use lfn_campaign::document::SweepEvent;
use lfn_campaign::factor::phrases;
use lfn_campaign::run::SweepRun;
use lfn_measure::tester::TestProgress;

use crate::print::output::OutputFormat;
use crate::print::{self, counted, terminal};

/// Printer of the progress.
pub struct SweepPrinter {
    format: OutputFormat,
    /// The line of the running test is redrawn, because stderr is a terminal.
    redraws: bool,
    /// Settings of the running test.
    running: String,
    /// A line without its end is on the terminal.
    is_drawn: bool,
}

impl SweepPrinter {
    /// Creates a printer of the progress.
    pub fn new(format: OutputFormat) -> Self {
        SweepPrinter { format, redraws: terminal::can_redraw_stderr(), running: String::new(), is_drawn: false }
    }

    /// Prints the progress of an event.
    pub fn progress(&mut self, progress: &SweepProgress<'_>) -> io::Result<()> {
        match progress {
            SweepProgress::Line(event) if self.format == OutputFormat::Ndjson => {
                let mut out = print::json();
                serde_json::to_writer(&mut out, event)?;
                writeln!(out)?;
                out.flush()?;
            }
            SweepProgress::Line(event) => self.line_of(event),
            SweepProgress::LineRemoved(file) => {
                self.line(&format!("{}: the incomplete last line was removed; its run is repeated", file.display()));
            }
            SweepProgress::Begin { levels, .. } => {
                self.running = phrases(levels);
                self.draw("");
            }
            SweepProgress::Test(TestEvent::Progress { progress, .. }) => {
                if let TestProgress::Near(interval) | TestProgress::Far(interval) = progress {
                    let time = interval.end.saturating_sub(interval.start);
                    self.draw(&format!(": {}", Bytes(interval.bytes).per(time)));
                }
            }
            SweepProgress::Test(_) => {}
        }
        Ok(())
    }

    /// Ends the progress before the result.
    pub fn finish(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            print::draw_stderr("\r\x1b[K");
        }
    }

    fn line_of(&mut self, event: &SweepEvent) {
        match event {
            SweepEvent::Start { seed, points, resumed_runs, .. } => {
                let resumed = match *resumed_runs {
                    0 => String::new(),
                    runs => format!(", {} finished", counted(runs as u64, "run")),
                };
                self.line(&format!("{}, seed {seed}{resumed}", counted(*points as u64, "point")));
            }
            SweepEvent::Run { run, finished, remaining_runs, remaining } => {
                let left = match *remaining_runs {
                    0 => "no run remains".to_owned(),
                    1 => format!("1 run remains, ETA {}", show_duration(whole_seconds(*remaining))),
                    more => format!("{more} runs remain, ETA {}", show_duration(whole_seconds(*remaining))),
                };
                let text = format!("run {finished}: {}: {}; {left}", self.running, figures(run));
                self.line(&text);
            }
            SweepEvent::Retry { error, wait, .. } => {
                let wait = show_duration(whole_seconds(*wait));
                let text = format!("{}: {error}; next run in {wait}", self.running);
                self.line(&text);
            }
            SweepEvent::GiveUp { error, .. } => {
                let text = format!("{}: {error}; no more runs of this point", self.running);
                self.line(&text);
            }
            SweepEvent::End { .. } => {}
        }
    }

    fn line(&mut self, text: &str) {
        self.finish();
        print::message(format_args!("lfn: {text}\n"));
    }

    fn draw(&mut self, figure: &str) {
        if self.redraws {
            let text: String =
                format!("{}{figure}", self.running).chars().take(terminal::stderr_columns() - 1).collect();
            print::draw_stderr(format_args!("\r{text}\x1b[K"));
            self.is_drawn = true;
        }
    }
}

fn figures(run: &SweepRun) -> String {
    match run.predicted {
        Some(predicted) => format!("{} (predicted {predicted})", run.goodput),
        None => run.goodput.to_string(),
    }
}

fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs_f64().round() as u64)
}
