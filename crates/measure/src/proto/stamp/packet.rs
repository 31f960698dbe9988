//! STAMP packets, byte for byte (RFC 8762 §4.2 and §4.3, with the session identifier of RFC 8972 §3).
//!
//! A base packet has 44 bytes, or 112 with authentication. TLVs or padding follow, which [`super::tlv`] reads. Sender
//! packets of TWAMP Light (RFC 5357 §4.1.2) have the same first 14 bytes and may be shorter.

use std::time::Duration;

use super::Mac;

/// Bytes of a base packet without authentication.
pub const BASE: usize = 44;
/// Bytes of a base packet with authentication.
pub const AUTHENTICATED: usize = 112;
/// Bytes that the keyed hash covers (RFC 8762 §4.4).
const HASHED_LENGTH: usize = 96;
/// Bytes of a reflected packet up to the sender's TTL, the last field of TWAMP and the minimum length of a reflected
/// packet.
pub const MIN_REFLECTED: usize = 41;
/// Seconds from 1900, the start of NTP time, to 1970.
const NTP_EPOCH: u64 = 2_208_988_800;

/// A timestamp of a packet. The error estimate in the same packet determines its format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Returns NTP's 64-bit format (RFC 5905 §6) of a time since 1970.
    pub fn ntp(since_1970: Duration) -> Timestamp {
        let seconds = (since_1970.as_secs().wrapping_add(NTP_EPOCH)) & 0xffff_ffff;
        let fraction = (u64::from(since_1970.subsec_nanos()) << 32) / 1_000_000_000;
        Timestamp(seconds << 32 | fraction)
    }

    /// Returns the nanoseconds from `earlier` to this timestamp, both in one format; negative if `earlier` is later.
    /// The result is correct across the end of NTP's era in 2036, for times less than 68 years apart.
    pub fn nanos_since(self, earlier: Timestamp, format: TimestampFormat) -> i64 {
        match format {
            TimestampFormat::Ntp => {
                let ticks = i128::from(self.0.wrapping_sub(earlier.0).cast_signed());
                // A tick is a quarter of a nanosecond, so the result is rounded.
                ((ticks * 1_000_000_000 + (1 << 31)) >> 32) as i64
            }
            TimestampFormat::Ptp => {
                let split = |stamp: Timestamp| ((stamp.0 >> 32) as u32, i64::from(stamp.0 as u32));
                let ((seconds, nanos), (from_seconds, from_nanos)) = (split(self), split(earlier));
                i64::from(seconds.wrapping_sub(from_seconds).cast_signed()) * 1_000_000_000 + nanos - from_nanos
            }
        }
    }
}

/// Format of timestamps (the Z bit).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampFormat {
    /// NTP: 32 bits of seconds since 1900 and 32 bits of fraction.
    #[default]
    Ntp,
    /// Truncated PTP (IEEE 1588v2): 32 bits of seconds, 32 bits of nanoseconds.
    Ptp,
}

/// Accuracy of a host's clock (RFC 4656 §4.1.2, with the Z bit of RFC 8186).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEstimate(pub u16);

impl ErrorEstimate {
    /// Creates the estimate of a clock that an external source keeps within `error` of UTC, or of a clock without a
    /// source (`None`). The format is NTP.
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

    /// Returns whether an external source sets the clock (the S bit).
    pub fn is_synchronised(self) -> bool {
        self.0 & 1 << 15 != 0
    }

    /// Returns the format of the timestamps in the same packet.
    pub fn format(self) -> TimestampFormat {
        if self.0 & 1 << 14 == 0 { TimestampFormat::Ntp } else { TimestampFormat::Ptp }
    }

    /// Returns the maximum error of the clock; `None` for a multiplier of zero, which means that the estimate is
    /// invalid.
    pub fn error(self) -> Option<Duration> {
        let (scale, multiplier) = (u32::from(self.0 >> 8 & 0x3f), u128::from(self.0 & 0xff));
        let nanos = ((multiplier << scale) * 1_000_000_000) >> 32;
        (multiplier > 0).then(|| Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

/// Content of a sender's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderPacket {
    pub sequence: u32,
    pub sent: Timestamp,
    /// Accuracy of the sender's timestamp.
    pub estimate: ErrorEstimate,
    /// Session identifier, which distinguishes sessions with the same ports; 0 is none.
    pub session: u16,
}

/// Content of a reflected packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflectorPacket {
    /// The reflector's own number, or a copy of the sender's.
    pub sequence: u32,
    /// Time of the reflection.
    pub sent: Timestamp,
    /// Accuracy of the reflector's timestamps.
    pub estimate: ErrorEstimate,
    /// Session identifier of the sender.
    pub session: u16,
    /// Arrival time of the sender's packet.
    pub received: Timestamp,
    /// Content of the sender's packet.
    pub sender: SenderPacket,
    /// TTL or hop limit of the sender's packet on arrival; 255 if unknown.
    pub sender_ttl: u8,
}

/// Error: a packet that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Actual and required length.
    #[error("the packet has {0} bytes: at least {1} are needed")]
    Short(usize, usize),
    #[error("the keyed hash of the packet does not match the key")]
    WrongMac,
}

