//! Traceroute of one flow, by UDP or by TCP, without privilege.
//!
//! Every probe of a trace has the same addresses and ports, so that routers that spread flows over several ways send all
//! of them the same way; only the TTL differs. Datagrams go out of one socket and carry a number whose complement stands
//! beside it, which leaves even the checksum the same. A SYN needs a socket of its own, and the kernel allows one at a
//! time for a flow: TCP asks one probe after the other, UDP several at once.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use lfn_core::discover::extension;
use lfn_core::discover::report::{Hop, Protocol, Trace, TraceEnd};
use lfn_core::discover::traceroute::{Answer, Fate, Next, Settings, Traceroute};
use lfn_sys::message::{self, Message, Origin, Queue, QueuedError};
use rustix::event::PollFlags;
use socket2::{Domain, SockRef, Socket, Type};

use super::{arrival, now, wait};

/// Where traceroute has sent its datagrams since 1987: nobody listens there, and firewalls that let traces through expect
/// them there.
pub const UDP_PORT: u16 = 33_434;
/// Room for what an ICMP message quotes.
const ROOM: usize = 2048;

/// How to trace.
#[derive(Clone, Copy, Debug)]
pub struct Tracing {
    /// By what.
    pub protocol: Protocol,
    /// Where to: the port is that of a service for TCP, and one where nobody listens for UDP.
    pub to: SocketAddr,
    /// Address of this host to trace from; any if unspecified.
    pub from: Option<IpAddr>,
    /// Round-trip time, if known: it takes that long for a hop to be called silent, at least.
    pub rtt: Duration,
    /// Most hops; fewer than usual, if the distance is known already.
    pub most_hops: u8,
}

/// Why a trace could not even begin, or broke off.
#[derive(Debug, thiserror::Error)]
#[error("cannot trace the path to {to}: {source}")]
pub struct TraceError {
    /// Where to.
    pub to: SocketAddr,
    /// What the kernel said.
    pub source: io::Error,
}

/// Traces.
pub fn trace(tracing: &Tracing) -> Result<Trace, TraceError> {
    let run = match tracing.protocol {
        Protocol::Udp => by_udp,
        Protocol::Tcp => by_tcp,
    };
    run(tracing).map_err(|source| TraceError { to: tracing.to, source })
}

impl Tracing {
    fn settings(&self) -> Settings {
        let wait = (self.rtt * 2).max(Duration::from_secs(1));
        let most_hops = self.most_hops;
        match self.protocol {
            Protocol::Udp => Settings { wait, most_hops, ..Settings::default() },
            // Each silent probe costs its wait.
            Protocol::Tcp => {
                Settings { wait, most_hops, in_flight: 1, silent_probes: 2, silent_hops: 5, ..Settings::default() }
            }
        }
    }

    /// This host's address on the way there, as the routes have it.
    fn source(&self) -> io::Result<IpAddr> {
        let any: IpAddr = match self.to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((self.from.unwrap_or(any), 0))?;
        socket.connect(self.to)?;
        Ok(socket.local_addr()?.ip())
    }

    fn report(&self, source: SocketAddr, (hops, end): (Vec<Hop>, TraceEnd)) -> Trace {
        Trace {
            protocol: self.protocol,
            source: source.ip(),
            source_port: source.port(),
            destination: self.to.ip(),
            destination_port: self.to.port(),
            hops,
            end,
        }
    }
}

/// What a datagram carries: its number, so that the sum of all bytes is the same for every number.
fn payload(number: u16) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(b"lfnT");
    bytes[4..6].copy_from_slice(&number.to_be_bytes());
    bytes[6..8].copy_from_slice(&(!number).to_be_bytes());
    bytes
}

/// The number of a datagram that is quoted; `None` if too little of it is.
fn number(quoted: &[u8]) -> Option<u16> {
    let head = quoted.first_chunk::<8>()?;
    let number = u16::from_be_bytes([head[4], head[5]]);
    (head[..] == payload(number)[..8]).then_some(number)
}

