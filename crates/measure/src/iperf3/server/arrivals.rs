//! Assignment of data connections to their tests, by cookie.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use lfn_session::limits::connection_table::ConnectionSlot;
use lfn_session::transport::tcp::TcpSocket;
use parking_lot::Mutex;

use super::super::control::IperfControl;
use crate::proto::iperf3::Cookie;

/// A connection that has sent a cookie.
#[derive(Debug)]
pub(super) struct ArrivedConnection {
    pub control: IperfControl,
    pub slot: ConnectionSlot,
}

/// Tests that wait for streams.
#[derive(Debug, Default)]
pub(super) struct StreamRendezvous(Mutex<HashMap<Cookie, WaitingTest>>);

#[derive(Debug)]
struct WaitingTest {
    /// Only the client's own address may open streams, because the cookie is sent in cleartext.
    from: IpAddr,
    streams: Sender<ArrivedConnection>,
    /// Number of streams that the test still needs.
    missing: usize,
}

/// Streams that one test waits for. Dropping it ends the wait.
#[derive(Debug)]
pub(super) struct ExpectedTcpStreams<'a> {
    rendezvous: &'a StreamRendezvous,
    cookie: Cookie,
    streams: Receiver<ArrivedConnection>,
    arrived: Vec<ArrivedConnection>,
}

impl StreamRendezvous {
    /// Starts to wait for `count` streams; `None` if another test waits with the same cookie.
    pub(super) fn expect(&self, cookie: Cookie, from: IpAddr, count: usize) -> Option<ExpectedTcpStreams<'_>> {
        let (sender, streams) = channel();
        let mut waiting = self.0.lock();
        if waiting.contains_key(&cookie) {
            return None;
        }
        waiting.insert(cookie, WaitingTest { from, streams: sender, missing: count });
        Some(ExpectedTcpStreams { rendezvous: self, cookie, streams, arrived: Vec::new() })
    }

    /// Gives a connection to the test that waits for it; returns it if no test does.
    pub(super) fn deliver(
        &self,
        cookie: &Cookie,
        from: IpAddr,
        arrived: ArrivedConnection,
    ) -> Option<ArrivedConnection> {
        let mut waiting = self.0.lock();
        let Some(test) = waiting.get_mut(cookie).filter(|test| test.from == from) else { return Some(arrived) };
        // Surplus connections are closed.
        if test.missing > 0 && arrived.slot.authenticate() {
            test.missing -= 1;
            let _ = test.streams.send(arrived);
        }
        None
    }
}

impl ExpectedTcpStreams<'_> {
    /// Waits until `count` streams have arrived, or until `until`. Returns the number of streams.
    pub(super) fn wait(&mut self, count: usize, until: Instant) -> usize {
        while self.arrived.len() < count {
            match self.streams.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(stream) => self.arrived.push(stream),
                Err(_) => break,
            }
        }
        self.arrived.len()
    }

    /// Returns the streams in the order of acceptance, which is the order in which the client opened them.
    pub(super) fn take(mut self) -> Vec<(TcpSocket, ConnectionSlot)> {
        let mut arrived = std::mem::take(&mut self.arrived);
        arrived.sort_by_key(|connection| connection.slot.id());
        arrived.into_iter().map(|connection| (connection.control.into_socket(), connection.slot)).collect()
    }
}

impl Drop for ExpectedTcpStreams<'_> {
    fn drop(&mut self) {
        self.rendezvous.0.lock().remove(&self.cookie);
    }
}
