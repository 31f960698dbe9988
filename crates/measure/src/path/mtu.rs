//! Path MTU of both directions over one datagram socket: the search of the client, and the replies of the server.
//!
//! The client sends padded probes and the server acknowledges them. In the other direction, the client requests padded
//! probes from the server. Both searches run at the same time. A smaller MTU that the kernel reports, from its own
//! interface or from ICMP, only guides the search. Only probes that arrive count as proof.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lfn_results::path_report::{End, MtuFound, PacketTooBig};
use lfn_session::DatagramStream;
use lfn_sys::message::{self, MtuDiscovery, Origin, Queue, QueuedError};
use rustix::event::PollFlags;

use super::{now, wait};
use crate::proto::discover::plpmtud::{MAX_PACKET, MtuSearch, MtuSearchAction, MtuSearchSettings};
use crate::proto::discover::probe::{HEADER_LENGTH, PathProbe, ProbeKind};

/// One end of a datagram stream that carries path probes.
pub(super) struct ProbeSocket<'a> {
    pub(super) socket: &'a UdpSocket,
    /// Tag of every datagram of the stream.
    pub(super) tag: u64,
    pub(super) stream: &'a dyn HelloFilter,
}

/// Filter for late hello datagrams of the stream's opening.
pub(super) trait HelloFilter: Sync {
    /// Returns true for a repeated hello, after handling it.
    fn is_repeated_hello(&self, datagram: &[u8]) -> bool;
}

impl HelloFilter for DatagramStream {
    fn is_repeated_hello(&self, datagram: &[u8]) -> bool {
        DatagramStream::is_repeated_hello(self, datagram)
    }
}

/// Result of both searches.
#[derive(Debug, Default)]
pub(super) struct FoundMtus {
    pub(super) forward: Option<MtuFound>,
    pub(super) reverse: Option<MtuFound>,
    pub(super) packet_too_big: Vec<PacketTooBig>,
}

/// Maximum number of ICMP messages that are kept. Any host can send them.
const MAX_TOO_BIG_REPORTS: usize = 16;

/// Maximum number of messages between two other actions.
const RECEIVE_BATCH: u32 = 256;

/// Searches the path MTU of both directions, at most `time_limit`. `near` and `far` are the MTUs of the interfaces.
pub(super) fn search(
    port: &ProbeSocket<'_>,
    near: Option<u32>,
    far: Option<u32>,
    rtt: Duration,
    time_limit: Duration,
) -> io::Result<FoundMtus> {
    port.prepare()?;
    let started_at = now();
    let new = |interface_mtu: Option<u32>| {
        let settings = MtuSearchSettings::new(interface_mtu.unwrap_or(MAX_PACKET), rtt);
        MtuSearch::new(MtuSearchSettings { time_limit, ..settings }, started_at)
    };
    let mut searches = BothDirections {
        port,
        forward: new(near),
        reverse: new(far),
        packet_too_big: Vec::new(),
        buffer: vec![0; MAX_PACKET as usize],
    };
    searches.run()?;
    let BothDirections { forward, reverse, packet_too_big, .. } = searches;
    let with_black_hole = |search: &MtuSearch, to: End| {
        let has_icmp = packet_too_big.iter().any(|report| report.to == to);
        search.result().map(|found| MtuFound { black_hole: found.smallest_lost_bytes.is_some() && !has_icmp, ..found })
    };
    Ok(FoundMtus {
        forward: with_black_hole(&forward, End::Near),
        reverse: with_black_hole(&reverse, End::Far),
        packet_too_big,
    })
}

struct BothDirections<'a> {
    port: &'a ProbeSocket<'a>,
    forward: MtuSearch,
    reverse: MtuSearch,
    packet_too_big: Vec<PacketTooBig>,
    buffer: Vec<u8>,
}

