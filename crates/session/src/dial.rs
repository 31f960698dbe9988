//! Client side of a session's start: the control connection and the data streams, which may connect in parallel.

use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_results::measure::value_for_stream;
use lfn_sys::names::lookup;
use socket2::{Domain, Protocol, Socket, Type};

use super::control::is_closed;
use super::pinned_certificate::PinnedVerifier;
use super::queue::QueueOptions;
use super::{Control, DataStream, DatagramStream, Protection, SessionError, datagram};
use crate::hello::ClearHello;
use crate::transport::tcp::TcpConnection;
use crate::transport::{Connection, DEAD_PEER_TIMEOUT, Handle, Stream, is_timeout, tls};
use crate::wire::seal::StreamSecret;
use crate::wire::{self, FrameKind, HELLO_LIMIT, Hello, Request};
use crate::{PROTOCOL, SessionId, Ticket};

/// Address and identity of a server, with the options of connections to it.
#[derive(Clone, Debug)]
pub struct Target {
    ticket: Ticket,
    addresses: Vec<SocketAddr>,
    is_insecure: bool,
    bind_addresses: Vec<BindAddress>,
    multipath: bool,
    multipath_control: bool,
    /// Random secret of this client. The server receives it with a request.
    secret: StreamSecret,
    resolver: TargetResolver,
    /// Maximum time for a connection and its handshake together.
    pub connect_timeout: Duration,
    /// Maximum time without a message from a server that serves a session.
    pub silence_timeout: Duration,
    pub queue: QueueOptions,
}

/// Function that finds the server again, for servers that move or must be started again.
#[derive(Clone, Default)]
struct TargetResolver(Option<Arc<ResolveTarget>>);

type ResolveTarget = dyn Fn() -> Result<Target, SessionError> + Send + Sync;

impl fmt::Debug for TargetResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "by a function" } else { "by name" })
    }
}

impl Target {
    /// Returns the address that is tried first.
    pub fn first_address(&self) -> Option<SocketAddr> {
        self.addresses.first().copied()
    }

    /// Resolves the ticket's host name.
    pub fn new(ticket: Ticket) -> Result<Self, SessionError> {
        let unknown = |source| SessionError::UnknownHost { host: ticket.host.clone(), source };
        let addresses = lookup(&ticket.host, ticket.port).map_err(unknown)?;
        Target::build(ticket, addresses)
    }

    fn build(ticket: Ticket, addresses: Vec<SocketAddr>) -> Result<Self, SessionError> {
        Ok(Target {
            ticket,
            addresses,
            is_insecure: false,
            bind_addresses: Vec::new(),
            multipath: false,
            multipath_control: false,
            secret: StreamSecret::from_bytes(random()?),
            resolver: TargetResolver::default(),
            connect_timeout: Duration::from_secs(15),
            silence_timeout: DEAD_PEER_TIMEOUT,
            queue: QueueOptions::default(),
        })
    }

    /// Returns whether the other target is the same server, at any address: it has the same key.
    pub fn is_same_server(&self, other: &Target) -> bool {
        self.ticket.fingerprint == other.ticket.fingerprint && !self.is_insecure && !other.is_insecure
    }

    /// Uses these addresses instead of the ticket's host, now and for reconnects.
    pub fn with_addresses(ticket: Ticket, addresses: Vec<SocketAddr>) -> Result<Self, SessionError> {
        let fixed = addresses.clone();
        let known = ticket.clone();
        let find = move || Target::build(known.clone(), fixed.clone());
        Ok(Target::build(ticket, addresses)?.with_resolver(find))
    }

    /// Uses `find` instead of the host name for reconnects. `find` may take a while, and may return a server with
    /// another ticket.
    pub fn with_resolver(mut self, find: impl Fn() -> Result<Target, SessionError> + Send + Sync + 'static) -> Self {
        self.resolver = TargetResolver(Some(Arc::new(find)));
        self
    }

