//! Path probes on the datagram stream of a session (`doc/reference/protocol.md`).
//!
//! A probe is as large as the size that it tests, and contains that size; an answer has 28 bytes. The client sends
//! requests and the server answers. The server sends at most one datagram for each received one, and a padded datagram
//! only on request for that size. The stream's tag, which no one off the path can guess, rejects datagrams from others.

use super::plpmtud::{MAX_PACKET, MIN_PLPMTU};

/// Bytes of the header, which is also a whole message without padding.
pub const HEADER_LENGTH: usize = 28;
const MAGIC: [u8; 4] = *b"lfnP";

/// Types of path probe messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// From the client: padded to its size. The server answers with [`ProbeKind::Received`].
    Probe,
    /// From the server: a probe of this size arrived.
    Received,
    /// From the client: a request for a padded datagram of this size.
    Request,
    /// From the server: a datagram padded to its size.
    Padded,
    /// From the server: its interface cannot send a packet of the requested size; `mtu` is the MTU of the interface.
    InterfaceTooSmall,
    /// From the server: an ICMP message reported a padded datagram as too large; `mtu` is the MTU in that message.
    IcmpTooBig,
}

/// A path probe message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathProbe {
    pub kind: ProbeKind,
    /// The client's number of the probe.
    pub number: u32,
    /// Size of the IP packet, bytes.
    pub size: u32,
    /// MTU, for the types that report one.
    pub mtu: u32,
}

impl PathProbe {
    /// Encodes the header with the stream's tag; the caller adds the padding.
    pub fn encode(&self, tag: u64) -> [u8; HEADER_LENGTH] {
        let mut bytes = [0; HEADER_LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = match self.kind {
            ProbeKind::Probe => 1,
            ProbeKind::Received => 2,
            ProbeKind::Request => 3,
            ProbeKind::Padded => 4,
            ProbeKind::InterfaceTooSmall => 5,
            ProbeKind::IcmpTooBig => 6,
        };
        for (at, value) in [(8, self.number), (12, self.size), (16, self.mtu)] {
            bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        bytes[20..].copy_from_slice(&tag.to_be_bytes());
        bytes
    }

    /// Decodes a datagram that has `headers` bytes before it in its IP packet. `None` if it is not a message of this
    /// stream, or if its length does not match its size field.
    pub fn decode(datagram: &[u8], tag: u64, headers: u32) -> Option<PathProbe> {
        let probe = PathProbe::decode_header(datagram, tag)?;
        let is_padded = matches!(probe.kind, ProbeKind::Probe | ProbeKind::Padded);
        let length = u32::try_from(datagram.len()).ok()?.checked_add(headers)?;
        let fits = if is_padded { length == probe.size } else { datagram.len() == HEADER_LENGTH };
        fits.then_some(probe)
    }

    /// Decodes the header of a datagram, of which an ICMP message quotes the beginning.
    pub fn decode_header(datagram: &[u8], tag: u64) -> Option<PathProbe> {
        let head = datagram.first_chunk::<HEADER_LENGTH>()?;
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let kind = match head[4] {
            1 => ProbeKind::Probe,
            2 => ProbeKind::Received,
            3 => ProbeKind::Request,
            4 => ProbeKind::Padded,
            5 => ProbeKind::InterfaceTooSmall,
            6 => ProbeKind::IcmpTooBig,
            _ => return None,
        };
        let probe = PathProbe { kind, number: word(8), size: word(12), mtu: word(16) };
        let is_ours = head[..4] == MAGIC && head[20..] == tag.to_be_bytes();
        (is_ours && (MIN_PLPMTU..=MAX_PACKET).contains(&probe.size)).then_some(probe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TAG: u64 = 0x0123_4567_89ab_cdef;

    #[test]
    fn messages_are_read_back_and_invalid_ones_rejected() {
        let seen = PathProbe { kind: ProbeKind::Received, number: 7, size: 1500, mtu: 9000 };
        assert_eq!(PathProbe::decode(&seen.encode(TAG), TAG, 28), Some(seen));
        assert_eq!(PathProbe::decode(&seen.encode(TAG), TAG ^ 1, 28), None, "another stream");
        let probe = PathProbe { kind: ProbeKind::Probe, number: u32::MAX, size: 1300, mtu: 0 };
        let mut padded = probe.encode(TAG).to_vec();
        padded.resize(1272, 0);
        assert_eq!(PathProbe::decode(&padded, TAG, 28), Some(probe));
        assert_eq!(PathProbe::decode(&padded, TAG, 48), None, "another size than its size field");
        assert_eq!(PathProbe::decode(&padded[..1271], TAG, 28), None);
        assert_eq!(PathProbe::decode(&probe.encode(TAG), TAG, 28), None);
        assert_eq!(PathProbe::decode_header(&padded[..100], TAG), Some(probe));
        let ask = PathProbe { kind: ProbeKind::Request, size: 65_536, ..probe };
        assert_eq!(PathProbe::decode(&ask.encode(TAG), TAG, 28), None, "larger than any packet");
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..64), headers in 0u32..100) {
            let mut bytes = bytes;
            if bytes.len() >= HEADER_LENGTH {
                bytes[..4].copy_from_slice(b"lfnP");
                bytes[20..HEADER_LENGTH].copy_from_slice(&TAG.to_be_bytes());
            }
            if let Some(probe) = PathProbe::decode(&bytes, TAG, headers) {
                prop_assert_eq!(&probe.encode(TAG)[8..], &bytes[8..HEADER_LENGTH]);
            }
        }
    }
}