impl BothDirections<'_> {
    fn run(&mut self) -> io::Result<()> {
        loop {
            self.take()?;
            let (forward, reverse) = (self.forward.next(now()), self.reverse.next(now()));
            if let MtuSearchAction::Send { size, number } = forward {
                self.probe(size, number)?;
            }
            if let MtuSearchAction::Send { size, number } = reverse {
                // The server reports its own limits in its replies.
                let _ = self.port.send(PathProbe { kind: ProbeKind::Request, number, size, mtu: 0 }, HEADER_LENGTH)?;
            }
            match (forward, reverse) {
                (MtuSearchAction::Done, MtuSearchAction::Done) => return Ok(()),
                (MtuSearchAction::Send { .. }, _) | (_, MtuSearchAction::Send { .. }) => {}
                (MtuSearchAction::Wait(one), MtuSearchAction::Wait(other)) => {
                    wait(self.port.socket.as_fd(), PollFlags::IN, one.min(other))?
                }
                (MtuSearchAction::Wait(until), _) | (_, MtuSearchAction::Wait(until)) => {
                    wait(self.port.socket.as_fd(), PollFlags::IN, until)?;
                }
            }
        }
    }

    /// Sends a padded probe.
    fn probe(&mut self, size: u32, number: u32) -> io::Result<()> {
        let length = (size - self.port.headers()) as usize;
        match self.port.send(PathProbe { kind: ProbeKind::Probe, number, size, mtu: 0 }, length)? {
            SendOutcome::Sent => {}
            // The kernel's limit is certain. The error queue may contain a smaller one.
            SendOutcome::TooBig => self.forward.limit_mtu(size - 1),
        }
        Ok(())
    }

    /// Receives all pending errors and messages.
    fn take(&mut self) -> io::Result<()> {
        // The limit keeps a flood of messages from blocking the searches.
        for _ in 0..RECEIVE_BATCH {
            let Some(error) = self.port.next_error(&mut self.buffer)? else { break };
            match too_big(&error.0) {
                Some((Origin::Local, mtu)) => self.forward.limit_mtu(mtu),
                Some((_, mtu)) => {
                    self.forward.add_hint(mtu);
                    self.record_too_big(End::Near, error.0.offender, mtu);
                }
                None => {}
            }
        }
        for _ in 0..RECEIVE_BATCH {
            let Some(probe) = self.port.next(&mut self.buffer)? else { break };
            match probe.kind {
                ProbeKind::Received => self.forward.on_acknowledged(probe.number, probe.size),
                ProbeKind::Padded => self.reverse.on_acknowledged(probe.number, probe.size),
                ProbeKind::InterfaceTooSmall => self.reverse.limit_mtu(probe.mtu),
                ProbeKind::IcmpTooBig => {
                    self.reverse.add_hint(probe.mtu);
                    self.record_too_big(End::Far, None, probe.mtu);
                }
                ProbeKind::Probe | ProbeKind::Request => {}
            }
        }
        Ok(())
    }

    fn record_too_big(&mut self, to: End, from: Option<IpAddr>, mtu_bytes: u32) {
        let report = PacketTooBig { to, from, mtu_bytes };
        if self.packet_too_big.len() < MAX_TOO_BIG_REPORTS && !self.packet_too_big.contains(&report) {
            self.packet_too_big.push(report);
        }
    }
}

/// Returns the origin and the MTU of a "packet too big" error (RFC 1191, RFC 8201). The origin can also be the local
/// kernel.
fn too_big(error: &QueuedError) -> Option<(Origin, u32)> {
    let is_too_big_error = match error.origin {
        Origin::Icmp => (error.kind, error.code) == (3, 4),
        Origin::Icmp6 => error.kind == 2,
        Origin::Local => error.errno == rustix::io::Errno::MSGSIZE.raw_os_error(),
        Origin::Other => false,
    };
    is_too_big_error.then_some((error.origin, error.info))
}

