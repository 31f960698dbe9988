//! The examined server, which may stop answering: each part has short time-outs, and no part waits for a silent server twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lfn_measure::facts;
use lfn_measure::tester::{self, Test, TestError, TestProgress};
use lfn_results::evidence::Evidence;
use lfn_session::SessionError;
use lfn_session::dial::Target;
use lfn_session::wire::RefusalCode;

/// Maximum time to connect, with the handshake. A handshake with two lost packets takes 3 s and a few round trips.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const QUICK_CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum time without a message of a running load. Longer outages end the load.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(15);
const QUICK_SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns true for an error that each session of this client has: a wrong key or token, or another version of lfn or TLS.
pub(super) fn refuses_each_session(error: &SessionError) -> bool {
    let codes = [RefusalCode::WrongToken, RefusalCode::ExpiredToken, RefusalCode::Protocol];
    match error {
        SessionError::WrongFingerprint { .. } | SessionError::Tls { .. } => true,
        SessionError::Refused(refusal) => codes.contains(&refusal.code),
        _ => false,
    }
}

/// Server of an examination.
pub(super) struct ExaminedServer {
    target: Target,
    /// The server does not answer new connections.
    is_silent: AtomicBool,
}

impl ExaminedServer {
    /// Shortens the time-outs of a server to those of an examination.
    pub(super) fn new(target: &Target, quick: bool) -> Self {
        let (connect, silence) = match quick {
            true => (QUICK_CONNECT_TIMEOUT, QUICK_SILENCE_TIMEOUT),
            false => (CONNECT_TIMEOUT, SILENCE_TIMEOUT),
        };
        let mut target = target.clone();
        target.connect_timeout = target.connect_timeout.min(connect);
        target.silence_timeout = target.silence_timeout.min(silence);
        ExaminedServer { target, is_silent: AtomicBool::new(false) }
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Runs a test, unless the server does not answer new connections.
    pub(super) fn run(
        &self,
        test: &Test,
        on_progress: &mut dyn FnMut(TestProgress<'_>),
    ) -> Result<Evidence, TestError> {
        if self.is_silent.load(Ordering::Relaxed) {
            let (peer, while_doing) = ("the server", "to a new connection");
            return Err(SessionError::Timeout { peer, after: self.target.connect_timeout, while_doing }.into());
        }
        let result = tester::run(&self.target, test, on_progress);
        if let Err(TestError::Session(error)) = &result {
            self.check_after(error);
        }
        result
    }

    /// After a time-out, checks that the server answers a new connection. Over an MTU black hole, a load gets no answer from a
    /// server that answers small packets.
    pub(super) fn check_after(&self, error: &SessionError) {
        if matches!(error, SessionError::Timeout { .. }) {
            let is_silent = !facts::is_answered(&self.target);
            self.is_silent.fetch_or(is_silent, Ordering::Relaxed);
        }
    }
}