fn by_udp(tracing: &Tracing) -> io::Result<Trace> {
    let socket = UdpSocket::bind((tracing.source()?, 0))?;
    socket.set_nonblocking(true)?;
    message::queue_errors(&socket)?;
    message::tell_arrival(&socket)?;
    socket.connect(tracing.to)?;
    let mut trace = Traceroute::new(tracing.settings(), now());
    loop {
        drain(&socket, tracing.to.ip(), &mut trace)?;
        match trace.next(now()) {
            Next::Send { number, ttl } => {
                message::set_hop_limit(&socket, ttl)?;
                send(&socket, &payload(number), tracing.to.ip(), &mut trace)?;
            }
            Next::Wait(until) => wait(socket.as_fd(), PollFlags::IN, until)?,
            Next::Done => return Ok(tracing.report(socket.local_addr()?, trace.hops())),
        }
    }
}

/// Sends; an answer to an earlier datagram that the kernel reports instead is taken first.
fn send(socket: &UdpSocket, bytes: &[u8], to: IpAddr, trace: &mut Traceroute) -> io::Result<()> {
    const MOST_ERRORS: u32 = 16;
    for _ in 0..MOST_ERRORS {
        match socket.send(bytes) {
            // A full queue loses it, as any other router might.
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if drain(socket, to, trace)? == 0 => return Err(error),
            Err(_) => {}
        }
    }
    Ok(())
}

/// Takes all answers that have come; says how many.
fn drain(socket: &UdpSocket, to: IpAddr, trace: &mut Traceroute) -> io::Result<usize> {
    let mut buffer = [0; ROOM];
    let mut count = 0;
    // Whoever listens at that port after all is no hop.
    while let Ok(Some(_)) = message::receive(socket, Queue::Data, &mut buffer) {}
    while let Some(message) = message::receive(socket, Queue::Errors, &mut buffer)? {
        count += 1;
        let quoted = &buffer[..message.length];
        let Some(answer) = message.error.and_then(|error| answer(&error, quoted, to)) else { continue };
        let now = arrival(&message);
        match number(quoted) {
            Some(number) => trace.answered(number, answer, now),
            None => drop(trace.answered_unknown(answer, now)),
        }
    }
    Ok(count)
}

/// What an ICMP message means for a trace; nothing, if it is about something else.
fn answer(error: &QueuedError, quoted: &[u8], to: IpAddr) -> Option<Answer> {
    let from = error.offender?;
    let fate = match (error.origin, error.kind, error.code) {
        // Time exceeded in transit (RFC 792, RFC 4443 §3.3).
        (Origin::Icmp, 11, 0) | (Origin::Icmp6, 3, 0) => Fate::Expired,
        // Port unreachable, and whatever else the destination itself refuses with.
        (Origin::Icmp, 3, 3) | (Origin::Icmp6, 1, 4) => Fate::Arrived,
        // Too large: no trace sends what could be.
        (Origin::Icmp, 3, 4) => return None,
        (Origin::Icmp, 3, _) | (Origin::Icmp6, 1, _) if from == to => Fate::Arrived,
        (Origin::Icmp, 3, _) | (Origin::Icmp6, 1, _) => Fate::Refused,
        _ => return None,
    };
    let objects = error.extensions.and_then(|at| quoted.get(usize::from(at)..));
    Some(Answer { fate, from, mpls: objects.map(extension::mpls).unwrap_or_default() })
}

fn by_tcp(tracing: &Tracing) -> io::Result<Trace> {
    // Keeps the port while no probe has it.
    let keeper = bound(SocketAddr::new(tracing.source()?, 0))?;
    let source = keeper.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let mut trace = Traceroute::new(tracing.settings(), now());
    let mut probe: Option<(u16, Socket)> = None;
    loop {
        if let Some((number, socket)) = &probe
            && let Some((answer, at)) = fate_of(socket, tracing.to)?
        {
            trace.answered(*number, answer, at);
            probe = None;
        }
        match trace.next(now()) {
            Next::Send { number, ttl } => {
                // The one before was lost; its flow has to be free first.
                drop(probe.take());
                probe = Some((number, syn(source, tracing.to, ttl)?));
            }
            Next::Wait(until) => {
                let file = probe.as_ref().map_or(keeper.as_fd(), |(_, socket)| socket.as_fd());
                // A socket that nothing was asked of is always ready.
                let flags = if probe.is_some() { PollFlags::OUT } else { PollFlags::empty() };
                wait(file, flags, until)?;
            }
            Next::Done => return Ok(tracing.report(source, trace.hops())),
        }
    }
}