    /// Finds the same server again, possibly at another address or with another ticket.
    pub fn resolve_again(&self) -> Result<Self, SessionError> {
        let Target { ticket, addresses, .. } = match &self.resolver.0 {
            Some(find) => find()?,
            None => Target::new(self.ticket.clone())?,
        };
        Ok(Target { ticket, addresses, ..self.clone() })
    }

    /// Accepts any server key and sends no token. Only for loopback addresses and emulated paths; the caller checks
    /// this.
    pub fn insecure(mut self) -> Self {
        self.is_insecure = true;
        self
    }

    /// Binds the control connection to the first address, and stream n to the nth one, starting again after the last.
    /// With an empty list the routing table decides.
    pub fn bind_to(mut self, bind_addresses: Vec<BindAddress>) -> Self {
        self.bind_addresses = bind_addresses;
        self
    }

    /// Returns the same server at other addresses, for connections from one source only.
    #[must_use]
    pub fn over(&self, from: BindAddress, host: &str, port: u16, addresses: Vec<SocketAddr>) -> Self {
        let ticket = Ticket { host: host.to_owned(), port, ..self.ticket.clone() };
        Target { ticket, addresses, bind_addresses: vec![from], ..self.clone() }
    }

    /// Returns the port as given in the ticket.
    pub fn port(&self) -> u16 {
        self.ticket.port
    }

    /// Uses Multipath TCP for data streams.
    pub fn multipath(mut self, multipath: bool) -> Self {
        self.multipath = multipath;
        self
    }

    /// Uses Multipath TCP for data streams and the control connection.
    pub fn multipath_everywhere(mut self) -> Self {
        self.multipath = true;
        self.multipath_control = true;
        self
    }

    /// Returns all addresses that are tried.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the ticket's host name.
    pub fn host(&self) -> &str {
        &self.ticket.host
    }

    /// Returns whether every address is a loopback address.
    pub fn is_loopback(&self) -> bool {
        self.addresses.iter().all(|address| address.ip().is_loopback())
    }

    /// Reports whether an address belongs to this host: the kernel then uses it as the source too. A port of this host
    /// may lead to another host through a tunnel.
    pub fn has_local_address(&self) -> bool {
        self.addresses.iter().any(|address| {
            let unspecified: IpAddr =
                if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            // Connecting a datagram socket sends no packet.
            let socket = UdpSocket::bind((unspecified, 0)).and_then(|socket| socket.connect(address).map(|()| socket));
            socket.and_then(|socket| socket.local_addr()).is_ok_and(|own| own.ip() == address.ip())
        })
    }

    /// Returns host and port as given in the ticket.
    pub fn address(&self) -> String {
        format!("{}:{}", self.ticket.host, self.ticket.port)
    }

    /// Returns the secret that seals the block headers of this client's copies.
    pub fn stream_secret(&self) -> StreamSecret {
        self.secret
    }

    /// Returns the id of a session that is unique over all tokens of the server.
    pub fn scoped_id(&self, session: SessionId) -> SessionId {
        // An insecure server assigns every client a token of zeros.
        let token = self.token().unwrap_or(crate::Token::from_bytes([0; 16]));
        token.hash().scope(session)
    }

    fn token(&self) -> Option<crate::Token> {
        (!self.is_insecure).then_some(self.ticket.token)
    }
}

/// Source of connections: an address, an interface, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindAddress {
    pub address: Option<IpAddr>,
    /// Interface name (`SO_BINDTODEVICE`, which needs no privilege since Linux 5.7).
    pub interface: Option<String>,
}

impl BindAddress {
    /// Parses `ADDRESS`, `ADDRESS%INTERFACE` or `INTERFACE`; `None` if no interface can have this name.
    pub fn parse(text: &str) -> Option<BindAddress> {
        // IFNAMSIZ is 16 with the terminating zero. The kernel accepts no slash and no space.
        let named = |name: &str| {
            let fits = (1..=15).contains(&name.len()) && name.chars().all(|c| c.is_ascii_graphic() && c != '/');
            fits.then(|| name.to_owned())
        };
        match (text.parse(), text.split_once('%')) {
            (Ok(address), _) => Some(BindAddress { address: Some(address), interface: None }),
            (_, Some((address, name))) => {
                Some(BindAddress { address: Some(address.parse().ok()?), interface: Some(named(name)?) })
            }
            _ => Some(BindAddress { address: None, interface: Some(named(text)?) }),
        }
    }

