//! The results of tests: for a person (`text`), for a program (`json` at the end, `ndjson` while they run), for a
//! spreadsheet (CSV), and as nettest printed them in 1995.
//!
//! Whatever is printed, the same document is made of it (`stored`), which `--save` keeps and `lfn show` reads.

mod json;
mod live;
mod ndjson;
mod nettest;
mod save;
mod stored;
mod text;

pub use save::SaveFile;

use std::io::{self, Write};
use std::time::Duration;

use lfn_core::diagnose::{Evidence, diagnose, diagnose_datagrams};
use lfn_core::path::PathProfile;
use lfn_core::prediction::{self, Expected};
use lfn_core::report::{self, Document, DocumentSchema, Failed, Finding, Iperf3, Origin, Unfinished};
use lfn_core::tcp_model::Prediction;
use lfn_core::udp;
use lfn_core::units::BitRate;
use lfn_core::wire::test::{EndReport, Interval, Kernel, SocketWish, TestRequest};
use lfn_net::tester::{Measurement, Progress, Test};

use crate::exit::Failure;
use crate::print;

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A table as it happens, and a summary.
    Text,
    /// One object at the end.
    Json,
    /// A line an event, as it happens.
    Ndjson,
    /// A row an interval and stream, at the end.
    Csv,
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
    /// What a measurement may be and agree with that.
    pub expected: Option<Expected>,
    /// What an iperf3 server said, where it was one.
    pub iperf3: Option<Iperf3>,
}

impl Run {
    /// Judges a test.
    pub fn new(measurement: Measurement, evidence: Evidence) -> Self {
        Run::judged(measurement, evidence, None)
    }

    /// Judges a test with an iperf3 server, which said this.
    pub fn of_iperf3(measurement: Measurement, evidence: Evidence, said: Iperf3) -> Self {
        Run::judged(measurement, evidence, Some(said))
    }

    fn judged(measurement: Measurement, evidence: Evidence, iperf3: Option<Iperf3>) -> Self {
        let (sender, receiver) = (measurement.sender(), measurement.receiver());
        let of_datagrams = |sender: &EndReport, receiver: &EndReport| {
            (diagnose_datagrams(&evidence, sender, receiver), predict_datagrams(&evidence, sender))
        };
        let told = iperf3.as_ref().and_then(|said| said.judged(&measurement.request, sender, receiver));
        let (findings, predicted) = match told {
            Some((sender, receiver)) => of_datagrams(&sender, &receiver),
            None if measurement.request.udp.is_some() => of_datagrams(sender, receiver),
            None => (diagnose(&evidence), prediction::of_test(&evidence)),
        };
        let (findings, (predicted, expected)) = (findings.iter().map(Finding::from).collect(), predicted.unzip());
        Run { measurement, evidence, findings, predicted, expected, iperf3 }
    }

    /// The scale the sender applies to the windows it is told, if it was negotiated.
    fn window_scale(&self) -> Option<u8> {
        let info = self.measurement.sender().streams.first()?.tcp_info.as_ref()?;
        info.window_scaling.then_some(info.snd_wscale)
    }
}

/// What is to be expected of datagrams: of the rate that was asked, or of what a ramp finds.
fn predict_datagrams(evidence: &Evidence, sender: &EndReport) -> Option<(Prediction, Expected)> {
    let streams = || sender.streams.iter().filter_map(|stream| stream.udp.as_deref());
    let sent = || streams().filter_map(|udp| udp.sent.as_ref());
    let ramp = streams().any(|udp| udp.ramp.is_some());
    let asked = sent().map(|sent| sent.limit.unwrap_or(sent.asked).0).fold(0, u64::saturating_add);
    let asked = (!ramp).then_some(BitRate(asked));
    Some(udp::predicted(&evidence.path?, sent().next()?.datagram_bytes, asked, evidence.elapsed))
}

/// Prints one test after the other, and keeps what is stored of them.
pub struct Printer {
    format: Format,
    /// Where the result goes besides, if anywhere.
    save: Option<SaveFile>,
    origin: Origin,
    omit: Option<Duration>,
    /// Beneath the table, on a terminal.
    live: Option<live::Live>,
    events: ndjson::Events,
    runs: Vec<report::Run>,
    /// The tests so far; two may be under way at once.
    tests: Vec<Seen>,
}

/// A test as far as it has come.
struct Seen {
    table: text::Table,
    /// What was asked of this end's sockets.
    near_socket: SocketWish,
    /// While it is under way.
    unfinished: Option<Unfinished>,
}

impl Printer {
    /// For the tests of one command; `omit` is what is to be taken for start-up, `watched` whether somebody at a terminal
    /// is to see more than the table while they run.
    pub fn new(format: Format, save: Option<SaveFile>, origin: Origin, omit: Option<Duration>, watched: bool) -> Self {
        let mut events = ndjson::Events::default();
        if format == Format::Ndjson {
            events.start(&origin);
        }
        let live = if watched && format == Format::Text { live::Live::new() } else { None };
        Printer { format, save, origin, omit, live, events, runs: Vec::new(), tests: Vec::new() }
    }