fn bound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Sends a SYN of the flow.
fn syn(source: SocketAddr, to: SocketAddr, ttl: u8) -> io::Result<Socket> {
    let socket = bound(source)?;
    socket.set_nonblocking(true)?;
    message::queue_errors(&socket)?;
    message::set_hop_limit(&socket, ttl)?;
    // A connection that comes about is reset at its end: the next probe wants its ports at once (no TIME-WAIT).
    SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
    match socket.connect(&to.into()) {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Ok(socket),
        // A destination on this very host refuses at once.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(socket),
        Err(error) => Err(error),
    }
}

/// What came of a SYN, if anything has yet.
fn fate_of(socket: &Socket, to: SocketAddr) -> io::Result<Option<(Answer, lfn_core::time::Instant)>> {
    let arrived = || Some((Answer { fate: Fate::Arrived, from: to.ip(), mpls: Vec::new() }, now()));
    let mut buffer = [0; ROOM];
    while let Some(message) = message::receive(socket, Queue::Errors, &mut buffer)? {
        let quoted = &buffer[..message.length];
        if let Some(answer) = told(&message, quoted, to.ip()) {
            return Ok(Some((answer, arrival(&message))));
        }
    }
    match socket.take_error()? {
        // The destination answered with a reset.
        Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(arrived()),
        Some(error) => Err(error),
        None if socket.peer_addr().is_ok() => Ok(arrived()),
        None => Ok(None),
    }
}

fn told(message: &Message, quoted: &[u8], to: IpAddr) -> Option<Answer> {
    answer(&message.error?, quoted, to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn sum(bytes: &[u8]) -> u32 {
        let words: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        (words & 0xffff) + (words >> 16)
    }

    #[test]
    fn numbers_leave_the_checksum_alone() {
        for probe in [0, 1, 77, 256, u16::MAX] {
            assert_eq!(sum(&payload(probe)), sum(&payload(0)));
            assert_eq!(number(&payload(probe)[..8]), Some(probe));
            assert_eq!(number(&payload(probe)[..7]), None);
        }
        assert_eq!(number(b"lfnT\0\x01\0\x01"), None, "no complement");
    }

    #[test]
    fn loopback_is_one_hop_away() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for (protocol, to) in [(Protocol::Udp, closed), (Protocol::Tcp, open), (Protocol::Tcp, closed)] {
            let tracing = Tracing { protocol, to, from: None, rtt: Duration::ZERO, most_hops: 30 };
            let trace = trace(&tracing).unwrap();
            assert_eq!((trace.end, trace.hops.len()), (TraceEnd::Reached, 1), "{protocol:?} {trace:?}");
            let node = &trace.hops[0].nodes[0];
            assert_eq!((node.address, node.rtt_seconds.len() >= 3), (to.ip(), true), "{trace:?}");
            assert!(node.rtt_seconds.iter().all(|&rtt| (0.0..1.0).contains(&rtt.get())));
        }
    }

    #[test]
    fn no_route_is_an_error_that_names_the_host() {
        // Reserved (RFC 1112 §4), so that no kernel sends anything there.
        let to = "240.0.0.1:9".parse().unwrap();
        let from = Some("127.0.0.1".parse().unwrap());
        let tracing = Tracing { protocol: Protocol::Udp, to, from, rtt: Duration::ZERO, most_hops: 30 };
        assert!(trace(&tracing).unwrap_err().to_string().starts_with("cannot trace the path to 240.0.0.1:9: "));
    }
}
