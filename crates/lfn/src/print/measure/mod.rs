//! Results of tests: text for the user, JSON at the end, NDJSON during the tests, CSV, and the layout of nettest from
//! 1995.
//!
//! All formats are made from the same document (`stored`), which `--report` writes and `lfn show` reads.

mod live;
mod ndjson;
mod nettest;
mod stored;
mod text;
pub mod tuning;

use std::io::{self, Write};
use std::time::Duration;

use lfn_core::diagnose::{Evidence, Verdict, datagram_verdict, diagnose, diagnose_datagrams, tcp_verdict};
use lfn_core::path::PathProfile;
use lfn_core::prediction::{self, ExpectedRange};
use lfn_core::report::{
    self, CommandError, Iperf3Report, Origin, StoredFinding, TestDocument, TestSchema, TuningDocument, UnfinishedTest,
};
use lfn_core::tcp_model::Prediction;
use lfn_core::udp;
use lfn_core::units::BitRate;
use lfn_core::wire::measure::{EndReport, Interval, Kernel, SocketRequest, TestRequest};
use lfn_net::tester::{Measurement, Test, TestProgress};

use crate::exit::Failure;
use crate::print;
use crate::print::output::{Output, OutputFormat, print_document};

/// A finished test with its diagnosis.
pub struct TestRun {
    /// Figures of both ends.
    pub measurement: Measurement,
    /// Evidence for the rules of the diagnosis.
    pub evidence: Evidence,
    /// Limit of the test, with or without a finding.
    pub verdict: Verdict,
    /// Findings, the largest gain first.
    pub findings: Vec<StoredFinding>,
    /// Predicted steady goodput with the requested window, if the capacity is known.
    pub predicted: Option<Prediction>,
    /// Range of measured goodput that agrees with the prediction.
    pub expected: Option<ExpectedRange>,
    /// Results of the iperf3 server, if there was one.
    pub iperf3: Option<Iperf3Report>,
}

impl TestRun {
    /// Diagnoses a test between two lfn ends.
    pub fn new(measurement: Measurement, evidence: Evidence) -> Self {
        TestRun::diagnosed(measurement, evidence, None)
    }

    /// Diagnoses a test with an iperf3 server.
    pub fn from_iperf3(measurement: Measurement, evidence: Evidence, report: Iperf3Report) -> Self {
        TestRun::diagnosed(measurement, evidence, Some(report))
    }

    fn diagnosed(measurement: Measurement, evidence: Evidence, iperf3: Option<Iperf3Report>) -> Self {
        let (sender, receiver) = (measurement.sender(), measurement.receiver());
        let of_datagrams = |sender: &EndReport, receiver: &EndReport| {
            let findings = diagnose_datagrams(&evidence, sender, receiver);
            let verdict = datagram_verdict(&evidence, &findings, sender);
            (findings, verdict, predict_datagrams(&evidence, sender))
        };
        let udp_reports = iperf3.as_ref().and_then(|report| report.udp_reports(&measurement.request, sender, receiver));
        let (findings, verdict, predicted) = match udp_reports {
            Some((sender, receiver)) => of_datagrams(&sender, &receiver),
            None if measurement.request.udp.is_some() => of_datagrams(sender, receiver),
            None => {
                let (findings, predicted) = (diagnose(&evidence), prediction::predict_test(&evidence));
                let known = predicted.as_ref().map(|(predicted, expected)| (predicted, expected));
                let verdict = tcp_verdict(&evidence, &findings, known);
                (findings, verdict, predicted)
            }
        };
        let (findings, (predicted, expected)) = (findings.iter().map(StoredFinding::from).collect(), predicted.unzip());
        TestRun { measurement, evidence, verdict, findings, predicted, expected, iperf3 }
    }

    /// Returns the window scale of the advertised window, if it was negotiated.
    fn window_scale(&self) -> Option<u8> {
        let info = self.measurement.sender().streams.first()?.tcp_info.as_ref()?;
        info.window_scaling.then_some(info.snd_wscale)
    }
}

