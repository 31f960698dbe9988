//! The header of a test datagram: 36 bytes, followed by padding.
//!
//! Only the two ends of a stream and hosts on the path know the tag. The tag is not a MAC, because a check of a MAC
//! would cost more than the reception of the datagram. A host on the path can forge only the figures of this stream.

/// Bytes of the header, which is also the minimum datagram.
pub const HEADER_LENGTH: usize = lfn_results::measure::MIN_DATAGRAM;

/// Maximum datagram: the maximum payload of an IPv4 packet.
pub const MAX_LENGTH: usize = lfn_results::measure::MAX_DATAGRAM;

const MAGIC: [u8; 4] = *b"lfnU";

/// Type of a test datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DatagramKind {
    #[default]
    Load,
    Probe,
    /// Answer to a probe, with the processing time at the far end.
    Echo,
}

/// The header of a test datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatagramHeader {
    pub kind: DatagramKind,
    /// Tag of the stream.
    pub tag: u64,
    /// Number in its stream, from 0.
    pub sequence: u64,
    /// Send time in nanoseconds of the sender's clock; in an echo, the send time of the probe.
    pub sent: u64,
    /// Step of the ramp; in an echo, the microseconds that the probe spent at the far end.
    pub extra: u32,
}

/// Error: bytes that are not a datagram of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// Length of the datagram, which is shorter than a header.
    #[error("the datagram has {0} bytes: at least {HEADER_LENGTH} are needed")]
    Short(usize),
    /// A datagram of another program or another stream.
    #[error("not a datagram of this stream")]
    Foreign,
}

impl DatagramHeader {
    /// Writes the header to the first [`HEADER_LENGTH`] bytes of a datagram.
    pub fn write(&self, datagram: &mut [u8]) {
        let mut bytes = [0; HEADER_LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = match self.kind {
            DatagramKind::Load => 0,
            DatagramKind::Probe => 1,
            DatagramKind::Echo => 2,
        };
        bytes[8..16].copy_from_slice(&self.tag.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.sent.to_be_bytes());
        bytes[32..36].copy_from_slice(&self.extra.to_be_bytes());
        let length = HEADER_LENGTH.min(datagram.len());
        datagram[..length].copy_from_slice(&bytes[..length]);
    }

    /// Reads the header of a datagram of the stream with this tag.
    pub fn read(datagram: &[u8], tag: u64) -> Result<DatagramHeader, DatagramError> {
        let bytes: &[u8; HEADER_LENGTH] = datagram.first_chunk().ok_or(DatagramError::Short(datagram.len()))?;
        let long = |at: usize| bytes[at..].first_chunk().map_or(0, |b| u64::from_be_bytes(*b));
        let kind = match bytes[4] {
            0 => DatagramKind::Load,
            1 => DatagramKind::Probe,
            2 => DatagramKind::Echo,
            _ => return Err(DatagramError::Foreign),
        };
        if bytes[..4] != MAGIC || long(8) != tag {
            return Err(DatagramError::Foreign);
        }
        let extra = bytes[32..].first_chunk().map_or(0, |b| u32::from_be_bytes(*b));
        Ok(DatagramHeader { kind, tag, sequence: long(16), sent: long(24), extra })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_read_back() {
        let head =
            DatagramHeader { kind: DatagramKind::Echo, tag: 1 << 63 | 5, sequence: u64::MAX, sent: 77, extra: 9 };
        let mut datagram = [0xff; 50];
        head.write(&mut datagram);
        assert_eq!(DatagramHeader::read(&datagram, head.tag), Ok(head));
        assert_eq!(DatagramHeader::read(&datagram, 5), Err(DatagramError::Foreign));
        assert_eq!(DatagramHeader::read(&datagram[..35], head.tag), Err(DatagramError::Short(35)));
        datagram[4] = 3;
        assert_eq!(DatagramHeader::read(&datagram, head.tag), Err(DatagramError::Foreign));
    }
}
