//! Progress of a copy: on a terminal one line that is redrawn ([`ProgressLine`]), lines of JSON or of text on request,
//! and otherwise only necessary messages.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lfn_api::documents::{CopyProgressFigures, CopyProgressLine};
use lfn_api::prediction::{CopyPrediction, Predictor};
use lfn_base::units::{BitRate, Bytes, show_duration};
use lfn_copy::{ConnectionEvent, CopyOutcome, ListedTotals};
use lfn_results::diagnose::bottleneck::{CopyBottleneck, CurrentProgress};
use lfn_results::evidence::ProgressSample;
use lfn_session::wire::copy::entry::Name;
use lfn_session::wire::copy::stream_change::StreamChange;

use super::progress_line::{CopyState, ProgressLine};
use crate::exit::without_error_number;
use crate::print::settings::is_quiet;
use crate::print::{self, terminal};

/// Columns of a terminal with an unknown width.
const DEFAULT_COLUMNS: usize = 80;

/// Interval of the progress lines in JSON.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of the progress lines in text.
const TEXT_INTERVAL: Duration = Duration::from_secs(5);

/// Minimum time without arrivals that is shown. Shorter pauses are normal.
const MIN_STALL: Duration = Duration::from_secs(3);

/// Form of the progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgressMode {
    /// Lines of JSON go to stdout.
    pub ndjson: bool,
    /// The user asked for progress: with `--quiet` too, and without a terminal as lines of text on stderr.
    pub requested: bool,
}

/// Display of a running copy.
pub struct CopyProgress<'a> {
    bar: ProgressBar,
    /// Line that was drawn last.
    line: RefCell<Option<ProgressLine>>,
    mode: ProgressMode,
    /// Name of the file that started last.
    name: CurrentName,
    /// Bytes and entries at the last arrival, and its time.
    last_arrival: Cell<(u64, Duration)>,
    /// Time of the last line of text.
    last_text: Cell<Option<Duration>>,
    near_sends: bool,
    predictor: &'a Predictor,
    predicted: Cell<Option<CopyPrediction>>,
    streams: Cell<u16>,
    last_event: Cell<Option<Duration>>,
}

/// Name of the file that started last, shared with the threads of the copy.
#[derive(Clone, Debug, Default)]
pub struct CurrentName(Arc<Mutex<Option<String>>>);

impl CurrentName {
    /// Sets the name that the line shows.
    pub fn set(&self, name: &Name) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.to_string());
    }

    fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Prints lines on stdout while the bar is hidden for a moment.
#[derive(Clone, Debug)]
pub struct LinePrinter(ProgressBar);

impl LinePrinter {
    /// Hides the bar, prints, and shows the bar again.
    pub fn print(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }
}

