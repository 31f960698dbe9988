//! The packets of STAMP, byte for byte (RFC 8762 §4.2 and §4.3, with the session identifier of RFC 8972 §3).
//!
//! A base packet is 44 bytes, or 112 with authentication; what follows it are TLVs or padding, which [`super::tlv`]
//! reads. TWAMP Light's sender packets (RFC 5357 §4.1.2) are the same in their first 14 bytes and may be shorter.

use std::time::Duration;

use super::Mac;

/// Bytes of a base packet without authentication.
pub const BASE: usize = 44;
/// Bytes of a base packet with it.
pub const AUTHENTICATED: usize = 112;
/// What the keyed hash covers (RFC 8762 §4.4).
const HASHED: usize = 96;
/// Bytes of a reflected packet up to the sender's TTL: TWAMP's end there, and so do its reflected packets' needs.
pub const REFLECTED_LEAST: usize = 41;
/// Seconds from 1900, where NTP's time begins, to 1970.
const NTP_EPOCH: u64 = 2_208_988_800;

/// A time stamp as it stands in a packet: its meaning depends on the format told by the error estimate beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// NTP's 64-bit format (RFC 5905 §6) of a time since 1970.
    pub fn ntp(since_1970: Duration) -> Timestamp {
        let seconds = (since_1970.as_secs().wrapping_add(NTP_EPOCH)) & 0xffff_ffff;
        let fraction = (u64::from(since_1970.subsec_nanos()) << 32) / 1_000_000_000;
        Timestamp(seconds << 32 | fraction)
    }

    /// Nanoseconds from `earlier` to this, both of one format; negative if it is later. Right across the end of NTP's
    /// era in 2036, for times less than 68 years apart.
    pub fn nanos_since(self, earlier: Timestamp, format: Format) -> i64 {
        match format {
            Format::Ntp => {
                let ticks = i128::from(self.0.wrapping_sub(earlier.0).cast_signed());
                // Rounded: a tick is a quarter of a nanosecond.
                ((ticks * 1_000_000_000 + (1 << 31)) >> 32) as i64
            }
            Format::Ptp => {
                let split = |stamp: Timestamp| ((stamp.0 >> 32) as u32, i64::from(stamp.0 as u32));
                let ((seconds, nanos), (from_seconds, from_nanos)) = (split(self), split(earlier));
                i64::from(seconds.wrapping_sub(from_seconds).cast_signed()) * 1_000_000_000 + nanos - from_nanos
            }
        }
    }
}

/// Format of time stamps (the Z bit).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// NTP's, 32 bits of seconds since 1900 and 32 of their fraction.
    #[default]
    Ntp,
    /// PTP's truncated one (IEEE 1588v2): 32 bits of seconds, 32 of nanoseconds.
    Ptp,
}

/// How good a host's time is (RFC 4656 §4.1.2, with the Z bit of RFC 8186).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEstimate(pub u16);

impl ErrorEstimate {
    /// For a clock that is within `error` of UTC by a source outside, or that nobody sets (`None`). NTP's format.
    pub fn new(error: Option<Duration>) -> ErrorEstimate {
        let synchronised = if error.is_some() { 1 << 15 } else { 0 };
        // Multiplier × 2^Scale, in units of 2^-32 s, rounded up; the multiplier is never 0.
        let mut multiplier = (error.unwrap_or(Duration::from_secs(1)).as_nanos() << 32).div_ceil(1_000_000_000).max(1);
        let mut scale = 0u16;
        while multiplier > 0xff && scale < 0x3f {
            multiplier = multiplier.div_ceil(2);
            scale += 1;
        }
        ErrorEstimate(synchronised | scale << 8 | multiplier.min(0xff) as u16)
    }

    /// The clock is set by a source outside (the S bit).
    pub fn is_synchronised(self) -> bool {
        self.0 & 1 << 15 != 0
    }

    /// Format of the stamps beside it.
    pub fn format(self) -> Format {
        if self.0 & 1 << 14 == 0 { Format::Ntp } else { Format::Ptp }
    }

    /// How far the clock may be wrong; `None` for a multiplier of zero, which says that the estimate is worth nothing.
    pub fn error(self) -> Option<Duration> {
        let (scale, multiplier) = (u32::from(self.0 >> 8 & 0x3f), u128::from(self.0 & 0xff));
        let nanos = ((multiplier << scale) * 1_000_000_000) >> 32;
        (multiplier > 0).then(|| Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

/// What a sender's packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderPacket {
    /// Its number.
    pub sequence: u32,
    /// When it was sent.
    pub sent: Timestamp,
    /// How good that is.
    pub estimate: ErrorEstimate,
    /// Tells sessions of one pair of ports apart; 0 is none.
    pub session: u16,
}

/// What a reflected packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflectorPacket {
    /// The reflector's number: its own count, or the sender's again.
    pub sequence: u32,
    /// When it was reflected.
    pub sent: Timestamp,
    /// How good the reflector's stamps are.
    pub estimate: ErrorEstimate,
    /// The sender's.
    pub session: u16,
    /// When the sender's packet came.
    pub received: Timestamp,
    /// What that packet said.
    pub sender: SenderPacket,
    /// TTL or hop limit it came with; 255 where it is not known.
    pub sender_ttl: u8,
}

/// A packet that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Too short to be one.
    #[error("a packet of {0} bytes: at least {1} are needed")]
    Short(usize, usize),
    /// The keyed hash is another.
    #[error("the keyed hash of the packet is not that of this key")]
    WrongMac,
}

