//! The results of tests: for a person (`text`), for a program (`json`), and as nettest printed them in 1995.

mod json;
mod nettest;
mod text;

use std::io;

use lfn_core::diagnose::{Evidence, Finding, diagnose};
use lfn_core::tcp_model::{self, Flow, Prediction};
use lfn_core::units::Bytes;
use lfn_core::wire::test::Direction;
use lfn_net::tester::{Measurement, Progress, Test};

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A table as it happens, and a summary.
    Text,
    /// One object at the end.
    Json,
    /// `write`, `read`, `r/w`.
    Nettest,
}

/// A test that is over, judged.
pub struct Run {
    /// Both ends' figures.
    pub measurement: Measurement,
    /// Reduced to what the rules look at.
    pub evidence: Evidence,
    /// What they found, the most to gain first.
    pub findings: Vec<Finding>,
    /// What the path should give with the window asked for, if its capacity is known.
    pub predicted: Option<Prediction>,
}

impl Run {
    /// Judges a test.
    pub fn new(measurement: Measurement, evidence: Evidence) -> Self {
        let findings = diagnose(&evidence);
        let predicted = predict(&evidence);
        Run { measurement, evidence, findings, predicted }
    }

    fn direction(&self) -> Direction {
        self.measurement.request.direction
    }

    /// The scale the sender applies to the windows it is told, if it was negotiated.
    fn window_scale(&self) -> Option<u8> {
        let info = self.measurement.sender().streams.first()?.tcp_info.as_ref()?;
        info.window_scaling.then_some(info.snd_wscale)
    }
}

/// The steady goodput to expect, with the window that was asked for and the congestion control in use. What window a
/// receive buffer makes is the kernel's secret (its ratio of payload to buffer moves): there it is the one offered.
fn predict(evidence: &Evidence) -> Option<Prediction> {
    let (path, flow) = (evidence.path?, evidence.flows.first()?);
    let socket = &flow.receiving;
    let offered = flow.snd_wnd.map_or(socket.rcvbuf_granted_bytes, |window| Bytes(window.median));
    let flow = Flow {
        window: socket.window_asked_bytes.or(socket.rcvbuf_asked_bytes.map(|_| offered)),
        streams: evidence.streams(),
        congestion: flow.sending.congestion.parse().unwrap_or_default(),
        ..Flow::default()
    };
    Some(tcp_model::steady(&path, &flow))
}

/// Prints one test after the other.
pub struct Printer {
    format: Format,
    near: String,
    far: String,
    table: text::Table,
    runs: Vec<Run>,
}

impl Printer {
    /// For tests between two hosts, by the names the user has for them.
    pub fn new(format: Format, near: &str, far: &str) -> Self {
        Printer { format, near: near.into(), far: far.into(), table: text::Table::default(), runs: Vec::new() }
    }

    /// A test is to begin.
    pub fn begin(&mut self, test: &Test) {
        if self.format == Format::Text {
            self.table = text::Table::new(test, &self.near, &self.far, self.runs.is_empty());
        }
    }

    /// Something happened in it.
    pub fn progress(&mut self, progress: &Progress<'_>) {
        if self.format == Format::Text {
            self.table.progress(progress);
        }
    }

    /// It is over.
    pub fn end(&mut self, run: Run) -> io::Result<()> {
        if self.format == Format::Text {
            self.table.finish(&run)?;
        }
        self.runs.push(run);
        Ok(())
    }

    /// All are over.
    pub fn finish(self) -> io::Result<()> {
        match self.format {
            Format::Text => Ok(()),
            Format::Json => json::print(&self.runs, &self.near, &self.far),
            Format::Nettest => nettest::print(&self.runs, &self.near, &self.far),
        }
    }
}
