//! The server's end of a path session: answers probes on a stream of datagrams until the client has seen enough.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::wire::path::PathReady;

use super::mtu::{self, Port};
use crate::server::ServerSession;
use crate::session::datagram::PATH;
use crate::session::{DatagramStream, SessionError};

/// How soon the end of the session is noticed.
const LOOK_UP: Duration = Duration::from_millis(100);
/// How long a session may last at all: both searches, and what a slow path adds to them.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// Serves one path session.
pub(crate) fn serve(session: &mut ServerSession) -> Result<(), SessionError> {
    let deadline = Instant::now() + LONGEST;
    let datagrams = session.expect_datagrams(PATH..PATH + 1);
    let local = session.control.socket().local_addr();
    let interface_mtu_bytes = local.ok().and_then(|local| super::interface_mtu(local.ip()));
    session.control.send(&PathReady { interface_mtu_bytes })?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let failed = |source| SessionError::Io { peer: "the client", source };
        let over = &over;
        let work = move || {
            while !over.load(Ordering::Relaxed) {
                if let Some(stream) = datagrams.next(LOOK_UP) {
                    // What goes wrong with it the client sees as probes without an answer.
                    let _ = mtu::answer(&port(&stream), over);
                }
            }
        };
        thread::Builder::new().name("path probes".into()).spawn_scoped(scope, work).map_err(failed)?;
        let ended = until_closed(session, deadline);
        over.store(true, Ordering::Relaxed);
        ended
    })
}

/// Until the client closes; what it says meanwhile has no meaning.
fn until_closed(session: &mut ServerSession, deadline: Instant) -> Result<(), SessionError> {
    let while_doing = "during the path probes";
    while Instant::now() < deadline {
        match session.control.poll::<serde::de::IgnoredAny>(deadline - Instant::now(), while_doing) {
            Ok(_) => {}
            Err(SessionError::Closed { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Err(SessionError::Timeout { peer: "the client", after: LONGEST, while_doing })
}

/// A stream as both searches see it.
pub(super) fn port(stream: &DatagramStream) -> Port<'_> {
    Port { socket: stream.socket(), tag: stream.tag(), stream }
}
