//! Sender on a UDP socket. Sends packets at a fixed interval, receives the replies, and finally asks for the
//! reflector's counters.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_sys::clock;
use lfn_sys::message::{self, Queue};

use super::{MAX_DATAGRAM, StampKey, arrival, clock_error_estimate, now, timestamp};
use crate::proto::stamp::packet::{ReflectorPacket, SenderPacket, base_length};
use crate::proto::stamp::report::StampReport;
use crate::proto::stamp::sender::{StampSender, TTL};
use crate::proto::stamp::{Mac, tlv};

/// Options of a STAMP measurement.
#[derive(Debug, Clone)]
pub struct StampProbeOptions {
    pub to: SocketAddr,
    /// Local address to send from. `None` lets the kernel choose.
    pub from: Option<IpAddr>,
    pub count: u32,
    pub interval: Duration,
    /// Size of a packet, bytes. At least the size of the base packet.
    pub size: usize,
    /// Maximum time to wait for the last replies.
    pub wait: Duration,
    /// The reflector runs on this host, in another namespace, so both use the same clock.
    pub has_shared_clock: bool,
    /// Key of the authenticated mode.
    pub key: Option<StampKey>,
}

/// Reason why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum StampError {
    /// The socket cannot be opened, or no packet can be sent.
    #[error("STAMP to {to}: {source}")]
    Io { to: SocketAddr, source: io::Error },
    /// ICMP reports that the port is closed.
    #[error("no STAMP reflector at {to}: the port is closed")]
    Closed { to: SocketAddr },
    #[error("no reply from {to} to any of {sent} packets")]
    NoAnswer { to: SocketAddr, sent: u64 },
}

/// Measures until all packets are answered, the last time-out expires, or `stop` is set. `on_progress` receives the
/// numbers of sent and answered packets.
pub fn probe(
    options: &StampProbeOptions,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(u64, u64),
) -> Result<StampReport, StampError> {
    let failed = |source| StampError::Io { to: options.to, source };
    let socket = open(options).map_err(failed)?;
    let hash = |bytes: &[u8]| options.key.as_ref().map(|key| key.hash(bytes)).unwrap_or_default();
    let mac: Option<Mac<'_>> = if options.key.is_some() { Some(&hash) } else { None };
    let session = u16::from_be_bytes(random().map_err(failed)?);
    let mut sender = StampSender::new(session, clock_error_estimate());
    if options.has_shared_clock {
        sender.share_clock();
    }
    let mut run = ProbeRun { options, socket, mac, sender, buffer: vec![0; MAX_DATAGRAM], refused: 0 };
    run.send_packets(stop, on_progress)?;
    run.query_numbering(stop)?;
    let report = run.report();
    match (report.answered, run.refused) {
        (0, 1..) => Err(StampError::Closed { to: options.to }),
        (0, _) => Err(StampError::NoAnswer { to: options.to, sent: report.sent }),
        _ => Ok(report),
    }
}

fn open(options: &StampProbeOptions) -> io::Result<UdpSocket> {
    let any: IpAddr = match options.to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((options.from.unwrap_or(any), 0))?;
    message::enable_timestamps(&socket)?;
    message::set_hop_limit(&socket, TTL)?;
    socket.connect(options.to)?;
    Ok(socket)
}

fn random() -> io::Result<[u8; 2]> {
    let mut bytes = [0; 2];
    getrandom::fill(&mut bytes)?;
    // Zero means "no session".
    bytes[1] |= 1;
    Ok(bytes)
}

struct ProbeRun<'a> {
    options: &'a StampProbeOptions,
    socket: UdpSocket,
    mac: Option<Mac<'a>>,
    sender: StampSender,
    buffer: Vec<u8>,
    /// Number of "connection refused" errors from the reflector's host.
    refused: u32,
}

