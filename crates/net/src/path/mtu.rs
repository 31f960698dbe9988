//! Path MTU of both directions over one datagram socket: the client's end, which searches, and the server's, which
//! answers.
//!
//! The client's probes are padded and the server says what came; for the other direction the client asks and the server
//! pads. Both searches run at the same time. A kernel that tells of a smaller MTU, its own interface's or one that ICMP
//! brought, only steers the search: what counts is what arrived.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lfn_core::discover::plpmtud::{MOST, Next, Search, Settings};
use lfn_core::discover::probe::{HEAD, Kind, PathProbe};
use lfn_core::discover::report::{End, MtuFound, MtuTold};
use lfn_sys::message::{self, MtuDiscovery, Origin, Queue, QueuedError};
use rustix::event::PollFlags;

use super::{now, wait};
use crate::session::DatagramStream;

/// One end of a stream of datagrams that carries path probes.
pub(super) struct Port<'a> {
    /// Connected to the other end.
    pub(super) socket: &'a UdpSocket,
    /// What every datagram of the stream carries.
    pub(super) tag: u64,
    /// Knows what belongs to its opening.
    pub(super) stream: &'a dyn Opening,
}

/// Tells late hellos and answers from what a stream carries.
pub(super) trait Opening: Sync {
    /// Whether it is one; it is then dealt with.
    fn is_opening(&self, datagram: &[u8]) -> bool;
}

impl Opening for DatagramStream {
    fn is_opening(&self, datagram: &[u8]) -> bool {
        DatagramStream::is_opening(self, datagram)
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) forward: Option<MtuFound>,
    pub(super) reverse: Option<MtuFound>,
    pub(super) told: Vec<MtuTold>,
}

/// Messages of routers that are kept: they may come from anybody.
const MOST_TOLD: usize = 16;

/// Messages that are taken before something else is looked at.
const AT_ONCE: u32 = 256;

/// Searches both directions, between interfaces of these MTUs.
pub(super) fn search(port: &Port<'_>, near: Option<u32>, far: Option<u32>, rtt: Duration) -> io::Result<Found> {
    port.prepare()?;
    let begun = now();
    let new = |most: Option<u32>| Search::new(Settings::new(most.unwrap_or(MOST), rtt), begun);
    let mut searching =
        Searching { port, forward: new(near), reverse: new(far), told: Vec::new(), buffer: vec![0; MOST as usize] };
    searching.run()?;
    let Searching { forward, reverse, told, .. } = searching;
    let judged = |search: &Search, to: End| {
        let is_told = told.iter().any(|told| told.to == to);
        search.found().map(|found| MtuFound { black_hole: found.smallest_lost_bytes.is_some() && !is_told, ..found })
    };
    Ok(Found { forward: judged(&forward, End::Near), reverse: judged(&reverse, End::Far), told })
}

struct Searching<'a> {
    port: &'a Port<'a>,
    forward: Search,
    reverse: Search,
    told: Vec<MtuTold>,
    buffer: Vec<u8>,
}

impl Searching<'_> {
    fn run(&mut self) -> io::Result<()> {
        loop {
            self.take()?;
            let (there, back) = (self.forward.next(now()), self.reverse.next(now()));
            if let Next::Send { size, number } = there {
                self.probe(size, number)?;
            }
            if let Next::Send { size, number } = back {
                // The server's own limits are told with an answer.
                let _ = self.port.send(PathProbe { kind: Kind::Ask, number, size, mtu: 0 }, HEAD)?;
            }
            match (there, back) {
                (Next::Done, Next::Done) => return Ok(()),
                (Next::Send { .. }, _) | (_, Next::Send { .. }) => {}
                (Next::Wait(one), Next::Wait(other)) => wait(self.port.socket.as_fd(), PollFlags::IN, one.min(other))?,
                (Next::Wait(until), _) | (_, Next::Wait(until)) => {
                    wait(self.port.socket.as_fd(), PollFlags::IN, until)?;
                }
            }
        }
    }

    /// A padded probe on its way there.
    fn probe(&mut self, size: u32, number: u32) -> io::Result<()> {
        let length = (size - self.port.headers()) as usize;
        match self.port.send(PathProbe { kind: Kind::Probe, number, size, mtu: 0 }, length)? {
            Sent::Yes => {}
            // The error queue may have more to say; this much is sure.
            Sent::TooBig => self.forward.limited(size - 1),
        }
        Ok(())
    }

    /// Takes all that has come.
    fn take(&mut self) -> io::Result<()> {
        // Whoever sends without end does not keep the searches from their own.
        for _ in 0..AT_ONCE {
            let Some(error) = self.port.next_error(&mut self.buffer)? else { break };
            match too_big(&error.0) {
                Some((Origin::Local, mtu)) => self.forward.limited(mtu),
                Some((_, mtu)) => {
                    self.forward.told(mtu);
                    self.note(End::Near, error.0.offender, mtu);
                }
                None => {}
            }
        }
        for _ in 0..AT_ONCE {
            let Some(probe) = self.port.next(&mut self.buffer)? else { break };
            match probe.kind {
                Kind::Seen => self.forward.acknowledged(probe.number, probe.size),
                Kind::Padded => self.reverse.acknowledged(probe.number, probe.size),
                Kind::TooBig => self.reverse.limited(probe.mtu),
                Kind::Told => {
                    self.reverse.told(probe.mtu);
                    self.note(End::Far, None, probe.mtu);
                }
                Kind::Probe | Kind::Ask => {}
            }
        }
        Ok(())
    }

    fn note(&mut self, to: End, from: Option<IpAddr>, mtu_bytes: u32) {
        let told = MtuTold { to, from, mtu_bytes };
        if self.told.len() < MOST_TOLD && !self.told.contains(&told) {
            self.told.push(told);
        }
    }
}

