//! Packets that stand in the capture twice.

use lfn_packet::{TcpEndpoint, TcpSegment};

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
    source: TcpEndpoint,
    ip_id: Option<u16>,
    sequence: u32,
    acknowledgement: u32,
    payload: u32,
    timestamp: Option<u32>,
    flags: u16,
    window: u16,
}

impl Fingerprint {
    pub(crate) fn of(at: u64, segment: &TcpSegment) -> Self {
        Fingerprint {
            at,
            source: segment.source,
            ip_id: segment.ip_id.filter(|id| *id != 0),
            sequence: segment.sequence,
            acknowledgement: segment.acknowledgement,
            payload: segment.payload,
            timestamp: segment.options.timestamps.map(|timestamps| timestamps.value),
            flags: segment.flags.0,
            window: segment.window,
        }
    }

    fn is_copy_of(&self, other: &Fingerprint) -> bool {
        let max = match (self.ip_id, self.timestamp) {
            (Some(_), _) => MAX_DISTANCE,
            // Equal acknowledgements without payload are duplicate acknowledgements.
            (None, Some(_)) if self.payload > 0 => MAX_DISTANCE_WITHOUT_ID,
            (None, _) => return false,
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
