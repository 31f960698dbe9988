//! The client's side of opening a session: control connection and data streams, all of which may dial at once.

use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_core::session::hello::ClearHello;
use lfn_core::session::{PROTOCOL, SessionId, Ticket};
use lfn_core::wire::seal::StreamSecret;
use lfn_core::wire::test::of_stream;
use lfn_core::wire::{self, HELLO_LIMIT, Hello, Kind, Request};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::control::is_closed;
use super::queue::Patience;
use super::tls::{Pinned, TlsStream};
use super::{Control, DEAD_AFTER, DataStream, DatagramStream, Protection, SessionError, datagram, timed_out};

/// Where to dial, and what to trust.
#[derive(Clone, Debug)]
pub struct Target {
    ticket: Ticket,
    addresses: Vec<SocketAddr>,
    insecure: bool,
    from: Vec<Place>,
    multipath: bool,
    /// Of this client alone, told to the server with a request.
    secret: StreamSecret,
    anew: Anew,
    /// How long a connection and its handshake may take.
    pub within: Duration,
    /// How long a server that serves a session may say nothing of it.
    pub silence: Duration,
    /// How long a turn in the server's queue is waited for.
    pub patience: Patience,
}

/// How a far end is found again that may be elsewhere by now, or gone and to be started again.
#[derive(Clone, Default)]
struct Anew(Option<Arc<Finder>>);

type Finder = dyn Fn() -> Result<Target, SessionError> + Send + Sync;

impl fmt::Debug for Anew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "by its own way" } else { "by its name" })
    }
}

impl Target {
    /// The address that is tried first.
    pub(crate) fn first_address(&self) -> Option<SocketAddr> {
        self.addresses.first().copied()
    }

    /// Resolves the ticket's host.
    pub fn new(ticket: Ticket) -> Result<Self, SessionError> {
        let unknown = |source| SessionError::UnknownHost { host: ticket.host.clone(), source };
        let addresses: Vec<_> = (ticket.host.as_str(), ticket.port).to_socket_addrs().map_err(unknown)?.collect();
        if addresses.is_empty() {
            return Err(unknown(io::Error::new(io::ErrorKind::NotFound, "no address")));
        }
        Target::made(ticket, addresses)
    }

    fn made(ticket: Ticket, addresses: Vec<SocketAddr>) -> Result<Self, SessionError> {
        Ok(Target {
            ticket,
            addresses,
            insecure: false,
            from: Vec::new(),
            multipath: false,
            secret: StreamSecret::from_bytes(random()?),
            anew: Anew::default(),
            within: Duration::from_secs(15),
            silence: DEAD_AFTER,
            patience: Patience::default(),
        })
    }

    /// Whether the other is the same server, wherever it is reached: it has the same key.
    pub fn is_same_server(&self, other: &Target) -> bool {
        self.ticket.fingerprint == other.ticket.fingerprint && !self.insecure && !other.insecure
    }

    /// At these addresses, whatever the ticket's host is called; looked for nowhere else.
    pub(crate) fn at(ticket: Ticket, addresses: Vec<SocketAddr>) -> Result<Self, SessionError> {
        let there = addresses.clone();
        let known = ticket.clone();
        let find = move || Target::made(known.clone(), there.clone());
        Ok(Target::made(ticket, addresses)?.found_by(find))
    }

    /// Found again by `find` instead of by its name; that may take a while, and give another server of another ticket.
    pub fn found_by(mut self, find: impl Fn() -> Result<Target, SessionError> + Send + Sync + 'static) -> Self {
        self.anew = Anew(Some(Arc::new(find)));
        self
    }

    /// The same far end, looked for anew: it may have another address by now, or another ticket.
    pub fn resolve_again(&self) -> Result<Self, SessionError> {
        let Target { ticket, addresses, .. } = match &self.anew.0 {
            Some(find) => find()?,
            None => Target::new(self.ticket.clone())?,
        };
        Ok(Target { ticket, addresses, ..self.clone() })
    }

