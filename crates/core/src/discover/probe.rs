//! What path probes look like on the datagram stream of a session (`doc/protocol.md`).
//!
//! A probe is as large as the size it is for and says that size; an answer is 20 bytes. The client asks, the server
//! answers: it never sends more than one datagram for one that came, and a padded one only when asked for that size.

use super::plpmtud::{LEAST, MOST};

/// Bytes of the head, and of a message without padding.
pub const HEAD: usize = 20;
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
    /// Server: what was asked for cannot be sent, or a router said that it is too large; `mtu` is what fits.
    TooBig,
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
    /// From the server: MTU of its interface towards the client, or of the path as ICMP told it ([`Kind::TooBig`]);
    /// 0 where it is not known.
    pub mtu: u32,
}

impl PathProbe {
    /// The head; the caller pads it.
    pub fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = match self.kind {
            Kind::Probe => 1,
            Kind::Seen => 2,
            Kind::Ask => 3,
            Kind::Padded => 4,
            Kind::TooBig => 5,
        };
        for (at, value) in [(8, self.number), (12, self.size), (16, self.mtu)] {
            bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        bytes
    }

    /// Reads a datagram whose IP packet had `headers` bytes before it; `None` if it is no such message, or one that lies
    /// about its size.
    pub fn decode(datagram: &[u8], headers: u32) -> Option<PathProbe> {
        let (head, padding) = datagram.split_first_chunk::<HEAD>()?;
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let kind = match head[4] {
            1 => Kind::Probe,
            2 => Kind::Seen,
            3 => Kind::Ask,
            4 => Kind::Padded,
            5 => Kind::TooBig,
            _ => return None,
        };
        let probe = PathProbe { kind, number: word(8), size: word(12), mtu: word(16) };
        let is_padded = matches!(kind, Kind::Probe | Kind::Padded);
        let length = u32::try_from(datagram.len()).ok()?.checked_add(headers)?;
        let fits = if is_padded { length == probe.size } else { padding.is_empty() };
        (head[..4] == MAGIC && fits && (LEAST..=MOST).contains(&probe.size)).then_some(probe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_survive_and_lies_do_not() {
        let seen = PathProbe { kind: Kind::Seen, number: 7, size: 1500, mtu: 9000 };
        assert_eq!(PathProbe::decode(&seen.encode(), 28), Some(seen));
        let probe = PathProbe { kind: Kind::Probe, number: u32::MAX, size: 1300, mtu: 0 };
        let mut padded = probe.encode().to_vec();
        padded.resize(1272, 0);
        assert_eq!(PathProbe::decode(&padded, 28), Some(probe));
        assert_eq!(PathProbe::decode(&padded, 48), None, "another size than it says");
        assert_eq!(PathProbe::decode(&padded[..1271], 28), None);
        assert_eq!(PathProbe::decode(&probe.encode(), 28), None);
        let ask = PathProbe { kind: Kind::Ask, size: 65_536, ..probe };
        assert_eq!(PathProbe::decode(&ask.encode(), 28), None, "larger than any packet");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64), headers in 0u32..100) {
            let mut bytes = bytes;
            if bytes.len() >= HEAD {
                bytes[..4].copy_from_slice(b"lfnP");
            }
            if let Some(probe) = PathProbe::decode(&bytes, headers) {
                prop_assert_eq!(&probe.encode()[8..], &bytes[8..HEAD]);
            }
        }
    }
}
