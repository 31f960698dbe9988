//! Packets that stand in the capture twice.

use lfn_packet::TcpSegment;

/// Packets that are compared with the next one.
const REMEMBERED: usize = 4;
/// Maximum time between copies with the same IP identification, in nanoseconds.
const MAX_DISTANCE: u64 = 10_000_000;
/// Maximum time between copies that have no IP identification.
const MAX_DISTANCE_WITHOUT_ID: u64 = 100_000;

/// Fields that are equal in both copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    at: u64,
    sequence: u32,
    acknowledgement: u32,
    payload: u32,
    /// Value of the timestamps option; 0 without it.
    timestamp: u32,
    has_timestamp: bool,
    /// Number of the end that sent the packet.
    end: u8,
    /// IP identification; 0 without it.
    ip_id: u16,
    flags: u16,
    window: u16,
}

impl Fingerprint {
    /// Returns the fingerprint of a packet that one of the two ends sent.
    pub(crate) fn of(at: u64, end: usize, segment: &TcpSegment) -> Self {
        let timestamps = segment.options.timestamps;
        Fingerprint {
            at,
            end: end as u8,
            ip_id: segment.ip_id.unwrap_or(0),
            sequence: segment.sequence,
            acknowledgement: segment.acknowledgement,
            payload: segment.payload,
            timestamp: timestamps.map_or(0, |timestamps| timestamps.value),
            has_timestamp: timestamps.is_some(),
            flags: segment.flags.0,
            window: segment.window,
        }
    }

    fn is_copy_of(&self, other: &Fingerprint) -> bool {
        let max = match (self.ip_id, self.has_timestamp) {
            // Equal acknowledgements without payload are duplicate acknowledgements.
            (0, true) if self.payload > 0 => MAX_DISTANCE_WITHOUT_ID,
            (0, _) => return false,
            _ => MAX_DISTANCE,
        };
        self.at.saturating_sub(other.at) <= max && Fingerprint { at: other.at, ..*self } == *other
    }
}

/// The last packets of a connection.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    last: [Option<Fingerprint>; REMEMBERED],
    next: usize,
}

impl Copies {
    /// Returns true if one of the last packets is the same packet.
    pub(crate) fn is_copy(&mut self, packet: &Fingerprint) -> bool {
        if self.last.iter().flatten().any(|other| packet.is_copy_of(other)) {
            return true;
        }
        self.last[self.next] = Some(*packet);
        self.next = (self.next + 1) % REMEMBERED;
        false
    }
}