    /// A test is to begin, alone or `at_once` with another; gives its number.
    pub fn begin(&mut self, test: &Test, at_once: bool) -> usize {
        let is_later = self.tests.iter().any(|seen| seen.unfinished.is_none());
        let place = if is_later { text::Place::Later } else { text::Place::First };
        let table = text::Table::new(test, &self.origin.hosts, place, at_once);
        let unfinished = Some(Unfinished::new(test.request.clone()));
        self.tests.push(Seen { table, near_socket: test.near.clone(), unfinished });
        let number = self.tests.len() - 1;
        if let Some(live) = &mut self.live {
            live.begin(number, test);
        } else if self.format == Format::Ndjson {
            self.events.begin(test);
        }
        number
    }

    /// Something happened in a test.
    pub fn progress(&mut self, number: usize, progress: &Progress<'_>) {
        let has_head = |seen: &Seen| seen.unfinished.as_ref().is_some_and(|test| test.handshake_rtt.is_some());
        let beside = self.tests.iter().any(has_head);
        let seen = &mut self.tests[number];
        if let (Progress::Connected(..), true) = (progress, beside) {
            // One head stands over the lines of both: that of whichever was answered first.
            seen.table.stand_beside();
        }
        if let Some(unfinished) = &mut seen.unfinished {
            match progress {
                Progress::Connected(rtt, _) => unfinished.handshake_rtt = Some(*rtt),
                Progress::Near(interval) => unfinished.near_intervals.push((*interval).clone()),
                Progress::Far(interval) => unfinished.far_intervals.push((*interval).clone()),
                Progress::Step(ramp) => unfinished.ramp = Some((*ramp).clone()),
            }
        }
        match self.format {
            Format::Text => match &mut self.live {
                // What is drawn makes room for the table's next lines.
                Some(live) => live.progress(number, progress, || seen.table.progress(progress)),
                None => seen.table.progress(progress),
            },
            Format::Ndjson => self.events.progress(number, progress),
            _ => {}
        }
    }

    /// It is over. Tests end in the order of their numbers.
    pub fn end(&mut self, number: usize, run: Run) -> io::Result<()> {
        self.live.iter_mut().for_each(live::Live::end);
        let seen = &mut self.tests[number];
        match self.format {
            Format::Text => seen.table.finish(&run)?,
            Format::Ndjson => self.events.findings(number, &run.findings),
            _ => {}
        }
        seen.unfinished = None;
        self.runs.push(stored::store(run, std::mem::take(&mut seen.near_socket), self.omit));
        Ok(())
    }

    /// All are over, or one of them failed: what was seen of it is then stored too.
    pub fn finish(mut self, failure: Option<&Failure>) -> Result<(), Failure> {
        self.live = None;
        let error = failure.map(|failure| {
            let (message, hint) = failure.words();
            Failed { message, hint }
        });
        let Printer { format, save, origin, events, runs, tests, .. } = self;
        // Of two that failed together the first tells enough.
        let (mut table, unfinished) = match tests.into_iter().find(|seen| seen.unfinished.is_some()) {
            Some(seen) => (Some(seen.table), seen.unfinished),
            None => (None, None),
        };
        let document = Document { schema: DocumentSchema::Two, origin, runs, unfinished, error };
        if let Some(file) = save {
            file.write(&document)?;
        }
        match format {
            Format::Text => {
                if let (Some(table), Some(seen)) = (&mut table, &document.unfinished) {
                    table.cut_off(seen)?;
                }
            }
            Format::Json => json::print(&document)?,
            Format::Ndjson => events.finish(document)?,
            Format::Csv => print::csv().write_all(report::csv(&document).as_bytes())?,
            // Its layout has no word for a failure.
            Format::Nettest if failure.is_some() => {}
            Format::Nettest => nettest::print(&document)?,
        }
        Ok(())
    }
}

/// Prints a stored result as it looked when it was measured.
pub fn show(document: Document) -> io::Result<()> {
    let Document { origin, runs, unfinished, error, .. } = document;
    let mut place = text::Place::First;
    for stored in runs {
        let test = test(&stored.request, &stored.near_socket, stored.path);
        let kernel = stored.far.kernel.clone().unwrap_or_default();
        let mut table = text::Table::new(&test, &origin.hosts, place, stored.at_once);
        place = text::Place::Later;
        table.progress(&Progress::Connected(stored.handshake_rtt, &kernel));
        replay(&mut table, &stored.near.intervals, &stored.far.intervals);
        table.finish(&stored::restore(stored, &origin.hosts))?;
    }
    if let Some(seen) = unfinished {
        let test = test(&seen.request, &SocketWish::default(), None);
        let mut table = text::Table::new(&test, &origin.hosts, place, false);
        table.progress(&Progress::Connected(seen.handshake_rtt.unwrap_or_default(), &Kernel::default()));
        replay(&mut table, &seen.near_intervals, &seen.far_intervals);
        table.cut_off(&seen)?;
        let why = error.map_or("it was cut off".into(), |error| error.message);
        writeln!(print::out(), "\nthe test did not come to its end: {why}")?;
    }
    Ok(())
}

fn test(request: &TestRequest, near: &SocketWish, path: Option<PathProfile>) -> Test {
    Test {
        request: request.clone(),
        near: near.clone(),
        path,
        whole_round_trips: false,
        until: None,
        omit: None,
        stop: Default::default(),
    }
}

fn replay(table: &mut text::Table, near: &[Interval], far: &[Interval]) {
    for index in 0..near.len().max(far.len()) {
        near.get(index).iter().for_each(|interval| table.progress(&Progress::Near(interval)));
        far.get(index).iter().for_each(|interval| table.progress(&Progress::Far(interval)));
    }
}
