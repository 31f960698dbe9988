//! The sender on its socket: packets at even times, answers as they come, and the last question.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lfn_core::stamp::packet::{ReflectorPacket, SenderPacket, base_length};
use lfn_core::stamp::report::StampReport;
use lfn_core::stamp::sender::{Sender, TTL};
use lfn_core::stamp::{Mac, tlv};
use lfn_core::time::Instant;
use lfn_sys::clock;
use lfn_sys::message::{self, Queue};

use super::{Key, ROOM, arrival, estimate, now, stamp};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Probing {
    /// The reflector.
    pub to: SocketAddr,
    /// Address of this host to send from; any if there is none.
    pub from: Option<IpAddr>,
    /// How many packets.
    pub count: u32,
    /// Time between two.
    pub interval: Duration,
    /// Bytes of a packet; no fewer than the base packet has.
    pub size: usize,
    /// How long the last answers are waited for.
    pub wait: Duration,
    /// The reflector is on this host, in another namespace: both read one clock.
    pub one_clock: bool,
    /// Shared with the reflector, if packets are to be authenticated.
    pub key: Option<Key>,
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The socket cannot be had, or nothing can be sent.
    #[error("STAMP to {to}: {source}")]
    Io {
        /// The reflector.
        to: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// Nobody listens at that port.
    #[error("no STAMP reflector at {to}: the port is closed")]
    Closed {
        /// Where it should be.
        to: SocketAddr,
    },
    /// Nothing came back.
    #[error("no answer from {to} to any of {sent} packets")]
    Silent {
        /// The reflector.
        to: SocketAddr,
        /// Packets sent.
        sent: u64,
    },
}

/// Sends and listens, until all is done or `stop` is set; `watch` is told how many packets were sent and
/// answered so far.
pub fn probe(probing: &Probing, stop: &AtomicBool, watch: &mut dyn FnMut(u64, u64)) -> Result<StampReport, SendError> {
    let failed = |source| SendError::Io { to: probing.to, source };
    let socket = open(probing).map_err(failed)?;
    let hash = |bytes: &[u8]| probing.key.as_ref().map(|key| key.hash(bytes)).unwrap_or_default();
    let mac: Option<Mac<'_>> = if probing.key.is_some() { Some(&hash) } else { None };
    let session = u16::from_be_bytes(random().map_err(failed)?);
    let mut sender = Sender::new(session, estimate());
    if probing.one_clock {
        sender.share_clock();
    }
    let mut run = Run { probing, socket, mac, sender, buffer: vec![0; ROOM], refused: 0 };
    run.packets(stop, watch)?;
    run.ask(stop)?;
    let report = run.report();
    match (report.answered, run.refused) {
        (0, 1..) => Err(SendError::Closed { to: probing.to }),
        (0, _) => Err(SendError::Silent { to: probing.to, sent: report.sent }),
        _ => Ok(report),
    }
}

fn open(probing: &Probing) -> io::Result<UdpSocket> {
    let any: IpAddr = match probing.to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((probing.from.unwrap_or(any), 0))?;
    message::tell_arrival(&socket)?;
    message::set_hop_limit(&socket, TTL)?;
    socket.connect(probing.to)?;
    Ok(socket)
}

fn random() -> io::Result<[u8; 2]> {
    let mut bytes = [0; 2];
    getrandom::fill(&mut bytes)?;
    // Zero stands for none.
    bytes[1] |= 1;
    Ok(bytes)
}

struct Run<'a> {
    probing: &'a Probing,
    socket: UdpSocket,
    mac: Option<Mac<'a>>,
    sender: Sender,
    buffer: Vec<u8>,
    /// Times that the reflector's host said that nobody listens.
    refused: u32,
}

