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

use lfn_api::pictures::of_test;
use lfn_api::test::TestEvent;
use lfn_base::path::PathProfile;
use lfn_measure::tester::{Test, TestProgress};
use lfn_results::evidence::HostNames;
use lfn_results::measure::{Interval, Kernel, SocketRequest, TestRequest};
use lfn_results::report::{self, CommandError, Run, TestDocument, TuningDocument};

use crate::exit::Failure;
use crate::print;
use crate::print::output::{Output, OutputFormat, print_document};

/// Prints the events and the document of a command's tests.
pub struct Printer {
    output: Output,
    hosts: HostNames,
    /// Display below the table, on a terminal.
    live: Option<live::LiveDisplay>,
    events: ndjson::Events,
    /// Tests so far; two may run at once.
    tests: Vec<TestView>,
    /// The tests are compared at the end, without tables and summaries of their own.
    compares: bool,
}

/// State of a test.
struct TestView {
    table: text::Table,
    is_connected: bool,
    is_over: bool,
}

impl Printer {
    /// Creates a printer for the tests of one command. `watched` enables the live display on a terminal, `compares`
    /// prints one comparison at the end instead of each test.
    pub fn new(output: Output, watched: bool, compares: bool) -> Self {
        let live = if watched && output.format() == OutputFormat::Text { live::LiveDisplay::new() } else { None };
        let (hosts, events) = (HostNames::default(), ndjson::Events::default());
        Printer { output, hosts, live, events, tests: Vec::new(), compares }
    }

    /// Prints an event of the tests.
    pub fn event(&mut self, event: &TestEvent<'_>) -> io::Result<()> {
        match event {
            TestEvent::Started(origin) => {
                self.hosts = origin.hosts.clone();
                if self.output.format() == OutputFormat::Ndjson {
                    self.events.start(origin);
                }
            }
            TestEvent::ServerFound(name) => (*name).clone_into(&mut self.hosts.far),
            TestEvent::Begin { test, settings, bidirectional } => self.begin_test(*test, settings, *bidirectional),
            TestEvent::Progress { test, progress } => self.progress(*test, progress),
            TestEvent::End { test, run } => self.end_test(*test, run)?,
        }
        Ok(())
    }

    fn begin_test(&mut self, number: usize, test: &Test, at_once: bool) {
        let is_later = self.tests.iter().any(|seen| seen.is_over);
        let place = if is_later { text::TablePosition::Later } else { text::TablePosition::First };
        let table = text::Table::new(test, &self.hosts, place, at_once);
        self.tests.push(TestView { table, is_connected: false, is_over: false });
        if let Some(live) = &mut self.live {
            live.begin(number, test);
        } else if self.output.format() == OutputFormat::Ndjson {
            self.events.begin(test);
        }
    }

    fn progress(&mut self, number: usize, progress: &TestProgress<'_>) {
        let has_head = |seen: &TestView| seen.is_connected && !seen.is_over;
        let other_has_head = self.tests.iter().any(has_head);
        let seen = &mut self.tests[number];
        if let TestProgress::Connected(..) = progress {
            if other_has_head {
                // Two tests at once share the head of the first one.
                seen.table.interleave();
            }
            seen.is_connected = true;
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

    fn end_test(&mut self, number: usize, run: &Run) -> io::Result<()> {
        self.live.iter_mut().for_each(live::LiveDisplay::end);
        let seen = &mut self.tests[number];
        seen.is_over = true;
        match self.output.format() {
            OutputFormat::Text if self.compares => {}
            OutputFormat::Text => seen.table.finish(run)?,
            OutputFormat::Ndjson => self.events.findings(number, &run.diagnosis.findings),
            _ => {}
        }
        Ok(())
    }

    /// Prints and stores the results of all tests, with the figures of a failed one.
    pub fn finish(mut self, mut document: TestDocument, failure: Option<&Failure>) -> Result<(), Failure> {
        self.live = None;
        document.error = failure.map(command_error).or(document.error);
        let Printer { mut output, events, tests, .. } = self;
        output.set_album(|| of_test(&document));
        output.write_report(&document)?;
        match output.format() {
            OutputFormat::Text => {
                // If two tests failed together, the document has the first one.
                let table = tests.into_iter().find(|seen| !seen.is_over).map(|seen| seen.table);
                if let (Some(mut table), Some(seen)) = (table, &document.unfinished) {
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

    /// Prints and stores the comparison, with the figures of a failed test.
    pub fn finish_comparison(mut self, mut document: TuningDocument, failure: Option<&Failure>) -> Result<(), Failure> {
        self.live = None;
        document.error = failure.map(command_error).or(document.error);
        tuning::finish(&document, self.output)
    }
}

/// Returns the failure as a part of the document, with the flags of its hint.
fn command_error(failure: &Failure) -> CommandError {
    let (message, hint) = failure.lines();
    CommandError { message, hint }
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