/// What a packet-too-big says, and who (RFC 1191, RFC 8201; from this host's own kernel too).
fn too_big(error: &QueuedError) -> Option<(Origin, u32)> {
    let is = match error.origin {
        Origin::Icmp => (error.kind, error.code) == (3, 4),
        Origin::Icmp6 => error.kind == 2,
        Origin::Local => error.errno == rustix::io::Errno::MSGSIZE.raw_os_error(),
        Origin::Other => false,
    };
    is.then_some((error.origin, error.info))
}

/// Answers a client's probes until `over`, and no more than is good for one session.
pub(super) fn answer(port: &Port<'_>, over: &AtomicBool) -> io::Result<()> {
    /// Several times what both searches of one session need.
    const MOST_ANSWERS: u32 = 4_000;
    const MOST_PADDED: u32 = 1_500;
    const LOOK_UP: Duration = Duration::from_millis(100);
    port.prepare()?;
    let mut buffer = vec![0; MOST as usize];
    let (mut answers, mut padded) = (0, 0);
    while !over.load(Ordering::Relaxed) && answers < MOST_ANSWERS {
        wait(port.socket.as_fd(), PollFlags::IN, now() + LOOK_UP)?;
        while let Some((error, quoted)) = port.next_error(&mut buffer)? {
            if let (Some((Origin::Icmp | Origin::Icmp6, mtu)), Some(probe)) = (too_big(&error), quoted) {
                port.send(PathProbe { kind: Kind::Told, mtu, ..probe }, HEAD)?;
            }
        }
        while let Some(probe) = port.next(&mut buffer)? {
            answers += 1;
            match probe.kind {
                Kind::Probe => drop(port.send(PathProbe { kind: Kind::Seen, ..probe }, HEAD)?),
                Kind::Ask if padded < MOST_PADDED => {
                    padded += 1;
                    port.pad(probe)?;
                }
                _ => {}
            }
            if answers >= MOST_ANSWERS {
                break;
            }
        }
    }
    Ok(())
}

/// Whether the kernel took a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Yes,
    TooBig,
}