/// Predicts the goodput of datagrams: at the requested rate, or for a ramp at any rate.
fn predict_datagrams(evidence: &Evidence, sender: &EndReport) -> Option<(Prediction, ExpectedRange)> {
    let streams = || sender.streams.iter().filter_map(|stream| stream.udp.as_deref());
    let sent = || streams().filter_map(|udp| udp.sent.as_ref());
    let ramp = streams().any(|udp| udp.ramp.is_some());
    let requested = sent().map(|sent| sent.limit.unwrap_or(sent.requested).0).fold(0, u64::saturating_add);
    let requested = (!ramp).then_some(BitRate(requested));
    Some(udp::predict_datagrams(&evidence.path?, sent().next()?.datagram_bytes, requested, evidence.elapsed))
}

/// Prints the tests of a command, and keeps their results for the document.
pub struct Printer {
    output: Output,
    origin: Origin,
    omit: Option<Duration>,
    /// Display below the table, on a terminal.
    live: Option<live::LiveDisplay>,
    events: ndjson::Events,
    runs: Vec<report::Run>,
    /// Tests so far; two may run at once.
    tests: Vec<TestView>,
    /// The tests are compared at the end, without tables and summaries of their own.
    compares: bool,
}

/// State of a test.
struct TestView {
    table: text::Table,
    /// Socket options requested at this end.
    near_socket: SocketRequest,
    /// Figures so far, while the test runs.
    unfinished: Option<UnfinishedTest>,
}

impl Printer {
    /// Creates a printer for the tests of one command. `omit` is the start-up time set by the user. `watched` enables
    /// the live display on a terminal.
    pub fn new(output: Output, origin: Origin, omit: Option<Duration>, watched: bool) -> Self {
        let format = output.format();
        let mut events = ndjson::Events::default();
        if format == OutputFormat::Ndjson {
            events.start(&origin);
        }
        let live = if watched && format == OutputFormat::Text { live::LiveDisplay::new() } else { None };
        Printer { output, origin, omit, live, events, runs: Vec::new(), tests: Vec::new(), compares: false }
    }

    /// Prints one comparison at the end instead of each test.
    pub fn compare(&mut self) {
        self.compares = true;
    }

    /// Sets the name of the server once it is known.
    pub fn set_far_name(&mut self, name: String) {
        self.origin.hosts.far = name;
    }

    /// Starts a test, alone or together with another one, and returns its number.
    pub fn begin_test(&mut self, test: &Test, at_once: bool) -> usize {
        let is_later = self.tests.iter().any(|seen| seen.unfinished.is_none());
        let place = if is_later { text::TablePosition::Later } else { text::TablePosition::First };
        let table = text::Table::new(test, &self.origin.hosts, place, at_once);
        let unfinished = Some(UnfinishedTest::new(test.request.clone()));
        self.tests.push(TestView { table, near_socket: test.near_socket.clone(), unfinished });
        let number = self.tests.len() - 1;
        if let Some(live) = &mut self.live {
            live.begin(number, test);
        } else if self.output.format() == OutputFormat::Ndjson {
            self.events.begin(test);
        }
        number
    }

    /// Reports an event of a test.
    pub fn progress(&mut self, number: usize, progress: &TestProgress<'_>) {
        let has_head = |seen: &TestView| seen.unfinished.as_ref().is_some_and(|test| test.handshake_rtt.is_some());
        let other_has_head = self.tests.iter().any(has_head);
        let seen = &mut self.tests[number];
        if let (TestProgress::Connected(..), true) = (progress, other_has_head) {
            // Two tests at once share the head of the first one.
            seen.table.interleave();
        }
        if let Some(unfinished) = &mut seen.unfinished {
            match progress {
                TestProgress::Connected(rtt, _) => unfinished.handshake_rtt = Some(*rtt),
                TestProgress::Near(interval) => unfinished.near_intervals.push((*interval).clone()),
                TestProgress::Far(interval) => unfinished.far_intervals.push((*interval).clone()),
                TestProgress::Step(ramp) => unfinished.ramp = Some((*ramp).clone()),
            }
        }
        let compares = self.compares;
        match self.output.format() {
            OutputFormat::Text => match &mut self.live {
                // The drawn lines make room for new lines of the table.
                Some(live) if compares => live.progress(number, progress, || ()),
                Some(live) => live.progress(number, progress, || seen.table.progress(progress)),
                None if compares => {}
                None => seen.table.progress(progress),
            },
            OutputFormat::Ndjson => self.events.progress(number, progress),
            _ => {}
        }
    }