/// Answers a client's probes until `stop` is set, up to the limits of one session.
pub(super) fn answer_probes(port: &ProbeSocket<'_>, stop: &AtomicBool) -> io::Result<()> {
    /// Several times the need of both searches.
    const MAX_ANSWERS: u32 = 4_000;
    const MAX_PADDED: u32 = 1_500;
    const POLL_INTERVAL: Duration = Duration::from_millis(100);
    port.prepare()?;
    let mut buffer = vec![0; MAX_PACKET as usize];
    let (mut answers, mut padded) = (0, 0);
    while !stop.load(Ordering::Relaxed) && answers < MAX_ANSWERS {
        wait(port.socket.as_fd(), PollFlags::IN, now() + POLL_INTERVAL)?;
        while let Some((error, quoted)) = port.next_error(&mut buffer)? {
            if let (Some((Origin::Icmp | Origin::Icmp6, mtu)), Some(probe)) = (too_big(&error), quoted) {
                port.send(PathProbe { kind: ProbeKind::IcmpTooBig, mtu, ..probe }, HEADER_LENGTH)?;
            }
        }
        while let Some(probe) = port.next(&mut buffer)? {
            answers += 1;
            match probe.kind {
                ProbeKind::Probe => drop(port.send(PathProbe { kind: ProbeKind::Received, ..probe }, HEADER_LENGTH)?),
                ProbeKind::Request if padded < MAX_PADDED => {
                    padded += 1;
                    port.send_padded(probe)?;
                }
                _ => {}
            }
            if answers >= MAX_ANSWERS {
                break;
            }
        }
    }
    Ok(())
}

/// Result of sending a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendOutcome {
    Sent,
    TooBig,
}

