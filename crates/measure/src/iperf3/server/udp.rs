//! UDP streams: one port for all requests, and a connected socket for each stream.
//!
//! A datagram that requests a stream does not identify its test. So one test per address waits for its streams at a
//! time, and only datagrams from that address are answered. Otherwise a forged source address would receive a whole
//! reverse test that it never requested. A new socket is bound before it is connected and may receive requests for the
//! port in between; these are handled first.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::proto::iperf3::Parameters;
use crate::proto::iperf3::datagram;
use parking_lot::{Condvar, Mutex};
use socket2::{Domain, Socket, Type};

use super::super::Error;
use super::super::control::{option, readable};
use super::super::options::{self, UnknownCongestion};

/// Interval at which the listener checks its stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Socket that receives the requests for streams.
#[derive(Debug)]
pub(super) struct UdpListener {
    socket: UdpSocket,
    address: SocketAddr,
}

/// Addresses that may request streams now.
#[derive(Debug, Default)]
pub(super) struct UdpStreamQueue {
    tests: Mutex<HashMap<IpAddr, WaitingTest>>,
    turn_free: Condvar,
}

/// A test that waits for its streams.
#[derive(Debug)]
struct WaitingTest {
    parameters: Parameters,
    streams: Sender<Result<UdpSocket, Error>>,
}

/// One test's turn to receive streams. Dropping it gives the turn to the next test of the address.
#[derive(Debug)]
pub(super) struct UdpTurn<'a> {
    waiting: &'a UdpStreamQueue,
    address: IpAddr,
    streams: Receiver<Result<UdpSocket, Error>>,
}

impl UdpStreamQueue {
    /// Waits for the turn of this address; `None` if `until` passes.
    pub(super) fn turn(&self, address: IpAddr, parameters: &Parameters, until: Instant) -> Option<UdpTurn<'_>> {
        let mut tests = self.tests.lock();
        while tests.contains_key(&address) {
            let left = until.checked_duration_since(Instant::now())?;
            self.turn_free.wait_for(&mut tests, left);
        }
        let (sender, streams) = channel();
        tests.insert(address, WaitingTest { parameters: parameters.clone(), streams: sender });
        Some(UdpTurn { waiting: self, address, streams })
    }
}

impl UdpTurn<'_> {
    /// Returns the next stream that is requested before `until`.
    pub(super) fn wait(&self, until: Instant) -> Result<Option<UdpSocket>, Error> {
        match self.streams.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(stream) => stream.map(Some),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(None),
        }
    }
}

impl Drop for UdpTurn<'_> {
    fn drop(&mut self) {
        self.waiting.tests.lock().remove(&self.address);
        self.waiting.turn_free.notify_all();
    }
}

impl UdpListener {
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = bind_shared(address)?;
        socket.set_nonblocking(true)?;
        Ok(UdpListener { socket, address })
    }

    /// Answers requests for streams until `stop` is set.
    pub(super) fn run(&self, waiting: &UdpStreamQueue, stop: &AtomicBool) {
        let mut requests = VecDeque::new();
        while !stop.load(Ordering::Relaxed) {
            if requests.is_empty() && readable(self.socket.as_fd(), POLL_INTERVAL) {
                read_requests(&self.socket, &mut requests);
            }
            while let Some(from) = requests.pop_front() {
                let tests = waiting.tests.lock();
                if let Some(test) = tests.get(&canonical(from)) {
                    let stream = self.stream(from, &test.parameters, &mut requests);
                    // A test with all its streams does not receive any more.
                    let _ = test.streams.send(stream);
                }
            }
        }
    }

    /// Creates a connected socket for `from`, and sends the reply.
    fn stream(
        &self,
        from: SocketAddr,
        parameters: &Parameters,
        requests: &mut VecDeque<SocketAddr>,
    ) -> Result<UdpSocket, Error> {
        let doing = "a socket for datagrams";
        let socket = bind_shared(self.address).map_err(option(doing))?;
        socket.connect(from).map_err(option(doing))?;
        socket.set_nonblocking(true).map_err(option(doing))?;
        read_requests(&socket, requests);
        socket.set_nonblocking(false).map_err(option(doing))?;
        options::apply(&socket, parameters, UnknownCongestion::KeepsDefault)?;
        socket.send(&datagram::REPLY).map_err(option("the answer to a datagram"))?;
        Ok(socket)
    }
}

/// Reads all waiting datagrams, and keeps the senders of stream requests.
fn read_requests(socket: &UdpSocket, requests: &mut VecDeque<SocketAddr>) {
    let mut buffer = [0; 64];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) if datagram::is_connect(&buffer[..length]) => requests.push_back(from),
            // Other datagrams, and ICMP errors of earlier answers, are ignored.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => return,
        }
    }
}

/// Binds a socket to a port that other sockets of this user share. `SO_REUSEADDR` would let any user of the host steal
/// the datagrams.
fn bind_shared(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Returns the address of a dual-stack client in its IPv4 form.
fn canonical(address: SocketAddr) -> IpAddr {
    address.ip().to_canonical()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_test_per_address_waits_for_streams() {
        let (waiting, parameters) = (UdpStreamQueue::default(), Parameters::default());
        let [one, other] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
        let turn = |address, timeout| waiting.turn(address, &parameters, Instant::now() + timeout);
        let first = turn(one, Duration::ZERO).expect("no other test waits");
        assert!(turn(other, Duration::ZERO).is_some(), "another address has its own");
        assert!(turn(one, Duration::from_millis(50)).is_none());
        std::thread::scope(|scope| {
            let next = scope.spawn(|| turn(one, Duration::from_secs(60)).is_some());
            drop(first);
            assert!(next.join().unwrap());
        });
    }
}
