//! Server of a path session: answers probes on a datagram stream until the client closes the session.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_session::datagram::PATH_STREAM;
use lfn_session::server::ServerSession;
use lfn_session::wire::path::{MAX_SESSION_TIME, PathReady};
use lfn_session::{DatagramStream, SessionError};

use super::mtu::{self, ProbeSocket};

/// Maximum delay until the end of the session is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Serves one path session.
#[inline(never)]
pub fn serve(session: &mut ServerSession) -> Result<(), SessionError> {
    let deadline = Instant::now() + MAX_SESSION_TIME;
    let datagrams = session.expect_datagrams(PATH_STREAM..PATH_STREAM + 1);
    let local = session.control.handle().local_address();
    let interface_mtu_bytes = local.ok().and_then(|local| super::interface_mtu(local.ip()));
    session.control.send(&PathReady { interface_mtu_bytes })?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let failed = |source| SessionError::Io { peer: "the client", source };
        let stop = &stop;
        let work = move || {
            while !stop.load(Ordering::Relaxed) {
                if let Some(stream) = datagrams.next(POLL_INTERVAL) {
                    // The client sees a failure as missing replies.
                    let _ = mtu::answer_probes(&probe_socket(&stream), stop);
                }
            }
        };
        thread::Builder::new().name("path probes".into()).spawn_scoped(scope, work).map_err(failed)?;
        let result = wait_until_closed(session, deadline);
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// Waits until the client closes the session. Messages of the client are ignored.
fn wait_until_closed(session: &mut ServerSession, deadline: Instant) -> Result<(), SessionError> {
    let while_doing = "during the path probes";
    while Instant::now() < deadline {
        match session.control.poll::<serde::de::IgnoredAny>(deadline - Instant::now(), while_doing) {
            Ok(_) => {}
            Err(SessionError::Closed { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Err(SessionError::Timeout { peer: "the client", after: MAX_SESSION_TIME, while_doing })
}

/// Returns the probe socket of a datagram stream.
pub(super) fn probe_socket(stream: &DatagramStream) -> ProbeSocket<'_> {
    ProbeSocket { socket: stream.socket(), tag: stream.tag(), stream }
}