    /// Prints a finished test. Tests finish in the order of their numbers.
    pub fn end_test(&mut self, number: usize, run: TestRun) -> io::Result<()> {
        self.live.iter_mut().for_each(live::LiveDisplay::end);
        let seen = &mut self.tests[number];
        match self.output.format() {
            OutputFormat::Text if self.compares => {}
            OutputFormat::Text => seen.table.finish(&run)?,
            OutputFormat::Ndjson => self.events.findings(number, &run.findings),
            _ => {}
        }
        seen.unfinished = None;
        self.runs.push(stored::store(run, std::mem::take(&mut seen.near_socket), self.omit));
        Ok(())
    }

    /// Prints and stores the results of all tests, with the figures of a failed one.
    pub fn finish(mut self, failure: Option<&Failure>) -> Result<(), Failure> {
        self.live = None;
        let error = failure.map(|failure| {
            let (message, hint) = failure.lines();
            CommandError { message, hint }
        });
        let Printer { mut output, origin, events, runs, tests, compares, .. } = self;
        // If two tests failed together, the first one is stored.
        let (mut table, unfinished) = match tests.into_iter().find(|seen| seen.unfinished.is_some()) {
            Some(seen) => (Some(seen.table), seen.unfinished),
            None => (None, None),
        };
        if compares {
            return tuning::finish(&TuningDocument::new(origin, runs, unfinished, error), output);
        }
        let document = TestDocument { schema: TestSchema::V3, origin, runs, unfinished, error };
        output.write_report(&document)?;
        match output.format() {
            OutputFormat::Text => {
                if let (Some(table), Some(seen)) = (&mut table, &document.unfinished) {
                    table.finish_unfinished(seen)?;
                }
            }
            OutputFormat::Json => print_document(&document, OutputFormat::Json)?,
            OutputFormat::Ndjson => events.finish(document)?,
            OutputFormat::Csv => print::csv().write_all(report::interval_csv(&document).as_bytes())?,
            // The layout of nettest has no form for a failure.
            OutputFormat::Nettest if failure.is_some() => {}
            OutputFormat::Nettest => nettest::print(&document)?,
        }
        Ok(())
    }
}

/// Prints a stored result as it was printed after its test.
pub fn show(document: TestDocument) -> io::Result<()> {
    let TestDocument { origin, runs, unfinished, error, .. } = document;
    let mut place = text::TablePosition::First;
    for stored in runs {
        let test = test(&stored.request, &stored.near_socket, stored.path);
        let kernel = stored.far.kernel.clone().unwrap_or_default();
        let mut table = text::Table::new(&test, &origin.hosts, place, stored.bidirectional);
        place = text::TablePosition::Later;
        table.progress(&TestProgress::Connected(stored.handshake_rtt, &kernel));
        replay(&mut table, &stored.near.intervals, &stored.far.intervals);
        table.finish(&stored::restore(stored, &origin.hosts))?;
    }
    if let Some(seen) = unfinished {
        let test = test(&seen.request, &SocketRequest::default(), None);
        let mut table = text::Table::new(&test, &origin.hosts, place, false);
        table.progress(&TestProgress::Connected(seen.handshake_rtt.unwrap_or_default(), &Kernel::default()));
        replay(&mut table, &seen.near_intervals, &seen.far_intervals);
        table.finish_unfinished(&seen)?;
        let why = error.map_or("the command was killed".into(), |error| error.message);
        writeln!(print::out(), "\nthe test is unfinished: {why}")?;
    }
    Ok(())
}

fn test(request: &TestRequest, near: &SocketRequest, path: Option<PathProfile>) -> Test {
    Test {
        request: request.clone(),
        near_socket: near.clone(),
        path,
        tuned: false,
        round_to_rtt: false,
        target_precision: None,
        omit: None,
        stop: Default::default(),
    }
}

fn replay(table: &mut text::Table, near: &[Interval], far: &[Interval]) {
    for index in 0..near.len().max(far.len()) {
        near.get(index).iter().for_each(|interval| table.progress(&TestProgress::Near(interval)));
        far.get(index).iter().for_each(|interval| table.progress(&TestProgress::Far(interval)));
    }
}
