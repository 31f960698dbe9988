//! Tests with an iperf3 server: the same results, with iperf3's protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lfn_measure::iperf3::client::{self, IperfOutcome, IperfProgress, IperfTest};
use lfn_measure::proto::iperf3::{LoadDirection, Parameters, ServerOutput};
use lfn_measure::tester::{self, Test, TestProgress};
use lfn_results::evidence::Evidence;
use lfn_results::iperf3_report::Iperf3Report;
use lfn_results::measure::{TestDirection, TestRequest};
use lfn_results::path_report::PathReport;
use serde_json::Value;

use super::error::TestVerbError;
use super::iperf3_parameters::Iperf3Address;
use super::options::{Iperf3Options, TestOptions};
use super::path::{KnownPaths, discover_alone, with_tcp_mtu};
use super::recorder::TestRecorder;

/// Timeout of one step of the protocol, and maximum time in the queue of the server.
const STEP_TIMEOUT: Duration = Duration::from_secs(15);
const QUEUE_TIMEOUT: Duration = Duration::from_secs(90);

/// An iperf3 server cleans up between two tests and accepts no connection during this time.
const PAUSE_BETWEEN_TESTS: Duration = Duration::from_millis(500);

/// All tests of one call with an iperf3 server.
pub(super) struct Iperf3Run<'a> {
    pub(super) options: &'a TestOptions,
    pub(super) iperf3: &'a Iperf3Options,
    pub(super) address: &'a Iperf3Address,
    pub(super) parameters: Parameters,
    pub(super) paths: KnownPaths,
    pub(super) stop: &'a Arc<AtomicBool>,
}

impl Iperf3Run<'_> {
    /// Runs one session for each direction, or one for both.
    pub(super) fn tests(&self, recorder: &mut TestRecorder<'_>) -> Result<(), TestVerbError> {
        let path = discover_alone(self.options, &self.address.host)?;
        for (number, direction) in self.directions().into_iter().enumerate() {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            if number > 0 {
                thread::sleep(PAUSE_BETWEEN_TESTS);
            }
            let parameters = Parameters { direction, ..self.parameters.clone() };
            self.session(parameters, path.as_ref(), recorder)?;
        }
        Ok(())
    }

    fn directions(&self) -> Vec<LoadDirection> {
        if self.options.bidirectional {
            return vec![LoadDirection::Both];
        }
        let load = |direction: &TestDirection| match direction {
            TestDirection::Forward => LoadDirection::Forward,
            TestDirection::Reverse => LoadDirection::Reverse,
        };
        self.options.directions.iter().map(load).collect()
    }

    /// Runs one session with the server: a test in one direction, or in both at the same time.
    fn session(
        &self,
        parameters: Parameters,
        path: Option<&PathReport>,
        recorder: &mut TestRecorder<'_>,
    ) -> Result<(), TestVerbError> {
        let directions: &[TestDirection] = match parameters.direction {
            LoadDirection::Forward => &[TestDirection::Forward],
            LoadDirection::Reverse => &[TestDirection::Reverse],
            LoadDirection::Both => &[TestDirection::Forward, TestDirection::Reverse],
        };
        let bidirectional = directions.len() > 1;
        let test = IperfTest {
            parameters,
            login: self.iperf3.login.clone(),
            interval: self.options.request.interval,
            step_timeout: STEP_TIMEOUT,
            queue_timeout: QUEUE_TIMEOUT,
            bind_addresses: self.options.bind_addresses.clone(),
            stop: Arc::clone(self.stop),
        };
        let mut numbers = Vec::new();
        for &direction in directions {
            let request = client::request(&test.parameters, test.interval, direction == TestDirection::Forward);
            numbers.push((direction, recorder.begin(&self.settings(request), bidirectional)));
        }
        let number = |direction| numbers.iter().find(|(known, _)| *known == direction).map(|(_, number)| *number);
        let kernel = tester::read_kernel();
        let mut watch = |progress: IperfProgress<'_>| match progress {
            IperfProgress::Connected(rtt) => {
                for (_, number) in &numbers {
                    recorder.progress(*number, &TestProgress::Connected(rtt, &kernel));
                }
            }
            IperfProgress::Interval(direction, near, far) => {
                let Some(number) = number(direction) else { return };
                recorder.progress(number, &TestProgress::Near(near));
                if let Some(far) = far {
                    recorder.progress(number, &TestProgress::Far(far));
                }
            }
        };
        let IperfOutcome { runs, output } = client::run(&self.address.host, self.address.port, &test, &mut watch)?;
        // An iperf3 server keeps reporting its output after one request.
        let mut output = output.filter(|_| self.iperf3.server_output).map(|output| match output {
            ServerOutput::Text(text) => Value::String(text),
            ServerOutput::Json(value) => value,
        });
        for evidence in runs {
            let Some(number) = number(evidence.request.direction) else { continue };
            let server_output = output.take();
            let evidence = Evidence {
                bidirectional,
                path: self.paths.get(evidence.request.direction),
                path_report: with_tcp_mtu(path, &evidence),
                omit: self.options.omit,
                near_socket: self.options.near_socket.clone(),
                iperf3: evidence.iperf3.clone().map(|report| Iperf3Report { server_output, ..report }),
                ..evidence
            };
            recorder.end(number, evidence);
        }
        Ok(())
    }

    /// Returns the settings of a test for its event.
    fn settings(&self, request: TestRequest) -> Test {
        Test {
            path: self.paths.get(request.direction),
            request,
            near_socket: self.options.near_socket.clone(),
            tuned: false,
            round_to_rtt: false,
            target_precision: None,
            omit: None,
            stop: Arc::default(),
        }
    }
}
