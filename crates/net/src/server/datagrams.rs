//! The server's UDP port, with the same number as its TCP port. Hellos arrive here; each accepted one gets a socket of
//! its own.
//!
//! A hello without a valid token costs the server one MAC check: no answer, no memory, no thread. A valid hello is
//! accepted once, and only if its session is open, expects that stream, and has its control connection from the same
//! address. A recorded hello that is replayed from another address therefore directs no traffic at anybody. The answer
//! has as many bytes as the hello. It comes from a socket that is connected to the sender of the hello and is closed
//! with the session. Repeated hellos reach that socket, not this port.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lfn_core::session::SessionId;
use lfn_core::session::hello;
use lfn_sys::udp;
use lfn_sys::udp::batch::{MergedDatagrams, ReceiveBuffers};

use super::{POLL_INTERVAL, ServerState};
use crate::session::{DatagramStream, is_timeout};

/// Datagram streams that open sessions expect.
#[derive(Debug, Default)]
pub(crate) struct ExpectedStreams(Arc<Mutex<HashMap<SessionId, Vec<ExpectedRange>>>>);

#[derive(Debug)]
struct ExpectedRange {
    numbers: Range<u16>,
    peer: IpAddr,
    arrived: HashSet<u16>,
    sender: Sender<DatagramStream>,
}

/// Datagram streams of a session, in the order of arrival. Dropping it stops the acceptance of more.
#[derive(Debug)]
pub struct DatagramStreams {
    receiver: Receiver<DatagramStream>,
    session: SessionId,
    numbers: Range<u16>,
    expected: Arc<Mutex<HashMap<SessionId, Vec<ExpectedRange>>>>,
}

impl ExpectedStreams {
    /// Expects streams of these numbers, from the address of the control connection.
    pub(super) fn expect(&self, session: SessionId, peer: IpAddr, numbers: Range<u16>) -> DatagramStreams {
        let (sender, receiver) = channel();
        let range =
            ExpectedRange { numbers: numbers.clone(), peer: peer.to_canonical(), arrived: HashSet::new(), sender };
        lock(&self.0).entry(session).or_default().push(range);
        DatagramStreams { receiver, session, numbers, expected: self.0.clone() }
    }

    /// Returns whether a session expects this stream from this address.
    fn is_expected(&self, session: SessionId, stream: u16, peer: IpAddr) -> bool {
        let expected = lock(&self.0);
        let range = expected.get(&session).and_then(|ranges| ranges.iter().find(|range| range.contains(stream)));
        range.is_some_and(|range| range.peer == peer && !range.arrived.contains(&stream))
    }

    fn deliver(&self, session: SessionId, stream: DatagramStream) {
        let mut expected = lock(&self.0);
        let Some(ranges) = expected.get_mut(&session) else { return };
        if let Some(range) = ranges.iter_mut().find(|range| range.contains(stream.stream())) {
            range.arrived.insert(stream.stream());
            stream.send_answer();
            let _ = range.sender.send(stream);
        }
    }
}

impl ExpectedRange {
    fn contains(&self, stream: u16) -> bool {
        self.numbers.contains(&stream)
    }
}

impl DatagramStreams {
    /// Returns the next stream that arrives within `timeout`.
    pub fn next(&self, timeout: Duration) -> Option<DatagramStream> {
        self.receiver.recv_timeout(timeout).ok()
    }
}

impl Drop for DatagramStreams {
    fn drop(&mut self) {
        let mut all = lock(&self.expected);
        if let Some(ranges) = all.get_mut(&self.session) {
            ranges.retain(|range| range.numbers != self.numbers);
            if ranges.is_empty() {
                all.remove(&self.session);
            }
        }
    }
}

/// Binds the server's UDP socket to the address of its TCP listener.
pub(super) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = udp::bind_shared(address)?;
    udp::enable_destination_addresses(&socket)?;
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
    Ok(socket.into())
}

/// Accepts hellos until `stop` returns true.
pub(super) fn listen(socket: &UdpSocket, shared: &ServerState, stop: impl Fn() -> bool) {
    let mut inbox = ReceiveBuffers::new(16, hello::HELLO_BYTES + 1);
    while !stop() {
        match inbox.receive(socket) {
            Ok(_) => {}
            Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => continue,
            // For example no memory. Clients repeat a hello that was lost.
            Err(_) => {
                thread::sleep(POLL_INTERVAL / 20);
                continue;
            }
        }
        for message in inbox.messages().filter(|message| is_hello(message)) {
            if let Some((session, stream)) = accept(socket, shared, &message) {
                shared.expected_datagrams.deliver(session, stream);
            }
        }
    }
}

fn is_hello(message: &MergedDatagrams<'_>) -> bool {
    message.bytes.len() == hello::HELLO_BYTES && message.bytes[0] == hello::FIRST_BYTE
}

fn accept(
    listener: &UdpSocket,
    shared: &ServerState,
    message: &MergedDatagrams<'_>,
) -> Option<(SessionId, DatagramStream)> {
    let (hello, holder) = shared.tokens.authenticate_datagram_hello(message.bytes).ok()?;
    let session = holder.hash.scope(hello.session);
    let (from, to) = (message.from?, message.to?);
    if !shared.expected_datagrams.is_expected(session, hello.stream, from.ip()) {
        return None;
    }
    // If this fails, the client repeats its hello.
    let socket = connected(SocketAddr::new(to, listener.local_addr().ok()?.port()), from).ok()?;
    Some((session, DatagramStream::accepted(hello, &holder.hash, socket, from)))
}

/// Returns a socket for one session at the server's port. Datagrams that arrived before the connect may come from
/// anyone and are discarded; until its hello is answered, this peer sends nothing else.
fn connected(mut local: SocketAddr, peer: SocketAddr) -> io::Result<UdpSocket> {
    if let (SocketAddr::V6(local), SocketAddr::V6(peer)) = (&mut local, &peer) {
        local.set_scope_id(peer.scope_id());
    }
    let socket = udp::bind_shared(local)?;
    socket.connect(&peer.into())?;
    let socket = UdpSocket::from(socket);
    socket.set_nonblocking(true)?;
    while socket.recv(&mut [0; 1]).is_ok() {}
    socket.set_nonblocking(false)?;
    Ok(socket)
}

fn lock(
    expected: &Mutex<HashMap<SessionId, Vec<ExpectedRange>>>,
) -> MutexGuard<'_, HashMap<SessionId, Vec<ExpectedRange>>> {
    expected.lock().unwrap_or_else(PoisonError::into_inner)
}
