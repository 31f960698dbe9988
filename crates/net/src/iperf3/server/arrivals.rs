//! Data connections on their way to the test they belong to, by cookie.

use std::collections::HashMap;
use std::net::{IpAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lfn_core::iperf3::Cookie;

use super::super::control::Control;
use crate::server::doors::Watch;

/// A connection that has shown a cookie.
#[derive(Debug)]
pub(super) struct Arrived {
    /// Its place in the order they were accepted.
    pub number: u64,
    pub control: Control,
    pub watch: Watch,
}

/// Tests that wait for streams.
#[derive(Debug, Default)]
pub(super) struct Arrivals(Mutex<HashMap<Cookie, Waiting>>);

#[derive(Debug)]
struct Waiting {
    /// Only from the client's own address: a cookie is sent in the clear.
    from: IpAddr,
    streams: Sender<Arrived>,
    /// How many more it needs.
    left: usize,
}

/// One test's place among those that wait. Dropping it leaves.
#[derive(Debug)]
pub(super) struct Expected<'a> {
    arrivals: &'a Arrivals,
    cookie: Cookie,
    streams: Receiver<Arrived>,
    came: Vec<Arrived>,
}

impl Arrivals {
    /// Begins to wait for `count` streams; `None` if another test waits with the same cookie.
    pub(super) fn expect(&self, cookie: Cookie, from: IpAddr, count: usize) -> Option<Expected<'_>> {
        let (sender, streams) = channel();
        let mut waiting = self.lock();
        if waiting.contains_key(&cookie) {
            return None;
        }
        waiting.insert(cookie, Waiting { from, streams: sender, left: count });
        Some(Expected { arrivals: self, cookie, streams, came: Vec::new() })
    }

    /// Gives a connection to the test that waits for it; gives it back where none does.
    pub(super) fn deliver(&self, cookie: &Cookie, from: IpAddr, came: Arrived) -> Option<Arrived> {
        let mut waiting = self.lock();
        let Some(test) = waiting.get_mut(cookie).filter(|test| test.from == from) else { return Some(came) };
        // One more than it needs is closed.
        if test.left > 0 && came.watch.known() {
            test.left -= 1;
            let _ = test.streams.send(came);
        }
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
    pub(super) fn take(mut self) -> Vec<(TcpStream, Watch)> {
        let mut came = std::mem::take(&mut self.came);
        came.sort_by_key(|arrived| arrived.number);
        came.into_iter().map(|arrived| (arrived.control.into_socket(), arrived.watch)).collect()
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.arrivals.lock().remove(&self.cookie);
    }
}