/// Where the fields of both packets begin.
struct Layout {
    stamp: usize,
    received: usize,
    sender_sequence: usize,
    sender_stamp: usize,
    sender_ttl: usize,
}

const OPEN: Layout = Layout { stamp: 4, received: 16, sender_sequence: 24, sender_stamp: 28, sender_ttl: 40 };
const HASHED_LAYOUT: Layout = Layout { stamp: 16, received: 32, sender_sequence: 48, sender_stamp: 64, sender_ttl: 80 };

fn layout(mac: Option<Mac<'_>>) -> &'static Layout {
    if mac.is_some() { &HASHED_LAYOUT } else { &OPEN }
}

/// Bytes of a base packet of this mode.
pub fn base_length(is_authenticated: bool) -> usize {
    if is_authenticated { AUTHENTICATED } else { BASE }
}

impl SenderPacket {
    /// The base packet.
    pub fn encode(&self, mac: Option<Mac<'_>>) -> Vec<u8> {
        let layout = layout(mac);
        let mut bytes = vec![0; base_length(mac.is_some())];
        put(&mut bytes, 0, &self.sequence.to_be_bytes());
        put(&mut bytes, layout.stamp, &self.sent.0.to_be_bytes());
        put(&mut bytes, layout.stamp + 8, &self.estimate.0.to_be_bytes());
        put(&mut bytes, layout.stamp + 10, &self.session.to_be_bytes());
        seal(&mut bytes, mac);
        bytes
    }

    /// Reads the base packet at the beginning of `bytes`: with authentication all of it must be there and right, without
    /// it what a TWAMP Light sender's has is enough (14 bytes).
    pub fn decode(bytes: &[u8], mac: Option<Mac<'_>>) -> Result<SenderPacket, PacketError> {
        let layout = layout(mac);
        check(bytes, if mac.is_some() { AUTHENTICATED } else { OPEN.stamp + 10 }, mac)?;
        Ok(SenderPacket {
            sequence: word(bytes, 0),
            sent: stamp(bytes, layout.stamp),
            estimate: ErrorEstimate(half(bytes, layout.stamp + 8)),
            session: half(bytes, layout.stamp + 10),
        })
    }
}

impl ReflectorPacket {
    /// Writes the base packet into the first bytes of `out`, as many of it as there is room for: a TWAMP Light sender's
    /// packet may be a little shorter than STAMP's.
    pub fn write(&self, out: &mut [u8], mac: Option<Mac<'_>>) {
        let layout = layout(mac);
        let mut bytes = vec![0; base_length(mac.is_some())];
        put(&mut bytes, 0, &self.sequence.to_be_bytes());
        put(&mut bytes, layout.stamp, &self.sent.0.to_be_bytes());
        put(&mut bytes, layout.stamp + 8, &self.estimate.0.to_be_bytes());
        put(&mut bytes, layout.stamp + 10, &self.session.to_be_bytes());
        put(&mut bytes, layout.received, &self.received.0.to_be_bytes());
        put(&mut bytes, layout.sender_sequence, &self.sender.sequence.to_be_bytes());
        put(&mut bytes, layout.sender_stamp, &self.sender.sent.0.to_be_bytes());
        put(&mut bytes, layout.sender_stamp + 8, &self.sender.estimate.0.to_be_bytes());
        put(&mut bytes, layout.sender_ttl, &[self.sender_ttl]);
        seal(&mut bytes, mac);
        let room = out.len().min(bytes.len());
        out[..room].copy_from_slice(&bytes[..room]);
    }

    /// Reads the base packet at the beginning of `bytes`.
    pub fn decode(bytes: &[u8], mac: Option<Mac<'_>>) -> Result<ReflectorPacket, PacketError> {
        let layout = layout(mac);
        check(bytes, if mac.is_some() { AUTHENTICATED } else { REFLECTED_LEAST }, mac)?;
        let session = half(bytes, layout.stamp + 10);
        Ok(ReflectorPacket {
            sequence: word(bytes, 0),
            sent: stamp(bytes, layout.stamp),
            estimate: ErrorEstimate(half(bytes, layout.stamp + 8)),
            session,
            received: stamp(bytes, layout.received),
            sender: SenderPacket {
                sequence: word(bytes, layout.sender_sequence),
                sent: stamp(bytes, layout.sender_stamp),
                estimate: ErrorEstimate(half(bytes, layout.sender_stamp + 8)),
                session,
            },
            sender_ttl: bytes.get(layout.sender_ttl).copied().unwrap_or(255),
        })
    }
}

fn check(bytes: &[u8], least: usize, mac: Option<Mac<'_>>) -> Result<(), PacketError> {
    if bytes.len() < least {
        return Err(PacketError::Short(bytes.len(), least));
    }
    let Some(mac) = mac else { return Ok(()) };
    let expected = mac(&bytes[..HASHED]);
    // All bytes are compared, so that the time it takes does not tell where they differ.
    let difference = expected.iter().zip(&bytes[HASHED..AUTHENTICATED]).fold(0, |sum, (a, b)| sum | (a ^ b));
    if difference == 0 { Ok(()) } else { Err(PacketError::WrongMac) }
}

fn seal(bytes: &mut [u8], mac: Option<Mac<'_>>) {
    if let Some(mac) = mac {
        let hash = mac(&bytes[..HASHED]);
        put(bytes, HASHED, &hash);
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Zero where there are no such bytes: what a shorter packet does not say.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(field(bytes, at))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(field(bytes, at))
}

fn stamp(bytes: &[u8], at: usize) -> Timestamp {
    Timestamp(u64::from_be_bytes(field(bytes, at)))
}