impl Port<'_> {
    fn prepare(&self) -> io::Result<()> {
        message::queue_errors(self.socket)?;
        message::set_mtu_discovery(self.socket, MtuDiscovery::Probe)
    }

    /// Bytes of IP and UDP headers before a datagram.
    fn headers(&self) -> u32 {
        match self.socket.peer_addr().map(|peer| peer.ip().to_canonical()) {
            Ok(IpAddr::V6(_)) => 40 + 8,
            _ => 20 + 8,
        }
    }

    /// Sends a message, padded to `length`. What an earlier one brought about is no reason not to.
    fn send(&self, probe: PathProbe, length: usize) -> io::Result<Sent> {
        let mut bytes = probe.encode(self.tag).to_vec();
        bytes.resize(length.max(HEAD), 0);
        let mut tries = 0;
        loop {
            match self.socket.send(&bytes) {
                Ok(_) => return Ok(Sent::Yes),
                // A full queue loses it, as the path might.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Yes),
                // The kernel reports one pending error before it sends again; so does an ICMP message that came just now.
                Err(_) if tries < 3 => tries += 1,
                Err(error) if is_too_big(&error) => return Ok(Sent::TooBig),
                Err(error) if is_of_the_path(&error) => return Ok(Sent::Yes),
                Err(error) => return Err(error),
            }
        }
    }

    /// A padded answer, or why there is none.
    fn pad(&self, ask: PathProbe) -> io::Result<()> {
        let length = (ask.size - self.headers()) as usize;
        if self.send(PathProbe { kind: Kind::Padded, ..ask }, length)? == Sent::TooBig {
            let mtu = super::interface_mtu(self.socket.local_addr()?.ip()).unwrap_or(ask.size - 1).min(ask.size - 1);
            self.send(PathProbe { kind: Kind::TooBig, mtu, ..ask }, HEAD)?;
        }
        Ok(())
    }

    /// The next message of the peer, if one is there.
    fn next(&self, buffer: &mut [u8]) -> io::Result<Option<PathProbe>> {
        for _ in 0..AT_ONCE {
            match message::receive(self.socket, Queue::Data, buffer) {
                Ok(Some(message)) => {
                    let bytes = &buffer[..message.length];
                    if !self.stream.is_opening(bytes)
                        && let Some(probe) = PathProbe::decode(bytes, self.tag, self.headers())
                    {
                        return Ok(Some(probe));
                    }
                }
                Ok(None) => return Ok(None),
                // Reported once, and in the error queue too.
                Err(error) if is_too_big(&error) || is_of_the_path(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The next error, and the probe it is about if it quotes enough of it.
    fn next_error(&self, buffer: &mut [u8]) -> io::Result<Option<(QueuedError, Option<PathProbe>)>> {
        let message = message::receive(self.socket, Queue::Errors, buffer)?;
        Ok(message.and_then(|message| Some((message.error?, PathProbe::quoted(&buffer[..message.length], self.tag)))))
    }
}

fn is_too_big(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error())
}

/// What ICMP may make of a socket: it may be wrong, or of a moment.
fn is_of_the_path(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, PermissionDenied};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable | PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const TAG: u64 = 99;

    struct NoHello;

    impl Opening for NoHello {
        fn is_opening(&self, _: &[u8]) -> bool {
            false
        }
    }

    fn pair(host: &str) -> (UdpSocket, UdpSocket) {
        let (one, other) = (UdpSocket::bind((host, 0)).unwrap(), UdpSocket::bind((host, 0)).unwrap());
        one.connect(other.local_addr().unwrap()).unwrap();
        other.connect(one.local_addr().unwrap()).unwrap();
        (one, other)
    }

    /// Searches against a server's end that answers as `answer` does.
    fn found(host: &str, answer: impl Fn(&Port<'_>, &AtomicBool) + Sync) -> Found {
        let (near, far) = pair(host);
        let over = AtomicBool::new(false);
        let port = |socket| Port { socket, tag: TAG, stream: &NoHello };
        thread::scope(|scope| {
            scope.spawn(|| answer(&port(&far), &over));
            let found = search(&port(&near), Some(9000), Some(1500), Duration::from_millis(20)).unwrap();
            over.store(true, Ordering::Relaxed);
            found
        })
    }

    #[test]
    fn both_directions_are_found_up_to_what_the_interfaces_take() {
        for host in ["127.0.0.1", "::1"] {
            if UdpSocket::bind((host, 0)).is_err() {
                continue;
            }
            let found = found(host, |port, over| self::answer(port, over).unwrap());
            let sizes = [found.forward, found.reverse].map(|found| found.map(|found| found.path_mtu_bytes));
            assert_eq!(sizes, [Some(9000), Some(1500)], "{host}");
            assert!(!found.forward.unwrap().black_hole && found.told.is_empty());
        }
    }

    #[test]
    fn an_interface_smaller_than_was_thought_is_told() {
        let (near, far) = pair("127.0.0.1");
        let over = AtomicBool::new(false);
        let port = |socket| Port { socket, tag: TAG, stream: &NoHello };
        thread::scope(|scope| {
            scope.spawn(|| answer(&port(&far), &over).unwrap());
            // The loopback takes whatever IP can carry, and nobody knew.
            let found = search(&port(&near), None, None, Duration::from_millis(20)).unwrap();
            over.store(true, Ordering::Relaxed);
            assert_eq!(found.forward.unwrap().path_mtu_bytes, MOST);
            assert_eq!(found.reverse.unwrap().path_mtu_bytes, MOST);
        });
    }

    #[test]
    fn nonsense_and_lies_find_nothing_and_end() {
        let begun = std::time::Instant::now();
        let found = found("127.0.0.1", |port, over| {
            let mut buffer = [0; 70_000];
            port.socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            while !over.load(Ordering::Relaxed) {
                let length = port.socket.recv(&mut buffer).unwrap_or(0);
                let Some(asked) = PathProbe::decode(&buffer[..length], TAG, 28) else { continue };
                for (kind, size, number, tag) in [
                    (Kind::Seen, asked.size + 1, asked.number, TAG),
                    (Kind::Seen, asked.size, asked.number + 1000, TAG),
                    (Kind::Seen, asked.size, asked.number, TAG + 1),
                    (Kind::Told, asked.size, asked.number, TAG),
                    (Kind::Padded, asked.size, asked.number, TAG),
                ] {
                    let lie = PathProbe { kind, size, number, mtu: u32::from(asked.number as u16) };
                    let _ = port.socket.send(&lie.encode(tag));
                }
                let _ = port.socket.send(&buffer[..length.min(50)]);
                let _ = port.socket.send(&[]);
            }
        });
        assert_eq!((found.forward, found.reverse), (None, None));
        assert!(found.told.len() <= MOST_TOLD);
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_server_that_keeps_silent_is_waited_for_no_longer_than_its_probes() {
        let begun = std::time::Instant::now();
        let found = found("127.0.0.1", |_, _| {});
        assert_eq!((found.forward, found.reverse), (None, None));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