impl ProbeRun<'_> {
    /// Sends each packet at its time, and then waits for the missing replies.
    fn send_packets(&mut self, stop: &AtomicBool, on_progress: &mut dyn FnMut(u64, u64)) -> Result<(), StampError> {
        let started_at = now();
        for number in 0..self.options.count {
            if !self.listen(started_at + self.options.interval * number, stop, false)? {
                return Ok(());
            }
            let packet = self.sender.packet(timestamp());
            self.send(packet)?;
            // If a host refuses the first five packets, it will refuse all.
            if self.refused >= 5 && self.sender.sent_count() == u64::from(self.refused) {
                return Err(StampError::Closed { to: self.options.to });
            }
            on_progress(self.sender.sent_count(), self.sender.answered_count());
        }
        self.listen(now() + self.options.wait, stop, true)?;
        on_progress(self.sender.sent_count(), self.sender.answered_count());
        Ok(())
    }

    /// Asks for the reflector's counters if packets were lost or duplicated, to find the direction of the loss.
    fn query_numbering(&mut self, stop: &AtomicBool) -> Result<(), StampError> {
        const TRIES: u32 = 3;
        for _ in 0..TRIES {
            let is_ambiguous = !self.sender.all_answered() && self.sender.answered_count() > 0;
            if !is_ambiguous || self.sender.is_numbering_known() || stop.load(Ordering::Relaxed) {
                break;
            }
            let packet = self.sender.numbering_query(timestamp());
            self.send(packet)?;
            let until = now() + self.options.wait;
            while now() < until && !self.sender.is_numbering_known() && !stop.load(Ordering::Relaxed) {
                self.receive_answers(until.min(now() + POLL_INTERVAL))?;
            }
        }
        Ok(())
    }

    /// Receives replies until the given time, or until all packets are answered. Returns false if `stop` was set.
    fn listen(&mut self, until: Instant, stop: &AtomicBool, until_all_answered: bool) -> Result<bool, StampError> {
        while now() < until {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if until_all_answered && self.sender.all_answered() {
                break;
            }
            self.receive_answers(until.min(now() + POLL_INTERVAL))?;
        }
        Ok(!stop.load(Ordering::Relaxed))
    }

    /// Waits, and receives the replies that have arrived.
    fn receive_answers(&mut self, until: Instant) -> Result<(), StampError> {
        let timeout = clock::early_timeout(until.saturating_since(now()));
        clock::wait_readable([self.socket.as_fd()], Some(timeout)).map_err(|source| self.failed(source))?;
        for _ in 0..RECEIVE_BATCH {
            match message::receive(&self.socket, Queue::Data, &mut self.buffer) {
                Ok(Some(message)) => match ReflectorPacket::decode(&self.buffer[..message.length], self.mac) {
                    Ok(packet) => self.sender.record_answer(&packet, arrival(&message)),
                    Err(_) => self.sender.record_invalid(),
                },
                Ok(None) => break,
                Err(error) => self.tolerate_path_error(error)?,
            }
        }
        Ok(())
    }

    fn send(&mut self, packet: SenderPacket) -> Result<(), StampError> {
        let mut bytes = packet.encode(self.mac);
        let base = base_length(self.mac.is_some());
        bytes.extend(tlv::padding(self.options.size.saturating_sub(base)));
        let mut result = self.socket.send(&bytes);
        // The kernel first reports errors of earlier packets.
        if let Err(error) = result {
            self.tolerate_path_error(error)?;
            result = self.socket.send(&bytes);
        }
        match result {
            Ok(_) => Ok(()),
            Err(error) => self.tolerate_path_error(error),
        }
    }

    /// Counts errors of the path, and ignores a full queue, as losses. Returns all other errors.
    fn tolerate_path_error(&mut self, error: io::Error) -> Result<(), StampError> {
        use io::ErrorKind::{ConnectionRefused, HostUnreachable, Interrupted, WouldBlock};
        match error.kind() {
            ConnectionRefused => self.refused += 1,
            HostUnreachable | Interrupted | WouldBlock => {}
            _ => return Err(self.failed(error)),
        }
        Ok(())
    }

    fn failed(&self, source: io::Error) -> StampError {
        StampError::Io { to: self.options.to, source }
    }

    fn report(&self) -> StampReport {
        let options = self.options;
        let size = options.size.max(base_length(self.mac.is_some()));
        let bytes = u32::try_from(size).unwrap_or(u32::MAX);
        self.sender.report(options.to, bytes, options.interval, self.mac.is_some())
    }
}

/// Maximum number of replies between two checks of the time.
const RECEIVE_BATCH: u32 = 64;
/// Maximum delay until an interrupt is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
