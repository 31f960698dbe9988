//! The STAMP reflector: answers to packets, and the packets that get no answer.
//!
//! The reflector sends at most one packet for each received one, never a longer one, and none for an unreadable packet.
//! With a forged source address, two reflectors could answer each other for ever. So the reflector does not answer
//! packets from service ports (below 1024, for example 862), packets from its own port, and packets that are answers
//! themselves. With a forged source, the owner of the address receives only as much as the attacker sent. The reflector
//! counts the packets of each session, so that a sender can find the direction of a loss (RFC 8762 §4.3, stateful),
//! unless it is configured to copy the sender's number (stateless). A session is a sender's address, port and session
//! identifier. Above [`MAX_SESSIONS`] sessions, the longest inactive ones are removed. All senders together get at most
//! [`ReflectorLimits::per_second`] packets per second, and each address has its own limit.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_session::server::event::ReflectorTally;

use super::packet::{self, ErrorEstimate, MIN_REFLECTED, PacketError, ReflectorPacket, SenderPacket, Timestamp};
use super::{Mac, tlv};

/// Maximum number of sessions.
pub const MAX_SESSIONS: usize = 4096;
/// Time after which an inactive session is removed.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(300);

/// Ports below are service ports (RFC 6335 §6), which reflectors use too.
const MIN_SENDER_PORT: u16 = 1024;
/// Maximum time between arrival and reflection in a real answer.
const MAX_REFLECTOR_DELAY: Duration = Duration::from_secs(1);

/// Rate limits of a reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflectorLimits {
    /// Packets reflected per second, for all senders together.
    pub per_second: u32,
    /// Packets reflected per second for one address.
    pub per_second_and_address: u32,
}

impl Default for ReflectorLimits {
    fn default() -> Self {
        ReflectorLimits { per_second: 50_000, per_second_and_address: 10_000 }
    }
}

/// A received packet with its metadata.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedPacket<'a> {
    pub bytes: &'a [u8],
    pub from: SocketAddr,
    pub received: Timestamp,
    /// TTL or hop limit.
    pub ttl: Option<u8>,
}

/// Reason why a packet is not reflected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The answer would be longer than the received packet.
    #[error("a packet of {0} bytes is shorter than its answer")]
    TooShort(usize),
    /// The port belongs to reflectors and other services, not to senders.
    #[error("a packet from port {0}, which is not a sender's port")]
    Service(u16),
    /// The packet is an answer of a reflector.
    #[error("the packet is already a reflected packet")]
    Reflected,
    #[error("more packets per second than the limit")]
    TooMany,
}

/// Key of a session: sender and session identifier.
type Key = (SocketAddr, u16);

/// A STAMP reflector with its sessions and limits.
#[derive(Debug)]
pub struct Reflector {
    is_stateful: bool,
    /// Own port, which other reflectors also use.
    port: u16,
    limits: ReflectorLimits,
    sessions: HashMap<Key, Session>,
    /// Start of the current second, and the packets in it.
    second: (Instant, u32),
    senders: HashMap<IpAddr, u32>,
    tally: ReflectorTally,
}

#[derive(Debug)]
struct Session {
    next: u32,
    last_packet: Instant,
}

impl Reflector {
    /// Creates a reflector that listens on `port`. It uses its own numbers if `is_stateful`, else copies of the
    /// sender's.
    pub fn new(is_stateful: bool, port: u16, limits: ReflectorLimits) -> Self {
        Reflector {
            is_stateful,
            port,
            limits,
            sessions: HashMap::new(),
            second: (Instant::ZERO, 0),
            senders: HashMap::new(),
            tally: ReflectorTally::default(),
        }
    }

    /// Writes the answer to `arrival` into `out`, for sending at `sent` by a clock with the accuracy `estimate`.
    pub fn reflect(
        &mut self,
        arrival: &ReceivedPacket<'_>,
        sent: Timestamp,
        estimate: ErrorEstimate,
        mac: Option<Mac<'_>>,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<(), Ignored> {
        let result = self.answer(arrival, sent, estimate, mac, now, out);
        let counter = match result {
            Ok(()) => &mut self.tally.reflected,
            Err(Ignored::TooMany) => &mut self.tally.too_many,
            Err(_) => &mut self.tally.unreadable,
        };
        *counter += 1;
        result
    }

    /// Returns the counters so far.
    pub fn tally(&self) -> ReflectorTally {
        self.tally
    }

