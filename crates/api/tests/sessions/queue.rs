//! Tests of sessions that are stopped while they wait in the queue.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use lfn_api::service;
use lfn_measure::tester::{self, Test, TestError};
use lfn_results::evidence::EndReason;
use lfn_results::measure::{SocketRequest, TestDirection, TestLoad, TestRequest};
use lfn_session::limits::admission::{AdmissionOutcome, Grant};
use lfn_session::limits::{ResourceLimits, ResourceRequest, ServerLimits};
use lfn_session::server::ServerConfig;
use support::TestServer;

use crate::support;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Starts a server with room for one session.
fn single_session_server() -> TestServer {
    let total = ResourceLimits { sessions: 1, ..ServerLimits::default().total };
    TestServer::start(
        ServerConfig { limits: ServerLimits { total, ..ServerLimits::default() }, ..support::config() },
        service::new(),
    )
}

fn test(direction: TestDirection, time: Duration) -> Test {
    Test {
        request: TestRequest { direction, load: TestLoad::TimeSeconds(time), ..TestRequest::default() },
        near_socket: SocketRequest::default(),
        path: None,
        tuned: false,
        round_to_rtt: false,
        target_precision: None,
        omit: None,
        stop: Default::default(),
    }
}

/// Occupies the only session slot.
fn occupy(server: &TestServer) -> Grant {
    match server.admission.request([127, 0, 0, 1].into(), ResourceRequest { streams: 1, ..ResourceRequest::default() })
    {
        AdmissionOutcome::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn stopped_test_leaves_the_queue() {
    let server = single_session_server();
    let slot = occupy(&server);
    let (target, test) = (server.target(), test(TestDirection::Forward, Duration::from_secs(60)));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| tester::run(&target, &test, &mut |_| panic!("the test has not started")));
        wait_for("the test is queued", || server.admission.waiting() == 1);
        test.stop.store(true, Ordering::Relaxed);
        let result = waiting.join().unwrap();
        assert!(matches!(result, Err(TestError::Stopped)), "{result:?}");
    });
    wait_for("the test leaves the queue", || server.admission.waiting() == 0);
    drop(slot);
}

#[test]
fn queued_half_of_a_bidirectional_test_is_stopped() {
    let server = single_session_server();
    let [forward, reverse] =
        [TestDirection::Forward, TestDirection::Reverse].map(|direction| test(direction, Duration::from_millis(300)));
    let results = tester::run_both(&server.target(), [&forward, &reverse], &mut |_, _| {});
    // The order of the two is random.
    let count = |wanted: fn(&TestError) -> bool| results.iter().filter(|one| one.as_ref().is_err_and(wanted)).count();
    let not_simultaneous = count(|error| matches!(error, TestError::NotSimultaneous));
    let stopped = count(|error| matches!(error, TestError::Stopped));
    // The test may have been admitted just before it was stopped.
    let interrupted = results.iter().flatten().filter(|one| one.ended == EndReason::Interrupted).count();
    assert_eq!((not_simultaneous, stopped + interrupted), (1, 1), "{results:?}");
}