/// Offsets of the fields in both packets.
struct Layout {
    stamp: usize,
    received: usize,
    sender_sequence: usize,
    sender_stamp: usize,
    sender_ttl: usize,
}

const UNAUTHENTICATED_LAYOUT: Layout =
    Layout { stamp: 4, received: 16, sender_sequence: 24, sender_stamp: 28, sender_ttl: 40 };
const AUTHENTICATED_LAYOUT: Layout =
    Layout { stamp: 16, received: 32, sender_sequence: 48, sender_stamp: 64, sender_ttl: 80 };

fn layout(mac: Option<Mac<'_>>) -> &'static Layout {
    if mac.is_some() { &AUTHENTICATED_LAYOUT } else { &UNAUTHENTICATED_LAYOUT }
}

/// Returns the bytes of a base packet in this mode.
pub fn base_length(is_authenticated: bool) -> usize {
    if is_authenticated { AUTHENTICATED } else { BASE }
}

impl SenderPacket {
    /// Encodes the base packet.
    pub fn encode(&self, mac: Option<Mac<'_>>) -> Vec<u8> {
        let layout = layout(mac);
        let mut bytes = vec![0; base_length(mac.is_some())];
        put(&mut bytes, 0, &self.sequence.to_be_bytes());
        put(&mut bytes, layout.stamp, &self.sent.0.to_be_bytes());
        put(&mut bytes, layout.stamp + 8, &self.estimate.0.to_be_bytes());
        put(&mut bytes, layout.stamp + 10, &self.session.to_be_bytes());
        write_mac(&mut bytes, mac);
        bytes
    }

    /// Decodes the base packet at the start of `bytes`. With authentication, the whole packet must be present and its
    /// hash correct. Without authentication, the 14 bytes of a TWAMP Light sender are enough.
    pub fn decode(bytes: &[u8], mac: Option<Mac<'_>>) -> Result<SenderPacket, PacketError> {
        let layout = layout(mac);
        check(bytes, if mac.is_some() { AUTHENTICATED } else { UNAUTHENTICATED_LAYOUT.stamp + 10 }, mac)?;
        Ok(SenderPacket {
            sequence: u32_at(bytes, 0),
            sent: stamp(bytes, layout.stamp),
            estimate: ErrorEstimate(u16_at(bytes, layout.stamp + 8)),
            session: u16_at(bytes, layout.stamp + 10),
        })
    }
}

impl ReflectorPacket {
    /// Writes the base packet to the start of `out`, as far as it fits. A TWAMP Light sender's packet may be slightly
    /// shorter than STAMP's.
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
        write_mac(&mut bytes, mac);
        let room = out.len().min(bytes.len());
        out[..room].copy_from_slice(&bytes[..room]);
    }

    /// Decodes the base packet at the start of `bytes`.
    pub fn decode(bytes: &[u8], mac: Option<Mac<'_>>) -> Result<ReflectorPacket, PacketError> {
        let layout = layout(mac);
        check(bytes, if mac.is_some() { AUTHENTICATED } else { MIN_REFLECTED }, mac)?;
        let session = u16_at(bytes, layout.stamp + 10);
        Ok(ReflectorPacket {
            sequence: u32_at(bytes, 0),
            sent: stamp(bytes, layout.stamp),
            estimate: ErrorEstimate(u16_at(bytes, layout.stamp + 8)),
            session,
            received: stamp(bytes, layout.received),
            sender: SenderPacket {
                sequence: u32_at(bytes, layout.sender_sequence),
                sent: stamp(bytes, layout.sender_stamp),
                estimate: ErrorEstimate(u16_at(bytes, layout.sender_stamp + 8)),
                session,
            },
            sender_ttl: bytes.get(layout.sender_ttl).copied().unwrap_or(255),
        })
    }
}

fn check(bytes: &[u8], min_length: usize, mac: Option<Mac<'_>>) -> Result<(), PacketError> {
    if bytes.len() < min_length {
        return Err(PacketError::Short(bytes.len(), min_length));
    }
    let Some(mac) = mac else { return Ok(()) };
    let expected = mac(&bytes[..HASHED_LENGTH]);
    // All bytes are compared, so that the time does not reveal the first difference.
    let difference = expected.iter().zip(&bytes[HASHED_LENGTH..AUTHENTICATED]).fold(0, |sum, (a, b)| sum | (a ^ b));
    if difference == 0 { Ok(()) } else { Err(PacketError::WrongMac) }
}

fn write_mac(bytes: &mut [u8], mac: Option<Mac<'_>>) {
    if let Some(mac) = mac {
        let hash = mac(&bytes[..HASHED_LENGTH]);
        put(bytes, HASHED_LENGTH, &hash);
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Returns the bytes at `at`; zero beyond the end of a shorter packet.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(field(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(field(bytes, at))
}

fn stamp(bytes: &[u8], at: usize) -> Timestamp {
    Timestamp(u64::from_be_bytes(field(bytes, at)))
}
