//! A test in lock-step with a server of an earlier version, which ignores the request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_measure::tester::{self, Test, TestError};
use lfn_results::measure::{ClientMessage, Kernel, Ready, ServerMessage, SocketRequest, TestDirection, TestRequest};
use lfn_session::SessionError;
use lfn_session::server::ServerSession;
use lfn_session::wire::Request;

use crate::support::{self, TestServer};

/// Answers like a server that does not know lock-step.
fn earlier_version(session: &mut ServerSession, _: &Request) -> Result<(), SessionError> {
    let ready = Ready { port: None, kernel: Kernel::default(), rate_limit: None, lockstep: false };
    let mut message = serde_json::to_value(ServerMessage::Ready(Box::new(ready))).unwrap();
    assert!(message.as_object_mut().unwrap().remove("lockstep").is_none(), "an absent field means that it is unknown");
    session.control.send(&message)?;
    while session.control.poll::<ClientMessage>(Duration::from_secs(20), "during the test").is_ok() {}
    Ok(())
}

#[test]
fn earlier_server_is_a_clear_error_at_once() {
    let server = TestServer::start(support::config(), earlier_version);
    for direction in [TestDirection::Forward, TestDirection::Reverse] {
        let request = TestRequest { direction, lockstep: true, ..TestRequest::default() };
        let begun = Instant::now();
        let test = Test {
            request,
            near_socket: SocketRequest::default(),
            path: None,
            tuned: false,
            round_to_rtt: false,
            target_precision: None,
            omit: None,
            stop: Arc::default(),
        };
        let error = tester::run(&server.target(), &test, &mut |_| ()).unwrap_err();
        assert!(matches!(error, TestError::NoLockstep), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("on the server")), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(10), "no wait for an answer to the first block");
    }
}