    /// Trusts any server and shows no token. Only for a loopback or emulated path, which the caller has checked.
    pub fn insecure(mut self) -> Self {
        self.insecure = true;
        self
    }

    /// Dials from these places: the control connection from the first, stream n from the nth, beginning again after the
    /// last. None of them leaves it to the routes.
    pub fn from(mut self, from: Vec<Place>) -> Self {
        self.from = from;
        self
    }

    /// Dials data streams by Multipath TCP.
    pub fn multipath(mut self, multipath: bool) -> Self {
        self.multipath = multipath;
        self
    }

    /// All that are tried.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What it is called.
    pub(crate) fn host(&self) -> &str {
        &self.ticket.host
    }

    /// Whether every address is a loopback address.
    pub fn is_loopback(&self) -> bool {
        self.addresses.iter().all(|address| address.ip().is_loopback())
    }

    /// Host and port as they were given.
    pub fn address(&self) -> String {
        format!("{}:{}", self.ticket.host, self.ticket.port)
    }

    /// What the block headers of this client's copies are sealed with.
    pub(crate) fn stream_secret(&self) -> StreamSecret {
        self.secret
    }

    /// The name of a session there among those of all tokens.
    pub(crate) fn scope(&self, session: SessionId) -> SessionId {
        // An insecure server knows everybody by a token of zeros.
        let token = self.token().unwrap_or(lfn_core::session::Token::from_bytes([0; 16]));
        token.hash().scope(session)
    }

    fn token(&self) -> Option<lfn_core::session::Token> {
        (!self.insecure).then_some(self.ticket.token)
    }
}

/// Where connections are dialled from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// An address of this host.
    pub address: Option<IpAddr>,
    /// An interface (`SO_BINDTODEVICE`, which wants no privilege since Linux 5.7).
    pub interface: Option<String>,
}

impl Place {
    /// `ADDRESS`, `ADDRESS%INTERFACE` or `INTERFACE`; `None` of what no interface can be called.
    pub fn parse(text: &str) -> Option<Place> {
        // IFNAMSIZ is 16 with the closing zero; the kernel takes no slash and no space.
        let named = |name: &str| {
            let fits = (1..=15).contains(&name.len()) && name.chars().all(|c| c.is_ascii_graphic() && c != '/');
            fits.then(|| name.to_owned())
        };
        match (text.parse(), text.split_once('%')) {
            (Ok(address), _) => Some(Place { address: Some(address), interface: None }),
            (_, Some((address, name))) => {
                Some(Place { address: Some(address.parse().ok()?), interface: Some(named(name)?) })
            }
            _ => Some(Place { address: None, interface: Some(named(text)?) }),
        }
    }

    /// Whether a connection to that address can be dialled from here at all.
    pub(crate) fn reaches(&self, to: &SocketAddr) -> bool {
        self.address.is_none_or(|from| from.is_ipv4() == to.is_ipv4())
    }

    /// Binds a socket that is to connect.
    pub(crate) fn bind(&self, socket: &Socket) -> Result<(), SessionError> {
        let failed = |place: &dyn std::fmt::Display| {
            let place = place.to_string();
            |source| SessionError::From { place, source }
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

/// A new random session id.
pub fn new_session_id() -> Result<SessionId, SessionError> {
    random().map(SessionId)
}

fn random<const N: usize>() -> Result<[u8; N], SessionError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| SessionError::Io { peer: "the kernel", source: e.into() })?;
    Ok(bytes)
}

/// Opens the control connection with the request in its first flight; the answer is the next message.
///
/// Costs two round trips until the request has left: one for TCP, one for TLS 1.3.
pub fn control(target: &Target, session: SessionId, request: Request) -> Result<Control, SessionError> {
    Line::connect(target)?.control(target, session, request)
}

/// A TCP connection to a server that nothing was said on yet: its round-trip time is known before the request is made.
#[derive(Debug)]
pub struct Line(TcpStream);

impl Line {
    /// Connects; one round trip.
    pub fn connect(target: &Target) -> Result<Self, SessionError> {
        connect(target, None, (0, Protocol::TCP), |_| Ok(())).map(Line)
    }

