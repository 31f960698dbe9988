//! The reflector: what is answered to a packet, and what is not.
//!
//! It never sends more than one packet for one that came, none that is longer, and none for what it cannot read. Two
//! reflectors would answer each other for ever on one packet with a forged source: so none is sent to a port of a
//! service (below 1024, where 862 is), none to the port this one has itself, and none for what is an answer already. A
//! forged source makes it send its owner what the forger sent, no more. It counts what it reflected for each session,
//! so that a sender can tell in which direction a packet was lost (RFC 8762 §4.3, stateful), unless it is told to say
//! the sender's number again (stateless). A session is a sender's address, port and identifier; of more than
//! [`MOST_SESSIONS`] the one that was quiet longest is forgotten. A stranger can make it send [`Limits::per_second`]
//! packets in a second and no more, and each sender its share of them.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;
use std::time::Duration;

use super::packet::{self, ErrorEstimate, PacketError, REFLECTED_LEAST, ReflectorPacket, SenderPacket, Timestamp};
use super::{Mac, tlv};
use crate::time::Instant;

/// Sessions remembered at once.
pub const MOST_SESSIONS: usize = 4096;
/// How long a session that says nothing is remembered.
pub const REMEMBERED: Duration = Duration::from_secs(300);

/// Ports below it are those of services (RFC 6335 §6), reflectors among them.
const SERVICES_BELOW: u16 = 1024;
/// A reflector answers in less.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

/// How much may be asked of a reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Packets reflected in a second, of all senders together.
    pub per_second: u32,
    /// The same of one address.
    pub per_second_and_address: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { per_second: 50_000, per_second_and_address: 10_000 }
    }
}

/// A packet as it came.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Who sent it.
    pub from: SocketAddr,
    /// When it came.
    pub received: Timestamp,
    /// Its TTL or hop limit.
    pub ttl: Option<u8>,
}

/// Why a packet is not reflected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// It cannot be read.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The answer would be longer than what came.
    #[error("a packet of {0} bytes, which is less than its answer")]
    TooShort(usize),
    /// It comes from where reflectors and other services are, not senders.
    #[error("a packet from port {0}, where no sender is")]
    Service(u16),
    /// It is what a reflector sends.
    #[error("a packet that was reflected already")]
    Reflected,
    /// Too many came.
    #[error("more packets than are reflected in a second")]
    TooMany,
}

/// What a reflector has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets reflected.
    pub reflected: u64,
    /// Packets that could not be read, were too short, or came from no sender.
    pub unreadable: u64,
    /// Packets beyond the limits.
    pub too_many: u64,
}

/// A session: its sender and its identifier.
type Key = (SocketAddr, u16);

/// A reflector.
#[derive(Debug)]
pub struct Reflector {
    is_stateful: bool,
    /// Where it listens: others listen there too.
    port: u16,
    limits: Limits,
    sessions: HashMap<Key, Session>,
    /// Packets of the second that began then, in all and by address.
    second: (Instant, u32),
    senders: HashMap<IpAddr, u32>,
    tally: Tally,
}

#[derive(Debug)]
struct Session {
    next: u32,
    heard: Instant,
}

impl Reflector {
    /// With its own numbers, or with the sender's again; it listens at `port`.
    pub fn new(is_stateful: bool, port: u16, limits: Limits) -> Self {
        Reflector {
            is_stateful,
            port,
            limits,
            sessions: HashMap::new(),
            second: (Instant::ZERO, 0),
            senders: HashMap::new(),
            tally: Tally::default(),
        }
    }

    /// Makes the answer to `arrival` in `out`, to be sent at `sent`, by a clock as good as `estimate`.
    pub fn reflect(
        &mut self,
        arrival: &Arrival<'_>,
        (sent, estimate): (Timestamp, ErrorEstimate),
        mac: Option<Mac<'_>>,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<(), Ignored> {
        let result = self.answer(arrival, (sent, estimate), mac, now, out);
        let counter = match result {
            Ok(()) => &mut self.tally.reflected,
            Err(Ignored::TooMany) => &mut self.tally.too_many,
            Err(_) => &mut self.tally.unreadable,
        };
        *counter += 1;
        result
    }

    /// What it has done so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    fn answer(
        &mut self,
        arrival: &Arrival<'_>,
        (sent, estimate): (Timestamp, ErrorEstimate),
        mac: Option<Mac<'_>>,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<(), Ignored> {
        // Before anything is computed for it, and without a charge to whoever has that address.
        let port = arrival.from.port();
        if port < SERVICES_BELOW || port == self.port {
            return Err(Ignored::Service(port));
        }
        self.admit(arrival.from.ip(), now)?;
        let bytes = arrival.bytes;
        let sender = SenderPacket::decode(bytes, mac)?;
        if bytes.len() < REFLECTED_LEAST {
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

    /// Whether another packet of this address may be answered in this second.
    fn admit(&mut self, from: IpAddr, now: Instant) -> Result<(), Ignored> {
        if now.saturating_since(self.second.0) >= Duration::from_secs(1) {
            self.second = (now, 0);
            self.senders.clear();
        }
        if self.second.1 >= self.limits.per_second {
            return Err(Ignored::TooMany);
        }
        // No more addresses than packets in a second: the map is bounded by the limit.
        let of_sender = self.senders.entry(from).or_default();
        if *of_sender >= self.limits.per_second_and_address {
            return Err(Ignored::TooMany);
        }
        *of_sender += 1;
        self.second.1 += 1;
        Ok(())
    }

    fn number(&mut self, key: Key, theirs: u32, now: Instant) -> u32 {
        if !self.is_stateful {
            return theirs;
        }
        if self.sessions.len() >= MOST_SESSIONS && !self.sessions.contains_key(&key) {
            self.forget(now);
        }
        let session = self.sessions.entry(key).or_insert(Session { next: 0, heard: now });
        // A sender that begins again after a pause from the same port has a new session.
        if now.saturating_since(session.heard) >= REMEMBERED {
            session.next = 0;
        }
        session.heard = now;
        let number = session.next;
        session.next = session.next.wrapping_add(1);
        number
    }

    /// Makes room: what was quiet too long goes, and if that is none, the quieter half.
    fn forget(&mut self, now: Instant) {
        self.sessions.retain(|_, session| now.saturating_since(session.heard) < REMEMBERED);
        if self.sessions.len() >= MOST_SESSIONS {
            let mut heard: Vec<Instant> = self.sessions.values().map(|session| session.heard).collect();
            let middle = heard.len() / 2;
            let (_, &mut median, _) = heard.select_nth_unstable(middle);
            let mut left = MOST_SESSIONS / 2;
            self.sessions.retain(|_, session| {
                let stays = session.heard >= median && left > 0;
                left -= usize::from(stays);
                stays
            });
        }
    }
}

/// Whether a packet says, where a sender's has zeros or padding, that it came to somebody shortly before it was sent.
fn is_reflected(bytes: &[u8], mac: Option<Mac<'_>>) -> Result<bool, PacketError> {
    let read = ReflectorPacket::decode(bytes, mac)?;
    let took = read.sent.nanos_since(read.received, read.estimate.format());
    Ok(read.received.0 != 0 && u128::from(took.unsigned_abs()) < ANSWERED_WITHIN.as_nanos())
}

/// Whether a packet is a TWAMP Light sender's: one shorter than STAMP's, or with padding where STAMP's has zeros. Where
/// STAMP has the session identifier such a packet has padding too, which may differ from one to the next.
fn is_twamp(bytes: &[u8]) -> bool {
    bytes.get(16..packet::BASE).is_none_or(|zeros| zeros.iter().any(|&byte| byte != 0))
}
