//! The server's UDP port, of the same number as its TCP port: hellos come in, sockets of the sessions' own go out.
//!
//! Whoever has not the token makes it do nothing but check a MAC: no answer, no memory, no thread. A good hello is
//! taken only if its session is open, waits for that stream and has its control connection from the same address, and
//! only once; so a hello seen on the way and sent again from elsewhere aims nothing at anybody. It is answered with as
//! many bytes as it has, from a socket connected to where it came from, which is gone with the session; hellos that are
//! sent again reach that socket and not this port.

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
use lfn_sys::udp::batch::{Inbox, Message};

use super::{Shared, TICK};
use crate::session::{DatagramStream, timed_out};

/// Which streams of datagrams open sessions wait for.
#[derive(Debug, Default)]
pub(crate) struct Meeting(Arc<Mutex<HashMap<SessionId, Vec<Place>>>>);

#[derive(Debug)]
struct Place {
    numbers: Range<u16>,
    peer: IpAddr,
    seen: HashSet<u16>,
    sender: Sender<DatagramStream>,
}

/// The streams of datagrams a session waits for, as they are opened. Dropped, no more are taken.
#[derive(Debug)]
pub struct Datagrams {
    receiver: Receiver<DatagramStream>,
    session: SessionId,
    numbers: Range<u16>,
    places: Arc<Mutex<HashMap<SessionId, Vec<Place>>>>,
}

impl Meeting {
    /// Waits for streams of these numbers, from the address of the control connection.
    pub(super) fn expect(&self, session: SessionId, peer: IpAddr, numbers: Range<u16>) -> Datagrams {
        let (sender, receiver) = channel();
        let place = Place { numbers: numbers.clone(), peer: peer.to_canonical(), seen: HashSet::new(), sender };
        lock(&self.0).entry(session).or_default().push(place);
        Datagrams { receiver, session, numbers, places: self.0.clone() }
    }

    /// Whether somebody waits for this stream from there.
    fn is_expected(&self, session: SessionId, stream: u16, peer: IpAddr) -> bool {
        let places = lock(&self.0);
        let place = places.get(&session).and_then(|places| places.iter().find(|p| p.waits_for(stream)));
        place.is_some_and(|place| place.peer == peer && !place.seen.contains(&stream))
    }

    fn deliver(&self, session: SessionId, stream: DatagramStream) {
        let mut places = lock(&self.0);
        let Some(places) = places.get_mut(&session) else { return };
        if let Some(place) = places.iter_mut().find(|place| place.waits_for(stream.stream())) {
            place.seen.insert(stream.stream());
            stream.answer();
            let _ = place.sender.send(stream);
        }
    }
}

impl Place {
    fn waits_for(&self, stream: u16) -> bool {
        self.numbers.contains(&stream)
    }
}

impl Datagrams {
    /// The next stream that is opened within `within`.
    pub fn next(&self, within: Duration) -> Option<DatagramStream> {
        self.receiver.recv_timeout(within).ok()
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        let mut all = lock(&self.places);
        if let Some(places) = all.get_mut(&self.session) {
            places.retain(|place| place.numbers != self.numbers);
            if places.is_empty() {
                all.remove(&self.session);
            }
        }
    }
}

/// The server's socket beside a TCP listener at `address`.
pub(super) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = udp::bind_shared(address)?;
    udp::set_destination_told(&socket)?;
    socket.set_read_timeout(Some(TICK))?;
    Ok(socket.into())
}

/// Takes hellos until `stop` says so.
pub(super) fn listen(socket: &UdpSocket, shared: &Shared, stop: impl Fn() -> bool) {
    let mut inbox = Inbox::new(16, hello::LENGTH + 1);
    while !stop() {
        match inbox.receive(socket) {
            Ok(_) => {}
            Err(error) if timed_out(&error) || error.kind() == io::ErrorKind::Interrupted => continue,
            // No memory, say: what comes in meanwhile is sent again.
            Err(_) => {
                thread::sleep(TICK / 20);
                continue;
            }
        }
        for message in inbox.messages().filter(|message| is_hello(message)) {
            if let Some((session, stream)) = accept(socket, shared, &message) {
                shared.datagrams.deliver(session, stream);
            }
        }
    }
}

fn is_hello(message: &Message<'_>) -> bool {
    message.bytes.len() == hello::LENGTH && message.bytes[0] == hello::FIRST_BYTE
}

fn accept(listener: &UdpSocket, shared: &Shared, message: &Message<'_>) -> Option<(SessionId, DatagramStream)> {
    let (hello, bearer) = shared.tokens.datagram_hello(message.bytes).ok()?;
    let session = bearer.hash.scope(hello.session);
    let (from, to) = (message.from?, message.to?);
    if !shared.datagrams.is_expected(session, hello.stream, from.ip()) {
        return None;
    }
    // Failing that, the client says hello again.
    let socket = connected(SocketAddr::new(to, listener.local_addr().ok()?.port()), from).ok()?;
    Some((session, DatagramStream::accepted(hello, &bearer.hash, socket, from)))
}

/// A socket of a session's own at the server's port. What came to it before it was connected may be anybody's, and is
/// thrown away: this peer sends nothing but its hello before that is answered.
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

fn lock(places: &Mutex<HashMap<SessionId, Vec<Place>>>) -> MutexGuard<'_, HashMap<SessionId, Vec<Place>>> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}