    /// Returns whether the address family permits a connection to that address.
    pub fn reaches(&self, to: &SocketAddr) -> bool {
        self.address.is_none_or(|from| from.is_ipv4() == to.is_ipv4())
    }

    /// Checks that a socket can be bound to this source, for a connection to that address.
    pub fn check(&self, to: SocketAddr) -> Result<(), SessionError> {
        let failed = |source| SessionError::Io { peer: "the kernel", source };
        self.bind(&Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP)).map_err(failed)?)
    }

    /// Binds a socket before it connects.
    pub fn bind(&self, socket: &Socket) -> Result<(), SessionError> {
        let failed = |place: &dyn std::fmt::Display| {
            let place = place.to_string();
            |source| SessionError::Bind { place, source }
        };
        if let Some(name) = &self.interface {
            socket.bind_device(Some(name.as_bytes())).map_err(failed(name))?;
        }
        if let Some(address) = self.address {
            socket.bind(&SocketAddr::new(address, 0).into()).map_err(failed(&address))?;
        }
        Ok(())
    }
}

/// Maximum segment of control connections in both directions, bytes: a packet of 1280 bytes, the minimum MTU of IPv6 (RFC
/// 8200 section 5), without the headers of IPv6 and TCP. The messages are small, and they also pass a path that drops
/// large packets without a message.
const CONTROL_MSS: u32 = 1220;

/// Returns a new random session id.
pub fn new_session_id() -> Result<SessionId, SessionError> {
    random().map(SessionId)
}

fn random<const N: usize>() -> Result<[u8; N], SessionError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| SessionError::Io { peer: "the kernel", source: e.into() })?;
    Ok(bytes)
}

/// Opens the control connection and sends the request in its first flight. The next message is the answer.
///
/// The request leaves after two round trips: one for TCP, one for TLS 1.3.
pub fn open_control(target: &Target, session: SessionId, request: Request) -> Result<Control, SessionError> {
    ServerConnection::connect(target)?.open_control(target, session, request)
}

/// A connection to a server, still without data. Its RTT is known before the request is sent.
#[derive(Debug)]
pub struct ServerConnection(Box<dyn Connection>);

impl ServerConnection {
    /// Connects to the server; takes one round trip.
    pub fn connect(target: &Target) -> Result<Self, SessionError> {
        let protocol = if target.multipath_control { Protocol::MPTCP } else { Protocol::TCP };
        // Multipath TCP has no maximum segment.
        let limit = |socket: &Socket| if target.multipath_control { Ok(()) } else { socket.set_tcp_mss(CONTROL_MSS) };
        let connection = connect(target, None, 0, protocol, limit)?;
        Ok(ServerConnection(Box::new(connection)))
    }

    /// Returns the RTT of the handshake, without the retransmission of a lost SYN. Zero if the transport does not know
    /// the RTT.
    pub fn min_rtt(&self) -> Duration {
        self.0.handle().min_rtt()
    }

    /// Returns the handle of the connection, for its addresses and counters.
    pub fn handle(&self) -> &Arc<dyn Handle> {
        self.0.handle()
    }

    /// Completes the handshake, which proves the identity of the server, and closes the connection.
    pub fn verify(mut self, target: &Target) -> Result<(), SessionError> {
        let tls_error = |source| SessionError::Tls { address: target.address(), source };
        let pinned = pinned_verifier(target);
        let stream = open_stream(&mut *self.0)?;
        let mut tls = tls::client(stream, pinned.client_config().map_err(tls_error)?).map_err(tls_error)?;
        let limited = tls.set_deadline(Some(Instant::now() + target.connect_timeout));
        limited.and_then(|()| tls.flush()).map_err(|error| handshake_error(target, &pinned, error))
    }

