//! Connections of the server: their limits, and the first bytes of each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lfn_session::limits::connection_table::ConnectionSlot;
use lfn_session::server::ServerEvent;
use lfn_session::server::accept::{
    AcceptLoop, AcceptSettings, AcceptedConnection, ConnectionServer, RefusedConnection, StopSignal, WhenFull,
};
use lfn_session::server::event::RefusedReason;
use lfn_session::transport::tcp::{Listener, TcpConnection};

use super::arrivals::ArrivedConnection;
use super::session::IperfSession;
use super::{IperfServer, IperfServerState};
use crate::iperf3::Error;
use crate::iperf3::control::IperfControl;
use crate::proto::iperf3::{COOKIE_LENGTH, Cookie, TestState};

/// Interval at which the accept loop checks its stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Stack of a connection's thread, which also runs the test.
const STACK_SIZE: usize = 2 << 20;

/// Maximum time in which a stopped server informs its clients.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);

impl IperfServer {
    /// Serves until `stop` is set, and then informs the clients of the stop.
    pub fn run(&self, stop: &AtomicBool) {
        let accept_loop = AcceptLoop {
            server: self.shared.clone(),
            connections: self.shared.connections.clone(),
            settings: AcceptSettings {
                thread_name: "iperf3",
                stack_size: STACK_SIZE,
                poll_interval: POLL_INTERVAL,
                when_full: WhenFull::Refuse,
            },
        };
        thread::scope(|scope| {
            scope.spawn(|| self.udp.run(&self.shared.udp, stop));
            let is_set = || stop.load(Ordering::Relaxed);
            accept_loop.run(std::slice::from_ref(&self.listener), StopSignal::When(&is_set));
        });
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.sessions.join(CLEANUP_TIMEOUT);
    }
}

impl ConnectionServer for IperfServerState {
    type Listener = Listener;

    fn serve(self: Arc<Self>, accepted: AcceptedConnection<TcpConnection>) -> Result<(), RefusedConnection> {
        let AcceptedConnection { connection, peer, slot } = accepted;
        let closed = slot.closed_flag();
        serve_connection(&self, connection, peer, slot).map_err(|error| {
            let reason = if closed.load(Ordering::Relaxed) { RefusedReason::Silent } else { refused_reason(&error) };
            RefusedConnection { reason, text: error.to_string() }
        })
    }

    fn permits(&self, _connection: &TcpConnection, peer: SocketAddr) -> bool {
        self.config.access.permits(peer.ip())
    }

    fn log(&self, event: ServerEvent<'_>) {
        (self.log)(event);
    }

    fn refuse(&self, connection: TcpConnection) {
        // One byte into an empty send buffer does not block. The client may be gone.
        let _ = IperfControl::new(connection, "the client")
            .and_then(|mut control| control.send(TestState::AccessDenied, "at its hello"));
    }
}

fn refused_reason(error: &Error) -> RefusedReason {
    match error {
        Error::Timeout { .. } => RefusedReason::Silent,
        Error::Denied(_) => RefusedReason::Token,
        _ => RefusedReason::Hello,
    }
}

/// Serves one connection from its first byte: a stream goes to its test, any other connection starts one.
fn serve_connection(
    shared: &Arc<IperfServerState>,
    connection: TcpConnection,
    peer: SocketAddr,
    slot: ConnectionSlot,
) -> Result<(), Error> {
    let mut control = IperfControl::new(connection, "the client")?;
    let mut cookie = [0; COOKIE_LENGTH];
    control.read(&mut cookie, shared.config.timeouts.step_timeout, "before its cookie")?;
    slot.note_data();
    let cookie = Cookie::from_wire(cookie);
    let arrived = ArrivedConnection { control, slot };
    let Some(ArrivedConnection { control, slot }) = shared.arrivals.deliver(&cookie, peer.ip(), arrived) else {
        return Ok(());
    };
    let _session = shared.sessions.open();
    IperfSession::new(shared.clone(), control, peer, cookie, slot).run()
}
