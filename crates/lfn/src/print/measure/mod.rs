//! Results of tests: text for the user, JSON at the end, NDJSON during the tests, CSV, and the layout of nettest from
//! 1995.
//!
//! All formats are made from the same document, which `--report` writes and `lfn show` reads.

mod live;
mod ndjson;
mod nettest;
mod text;
pub mod tuning;

use std::io::{self, Write};

use lfn_core::path::PathProfile;
use lfn_core::report::{
    self, CommandError, HostNames, Origin, Run, TestDocument, TestSchema, TuningDocument, UnfinishedTest,
};
use lfn_core::wire::measure::{Interval, Kernel, SocketRequest, TestRequest};
use lfn_net::tester::{Test, TestProgress};

use crate::exit::Failure;
use crate::print;
use crate::print::output::{Output, OutputFormat, print_document};

/// Prints the tests of a command, and keeps their results for the document.
pub struct Printer {
    output: Output,
    origin: Origin,
    /// Display below the table, on a terminal.
    live: Option<live::LiveDisplay>,
    events: ndjson::Events,
    runs: Vec<Run>,
    /// Tests so far; two may run at once.
    tests: Vec<TestView>,
    /// The tests are compared at the end, without tables and summaries of their own.
    compares: bool,
}

/// State of a test.
struct TestView {
    table: text::Table,
    /// Figures so far, while the test runs.
    unfinished: Option<UnfinishedTest>,
}

impl Printer {
    /// Creates a printer for the tests of one command. `watched` enables the live display on a terminal.
    pub fn new(output: Output, origin: Origin, watched: bool) -> Self {
        let format = output.format();
        let mut events = ndjson::Events::default();
        if format == OutputFormat::Ndjson {
            events.start(&origin);
        }
        let live = if watched && format == OutputFormat::Text { live::LiveDisplay::new() } else { None };
        Printer { output, origin, live, events, runs: Vec::new(), tests: Vec::new(), compares: false }
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
        self.tests.push(TestView { table, unfinished });
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
    pub fn end_test(&mut self, number: usize, run: Run) -> io::Result<()> {
        self.live.iter_mut().for_each(live::LiveDisplay::end);
        let seen = &mut self.tests[number];
        match self.output.format() {
            OutputFormat::Text if self.compares => {}
            OutputFormat::Text => seen.table.finish(&run)?,
            OutputFormat::Ndjson => self.events.findings(number, &run.diagnosis.findings),
            _ => {}
        }
        seen.unfinished = None;
        self.runs.push(run);
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
    for mut run in runs {
        let evidence = &mut run.evidence;
        if evidence.hosts == HostNames::default() {
            // Results of earlier versions have the names of the hosts only in their origin.
            evidence.hosts = origin.hosts.clone();
        }
        let test = test(&evidence.request, &evidence.near_socket, evidence.path);
        let kernel = evidence.far.kernel.clone().unwrap_or_default();
        let mut table = text::Table::new(&test, &origin.hosts, place, evidence.bidirectional);
        place = text::TablePosition::Later;
        table.progress(&TestProgress::Connected(evidence.handshake_rtt, &kernel));
        replay(&mut table, &evidence.near.intervals, &evidence.far.intervals);
        table.finish(&run)?;
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