    fn answer(
        &mut self,
        arrival: &ReceivedPacket<'_>,
        sent: Timestamp,
        estimate: ErrorEstimate,
        mac: Option<Mac<'_>>,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<(), Ignored> {
        // This check is first, so that a rejected packet costs no computation and does not count against the owner of
        // the address.
        let port = arrival.from.port();
        if port < MIN_SENDER_PORT || port == self.port {
            return Err(Ignored::Service(port));
        }
        self.admit(arrival.from.ip(), now)?;
        let bytes = arrival.bytes;
        let sender = SenderPacket::decode(bytes, mac)?;
        if bytes.len() < MIN_REFLECTED {
            return Err(Ignored::TooShort(bytes.len()));
        }
        if is_reflected(bytes, mac)? {
            return Err(Ignored::Reflected);
        }
        let base = packet::base_length(mac.is_some()).min(bytes.len());
        let session = if mac.is_none() && is_twamp(bytes) { 0 } else { sender.session };
        let sequence = self.number((arrival.from, session), sender.sequence, now);
        let answer = ReflectorPacket {
            sequence,
            sent,
            estimate,
            session,
            received: arrival.received,
            sender,
            sender_ttl: arrival.ttl.unwrap_or(255),
        };
        out.clear();
        out.extend_from_slice(bytes);
        answer.write(&mut out[..base], mac);
        tlv::reflect(&mut out[base..]);
        Ok(())
    }

    /// Checks whether another packet of this address may be answered in this second.
    fn admit(&mut self, from: IpAddr, now: Instant) -> Result<(), Ignored> {
        if now.saturating_since(self.second.0) >= Duration::from_secs(1) {
            self.second = (now, 0);
            self.senders.clear();
        }
        if self.second.1 >= self.limits.per_second {
            return Err(Ignored::TooMany);
        }
        // There are never more addresses than packets per second, so the limit bounds the map.
        let of_sender = self.senders.entry(from).or_default();
        if *of_sender >= self.limits.per_second_and_address {
            return Err(Ignored::TooMany);
        }
        *of_sender += 1;
        self.second.1 += 1;
        Ok(())
    }

    fn number(&mut self, key: Key, sender_sequence: u32, now: Instant) -> u32 {
        if !self.is_stateful {
            return sender_sequence;
        }
        if self.sessions.len() >= MAX_SESSIONS && !self.sessions.contains_key(&key) {
            self.remove_old_sessions(now);
        }
        let session = self.sessions.entry(key).or_insert(Session { next: 0, last_packet: now });
        // A sender that starts again after a pause from the same port gets a new session.
        if now.saturating_since(session.last_packet) >= SESSION_TIMEOUT {
            session.next = 0;
        }
        session.last_packet = now;
        let number = session.next;
        session.next = session.next.wrapping_add(1);
        number
    }

    /// Removes inactive sessions; if there are none, removes the less active half.
    fn remove_old_sessions(&mut self, now: Instant) {
        self.sessions.retain(|_, session| now.saturating_since(session.last_packet) < SESSION_TIMEOUT);
        if self.sessions.len() >= MAX_SESSIONS {
            let mut last_packet: Vec<Instant> = self.sessions.values().map(|session| session.last_packet).collect();
            let middle = last_packet.len() / 2;
            let (_, &mut median, _) = last_packet.select_nth_unstable(middle);
            let mut left = MAX_SESSIONS / 2;
            self.sessions.retain(|_, session| {
                let keep = session.last_packet >= median && left > 0;
                left -= usize::from(keep);
                keep
            });
        }
    }
}

/// Returns whether the fields that a sender leaves zero or uses for padding show an arrival shortly before the send
/// time.
fn is_reflected(bytes: &[u8], mac: Option<Mac<'_>>) -> Result<bool, PacketError> {
    let read = ReflectorPacket::decode(bytes, mac)?;
    let took = read.sent.nanos_since(read.received, read.estimate.format());
    Ok(read.received.0 != 0 && u128::from(took.unsigned_abs()) < MAX_REFLECTOR_DELAY.as_nanos())
}

/// Returns whether a packet is from a TWAMP Light sender: shorter than STAMP's, or with padding where STAMP has zeros.
/// Such a packet also has padding, which may vary, in place of STAMP's session identifier.
fn is_twamp(bytes: &[u8]) -> bool {
    bytes.get(16..packet::BASE).is_none_or(|zeros| zeros.iter().any(|&byte| byte != 0))
}