    /// Opens the control connection of a session on this connection.
    pub fn open_control(
        mut self,
        target: &Target,
        session: SessionId,
        request: Request,
    ) -> Result<Control, SessionError> {
        let request = Box::new(request);
        let hello = Hello::Control { protocol: PROTOCOL, token: target.token(), session, request };
        let stream = open_stream(&mut *self.0)?;
        Ok(Control::new(handshake(target, stream, &hello)?, crate::wire::MESSAGE_LIMIT, "the server"))
    }
}

fn open_stream(connection: &mut dyn Connection) -> Result<Box<dyn Stream>, SessionError> {
    connection.open_stream().map_err(|source| SessionError::Io { peer: "the server", source })
}

/// Opens one data stream. `prepare` sets socket options before the SYN leaves, because the window scale follows the
/// receive buffer. `port` replaces the ticket's port if the server opened a port for this session.
pub fn open_data(
    target: &Target,
    session: SessionId,
    stream: u16,
    protection: Protection,
    port: Option<u16>,
    prepare: impl Fn(&Socket) -> io::Result<()>,
) -> Result<DataStream, SessionError> {
    let protocol = if target.multipath { Protocol::MPTCP } else { Protocol::TCP };
    let mut opened = open_stream(&mut connect(target, port, stream, protocol, prepare)?)?;
    match protection {
        Protection::Clear => {
            // An insecure server derives the key from a token of zeros.
            let token = target.token().unwrap_or(crate::Token::from_bytes([0; 16]));
            let hello = ClearHello { session, stream }.encode(&token);
            opened.write_all(&hello).map_err(|source| SessionError::Io { peer: "the server", source })?;
            Ok(DataStream::clear(stream, opened))
        }
        Protection::Tls => {
            let hello = Hello::Data { protocol: PROTOCOL, token: target.token(), session, stream };
            Ok(DataStream::tls(stream, handshake(target, opened, &hello)?))
        }
    }
}

/// Opens a datagram stream of the open session that `control` belongs to (see [`super::datagram`]).
pub fn open_datagrams(
    target: &Target,
    control: &dyn Handle,
    session: SessionId,
    stream: u16,
    timeout: Duration,
) -> Result<DatagramStream, SessionError> {
    let token = target.token().unwrap_or(crate::Token::from_bytes([0; 16]));
    // The source address follows the control connection, which is bound to it; the interface must be set again.
    let interface = target.bind_addresses.first().and_then(|place| place.interface.as_deref());
    datagram::open(control, &token, session, stream, interface, timeout)
}

fn connect(
    target: &Target,
    port: Option<u16>,
    stream: u16,
    protocol: Protocol,
    prepare: impl Fn(&Socket) -> io::Result<()>,
) -> Result<TcpConnection, SessionError> {
    let from = value_for_stream(&target.bind_addresses, stream);
    let deadline = Instant::now() + target.connect_timeout;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no address");
    for (address, others) in target.addresses.iter().zip((0..target.addresses.len() as u32).rev()) {
        let mut address = *address;
        address.set_port(port.unwrap_or(target.ticket.port));
        // Each remaining address gets an equal share of the time, so that one address that drops all packets does not
        // use up all of it.
        let left = deadline.saturating_duration_since(Instant::now()) / (others + 1);
        if from.is_some_and(|from| !from.reaches(&address)) {
            last = io::Error::other("the source address has another IP version");
            continue;
        }
        let socket = match Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol)) {
            Ok(socket) => socket,
            Err(error) => {
                last = error;
                continue;
            }
        };
        from.map_or(Ok(()), |from| from.bind(&socket))?;
        let left = left.max(Duration::from_millis(1));
        match prepare(&socket).and_then(|()| TcpConnection::connect_socket(socket, address, left)) {
            Ok(connection) => return Ok(connection),
            Err(error) => last = error,
        }
    }
    Err(SessionError::Unreachable { address: target.address(), source: last })
}

