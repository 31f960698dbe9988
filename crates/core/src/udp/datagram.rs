//! The head of a datagram of a test: 36 bytes, then padding.
//!
//! The tag is known to both ends of a stream and to nobody off the path; it is no MAC, because checking one would cost
//! more than receiving the datagram does, and what somebody on the path may forge is only this stream's figures.

/// Length of the head, and so of the shortest datagram.
pub const LENGTH: usize = 36;

/// Longest datagram: the longest payload of an IPv4 packet.
pub const LONGEST: usize = 65_507;

const MAGIC: [u8; 4] = *b"lfnU";

/// What a datagram is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// Load.
    #[default]
    Load,
    /// A latency probe.
    Probe,
    /// Its echo, which says how long it was at the far end.
    Echo,
}

/// The head of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// What it is.
    pub kind: Kind,
    /// The stream's tag.
    pub tag: u64,
    /// Its number in its stream, from 0.
    pub sequence: u64,
    /// When it left, in nanoseconds of the sender's clock; of an echo, that of the probe.
    pub sent: u64,
    /// The step of a ramp it belongs to; of an echo, how many microseconds the probe was at the far end.
    pub extra: u32,
}

/// Why bytes are no datagram of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// Shorter than a head.
    #[error("datagram of {0} B, {LENGTH} expected at least")]
    Short(usize),
    /// Another program's, or another stream's.
    #[error("not a datagram of this stream")]
    Foreign,
}

impl Head {
    /// Writes it over the first bytes of a datagram, which are at least [`LENGTH`].
    pub fn write(&self, datagram: &mut [u8]) {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = match self.kind {
            Kind::Load => 0,
            Kind::Probe => 1,
            Kind::Echo => 2,
        };
        bytes[8..16].copy_from_slice(&self.tag.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.sent.to_be_bytes());
        bytes[32..36].copy_from_slice(&self.extra.to_be_bytes());
        let length = LENGTH.min(datagram.len());
        datagram[..length].copy_from_slice(&bytes[..length]);
    }

    /// Reads the head of a datagram of the stream with this tag.
    pub fn read(datagram: &[u8], tag: u64) -> Result<Head, DatagramError> {
        let bytes: &[u8; LENGTH] = datagram.first_chunk().ok_or(DatagramError::Short(datagram.len()))?;
        let long = |at: usize| bytes[at..].first_chunk().map_or(0, |b| u64::from_be_bytes(*b));
        let kind = match bytes[4] {
            0 => Kind::Load,
            1 => Kind::Probe,
            2 => Kind::Echo,
            _ => return Err(DatagramError::Foreign),
        };
        if bytes[..4] != MAGIC || long(8) != tag {
            return Err(DatagramError::Foreign);
        }
        let extra = bytes[32..].first_chunk().map_or(0, |b| u32::from_be_bytes(*b));
        Ok(Head { kind, tag, sequence: long(16), sent: long(24), extra })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head = Head { kind: Kind::Echo, tag: 1 << 63 | 5, sequence: u64::MAX, sent: 77, extra: 9 };
        let mut datagram = [0xff; 50];
        head.write(&mut datagram);
        assert_eq!(Head::read(&datagram, head.tag), Ok(head));
        assert_eq!(Head::read(&datagram, 5), Err(DatagramError::Foreign));
        assert_eq!(Head::read(&datagram[..35], head.tag), Err(DatagramError::Short(35)));
        datagram[4] = 3;
        assert_eq!(Head::read(&datagram, head.tag), Err(DatagramError::Foreign));
    }
}