    /// What connecting took, without a SYN that was lost.
    pub fn round_trip(&self) -> Duration {
        super::round_trip(&self.0)
    }

    /// The socket, for `TCP_INFO`.
    pub fn socket(&self) -> &TcpStream {
        &self.0
    }

    /// Makes it the control connection of a session.
    pub fn control(self, target: &Target, session: SessionId, request: Request) -> Result<Control, SessionError> {
        let hello = Hello::Control { protocol: PROTOCOL, token: target.token(), session, request };
        let tls = handshake(target, self.0, &hello)?;
        Ok(Control::new(tls, lfn_core::wire::MESSAGE_LIMIT, "the server"))
    }
}

/// Opens one data stream. `prepare` sets socket options before the SYN leaves, so that a window scale follows a
/// receive buffer. `port` is another port than the ticket's, if the server gave one for this session.
pub fn data(
    target: &Target,
    session: SessionId,
    stream: u16,
    protection: Protection,
    port: Option<u16>,
    prepare: impl Fn(&Socket) -> io::Result<()>,
) -> Result<DataStream, SessionError> {
    let protocol = if target.multipath { Protocol::MPTCP } else { Protocol::TCP };
    let mut socket = connect(target, port, (stream, protocol), prepare)?;
    match protection {
        Protection::Clear => {
            // An insecure server derives the key from a token of zeros.
            let token = target.token().unwrap_or(lfn_core::session::Token::from_bytes([0; 16]));
            let hello = ClearHello { session, stream }.encode(&token);
            socket.write_all(&hello).map_err(|source| SessionError::Io { peer: "the server", source })?;
            Ok(DataStream::clear(stream, socket))
        }
        Protection::Tls => {
            let hello = Hello::Data { protocol: PROTOCOL, token: target.token(), session, stream };
            Ok(DataStream::tls(stream, handshake(target, socket, &hello)?))
        }
    }
}

/// Opens a stream of datagrams beside `control`, the control connection of an open session (see [`super::datagram`]).
pub fn datagrams(
    target: &Target,
    control: &TcpStream,
    session: SessionId,
    stream: u16,
    within: Duration,
) -> Result<DatagramStream, SessionError> {
    let token = target.token().unwrap_or(lfn_core::session::Token::from_bytes([0; 16]));
    // The address is that of the control connection, which was bound to it; the interface has to be said again.
    let interface = target.from.first().and_then(|place| place.interface.as_deref());
    datagram::open(control, &token, session, (stream, interface), within)
}

fn connect(
    target: &Target,
    port: Option<u16>,
    (stream, protocol): (u16, Protocol),
    prepare: impl Fn(&Socket) -> io::Result<()>,
) -> Result<TcpStream, SessionError> {
    let from = of_stream(&target.from, stream);
    let deadline = Instant::now() + target.within;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no address");
    for (address, others) in target.addresses.iter().zip((0..target.addresses.len() as u32).rev()) {
        let mut address = *address;
        address.set_port(port.unwrap_or(target.ticket.port));
        // One that swallows all that is sent to it leaves the others their time.
        let left = deadline.saturating_duration_since(Instant::now()) / (others + 1);
        if from.is_some_and(|from| !from.reaches(&address)) {
            last = io::Error::other("the address to dial from is of the other IP version");
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
        match connect_one(socket, address, left.max(Duration::from_millis(1)), &prepare) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(SessionError::Unreachable { address: target.address(), source: last })
}

fn connect_one(
    socket: Socket,
    address: SocketAddr,
    within: Duration,
    prepare: impl Fn(&Socket) -> io::Result<()>,
) -> io::Result<TcpStream> {
    prepare(&socket)?;
    socket.connect_timeout(&address.into(), within)?;
    let socket = TcpStream::from(socket);
    set_liveness(&socket)?;
    Ok(socket)
}

/// Options every connection of a session has, on both sides: no Nagle delay, and a dead peer noticed.
pub(crate) fn set_liveness(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_write_timeout(Some(DEAD_AFTER))?;
    let socket = SockRef::from(socket);
    let keepalive = socket2::TcpKeepalive::new().with_time(DEAD_AFTER / 3).with_interval(DEAD_AFTER / 6);
    // Multipath TCP has not all of these: a dead peer of such a stream is noticed by who waits for it.
    let unless_unknown = |result: io::Result<()>| match result {
        Err(error) if error.raw_os_error() == Some(Errno::NOPROTOOPT.raw_os_error()) => Ok(()),
        result => result,
    };
    unless_unknown(socket.set_tcp_keepalive(&keepalive))?;
    unless_unknown(socket.set_tcp_user_timeout(Some(DEAD_AFTER)))
}

/// Drives the handshake by writing `hello`.
fn handshake(target: &Target, socket: TcpStream, hello: &Hello) -> Result<TlsStream, SessionError> {
    let tls_error = |source| SessionError::Tls { address: target.address(), source };
    let pinned = Pinned::new((!target.insecure).then_some(target.ticket.fingerprint));
    let mut tls = TlsStream::client(socket, pinned.client_config().map_err(tls_error)?).map_err(tls_error)?;
    let bytes = wire::encode(Kind::Message, hello)?;
    tls.wait_until(Instant::now() + target.within);
    debug_assert!(bytes.len() <= HELLO_LIMIT, "a request fits in a hello");
    tls.write_all(&bytes).and_then(|()| tls.flush()).map_err(|error| explain(target, &pinned, error))?;
    Ok(tls)
}

/// What an I/O error during a handshake means.
fn explain(target: &Target, pinned: &Arc<Pinned>, error: io::Error) -> SessionError {
    if let Some(shown) = pinned.refused() {
        return SessionError::WrongFingerprint { address: target.address(), shown: shown.to_string() };
    }
    if timed_out(&error) {
        return SessionError::Timeout { peer: "the server", after: target.within, while_doing: "during the handshake" };
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
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU16, Ordering};

    use lfn_core::session::{Fingerprint, Token};

    use super::*;

    fn ticket(port: u16) -> Ticket {
        let (token, fingerprint) = (Token::from_bytes([7; 16]), Fingerprint([9; 32]));
        Ticket { host: "127.0.0.1".into(), port, token, fingerprint }
    }

    /// An IPv6 address that leads nowhere is the commonest of such.
    #[test]
    fn an_address_that_swallows_everything_leaves_the_next_its_time() {
        let good = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = good.local_addr().unwrap();
        let swallows = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let nowhere = SocketAddr::new([127, 0, 0, 2].into(), address.port());
        swallows.bind(&nowhere.into()).unwrap();
        swallows.listen(0).unwrap();
        // One fits into its queue; of those behind it the kernel answers none.
        let within = Duration::from_millis(300);
        let queued: Vec<_> = (0..3).map(|_| TcpStream::connect_timeout(&nowhere, within)).collect();
        assert!(queued.last().unwrap().is_err());
        let mut target = Target::at(ticket(address.port()), vec![nowhere, address]).unwrap();
        target.within = Duration::from_secs(2);
        let reached = Line::connect(&target).unwrap();
        assert_eq!(reached.socket().peer_addr().unwrap(), address);
    }

    #[test]
    fn a_far_end_is_found_again_by_its_name_or_its_own_way() {
        let mut named = Target::new(ticket(7)).unwrap();
        named.within = Duration::from_secs(3);
        assert_eq!(named.resolve_again().unwrap().address(), "127.0.0.1:7");
        let next = AtomicU16::new(8);
        let moving = named.found_by(move || Target::new(ticket(next.fetch_add(1, Ordering::Relaxed))));
        let found = moving.resolve_again().unwrap();
        // What was set stays, and so does the way.
        assert_eq!((found.address().as_str(), found.within), ("127.0.0.1:8", Duration::from_secs(3)));
        assert_eq!(found.resolve_again().unwrap().address(), "127.0.0.1:9");
    }
}
