//! Events of a running test, one line each: schema `lfn.test.event/3`.

use std::io::{self, Write};

use lfn_base::units::Bytes;
use lfn_measure::tester::{Test, TestProgress};
use lfn_results::diagnose::Finding;
use lfn_results::evidence::Side;
use lfn_results::measure::{Interval, TestDirection};
use lfn_results::report::{EventSchema, Origin, TestDocument, TestEvent};

use crate::print;
use crate::print::output::set_document_printed;

/// Prints the events of one command. An output error is kept for [`Events::finish`], because the test goes on.
#[derive(Default)]
pub struct Events {
    /// Directions of the tests so far.
    directions: Vec<TestDirection>,
    failed: Option<io::Error>,
}

impl Events {
    /// Prints the `start` event with the origin of the test.
    pub fn start(&mut self, origin: &Origin) {
        self.print_event(&TestEvent::Start { schema: EventSchema::V3, origin: origin.clone() });
    }

    /// Prints the `run` event of a test that begins.
    pub fn begin(&mut self, test: &Test) {
        let run = number(self.directions.len());
        self.directions.push(test.request.direction);
        self.print_event(&TestEvent::Run { run, request: test.request.clone(), path: test.path });
    }

    /// Prints the event of a progress message: connected, interval or step.
    pub fn progress(&mut self, test: usize, progress: &TestProgress<'_>) {
        let run = number(test);
        let event = match progress {
            TestProgress::Connected(rtt, kernel) => {
                TestEvent::Connected { run, handshake_rtt: *rtt, far_kernel: (*kernel).clone() }
            }
            TestProgress::Near(interval) => self.interval(test, Side::Near, interval),
            TestProgress::Far(interval) => self.interval(test, Side::Far, interval),
            TestProgress::Step(ramp) => TestEvent::Step { run, ramp: (*ramp).clone() },
        };
        self.print_event(&event);
    }

    /// Prints one `finding` event per finding of a run.
    pub fn findings(&mut self, test: usize, findings: &[Finding]) {
        for finding in findings {
            self.print_event(&TestEvent::Finding { run: number(test), finding: finding.clone() });
        }
    }

    /// Prints the last line, which has the whole result.
    pub fn finish(mut self, document: TestDocument) -> io::Result<()> {
        set_document_printed();
        self.print_event(&TestEvent::End { result: Box::new(document) });
        self.failed.map_or(Ok(()), Err)
    }

    fn interval(&self, test: usize, end: Side, interval: &Interval) -> TestEvent {
        let sends = self.directions.get(test).is_some_and(|&direction| Side::sender_and_receiver(direction).0 == end);
        let rate = Bytes(interval.bytes).per(interval.end.saturating_sub(interval.start));
        TestEvent::Interval { run: number(test), end, sends, rate, interval: interval.clone() }
    }

    fn print_event(&mut self, event: &TestEvent) {
        if self.failed.is_some() {
            return;
        }
        if let Err(error) = line(event) {
            self.failed = Some(error);
        }
    }
}

fn number(test: usize) -> u16 {
    u16::try_from(test).unwrap_or(u16::MAX)
}

/// Writes one line in one call, so that a reader never sees half a line.
fn line(event: &TestEvent) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    let mut out = print::json();
    out.write_all(&line)?;
    out.flush()
}
