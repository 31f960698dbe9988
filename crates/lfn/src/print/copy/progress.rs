//! Progress of a copy: one line ([`ProgressLine`]), lines of JSON on request, and otherwise only necessary messages.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::time::Duration;

use lfn_api::copy::QueueProgress;
use lfn_api::documents::{CopyProgressFigures, CopyProgressLine, StripeFigures};
use lfn_api::prediction::{CopyPrediction, Predictor};
use lfn_base::units::{BitRate, Bytes, show_duration};
use lfn_copy::proto::stripe_health::{StripeChange, StripeState};
use lfn_copy::{ConnectionEvent, CopyOutcome, ListedTotals, StripeEvent, StripeReport};
use lfn_results::diagnose::bottleneck::{CopyBottleneck, CurrentProgress};
use lfn_results::evidence::ProgressSample;
use lfn_session::wire::copy::ranks::RankFigures;
use lfn_session::wire::copy::stream_change::StreamChange;

use super::progress_line::{CopyState, ProgressLine};
use crate::exit::without_error_number;
use crate::print::progress::{IntervalTimer, Progress, ProgressPrinter};
use crate::print::settings::is_quiet;
use crate::print::{self, terminal};

/// Interval of the progress lines in JSON.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

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

impl ProgressMode {
    fn printer(self) -> ProgressPrinter {
        match (is_quiet() && !self.requested, terminal::can_redraw_stderr()) {
            (false, true) => ProgressPrinter::Terminal,
            (false, false) if self.requested && !self.ndjson => ProgressPrinter::Lines,
            _ => ProgressPrinter::Hidden,
        }
    }
}

/// Display of a running copy.
pub struct CopyProgress<'a> {
    progress: Progress<ProgressLine>,
    mode: ProgressMode,
    /// Bytes and entries at the last arrival, and its time.
    last_arrival: Cell<(u64, Duration)>,
    near_sends: bool,
    predictor: &'a Predictor,
    predicted: Cell<Option<CopyPrediction>>,
    streams: Cell<u16>,
    events: RefCell<IntervalTimer>,
}

impl<'a> CopyProgress<'a> {
    /// Creates the display of a copy.
    pub fn new(predictor: &'a Predictor, near_sends: bool, mode: ProgressMode) -> Self {
        CopyProgress {
            progress: Progress::new(ProgressLine::default(), mode.printer()),
            mode,
            last_arrival: Cell::default(),
            near_sends,
            predictor,
            predicted: Cell::default(),
            streams: Cell::new(predictor.streams()),
            events: RefCell::new(IntervalTimer::new(EVENT_INTERVAL)),
        }
    }

    /// Returns the progress, for threads that print other lines or know the current file.
    pub fn progress(&self) -> Progress<ProgressLine> {
        self.progress.clone()
    }

    /// Reports whether the name of the current file is shown.
    pub fn shows_name(&self) -> bool {
        self.progress.printer() != ProgressPrinter::Hidden
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
    pub fn show(
        &self,
        extent: &ListedTotals,
        look: &ProgressSample,
        stripes: &[StripeReport],
        current: CurrentProgress,
    ) {
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
            self.update(extent, look, state);
            self.progress.update(|line| line.stripes = stripes_text(stripes));
            self.progress.show_at(look.at);
        }
        if self.mode.ndjson && self.events.borrow_mut().is_due(look.at) {
            print_line(&CopyProgressLine::Progress { figures: self.figures(extent, look, stripes, current) });
        }
    }

    /// Shows the progress of all ranks together.
    pub fn show_ranks(&self, figures: &RankFigures, sample: &ProgressSample) {
        let sample = ProgressSample { bytes: figures.bytes(), ..*sample };
        let current = CurrentProgress { goodput: figures.goodput(), bottleneck: CopyBottleneck::Unknown };
        let mut absent = figures.absent().map(|rank| rank.rank.to_string());
        let name = match (absent.next(), absent.next()) {
            (None, _) => format!("{} ranks", figures.ranks.len()),
            (Some(only), None) => format!("without rank {only}"),
            (Some(first), Some(_)) => format!("without rank {first} and {} more", absent.count() + 1),
        };
        self.progress.update(|line| line.name = Some(name));
        self.show(&figures.totals, &sample, &[], current);
    }