impl ProbeSocket<'_> {
    fn prepare(&self) -> io::Result<()> {
        message::enable_error_queue(self.socket)?;
        message::set_mtu_discovery(self.socket, MtuDiscovery::Probe)
    }

    /// Returns the size of the IP and UDP headers, bytes.
    fn headers(&self) -> u32 {
        match self.socket.peer_addr().map(|peer| peer.ip().to_canonical()) {
            Ok(IpAddr::V6(_)) => 40 + 8,
            _ => 20 + 8,
        }
    }

    /// Sends a message, padded to `length`. Errors of earlier messages do not stop it.
    fn send(&self, probe: PathProbe, length: usize) -> io::Result<SendOutcome> {
        let mut bytes = probe.encode(self.tag).to_vec();
        bytes.resize(length.max(HEADER_LENGTH), 0);
        let mut tries = 0;
        loop {
            match self.socket.send(&bytes) {
                Ok(_) => return Ok(SendOutcome::Sent),
                // A full queue drops the message, as the path may.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(SendOutcome::Sent),
                // The kernel reports a pending error before it sends again. A new ICMP message has the same effect.
                Err(_) if tries < 3 => tries += 1,
                Err(error) if is_too_big(&error) => return Ok(SendOutcome::TooBig),
                Err(error) if is_path_error(&error) => return Ok(SendOutcome::Sent),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a padded reply, or the reason why it cannot be sent.
    fn send_padded(&self, request: PathProbe) -> io::Result<()> {
        let length = (request.size - self.headers()) as usize;
        if self.send(PathProbe { kind: ProbeKind::Padded, ..request }, length)? == SendOutcome::TooBig {
            let mtu =
                super::interface_mtu(self.socket.local_addr()?.ip()).unwrap_or(request.size - 1).min(request.size - 1);
            self.send(PathProbe { kind: ProbeKind::InterfaceTooSmall, mtu, ..request }, HEADER_LENGTH)?;
        }
        Ok(())
    }

    /// Returns the next message of the peer, if there is one.
    fn next(&self, buffer: &mut [u8]) -> io::Result<Option<PathProbe>> {
        for _ in 0..RECEIVE_BATCH {
            match message::receive(self.socket, Queue::Data, buffer) {
                Ok(Some(message)) => {
                    let bytes = &buffer[..message.length];
                    if !self.stream.is_repeated_hello(bytes)
                        && let Some(probe) = PathProbe::decode(bytes, self.tag, self.headers())
                    {
                        return Ok(Some(probe));
                    }
                }
                Ok(None) => return Ok(None),
                // The error queue contains the same error.
                Err(error) if is_too_big(&error) || is_path_error(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Returns the next error, and the probe that it quotes, if enough of it is quoted.
    fn next_error(&self, buffer: &mut [u8]) -> io::Result<Option<(QueuedError, Option<PathProbe>)>> {
        let message = message::receive(self.socket, Queue::Errors, buffer)?;
        Ok(message
            .and_then(|message| Some((message.error?, PathProbe::decode_header(&buffer[..message.length], self.tag)))))
    }
}

fn is_too_big(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error())
}

/// Returns true for errors that ICMP causes. They may be wrong or temporary.
fn is_path_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, PermissionDenied};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable | PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);
    use std::thread;

    const TAG: u64 = 99;

    struct NoHello;

    impl HelloFilter for NoHello {
        fn is_repeated_hello(&self, _: &[u8]) -> bool {
            false
        }
    }

    fn pair(host: &str) -> (UdpSocket, UdpSocket) {
        let (one, other) = (UdpSocket::bind((host, 0)).unwrap(), UdpSocket::bind((host, 0)).unwrap());
        one.connect(other.local_addr().unwrap()).unwrap();
        other.connect(one.local_addr().unwrap()).unwrap();
        (one, other)
    }

    /// Searches against a server that runs `answer`.
    fn found(host: &str, answer: impl Fn(&ProbeSocket<'_>, &AtomicBool) + Sync) -> FoundMtus {
        let (near, far) = pair(host);
        let stop = AtomicBool::new(false);
        let port = |socket| ProbeSocket { socket, tag: TAG, stream: &NoHello };
        thread::scope(|scope| {
            scope.spawn(|| answer(&port(&far), &stop));
            let found = search(&port(&near), Some(9000), Some(1500), Duration::from_millis(20), LIMIT).unwrap();
            stop.store(true, Ordering::Relaxed);
            found
        })
    }

    #[test]
    fn both_directions_reach_the_interface_mtu() {
        for host in ["127.0.0.1", "::1"] {
            if UdpSocket::bind((host, 0)).is_err() {
                continue;
            }
            let found = found(host, |port, stop| self::answer_probes(port, stop).unwrap());
            let sizes = [found.forward, found.reverse].map(|found| found.map(|found| found.path_mtu_bytes));
            assert_eq!(sizes, [Some(9000), Some(1500)], "{host}");
            assert!(!found.forward.unwrap().black_hole && found.packet_too_big.is_empty());
        }
    }

    #[test]
    fn unknown_interface_mtu_is_found_by_probing() {
        let (near, far) = pair("127.0.0.1");
        let stop = AtomicBool::new(false);
        let port = |socket| ProbeSocket { socket, tag: TAG, stream: &NoHello };
        thread::scope(|scope| {
            scope.spawn(|| answer_probes(&port(&far), &stop).unwrap());
            // The loopback interface accepts any IP packet, but no interface MTU is given.
            let found = search(&port(&near), None, None, Duration::from_millis(20), LIMIT).unwrap();
            stop.store(true, Ordering::Relaxed);
            assert_eq!(found.forward.unwrap().path_mtu_bytes, MAX_PACKET);
            assert_eq!(found.reverse.unwrap().path_mtu_bytes, MAX_PACKET);
        });
    }

    #[test]
    fn invalid_replies_end_the_search_without_result() {
        let started_at = std::time::Instant::now();
        let found = found("127.0.0.1", |port, stop| {
            let mut buffer = [0; 70_000];
            port.socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            while !stop.load(Ordering::Relaxed) {
                let length = port.socket.recv(&mut buffer).unwrap_or(0);
                let Some(request) = PathProbe::decode(&buffer[..length], TAG, 28) else { continue };
                for (kind, size, number, tag) in [
                    (ProbeKind::Received, request.size + 1, request.number, TAG),
                    (ProbeKind::Received, request.size, request.number + 1000, TAG),
                    (ProbeKind::Received, request.size, request.number, TAG + 1),
                    (ProbeKind::IcmpTooBig, request.size, request.number, TAG),
                    (ProbeKind::Padded, request.size, request.number, TAG),
                ] {
                    let lie = PathProbe { kind, size, number, mtu: u32::from(request.number as u16) };
                    let _ = port.socket.send(&lie.encode(tag));
                }
                let _ = port.socket.send(&buffer[..length.min(50)]);
                let _ = port.socket.send(&[]);
            }
        });
        assert_eq!((found.forward, found.reverse), (None, None));
        assert!(found.packet_too_big.len() <= MAX_TOO_BIG_REPORTS);
        assert!(started_at.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn silent_server_ends_the_search() {
        let started_at = std::time::Instant::now();
        let found = found("127.0.0.1", |_, _| {});
        assert_eq!((found.forward, found.reverse), (None, None));
        assert!(started_at.elapsed() < Duration::from_secs(30));
    }
}
