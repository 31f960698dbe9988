//! How a copy goes while it goes: on a terminal a line that is drawn over ([`Line`] lays it out), lines of JSON where
//! asked for, and nothing else but what a person has to know.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lfn_core::transfer::limit::{Limit, Look, classify};
use lfn_core::transfer::streams::Change;
use lfn_core::units::{BitRate, Bytes, show_duration};
use lfn_net::transfer::{Connection, Extent};
use serde::Serialize;

use super::line::{Line, State};
use crate::forecast::{Forecast, Predicted};
use crate::print::{self, terminal};

/// How far back the rate and the limit look.
const WINDOW: Duration = Duration::from_secs(2);

/// Columns of a terminal that does not tell.
const UNTOLD: usize = 80;

/// How often a line of JSON tells how far it is.
const EVERY: Duration = Duration::from_secs(1);

/// What is shown while a copy goes.
pub struct Live<'a> {
    bar: ProgressBar,
    /// As it was drawn last.
    line: RefCell<Option<Line>>,
    /// Lines of JSON on stdout.
    ndjson: bool,
    near_sends: bool,
    forecast: &'a Forecast,
    looks: RefCell<VecDeque<Look>>,
    predicted: Cell<Option<Predicted>>,
    streams: Cell<u16>,
    told: Cell<Option<Duration>>,
}

/// One line of JSON.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    Progress(&'a Now),
    Streams(&'a Change),
    Lost { why: String, patience_seconds: f64 },
    Back { after_seconds: f64 },
}

/// How far it is, and how fast at present.
#[derive(Serialize)]
struct Now {
    seconds: f64,
    /// Moved, or not to be moved.
    bytes: Bytes,
    moved_bytes: Bytes,
    /// As far as it is listed.
    total_bytes: Bytes,
    /// Files, directories and links that are through.
    entries: u64,
    total_entries: u64,
    /// Nothing more is to be listed.
    listed: bool,
    goodput_bits_per_second: BitRate,
    #[serde(skip_serializing_if = "Option::is_none")]
    eta_seconds: Option<f64>,
    limit: String,
    streams: u16,
}

impl<'a> Live<'a> {
    /// Of a copy that is about to start; the bar is invisible unless stderr is a terminal.
    pub fn new(forecast: &'a Forecast, near_sends: bool, ndjson: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // Before anything is drawn, which its own style would be.
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        let (line, looks, predicted, told) = Default::default();
        Live { bar, line, ndjson, near_sends, forecast, looks, predicted, streams: Cell::new(forecast.streams()), told }
    }

    /// Shows how far the copy is.
    pub fn show(&self, extent: &Extent, look: &Look) {
        if self.bar.is_hidden() && !self.ndjson {
            return;
        }
        if self.predicted.get().is_none() {
            self.predicted.set(self.forecast.predict(extent.bytes, look.sockets.map(|s| s.min_rtt_seconds)));
        }
        let earlier = self.earlier(look);
        let limit = classify(&earlier, look, self.streams.get(), self.predicted.get().map(|p| p.goodput));
        let elapsed = look.at.saturating_sub(earlier.at);
        let goodput = Bytes(look.bytes.0.saturating_sub(earlier.bytes.0)).per(elapsed);
        if !self.bar.is_hidden() {
            let left = self.left(extent, look, goodput);
            let limit = (limit != Limit::Unknown).then(|| limit.seen(self.near_sends));
            self.draw(line(extent, look, State::Moving { goodput, left, limit }));
        }
        let due = self.told.get().is_none_or(|told| look.at >= told + EVERY);
        if self.ndjson && due {
            self.told.set(Some(look.at));
            event(&Event::Progress(&self.now(extent, look, goodput, limit)));
        }
    }

    /// Tells of streams that are added.
    pub fn change(&self, change: &Change) {
        self.streams.set(change.streams);
        if self.ndjson {
            event(&Event::Streams(change));
        }
    }

    /// Tells what becomes of the connection: in the bar, or without a terminal in a line for each change.
    pub fn tell(&self, connection: &Connection<'_>) {
        let seen = !self.bar.is_hidden();
        match connection {
            Connection::Lost { why, patience } if self.ndjson => {
                event(&Event::Lost { why: why.to_string(), patience_seconds: patience.as_secs_f64() });
            }
            Connection::Back { after } if self.ndjson => event(&Event::Back { after_seconds: after.as_secs_f64() }),
            Connection::Lost { why, patience } if !seen => {
                let patience = show_duration(*patience);
                print::talk(format_args!("lfn: the connection was lost: {why}; trying again for up to {patience}\n"));
            }
            Connection::Trying { without, patience } if seen => {
                let state = State::Lost { without: *without, patience: *patience };
                let last = self.line.borrow().clone();
                self.draw(match last {
                    Some(last) => Line { state, ..last },
                    None => line(&Extent::default(), &Look::default(), state),
                });
            }
            Connection::Back { after } if !seen => {
                print::talk(format_args!("lfn: the copy goes on, after {}\n", show_duration(*after)));
            }
            _ => {}
        }
    }

    /// Takes the bar off the screen.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// The look that the present is measured from.
    fn earlier(&self, look: &Look) -> Look {
        let mut looks = self.looks.borrow_mut();
        while looks.len() > 1 && looks.front().is_some_and(|first| look.at.saturating_sub(first.at) > WINDOW) {
            looks.pop_front();
        }
        let earlier = looks.front().copied().unwrap_or_default();
        looks.push_back(*look);
        earlier
    }

    /// Until everything that is listed has moved, at the rate there is or, before there is one, at the predicted.
    fn left(&self, extent: &Extent, look: &Look, goodput: BitRate) -> Option<Duration> {
        let bytes = Bytes(extent.bytes.0.saturating_sub(done(extent, look).0));
        let predicted = self.predicted.get();
        match predicted {
            // In start-up the rate says little of what is to come.
            Some(predicted) if look.at < predicted.slow_start => Some(predicted.time.saturating_sub(look.at)),
            _ if goodput.0 > 0 => Some(goodput.time_for(bytes)),
            _ => None,
        }
    }

    fn now(&self, extent: &Extent, look: &Look, goodput: BitRate, limit: Limit) -> Now {
        Now {
            seconds: look.at.as_secs_f64(),
            bytes: done(extent, look),
            moved_bytes: look.bytes,
            total_bytes: extent.bytes,
            entries: extent.settled,
            total_entries: extent.entries,
            listed: extent.complete,
            goodput_bits_per_second: goodput,
            eta_seconds: self.left(extent, look, goodput).map(|left| left.as_secs_f64()),
            limit: limit.seen(self.near_sends),
            streams: self.streams.get(),
        }
    }

    fn draw(&self, line: Line) {
        self.bar.set_message(line.fit(terminal::talk_columns().unwrap_or(UNTOLD)));
        self.line.replace(Some(line));
    }
}

fn line(extent: &Extent, look: &Look, state: State) -> Line {
    let Extent { bytes: all, settled, entries, complete, .. } = *extent;
    Line { done: done(extent, look), all, settled, entries, complete, state }
}

/// What is through: moved, or there already.
fn done(extent: &Extent, look: &Look) -> Bytes {
    // What had to be sent again counts once.
    Bytes(look.bytes.0.saturating_add(extent.passed.0).min(extent.bytes.0))
}

/// A reader that closed the pipe has read enough.
fn event(event: &Event<'_>) {
    let mut out = print::json();
    let _ = serde_json::to_writer(&mut out, event).map_err(std::io::Error::from).and_then(|()| writeln!(out));
}
