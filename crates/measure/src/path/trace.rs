//! Traceroute of one flow with UDP or TCP, without privileges.
//!
//! All probes of a trace have the same addresses and ports, so that routers with several paths send all of them the
//! same way. Only the TTL differs. UDP probes leave from one socket. Each carries a number and its complement, so even
//! the checksum is constant. A SYN needs its own socket, and the kernel allows only one socket per flow. So TCP sends
//! one probe after the other, and UDP sends several at once.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use lfn_results::path_report::{Hop, RouteTrace, TraceEnd, TraceProtocol};
use lfn_sys::message::{self, Message, Origin, Queue, QueuedError};
use rustix::event::PollFlags;
use socket2::{Domain, SockRef, Socket, Type};

use super::{arrival, now, wait};
use crate::proto::discover::extension;
use crate::proto::discover::traceroute::{HopAnswer, ProbeOutcome, Traceroute, TracerouteAction, TracerouteSettings};

/// Destination port of traceroute since 1987. The port is normally closed, and firewalls that allow traceroute expect
/// this port.
pub const UDP_PORT: u16 = 33_434;
/// Size of the buffer for quoted packets, bytes.
const MAX_QUOTE: usize = 2048;

/// Options of a trace.
#[derive(Clone, Copy, Debug)]
pub struct TraceOptions {
    pub protocol: TraceProtocol,
    /// The destination. For TCP the port of a service, for UDP a closed port.
    pub to: SocketAddr,
    /// Local address to trace from. `None` lets the kernel choose.
    pub from: Option<IpAddr>,
    /// Round-trip time, if known. A hop counts as silent after twice this time, but at least after 1 s.
    pub rtt: Duration,
    /// Maximum number of hops, or the distance if it is known.
    pub max_hops: u8,
}

/// Reason why a trace could not start or was interrupted.
#[derive(Debug, thiserror::Error)]
#[error("cannot trace the path to {to}: {source}")]
pub struct TraceError {
    pub to: SocketAddr,
    pub source: io::Error,
}

/// Traces the path to the destination.
pub fn trace(options: &TraceOptions) -> Result<RouteTrace, TraceError> {
    let tracer = match options.protocol {
        TraceProtocol::Udp => trace_udp,
        TraceProtocol::Tcp => trace_tcp,
    };
    tracer(options).map_err(|source| TraceError { to: options.to, source })
}

impl TraceOptions {
    fn settings(&self) -> TracerouteSettings {
        let wait = (self.rtt * 2).max(Duration::from_secs(1));
        let max_hops = self.max_hops;
        match self.protocol {
            TraceProtocol::Udp => TracerouteSettings { probe_timeout: wait, max_hops, ..TracerouteSettings::default() },
            // A silent hop costs its full time-out, because TCP has only one probe in flight.
            TraceProtocol::Tcp => TracerouteSettings {
                probe_timeout: wait,
                max_hops,
                in_flight: 1,
                silent_probes: 2,
                silent_hops: 5,
                ..TracerouteSettings::default()
            },
        }
    }

    /// Returns the local address that the kernel uses for this destination.
    fn source(&self) -> io::Result<IpAddr> {
        let any: IpAddr = match self.to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((self.from.unwrap_or(any), 0))?;
        socket.connect(self.to)?;
        Ok(socket.local_addr()?.ip())
    }

