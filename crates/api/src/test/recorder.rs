//! Record of the tests of one call: reports their events, and keeps their figures for the document.

use lfn_measure::tester::{Test, TestProgress};
use lfn_results::evidence::{Evidence, TypedArgument};
use lfn_results::measure::TestDirection;
use lfn_results::report::{CommandError, Origin, Run, TestDocument, TestSchema, TuningDocument, UnfinishedTest};

use super::event::TestEvent;

/// Record of the tests of one call. Its events are those of the caller.
pub(super) struct TestRecorder<'a> {
    pub(super) origin: Origin,
    /// Arguments of the command that repeats a test, without its direction.
    pub(super) arguments: Vec<TypedArgument>,
    runs: Vec<Run>,
    /// Figures so far of each test that has no result.
    unfinished: Vec<Option<UnfinishedTest>>,
    on_event: &'a mut dyn FnMut(&TestEvent<'_>),
}

impl<'a> TestRecorder<'a> {
    pub(super) fn new(
        origin: Origin,
        arguments: Vec<TypedArgument>,
        on_event: &'a mut dyn FnMut(&TestEvent<'_>),
    ) -> Self {
        on_event(&TestEvent::Started(&origin));
        TestRecorder { origin, arguments, runs: Vec::new(), unfinished: Vec::new(), on_event }
    }

    /// Sets the name of the server.
    pub(super) fn set_far_name(&mut self, name: String) {
        self.origin.hosts.far = name;
        (self.on_event)(&TestEvent::ServerFound(&self.origin.hosts.far));
    }

    /// Begins a test, and returns its number.
    pub(super) fn begin(&mut self, settings: &Test, bidirectional: bool) -> usize {
        let test = self.unfinished.len();
        self.unfinished.push(Some(UnfinishedTest::new(settings.request.clone())));
        (self.on_event)(&TestEvent::Begin { test, settings, bidirectional });
        test
    }

    /// Adds the progress of a test.
    pub(super) fn progress(&mut self, test: usize, progress: &TestProgress<'_>) {
        if let Some(seen) = &mut self.unfinished[test] {
            match progress {
                TestProgress::Connected(rtt, _) => seen.handshake_rtt = Some(*rtt),
                TestProgress::Near(interval) => seen.near_intervals.push((*interval).clone()),
                TestProgress::Far(interval) => seen.far_intervals.push((*interval).clone()),
                TestProgress::Step(ramp) => seen.ramp = Some((*ramp).clone()),
            }
        }
        (self.on_event)(&TestEvent::Progress { test, progress });
    }

    /// Diagnoses the evidence of a test, and adds the result.
    pub(super) fn end(&mut self, test: usize, evidence: Evidence) -> &Run {
        let run = Run::new(self.complete(evidence));
        self.unfinished[test] = None;
        (self.on_event)(&TestEvent::End { test, run: &run });
        self.runs.push(run);
        &self.runs[self.runs.len() - 1]
    }

    /// Completes the evidence with the names of the hosts and with the arguments that repeat the test.
    fn complete(&self, evidence: Evidence) -> Evidence {
        // The remedy is tried in the same direction.
        let direction = match evidence.request.direction {
            _ if evidence.bidirectional => Some("bidir"),
            TestDirection::Forward => None,
            TestDirection::Reverse => Some("reverse"),
        };
        let direction = direction.map(|name| TypedArgument { flag: Some(name.to_owned()), text: format!("--{name}") });
        let arguments = self.arguments.iter().cloned().chain(direction).collect();
        Evidence { hosts: self.origin.hosts.clone(), arguments, ..evidence }
    }

    /// Returns the result of all tests. If two tests failed together, the result has the figures of the first one.
    pub(super) fn document(self, error: Option<CommandError>) -> TestDocument {
        let unfinished = self.unfinished.into_iter().flatten().next();
        TestDocument { schema: TestSchema::V3, origin: self.origin, runs: self.runs, unfinished, error }
    }

    /// Returns the comparison of all tests.
    pub(super) fn tuning_document(self, error: Option<CommandError>) -> TuningDocument {
        let TestDocument { origin, runs, unfinished, error, .. } = self.document(error);
        TuningDocument::new(origin, runs, unfinished, error)
    }
}
