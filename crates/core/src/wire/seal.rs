//! What proves of a block header on a stream in the clear that the session's other end wrote it, here and now.
//!
//! The key is of one stream of one session: it is derived from a secret that the client sends with its request, inside TLS,
//! and from the token and the session's name; so both ends have it before the first block, and no round trip is waited for.
//! Headers are numbered, so that none can be left out, sent again or moved to another stream. The payload is not covered:
//! the header holds its hash.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::copy::{BlockHeader, HeaderError};
use crate::session::SessionId;

/// Bytes of the code behind a header.
pub const MAC: usize = 16;

/// Bytes of a header with it.
pub const SEALED: usize = BlockHeader::LENGTH + MAC;

/// The flag of a header that has one.
pub const FLAG: u8 = 1;

const CONTEXT: &str = "lfn 2026-11-22 block headers of a clear data stream v1";

/// What the keys of a session's clear streams are made of; 256 random bits, chosen by the client. Its text never appears in
/// `Debug` output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StreamSecret([u8; 32]);

/// Seals or checks the headers of one stream, in their order.
#[derive(Clone)]
pub struct Seal {
    key: [u8; 32],
    next: u64,
}

impl StreamSecret {
    /// A secret of the given random bits.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        StreamSecret(bytes)
    }
}

impl Seal {
    /// For a stream; `scope` is the session's name among those of all tokens ([`crate::session::TokenHash::scope`]).
    pub fn new(secret: &StreamSecret, scope: SessionId, stream: u16) -> Self {
        let mut material = [0; 50];
        material[..32].copy_from_slice(&secret.0);
        material[32..48].copy_from_slice(&scope.0);
        material[48..].copy_from_slice(&stream.to_be_bytes());
        Seal { key: blake3::derive_key(CONTEXT, &material), next: 0 }
    }

    /// The bytes of the next header to be sent.
    pub fn seal(&mut self, header: &BlockHeader) -> [u8; SEALED] {
        let mut bytes = [0; SEALED];
        bytes[..BlockHeader::LENGTH].copy_from_slice(&header.encode());
        bytes[1] |= FLAG;
        let code = self.code(&bytes);
        bytes[BlockHeader::LENGTH..].copy_from_slice(&code.as_bytes()[..MAC]);
        self.next += 1;
        bytes
    }

    /// Reads the next header; nothing in it is believed before its code is right.
    pub fn open(&mut self, bytes: &[u8; SEALED]) -> Result<BlockHeader, HeaderError> {
        let code = self.code(bytes);
        let mut shown = *code.as_bytes();
        shown[..MAC].copy_from_slice(&bytes[BlockHeader::LENGTH..]);
        // blake3::Hash compares in constant time.
        if code != blake3::Hash::from_bytes(shown) {
            return Err(HeaderError::Seal(self.next));
        }
        self.next += 1;
        let mut plain = [0; BlockHeader::LENGTH];
        plain.copy_from_slice(&bytes[..BlockHeader::LENGTH]);
        plain[1] &= !FLAG;
        BlockHeader::decode(&plain)
    }

    /// Number and header together are one block of BLAKE3.
    fn code(&self, bytes: &[u8; SEALED]) -> blake3::Hash {
        let mut covered = [0; 8 + BlockHeader::LENGTH];
        covered[..8].copy_from_slice(&self.next.to_be_bytes());
        covered[8..].copy_from_slice(&bytes[..BlockHeader::LENGTH]);
        blake3::keyed_hash(&self.key, &covered)
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").field("next", &self.next).finish_non_exhaustive()
    }
}

impl fmt::Debug for StreamSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamSecret(…)")
    }
}

impl FromStr for StreamSecret {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok()).map(StreamSecret).ok_or(())
    }
}

impl Serialize for StreamSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&HEXLOWER.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for StreamSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|()| serde::de::Error::custom("damaged secret of the data streams"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::digest::BlockHash;
    use crate::transfer::manner::Verify;

    fn seal(session: u8, stream: u16) -> Seal {
        Seal::new(&StreamSecret::from_bytes([7; 32]), SessionId([session; 16]), stream)
    }

    fn header(file: u32) -> BlockHeader {
        let verify = if file.is_multiple_of(2) { Verify::Blake3 } else { Verify::Off };
        BlockHeader { file, offset: 4096, length: 1024, hash: BlockHash([3; 32]), hole: file % 2 == 1, verify }
    }

    #[test]
    fn headers_are_read_in_the_order_in_which_they_were_sealed() {
        let (mut here, mut there) = (seal(1, 0), seal(1, 0));
        for file in 0..3 {
            let bytes = here.seal(&header(file));
            assert_eq!(there.open(&bytes), Ok(header(file)));
        }
        let (first, second) = (here.seal(&header(3)), here.seal(&header(4)));
        assert_eq!(there.open(&second), Err(HeaderError::Seal(3)), "one was left out");
        assert_eq!(there.open(&first), Ok(header(3)));
        assert_eq!(there.open(&first), Err(HeaderError::Seal(4)), "one came again");
    }

    #[test]
    fn no_bit_can_be_changed_and_no_header_moved() {
        let bytes = seal(1, 0).seal(&header(0));
        for at in 0..SEALED {
            for bit in 0..8 {
                let mut changed = bytes;
                changed[at] ^= 1 << bit;
                assert_eq!(seal(1, 0).open(&changed), Err(HeaderError::Seal(0)), "byte {at}");
            }
        }
        for mut other in [seal(1, 1), seal(2, 0), Seal::new(&StreamSecret::from_bytes([8; 32]), SessionId([1; 16]), 0)]
        {
            assert_eq!(other.open(&bytes), Err(HeaderError::Seal(0)));
        }
        assert_eq!(seal(1, 0).open(&bytes), Ok(header(0)));
    }

    #[test]
    fn a_secret_is_hidden_from_debug_and_survives_json() {
        let secret = StreamSecret::from_bytes([9; 32]);
        assert!(!format!("{secret:?} {:?}", seal(1, 0)).contains("09"));
        let text = serde_json::to_string(&secret).unwrap();
        assert_eq!(serde_json::from_str::<StreamSecret>(&text).unwrap(), secret);
        assert!(serde_json::from_str::<StreamSecret>("\"09\"").is_err());
    }
}
