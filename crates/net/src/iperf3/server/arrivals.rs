//! Data connections on their way to the test they belong to, by cookie.

use std::collections::HashMap;
use std::net::{IpAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lfn_core::iperf3::Cookie;

use super::super::control::Control;

/// Tests that wait for streams.
#[derive(Debug, Default)]
pub(super) struct Arrivals(Mutex<HashMap<Cookie, Waiting>>);

#[derive(Debug)]
struct Waiting {
    /// Only from the client's own address: a cookie is sent in the clear.
    from: IpAddr,
    streams: Sender<(u64, TcpStream)>,
}

/// One test's place among those that wait. Dropping it leaves.
#[derive(Debug)]
pub(super) struct Expected<'a> {
    arrivals: &'a Arrivals,
    cookie: Cookie,
    streams: Receiver<(u64, TcpStream)>,
    came: Vec<(u64, TcpStream)>,
}

impl Arrivals {
    /// Begins to wait; `None` if another test waits with the same cookie.
    pub(super) fn expect(&self, cookie: Cookie, from: IpAddr) -> Option<Expected<'_>> {
        let (sender, streams) = channel();
        let mut waiting = self.lock();
        if waiting.contains_key(&cookie) {
            return None;
        }
        waiting.insert(cookie, Waiting { from, streams: sender });
        Some(Expected { arrivals: self, cookie, streams, came: Vec::new() })
    }

    /// Gives a connection to the test that waits for it; gives it back where none does.
    pub(super) fn deliver(&self, cookie: &Cookie, from: IpAddr, number: u64, control: Control) -> Option<Control> {
        let waiting = self.lock();
        let Some(test) = waiting.get(cookie).filter(|test| test.from == from) else { return Some(control) };
        // A test that has all its streams does not listen any more: the connection is closed.
        let _ = test.streams.send((number, control.into_socket()));
        None
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Cookie, Waiting>> {
        // No thread panics while it holds it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Expected<'_> {
    /// Waits until `count` streams came, at most until `until`; says how many there are.
    pub(super) fn wait(&mut self, count: usize, until: Instant) -> usize {
        while self.came.len() < count {
            match self.streams.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(stream) => self.came.push(stream),
                Err(_) => break,
            }
        }
        self.came.len()
    }

    /// Those that came, in the order they were accepted, which is the order the client made them in.
    pub(super) fn take(mut self) -> Vec<TcpStream> {
        let mut came = std::mem::take(&mut self.came);
        came.sort_by_key(|(number, _)| *number);
        came.into_iter().map(|(_, socket)| socket).collect()
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.arrivals.lock().remove(&self.cookie);
    }
}

/// How long one look at the streams takes at most, before the control connection is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(50);