impl<'a> CopyProgress<'a> {
    /// Creates the display of a copy. The bar is hidden if stderr is not a terminal.
    pub fn new(predictor: &'a Predictor, near_sends: bool, mode: ProgressMode) -> Self {
        let target = match is_quiet() && !mode.requested {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        // Set before the first drawing, which would use the default style.
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        let (line, predicted, last_event) = Default::default();
        CopyProgress {
            bar,
            line,
            mode,
            name: CurrentName::default(),
            last_arrival: Cell::default(),
            last_text: Cell::default(),
            near_sends,
            predictor,
            predicted,
            streams: Cell::new(predictor.streams()),
            last_event,
        }
    }

    /// Returns the name that the line shows.
    pub fn name(&self) -> CurrentName {
        self.name.clone()
    }

    /// Returns a printer for other lines.
    pub fn printer(&self) -> LinePrinter {
        LinePrinter(self.bar.clone())
    }

    /// Reports whether the name of the current file is shown.
    pub fn shows_name(&self) -> bool {
        !self.bar.is_hidden() || self.prints_text()
    }

    /// Reports whether lines of text show the progress.
    fn prints_text(&self) -> bool {
        self.mode.requested && self.bar.is_hidden() && !self.mode.ndjson
    }

    /// Returns the predicted steady goodput, once the path is known.
    pub fn predicted_goodput(&self, extent: &ListedTotals, look: &ProgressSample) -> Option<BitRate> {
        if self.predicted.get().is_none() {
            self.predicted.set(self.predictor.predict(extent.bytes, look.sockets.map(|s| s.min_rtt_seconds)));
        }
        self.predicted.get().map(|predicted| predicted.goodput)
    }

    /// Returns the current number of streams.
    pub fn streams(&self) -> u16 {
        self.streams.get()
    }

    /// Shows the progress of the copy with its current goodput and bottleneck.
    pub fn show(&self, extent: &ListedTotals, look: &ProgressSample, current: CurrentProgress) {
        if self.bar.is_hidden() && !self.mode.ndjson && !self.mode.requested {
            return;
        }
        let CurrentProgress { goodput, bottleneck: limit } = current;
        if self.shows_name() {
            let state = match self.time_stalled(extent, look) {
                Some(since) => CopyState::Stalled { since },
                None => CopyState::Moving {
                    goodput,
                    remaining: self.left(extent, look, goodput),
                    limit: (limit != CopyBottleneck::Unknown).then(|| limit.display_for_end(self.near_sends)),
                },
            };
            self.draw(self.line(extent, look, state), look.at);
        }
        let due = self.last_event.get().is_none_or(|last| look.at >= last + EVENT_INTERVAL);
        if self.mode.ndjson && due {
            self.last_event.set(Some(look.at));
            print_line(&CopyProgressLine::Progress { figures: self.figures(extent, look, current) });
        }
    }

    /// Reports a change of the streams.
    pub fn streams_changed(&self, change: &StreamChange) {
        self.streams.set(change.streams);
        if self.mode.ndjson {
            print_line(&CopyProgressLine::Streams { change: change.clone() });
        }
    }

    /// Reports a change of the connection: in the bar, or as a message if there is no terminal.
    pub fn connection_changed(&self, connection: &ConnectionEvent<'_>) {
        let seen = !self.bar.is_hidden();
        match connection {
            ConnectionEvent::Lost { cause: why, retry_for } if self.mode.ndjson => {
                print_line(&CopyProgressLine::Disconnected { reason: why.to_string(), retry_for: *retry_for });
            }
            ConnectionEvent::Reconnected { after } if self.mode.ndjson => {
                print_line(&CopyProgressLine::Reconnected { after: *after });
            }
            // The error at the end reports a connection that is not restored.
            _ if is_quiet() && !self.mode.requested => {}
            ConnectionEvent::Lost { cause: why, retry_for } if !seen => {
                let (why, retry_for) = (without_error_number(&why.to_string()), show_duration(*retry_for));
                print::message(format_args!(
                    "lfn: the connection was lost: {why}; reconnecting for up to {retry_for}\n"
                ));
            }
            ConnectionEvent::Reconnecting { without, retry_for } if seen => {
                let state = CopyState::Disconnected { without: *without, retry_for: *retry_for };
                let last = self.line.borrow().clone();
                let line = match last {
                    Some(last) => ProgressLine { state, ..last },
                    None => self.line(&ListedTotals::default(), &ProgressSample::default(), state),
                };
                self.draw(line, Duration::ZERO);
            }
            ConnectionEvent::Reconnected { after } if !seen => {
                print::message(format_args!("lfn: the copy resumes after {}\n", show_duration(*after)));
            }
            _ => {}
        }
    }

    /// Removes the bar from the screen, or prints the last line of text. `outcome` is that of a copy that is done.
    pub fn finish(&self, outcome: Option<&CopyOutcome>) {
        // The bar is hidden afterwards.
        let prints_text = self.prints_text();
        self.bar.finish_and_clear();
        let last = match outcome.filter(|outcome| outcome.tally.failed == 0) {
            Some(outcome) => Some(ProgressLine {
                name: self.name.get(),
                done: outcome.bytes,
                all: outcome.bytes,
                settled: outcome.tally.entries(),
                entries: outcome.tally.entries(),
                complete: true,
                state: CopyState::Moving {
                    goodput: outcome.moved().per(outcome.elapsed),
                    remaining: None,
                    limit: None,
                },
            }),
            None => self.line.borrow().clone(),
        };
        if let Some(line) = last.filter(|_| prints_text) {
            print::error(format_args!("{}\n", line.plain(terminal::use_unicode())));
        }
    }

    /// Returns for how long nothing has arrived, if this is unusual.
    fn time_stalled(&self, extent: &ListedTotals, look: &ProgressSample) -> Option<Duration> {
        let arrived = look.bytes.0.saturating_add(extent.finished);
        if arrived != self.last_arrival.get().0 {
            self.last_arrival.set((arrived, look.at));
        }
        // At the end, the receiver waits for its disk.
        let is_over = extent.complete && done(extent, look) == extent.bytes;
        let since = look.at.saturating_sub(self.last_arrival.get().1);
        (since >= MIN_STALL && !is_over).then_some(since)
    }

    fn line(&self, extent: &ListedTotals, look: &ProgressSample, state: CopyState) -> ProgressLine {
        let ListedTotals { bytes: all, finished: settled, entries, complete, .. } = *extent;
        ProgressLine { name: self.name.get(), done: done(extent, look), all, settled, entries, complete, state }
    }

    /// Returns the remaining time at the current rate, or at the predicted rate during slow start.
    fn left(&self, extent: &ListedTotals, look: &ProgressSample, goodput: BitRate) -> Option<Duration> {
        let bytes = Bytes(extent.bytes.0.saturating_sub(done(extent, look).0));
        let predicted = self.predicted.get();
        match predicted {
            // During slow start, the current rate is not a good estimate.
            Some(predicted) if look.at < predicted.slow_start => Some(predicted.time.saturating_sub(look.at)),
            _ if goodput.0 > 0 => Some(goodput.time_for(bytes)),
            _ => None,
        }
    }

    fn figures(&self, extent: &ListedTotals, sample: &ProgressSample, current: CurrentProgress) -> CopyProgressFigures {
        CopyProgressFigures {
            time: sample.at,
            bytes: done(extent, sample),
            moved_bytes: sample.bytes,
            total_bytes: extent.bytes,
            entries: extent.finished,
            total_entries: extent.entries,
            listing_complete: extent.complete,
            goodput: current.goodput,
            eta: self.left(extent, sample, current.goodput),
            limited_by: current.bottleneck.display_for_end(self.near_sends),
            streams: self.streams.get(),
        }
    }

    fn draw(&self, line: ProgressLine, at: Duration) {
        let unicode = terminal::use_unicode();
        let is_due = self.last_text.get().is_none_or(|last| at >= last + TEXT_INTERVAL);
        if self.prints_text() {
            if is_due && line.entries > 0 {
                self.last_text.set(Some(at));
                print::error(format_args!("{}\n", line.plain(unicode)));
            }
        } else {
            let columns = terminal::stderr_terminal_columns().unwrap_or(DEFAULT_COLUMNS);
            self.bar.set_message(line.fit(columns, unicode));
        }
        self.line.replace(Some(line));
    }
}

/// Returns the bytes that are done: sent or skipped.
fn done(extent: &ListedTotals, look: &ProgressSample) -> Bytes {
    // Retransmitted blocks count once.
    Bytes(look.bytes.0.saturating_add(extent.not_needed.0).min(extent.bytes.0))
}

/// Prints a line of JSON. A closed pipe is not an error.
fn print_line(line: &CopyProgressLine) {
    let mut out = print::json();
    let _ = serde_json::to_writer(&mut out, line).map_err(std::io::Error::from).and_then(|()| writeln!(out));
}
