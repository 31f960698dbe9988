//! The server's UDP port, with the same number as its TCP port. Hellos arrive here; each accepted one gets a socket of
//! its own.
//!
//! A hello without a valid token costs the server one MAC check: no answer, no memory, no thread. A valid hello is
//! accepted once, and only if its session is open, expects that stream, and has its control connection from the same
//! address. A recorded hello that is replayed from another address therefore directs no traffic at anybody. The answer
//! has as many bytes as the hello. It comes from a socket that is connected to the sender of the hello and is closed
//! with the session. Repeated hellos reach that socket, not this port.

use std::net::{SocketAddr, UdpSocket};
use std::{io, thread};

use lfn_sys::udp;
use lfn_sys::udp::batch::{MergedDatagrams, ReceiveBuffers};

use super::state::{POLL_INTERVAL, ServerState};
use crate::transport::is_timeout;
use crate::{DatagramStream, SessionId, hello};

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
