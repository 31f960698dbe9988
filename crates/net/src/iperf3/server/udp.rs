//! UDP streams: one port for everybody, and a connected socket of its own for each stream.
//!
//! A datagram that asks for a stream says nothing of the test it belongs to. So one test of an address at a time waits
//! for its streams, and only datagrams from that address are answered: a forged sender would else be sent a whole
//! reverse test it never asked for. The new socket is bound before it is connected and may catch what was meant for the
//! port in between; what it caught is looked at before anything else.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lfn_core::iperf3::Parameters;
use lfn_core::iperf3::datagram;
use socket2::{Domain, Socket, Type};

use super::super::Error;
use super::super::control::{option, readable};
use super::super::options::{self, Unknown};
use super::{TICK, canonical};

/// The socket that is asked for streams.
#[derive(Debug)]
pub(super) struct Listener {
    socket: UdpSocket,
    address: SocketAddr,
}

/// Addresses whose streams are waited for.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    tests: Mutex<HashMap<IpAddr, Asker>>,
    left: Condvar,
}

/// A test that waits for its streams.
#[derive(Debug)]
struct Asker {
    parameters: Parameters,
    streams: Sender<Result<UdpSocket, Error>>,
}

/// One test's turn to be asked for streams. Dropping it lets the next test of that address have its turn.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    waiting: &'a Waiting,
    address: IpAddr,
    streams: Receiver<Result<UdpSocket, Error>>,
}

impl Waiting {
    /// Waits for this address's turn.
    pub(super) fn turn(&self, address: IpAddr, parameters: &Parameters, until: Instant) -> Option<Turn<'_>> {
        let mut tests = self.lock();
        while tests.contains_key(&address) {
            let left = until.checked_duration_since(Instant::now())?;
            tests = self.left.wait_timeout(tests, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let (sender, streams) = channel();
        tests.insert(address, Asker { parameters: parameters.clone(), streams: sender });
        Some(Turn { waiting: self, address, streams })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Asker>> {
        // No thread panics while it holds it.
        self.tests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// The next stream, if one is asked for until then.
    pub(super) fn wait(&self, until: Instant) -> Result<Option<UdpSocket>, Error> {
        match self.streams.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(stream) => stream.map(Some),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(None),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.address);
        self.waiting.left.notify_all();
    }
}

impl Listener {
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = bound(address)?;
        socket.set_nonblocking(true)?;
        Ok(Listener { socket, address })
    }

    /// Answers who asks for a stream, until `stop` is set.
    pub(super) fn run(&self, waiting: &Waiting, stop: &AtomicBool) {
        let mut asked = VecDeque::new();
        while !stop.load(Ordering::Relaxed) {
            if asked.is_empty() && readable(self.socket.as_fd(), TICK) {
                drain(&self.socket, &mut asked);
            }
            while let Some(from) = asked.pop_front() {
                let tests = waiting.lock();
                if let Some(test) = tests.get(&canonical(from)) {
                    let stream = self.stream(from, &test.parameters, &mut asked);
                    // A test that has all its streams does not listen any more.
                    let _ = test.streams.send(stream);
                }
            }
        }
    }

    /// A socket of its own for `from`, which is told.
    fn stream(
        &self,
        from: SocketAddr,
        parameters: &Parameters,
        asked: &mut VecDeque<SocketAddr>,
    ) -> Result<UdpSocket, Error> {
        let doing = "a socket for datagrams";
        let socket = bound(self.address).map_err(option(doing))?;
        socket.connect(from).map_err(option(doing))?;
        socket.set_nonblocking(true).map_err(option(doing))?;
        drain(&socket, asked);
        socket.set_nonblocking(false).map_err(option(doing))?;
        options::apply(&socket, parameters, Unknown::KeepsDefault)?;
        socket.send(&datagram::REPLY).map_err(option("the answer to a datagram"))?;
        Ok(socket)
    }
}

/// Who asks for a stream, of all that lies there.
fn drain(socket: &UdpSocket, asked: &mut VecDeque<SocketAddr>) {
    let mut buffer = [0; 64];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) if datagram::is_connect(&buffer[..length]) => asked.push_back(from),
            // Anything else is not for this socket; an answer that found nobody neither.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => return,
        }
    }
}

/// A socket on the port that others of this user are bound to as well: `SO_REUSEADDR` would let any user of the host
/// take the datagrams away.
fn bound(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_test_of_an_address_at_a_time_and_the_next_waits_no_longer_than_it_may() {
        let (waiting, parameters) = (Waiting::default(), Parameters::default());
        let [one, other] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
        let turn = |address, within| waiting.turn(address, &parameters, Instant::now() + within);
        let first = turn(one, Duration::ZERO).expect("nobody is before it");
        assert!(turn(other, Duration::ZERO).is_some(), "another address has its own");
        assert!(turn(one, Duration::from_millis(50)).is_none());
        std::thread::scope(|scope| {
            let next = scope.spawn(|| turn(one, Duration::from_secs(60)).is_some());
            drop(first);
            assert!(next.join().unwrap());
        });
    }
}