    fn report(&self, source: SocketAddr, hops: Vec<Hop>, end: TraceEnd) -> RouteTrace {
        RouteTrace {
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

/// Returns the payload of probe `number`. The sum of all bytes is the same for every number.
fn payload(number: u16) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(b"lfnT");
    bytes[4..6].copy_from_slice(&number.to_be_bytes());
    bytes[6..8].copy_from_slice(&(!number).to_be_bytes());
    bytes
}

/// Returns the number of a quoted probe, or `None` if too little is quoted.
fn quoted_number(quoted: &[u8]) -> Option<u16> {
    let head = quoted.first_chunk::<8>()?;
    let number = u16::from_be_bytes([head[4], head[5]]);
    (head[..] == payload(number)[..8]).then_some(number)
}

fn trace_udp(options: &TraceOptions) -> io::Result<RouteTrace> {
    let socket = UdpSocket::bind((options.source()?, 0))?;
    socket.set_nonblocking(true)?;
    message::enable_error_queue(&socket)?;
    message::enable_timestamps(&socket)?;
    socket.connect(options.to)?;
    let mut trace = Traceroute::new(options.settings(), now());
    loop {
        receive_answers(&socket, options.to.ip(), &mut trace)?;
        match trace.next(now()) {
            TracerouteAction::Send { number, ttl } => {
                message::set_hop_limit(&socket, ttl)?;
                send(&socket, &payload(number), options.to.ip(), &mut trace)?;
            }
            TracerouteAction::Wait(until) => wait(socket.as_fd(), PollFlags::IN, until)?,
            TracerouteAction::Done => {
                let (hops, end) = trace.hops();
                return Ok(options.report(socket.local_addr()?, hops, end));
            }
        }
    }
}

/// Sends a datagram. If the kernel reports an earlier ICMP message instead, that message is received first.
fn send(socket: &UdpSocket, bytes: &[u8], to: IpAddr, trace: &mut Traceroute) -> io::Result<()> {
    const MAX_ERRORS: u32 = 16;
    for _ in 0..MAX_ERRORS {
        match socket.send(bytes) {
            // A full queue drops the datagram, as any router may.
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if receive_answers(socket, to, trace)? == 0 => return Err(error),
            Err(_) => {}
        }
    }
    Ok(())
}

/// Receives all pending ICMP messages. Returns their number.
fn receive_answers(socket: &UdpSocket, to: IpAddr, trace: &mut Traceroute) -> io::Result<usize> {
    let mut buffer = [0; MAX_QUOTE];
    let mut count = 0;
    // Datagrams from a service on this port are not part of the trace.
    while let Ok(Some(_)) = message::receive(socket, Queue::Data, &mut buffer) {}
    while let Some(message) = message::receive(socket, Queue::Errors, &mut buffer)? {
        count += 1;
        let quoted = &buffer[..message.length];
        let Some(answer) = message.error.and_then(|error| hop_answer(&error, quoted, to)) else { continue };
        let now = arrival(&message);
        match quoted_number(quoted) {
            Some(number) => trace.on_answer(number, answer, now),
            None => drop(trace.on_unmatched_answer(answer, now)),
        }
    }
    Ok(count)
}

/// Converts an ICMP message. Returns `None` if the message does not concern a trace.
fn hop_answer(error: &QueuedError, quoted: &[u8], to: IpAddr) -> Option<HopAnswer> {
    let from = error.offender?;
    let outcome = match (error.origin, error.kind, error.code) {
        // Time exceeded in transit (RFC 792, RFC 4443 §3.3).
        (Origin::Icmp, 11, 0) | (Origin::Icmp6, 3, 0) => ProbeOutcome::Expired,
        // Port unreachable, or any other refusal of the destination itself.
        (Origin::Icmp, 3, 3) | (Origin::Icmp6, 1, 4) => ProbeOutcome::Arrived,
        // "Packet too big": probes of a trace are too small to cause this.
        (Origin::Icmp, 3, 4) => return None,
        (Origin::Icmp, 3, _) | (Origin::Icmp6, 1, _) if from == to => ProbeOutcome::Arrived,
        (Origin::Icmp, 3, _) | (Origin::Icmp6, 1, _) => ProbeOutcome::Refused,
        _ => return None,
    };
    let objects = error.extensions.and_then(|at| quoted.get(usize::from(at)..));
    Some(HopAnswer { outcome, from, mpls: objects.map(extension::mpls).unwrap_or_default() })
}

fn trace_tcp(options: &TraceOptions) -> io::Result<RouteTrace> {
    // Reserves the port while no probe uses it.
    let port_holder = bind(SocketAddr::new(options.source()?, 0))?;
    let source = port_holder.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let mut trace = Traceroute::new(options.settings(), now());
    let mut probe: Option<(u16, Socket)> = None;
    loop {
        if let Some((number, socket)) = &probe
            && let Some((answer, at)) = syn_outcome(socket, options.to)?
        {
            trace.on_answer(*number, answer, at);
            probe = None;
        }
        match trace.next(now()) {
            TracerouteAction::Send { number, ttl } => {
                // The previous probe was lost. Its socket must be closed before the flow can be used again.
                drop(probe.take());
                probe = Some((number, send_syn(source, options.to, ttl)?));
            }
            TracerouteAction::Wait(until) => {
                let file = probe.as_ref().map_or(port_holder.as_fd(), |(_, socket)| socket.as_fd());
                // A socket without a pending connection is always ready.
                let flags = if probe.is_some() { PollFlags::OUT } else { PollFlags::empty() };
                wait(file, flags, until)?;
            }
            TracerouteAction::Done => {
                let (hops, end) = trace.hops();
                return Ok(options.report(source, hops, end));
            }
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Sends a SYN of the flow.
fn send_syn(source: SocketAddr, to: SocketAddr, ttl: u8) -> io::Result<Socket> {
    let socket = bind(source)?;
    socket.set_nonblocking(true)?;
    message::enable_error_queue(&socket)?;
    message::set_hop_limit(&socket, ttl)?;
    // A connection that succeeds is reset when closed, because the next probe needs its ports immediately (no
    // TIME-WAIT).
    SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
    match socket.connect(&to.into()) {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Ok(socket),
        // A destination on the local host refuses immediately.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Returns the outcome of a SYN, if it is known.
fn syn_outcome(socket: &Socket, to: SocketAddr) -> io::Result<Option<(HopAnswer, lfn_base::time::Instant)>> {
    let arrived = || Some((HopAnswer { outcome: ProbeOutcome::Arrived, from: to.ip(), mpls: Vec::new() }, now()));
    let mut buffer = [0; MAX_QUOTE];
    while let Some(message) = message::receive(socket, Queue::Errors, &mut buffer)? {
        let quoted = &buffer[..message.length];
        if let Some(answer) = hop_answer_of(&message, quoted, to.ip()) {
            return Ok(Some((answer, arrival(&message))));
        }
    }
    match socket.take_error()? {
        // The destination replied with a reset.
        Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(arrived()),
        Some(error) => Err(error),
        None if socket.peer_addr().is_ok() => Ok(arrived()),
        None => Ok(None),
    }
}

fn hop_answer_of(message: &Message, quoted: &[u8], to: IpAddr) -> Option<HopAnswer> {
    hop_answer(&message.error?, quoted, to)
}

#[cfg(test)]
mod tests {
    use lfn_session::transport::tcp::{DEFAULT_BACKLOG, Listener};

    use super::*;

    fn sum(bytes: &[u8]) -> u32 {
        let words: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        (words & 0xffff) + (words >> 16)
    }

    #[test]
    fn probe_number_does_not_change_the_checksum() {
        for probe in [0, 1, 77, 256, u16::MAX] {
            assert_eq!(sum(&payload(probe)), sum(&payload(0)));
            assert_eq!(quoted_number(&payload(probe)[..8]), Some(probe));
            assert_eq!(quoted_number(&payload(probe)[..7]), None);
        }
        assert_eq!(quoted_number(b"lfnT\0\x01\0\x01"), None, "no complement");
    }

    #[test]
    fn loopback_is_one_hop_away() {
        let listen = || Listener::bind(([127, 0, 0, 1], 0).into(), DEFAULT_BACKLOG).unwrap();
        let listener = listen();
        let open = listener.local_address().unwrap();
        let closed = listen().local_address().unwrap();
        for (protocol, to) in [(TraceProtocol::Udp, closed), (TraceProtocol::Tcp, open), (TraceProtocol::Tcp, closed)] {
            let options = TraceOptions { protocol, to, from: None, rtt: Duration::ZERO, max_hops: 30 };
            let trace = trace(&options).unwrap();
            assert_eq!((trace.end, trace.hops.len()), (TraceEnd::Reached, 1), "{protocol:?} {trace:?}");
            let node = &trace.hops[0].nodes[0];
            assert_eq!((node.address, node.rtt_seconds.len() >= 3), (to.ip(), true), "{trace:?}");
            assert!(node.rtt_seconds.iter().all(|&rtt| (0.0..1.0).contains(&rtt.get())));
        }
    }

    #[test]
    fn missing_route_is_an_error_with_the_host() {
        // Reserved (RFC 1112 §4), so that no kernel sends anything there.
        let to = "240.0.0.1:9".parse().unwrap();
        let from = Some("127.0.0.1".parse().unwrap());
        let options = TraceOptions { protocol: TraceProtocol::Udp, to, from, rtt: Duration::ZERO, max_hops: 30 };
        assert!(trace(&options).unwrap_err().to_string().starts_with("cannot trace the path to 240.0.0.1:9: "));
    }
}
