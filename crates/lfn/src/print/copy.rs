//! What `lfn copy` shows: a bar while it goes, two lines or one JSON object at its end.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::limit::{Limit, Look, Shares, SocketEvidence, classify};
use lfn_core::units::{BitRate, Bytes, show_duration};
use lfn_core::wire::CongestionWish;
use lfn_net::session::Protection;
use lfn_net::transfer::{Options, Outcome};
use serde::Serialize;

use crate::exit::Failure;
use crate::forecast::{Forecast, Predicted};
use crate::print;

/// How far back the rate and the limit look.
const WINDOW: Duration = Duration::from_secs(2);

/// A finished copy and what it is held against.
pub struct Report<'a> {
    /// As typed, without secrets.
    pub source: String,
    /// As typed, without secrets.
    pub destination: String,
    /// How it ended.
    pub outcome: &'a Outcome,
    /// How it went.
    pub options: &'a Options,
    /// Why so many streams.
    pub streams_reason: String,
    /// What was to be expected, if the path is known.
    pub predicted: Option<Predicted>,
}

/// The report as JSON.
#[derive(Serialize)]
struct Json<'a> {
    schema: &'static str,
    source: &'a str,
    destination: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    bytes: Bytes,
    seconds: f64,
    goodput_bits_per_second: BitRate,
    digest_blake3: Digest,
    predicted: Option<Predicted>,
    limit: String,
    streams: u16,
    streams_reason: &'a str,
    block_bytes: Bytes,
    protection: Protection,
    congestion: Option<&'a str>,
    sender: Shares,
    receiver: Shares,
    sockets: Option<SocketEvidence>,
}

impl Report<'_> {
    /// One JSON object on stdout.
    pub fn json(&self) -> Result<(), Failure> {
        let Outcome { bytes, digest, elapsed, path, look } = self.outcome;
        let json = Json {
            schema: "lfn.copy/1",
            source: &self.source,
            destination: &self.destination,
            path: path.as_deref(),
            bytes: *bytes,
            seconds: elapsed.as_secs_f64(),
            goodput_bits_per_second: bytes.per(*elapsed),
            digest_blake3: *digest,
            predicted: self.predicted,
            limit: self.limit().to_string(),
            streams: self.options.streams,
            streams_reason: &self.streams_reason,
            block_bytes: self.options.block,
            protection: self.options.protection,
            congestion: self.options.congestion.as_ref().map(CongestionWish::name),
            sender: look.sender,
            receiver: look.receiver,
            sockets: look.sockets,
        };
        let mut out = print::json();
        serde_json::to_writer_pretty(&mut out, &json)?;
        Ok(writeln!(out)?)
    }

    /// Two lines on stdout.
    pub fn text(&self) -> Result<(), Failure> {
        let Outcome { bytes, digest, elapsed, .. } = self.outcome;
        let mut line = format!("{bytes} in {}, goodput {}", show_duration(*elapsed), bytes.per(*elapsed));
        if let Some(predicted) = &self.predicted {
            let (time, rate) = (show_duration(predicted.time), predicted.average_goodput);
            line +=
                &format!(" of {rate} predicted ({time}, of which start-up {})", show_duration(predicted.slow_start));
        }
        let limit = self.limit();
        if limit != Limit::Unknown {
            line += &format!("; limit: {limit}");
        }
        let protection = match self.options.protection {
            Protection::Tls => "TLS",
            Protection::Clear => "clear",
        };
        line += &format!("; {} streams ({}), {protection}", self.options.streams, self.streams_reason);
        let mut out = print::out();
        writeln!(out, "{line}")?;
        Ok(writeln!(out, "blake3 {digest}")?)
    }

    /// Over the whole copy.
    fn limit(&self) -> Limit {
        let predicted = self.predicted.map(|predicted| predicted.average_goodput);
        let whole = Look { at: self.outcome.elapsed, ..self.outcome.look };
        classify(&Look::default(), &whole, self.options.streams, predicted)
    }
}

/// The bar of a copy that is about to start; invisible unless stderr is a terminal.
pub fn progress(forecast: &Forecast) -> Bar<'_> {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    Bar { bar, forecast, looks: RefCell::default(), predicted: Cell::default() }
}

/// A progress bar with rate, predicted time and present limit.
pub struct Bar<'a> {
    bar: ProgressBar,
    forecast: &'a Forecast,
    looks: RefCell<VecDeque<Look>>,
    predicted: Cell<Option<Predicted>>,
}

impl Bar<'_> {
    /// Draws how far the copy is.
    pub fn show(&self, total: Bytes, look: &Look) {
        if self.bar.is_hidden() {
            return;
        }
        if self.bar.length().is_none() {
            self.bar.set_length(total.0);
            // The message is cut at the terminal's width: what matters most stands first in it.
            if let Ok(style) = ProgressStyle::with_template("{bar:16} {percent:>3} % {wide_msg}") {
                self.bar.set_style(style);
            }
        }
        if self.predicted.get().is_none() {
            self.predicted.set(self.forecast.predict(total, look.sockets.map(|s| s.min_rtt_seconds)));
        }
        let mut looks = self.looks.borrow_mut();
        while looks.len() > 1 && looks.front().is_some_and(|first| look.at.saturating_sub(first.at) > WINDOW) {
            looks.pop_front();
        }
        let earlier = looks.front().copied().unwrap_or_default();
        looks.push_back(*look);
        self.bar.set_position(look.bytes.0);
        self.bar.set_message(self.message(total, &earlier, look));
    }

    /// Takes the bar off the screen.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn message(&self, total: Bytes, earlier: &Look, look: &Look) -> String {
        let elapsed = look.at.saturating_sub(earlier.at);
        let goodput = Bytes(look.bytes.0.saturating_sub(earlier.bytes.0)).per(elapsed);
        let mut message = goodput.to_string();
        let predicted = self.predicted.get();
        match predicted {
            Some(predicted) => {
                let (at, whole) = (show_duration(look.at), show_duration(predicted.time));
                message += &format!("  {at} of {whole}");
            }
            None if goodput.0 > 0 => {
                let left = goodput.time_for(Bytes(total.0.saturating_sub(look.bytes.0)));
                message += &format!("  {} left", show_duration(left));
            }
            None => {}
        }
        let limit = classify(earlier, look, self.forecast.streams(), predicted.map(|p| p.goodput));
        if limit != Limit::Unknown {
            message += &format!("  {limit}");
        }
        let [done, all] = Bytes::alike([look.bytes, total]);
        message + &format!("  {done} of {all}")
    }
}
