//! The events of a running test, a line each, at once: schema `lfn.test.event/2`.

use std::io::{self, Write};

use lfn_core::report::{Document, Event, EventSchema, Finding, Origin, Side};
use lfn_core::units::Bytes;
use lfn_core::wire::test::{Direction, Interval};
use lfn_net::tester::{Progress, Test};

use crate::print;

/// Tells the events of one command; an error of the output waits for [`Events::finish`]: the test goes on.
#[derive(Default)]
pub struct Events {
    /// Those of the tests so far.
    directions: Vec<Direction>,
    failed: Option<io::Error>,
}

impl Events {
    pub fn start(&mut self, origin: &Origin) {
        self.tell(&Event::Start { schema: EventSchema::Two, origin: origin.clone() });
    }

    pub fn begin(&mut self, test: &Test) {
        let run = number(self.directions.len());
        self.directions.push(test.request.direction);
        self.tell(&Event::Run { run, request: test.request.clone(), path: test.path });
    }

    pub fn progress(&mut self, test: usize, progress: &Progress<'_>) {
        let run = number(test);
        let event = match progress {
            Progress::Connected(rtt, kernel) => {
                Event::Connected { run, handshake_rtt: *rtt, far_kernel: (*kernel).clone() }
            }
            Progress::Near(interval) => self.interval(test, Side::Near, interval),
            Progress::Far(interval) => self.interval(test, Side::Far, interval),
            Progress::Step(ramp) => Event::Step { run, ramp: (*ramp).clone() },
        };
        self.tell(&event);
    }

    pub fn findings(&mut self, test: usize, findings: &[Finding]) {
        for finding in findings {
            self.tell(&Event::Finding { run: number(test), finding: finding.clone() });
        }
    }

    /// The last line, which holds the whole result.
    pub fn finish(mut self, document: Document) -> io::Result<()> {
        self.tell(&Event::End { result: Box::new(document) });
        self.failed.map_or(Ok(()), Err)
    }

    fn interval(&self, test: usize, end: Side, interval: &Interval) -> Event {
        let sends = self.directions.get(test).is_some_and(|&direction| Side::of(direction).0 == end);
        let rate = Bytes(interval.bytes).per(interval.end.saturating_sub(interval.start));
        Event::Interval { run: number(test), end, sends, rate, interval: interval.clone() }
    }

    fn tell(&mut self, event: &Event) {
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

/// In one write: whoever reads along never sees half a line.
fn line(event: &Event) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    let mut out = print::json();
    out.write_all(&line)?;
    out.flush()
}