/// Returns the verifier of the server's key. An insecure target accepts any key.
fn pinned_verifier(target: &Target) -> Arc<PinnedVerifier> {
    PinnedVerifier::new((!target.is_insecure).then_some(target.ticket.fingerprint))
}

/// Performs the handshake by writing `hello`.
fn handshake(target: &Target, stream: Box<dyn Stream>, hello: &Hello) -> Result<Box<dyn Stream>, SessionError> {
    let tls_error = |source| SessionError::Tls { address: target.address(), source };
    let pinned = pinned_verifier(target);
    let mut tls = tls::client(stream, pinned.client_config().map_err(tls_error)?).map_err(tls_error)?;
    let bytes = wire::encode(FrameKind::Message, hello)?;
    debug_assert!(bytes.len() <= HELLO_LIMIT, "a request fits into a hello");
    let limited = tls.set_deadline(Some(Instant::now() + target.connect_timeout));
    let written = limited.and_then(|()| tls.write_all(&bytes)).and_then(|()| tls.flush());
    written.map_err(|error| handshake_error(target, &pinned, error))?;
    Ok(tls)
}

/// Converts an I/O error during a handshake.
fn handshake_error(target: &Target, pinned: &Arc<PinnedVerifier>, error: io::Error) -> SessionError {
    if let Some(shown) = pinned.presented_fingerprint() {
        return SessionError::WrongFingerprint { address: target.address(), fingerprint: shown.to_string() };
    }
    if is_timeout(&error) {
        return SessionError::Timeout {
            peer: "the server",
            after: target.connect_timeout,
            while_doing: "during the handshake",
        };
    }
    if is_closed(&error) {
        return SessionError::Closed { peer: "the server", while_doing: "during the handshake" };
    }
    match error.downcast::<rustls::Error>() {
        Ok(source) => SessionError::Tls { address: target.address(), source },
        Err(source) => SessionError::Io { peer: "the server", source },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, Ordering};

    use super::*;
    use crate::transport::tcp::{DEFAULT_BACKLOG, Listener};
    use crate::{Fingerprint, Token};

    fn ticket(port: u16) -> Ticket {
        let (token, fingerprint) = (Token::from_bytes([7; 16]), Fingerprint([9; 32]));
        Ticket { host: "127.0.0.1".into(), port, token, fingerprint }
    }

    /// An unreachable IPv6 address is the most frequent example.
    #[test]
    fn silent_address_leaves_time_for_the_next() {
        let good = Listener::bind(([127, 0, 0, 1], 0).into(), DEFAULT_BACKLOG).unwrap();
        let address = good.local_address().unwrap();
        let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let nowhere = SocketAddr::new([127, 0, 0, 2].into(), address.port());
        silent.bind(&nowhere.into()).unwrap();
        silent.listen(0).unwrap();
        // One connection fits into the queue; the kernel answers no SYN after that one.
        let timeout = Duration::from_millis(300);
        let queued: Vec<_> = (0..3).map(|_| TcpConnection::connect(nowhere, timeout)).collect();
        assert!(queued.last().unwrap().is_err());
        let mut target = Target::with_addresses(ticket(address.port()), vec![nowhere, address]).unwrap();
        target.connect_timeout = Duration::from_secs(2);
        let reached = ServerConnection::connect(&target).unwrap();
        assert_eq!(reached.handle().peer_address().unwrap(), address);
    }

    #[test]
    fn server_is_resolved_again_by_name_or_function() {
        let mut named = Target::new(ticket(7)).unwrap();
        named.connect_timeout = Duration::from_secs(3);
        assert_eq!(named.resolve_again().unwrap().address(), "127.0.0.1:7");
        let next = AtomicU16::new(8);
        let moving = named.with_resolver(move || Target::new(ticket(next.fetch_add(1, Ordering::Relaxed))));
        let found = moving.resolve_again().unwrap();
        // Options stay, and the function too.
        assert_eq!((found.address().as_str(), found.connect_timeout), ("127.0.0.1:8", Duration::from_secs(3)));
        assert_eq!(found.resolve_again().unwrap().address(), "127.0.0.1:9");
    }
}
