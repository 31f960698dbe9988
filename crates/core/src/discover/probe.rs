//! What path probes look like on the datagram stream of a session (`doc/protocol.md`).
//!
//! A probe is as large as the size it is for and says that size; an answer is 28 bytes. The client asks, the server
//! answers: it never sends more than one datagram for one that came, and a padded one only when asked for that size. The
//! stream's tag, which nobody off the path can guess, keeps out what others send.

use super::plpmtud::{LEAST, MOST};

/// Bytes of the head, and of a message without padding.
pub const HEAD: usize = 28;
const MAGIC: [u8; 4] = *b"lfnP";

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Client: padded to its size; to be answered with [`Kind::Seen`].
    Probe,
    /// Server: a probe of that size came.
    Seen,
    /// Client: send me a padded datagram of that size.
    Ask,
    /// Server: padded to its size.
    Padded,
    /// Server: its interface takes no packet of the size asked for; `mtu` is what it takes.
    TooBig,
    /// Server: an ICMP message said that a padded datagram was too large; `mtu` is what that said.
    Told,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathProbe {
    /// What it is.
    pub kind: Kind,
    /// The client's number for the probe it is about.
    pub number: u32,
    /// Size of the IP packet it is about, bytes.
    pub size: u32,
    /// An MTU, of the kinds that tell one.
    pub mtu: u32,
}

impl PathProbe {
    /// The head, with the stream's tag; the caller pads it.
    pub fn encode(&self, tag: u64) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = match self.kind {
            Kind::Probe => 1,
            Kind::Seen => 2,
            Kind::Ask => 3,
            Kind::Padded => 4,
            Kind::TooBig => 5,
            Kind::Told => 6,
        };
        for (at, value) in [(8, self.number), (12, self.size), (16, self.mtu)] {
            bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        bytes[20..].copy_from_slice(&tag.to_be_bytes());
        bytes
    }

    /// Reads a datagram whose IP packet had `headers` bytes before it; `None` if it is no such message of this
    /// stream, or one that lies about its size.
    pub fn decode(datagram: &[u8], tag: u64, headers: u32) -> Option<PathProbe> {
        let probe = PathProbe::quoted(datagram, tag)?;
        let is_padded = matches!(probe.kind, Kind::Probe | Kind::Padded);
        let length = u32::try_from(datagram.len()).ok()?.checked_add(headers)?;
        let fits = if is_padded { length == probe.size } else { datagram.len() == HEAD };
        fits.then_some(probe)
    }

    /// Reads the head of a datagram of which an ICMP message quotes the beginning.
    pub fn quoted(datagram: &[u8], tag: u64) -> Option<PathProbe> {
        let head = datagram.first_chunk::<HEAD>()?;
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let kind = match head[4] {
            1 => Kind::Probe,
            2 => Kind::Seen,
            3 => Kind::Ask,
            4 => Kind::Padded,
            5 => Kind::TooBig,
            6 => Kind::Told,
            _ => return None,
        };
        let probe = PathProbe { kind, number: word(8), size: word(12), mtu: word(16) };
        let is_ours = head[..4] == MAGIC && head[20..] == tag.to_be_bytes();
        (is_ours && (LEAST..=MOST).contains(&probe.size)).then_some(probe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TAG: u64 = 0x0123_4567_89ab_cdef;

    #[test]
    fn messages_survive_and_lies_do_not() {
        let seen = PathProbe { kind: Kind::Seen, number: 7, size: 1500, mtu: 9000 };
        assert_eq!(PathProbe::decode(&seen.encode(TAG), TAG, 28), Some(seen));
        assert_eq!(PathProbe::decode(&seen.encode(TAG), TAG ^ 1, 28), None, "another stream's");
        let probe = PathProbe { kind: Kind::Probe, number: u32::MAX, size: 1300, mtu: 0 };
        let mut padded = probe.encode(TAG).to_vec();
        padded.resize(1272, 0);
        assert_eq!(PathProbe::decode(&padded, TAG, 28), Some(probe));
        assert_eq!(PathProbe::decode(&padded, TAG, 48), None, "another size than it says");
        assert_eq!(PathProbe::decode(&padded[..1271], TAG, 28), None);
        assert_eq!(PathProbe::decode(&probe.encode(TAG), TAG, 28), None);
        assert_eq!(PathProbe::quoted(&padded[..100], TAG), Some(probe));
        let ask = PathProbe { kind: Kind::Ask, size: 65_536, ..probe };
        assert_eq!(PathProbe::decode(&ask.encode(TAG), TAG, 28), None, "larger than any packet");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64), headers in 0u32..100) {
            let mut bytes = bytes;
            if bytes.len() >= HEAD {
                bytes[..4].copy_from_slice(b"lfnP");
                bytes[20..HEAD].copy_from_slice(&TAG.to_be_bytes());
            }
            if let Some(probe) = PathProbe::decode(&bytes, TAG, headers) {
                prop_assert_eq!(&probe.encode(TAG)[8..], &bytes[8..HEAD]);
            }
        }
    }
}