impl Run<'_> {
    /// All packets, each at its time, and then what is still under way.
    fn packets(&mut self, stop: &AtomicBool, watch: &mut dyn FnMut(u64, u64)) -> Result<(), SendError> {
        let begun = now();
        for number in 0..self.probing.count {
            if !self.listen(begun + self.probing.interval * number, stop, false)? {
                return Ok(());
            }
            let packet = self.sender.packet(stamp());
            self.send(packet)?;
            // Nobody who refuses everything begins to answer later.
            if self.refused >= 5 && self.sender.count() == u64::from(self.refused) {
                return Err(SendError::Closed { to: self.probing.to });
            }
            watch(self.sender.count(), self.sender.answers());
        }
        self.listen(now() + self.probing.wait, stop, true)?;
        watch(self.sender.count(), self.sender.answers());
        Ok(())
    }

    /// Whose loss it was: asked only where something was lost or doubled.
    fn ask(&mut self, stop: &AtomicBool) -> Result<(), SendError> {
        const TRIES: u32 = 3;
        for _ in 0..TRIES {
            let unsure = !self.sender.has_all() && self.sender.answers() > 0;
            if !unsure || self.sender.is_told() || stop.load(Ordering::Relaxed) {
                break;
            }
            let packet = self.sender.question(stamp());
            self.send(packet)?;
            let until = now() + self.probing.wait;
            while now() < until && !self.sender.is_told() && !stop.load(Ordering::Relaxed) {
                self.take(until.min(now() + LOOK_UP))?;
            }
        }
        Ok(())
    }

    /// Takes answers until then, or until all have come; says whether to go on.
    fn listen(&mut self, until: Instant, stop: &AtomicBool, to_the_last: bool) -> Result<bool, SendError> {
        while now() < until {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if to_the_last && self.sender.has_all() {
                break;
            }
            self.take(until.min(now() + LOOK_UP))?;
        }
        Ok(!stop.load(Ordering::Relaxed))
    }

    /// Waits, and takes what has come.
    fn take(&mut self, until: Instant) -> Result<(), SendError> {
        let left = clock::most_of(until.saturating_since(now()));
        clock::wait_readable([self.socket.as_fd()], Some(left)).map_err(|source| self.failed(source))?;
        for _ in 0..AT_ONCE {
            match message::receive(&self.socket, Queue::Data, &mut self.buffer) {
                Ok(Some(message)) => match ReflectorPacket::decode(&self.buffer[..message.length], self.mac) {
                    Ok(packet) => self.sender.answered(&packet, arrival(&message)),
                    Err(_) => self.sender.unreadable(),
                },
                Ok(None) => break,
                Err(error) => self.forgive(error)?,
            }
        }
        Ok(())
    }

    fn send(&mut self, packet: SenderPacket) -> Result<(), SendError> {
        let mut bytes = packet.encode(self.mac);
        let base = base_length(self.mac.is_some());
        bytes.extend(tlv::padding(self.probing.size.saturating_sub(base)));
        let mut result = self.socket.send(&bytes);
        // The kernel reports what became of an earlier packet first.
        if let Err(error) = result {
            self.forgive(error)?;
            result = self.socket.send(&bytes);
        }
        match result {
            Ok(_) => Ok(()),
            Err(error) => self.forgive(error),
        }
    }

    /// What the path or a full queue brings about counts as loss; what this host cannot do at all is an error.
    fn forgive(&mut self, error: io::Error) -> Result<(), SendError> {
        use io::ErrorKind::{ConnectionRefused, HostUnreachable, Interrupted, WouldBlock};
        match error.kind() {
            ConnectionRefused => self.refused += 1,
            HostUnreachable | Interrupted | WouldBlock => {}
            _ => return Err(self.failed(error)),
        }
        Ok(())
    }

    fn failed(&self, source: io::Error) -> SendError {
        SendError::Io { to: self.probing.to, source }
    }

    fn report(&self) -> StampReport {
        let probing = self.probing;
        let size = probing.size.max(base_length(self.mac.is_some()));
        let bytes = u32::try_from(size).unwrap_or(u32::MAX);
        self.sender.report(probing.to, bytes, probing.interval, self.mac.is_some())
    }
}

/// Answers that are taken before anything else is looked at.
const AT_ONCE: u32 = 64;
/// How soon an interrupt is noticed.
const LOOK_UP: Duration = Duration::from_millis(200);