    /// Shows the state of the queue in the place of the name.
    pub fn show_queue(&self, queue: &QueueProgress) {
        let QueueProgress { name, entries, done, failed, is_waiting } = queue;
        let waits = if *is_waiting && done.saturating_add(*failed) < *entries { ", waiting" } else { "" };
        let failed = if *failed > 0 { format!(", {failed} failed") } else { String::new() };
        let text = format!("{name}: {done} of {entries}{failed}{waits}");
        self.progress.update(|line| line.name = Some(text));
    }

    /// Reports a change of the streams.
    pub fn streams_changed(&self, change: &StreamChange) {
        self.streams.set(change.streams);
        if self.mode.ndjson {
            print_line(&CopyProgressLine::Streams { change: change.clone() });
        }
    }

    /// Reports that a stripe went down or works again, as a line of its own.
    pub fn stripe_changed(&self, event: &StripeEvent) {
        let StripeEvent { stripe, change, cause } = event;
        let reason = without_error_number(cause.as_deref().unwrap_or_default());
        if self.mode.ndjson {
            print_line(&match *change {
                StripeChange::Down { .. } => CopyProgressLine::StripeDown { stripe: stripe.clone(), reason },
                StripeChange::Up { after } => CopyProgressLine::StripeUp { stripe: stripe.clone(), after },
            });
            return;
        }
        if is_quiet() && !self.mode.requested {
            return;
        }
        let text = match *change {
            StripeChange::Down { has_worked: true } => format!("stripe {stripe} is down: {reason}"),
            StripeChange::Down { has_worked: false } => format!("stripe {stripe} does not connect: {reason}"),
            StripeChange::Up { after } => format!("stripe {stripe} works again after {}", show_duration(after)),
        };
        self.progress.print(|| print::message(format_args!("lfn: {text}\n")));
    }

    /// Reports a change of the connection: in the bar, or as a message if there is no terminal.
    pub fn connection_changed(&self, connection: &ConnectionEvent<'_>) {
        let seen = self.progress.is_drawn();
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
                self.progress.update(|line| line.state = state);
                self.progress.show_at(Duration::ZERO);
            }
            ConnectionEvent::Reconnected { after } if !seen => {
                print::message(format_args!("lfn: the copy resumes after {}\n", show_duration(*after)));
            }
            _ => {}
        }
    }

    /// Removes the line from the screen, or prints the last line of text. `outcome` is that of a copy that is done.
    pub fn finish(&self, outcome: Option<&CopyOutcome>) {
        if let Some(outcome) = outcome.filter(|outcome| outcome.tally.failed == 0) {
            let goodput = outcome.moved().per(outcome.elapsed);
            self.progress.update(|line| {
                *line = ProgressLine {
                    name: line.name.take(),
                    done: outcome.bytes,
                    all: outcome.bytes,
                    settled: outcome.tally.entries(),
                    entries: outcome.tally.entries(),
                    complete: true,
                    state: CopyState::Moving { goodput, remaining: None, limit: None },
                    stripes: None,
                }
            });
        }
        self.progress.finish_with_line();
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

    fn update(&self, extent: &ListedTotals, look: &ProgressSample, state: CopyState) {
        let ListedTotals { bytes: all, finished: settled, entries, complete, .. } = *extent;
        let done = done(extent, look);
        self.progress.update(|line| {
            *line =
                ProgressLine { name: line.name.take(), done, all, settled, entries, complete, state, stripes: None };
        });
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

    fn figures(
        &self,
        extent: &ListedTotals,
        sample: &ProgressSample,
        stripes: &[StripeReport],
        current: CurrentProgress,
    ) -> CopyProgressFigures {
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
            stripes: stripes.iter().map(|report| StripeFigures::new(report.clone(), report.rate)).collect(),
        }
    }
}

/// Returns the throughput of each stripe in short; `None` without stripes.
fn stripes_text(stripes: &[StripeReport]) -> Option<String> {
    let text = |stripe: &StripeReport| match stripe.state {
        StripeState::Connecting => "connecting".to_owned(),
        StripeState::Up => stripe.rate.to_string(),
        StripeState::Down => "down".to_owned(),
    };
    let texts: Vec<_> = stripes.iter().map(text).collect();
    (!texts.is_empty()).then(|| format!("stripes: {}", texts.join(", ")))
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
