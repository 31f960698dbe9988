//! Authentication of block headers on unencrypted data streams.
//!
//! The key belongs to one stream of one session. It is derived from a secret that the client sends with its request
//! inside TLS, from the token, and from the session id. Both ends have the key before the first block, without an
//! additional RTT. Headers are numbered, so that none can be deleted, repeated or moved to another stream. The payload
//! is not covered directly: the header holds its hash.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::copy::{BlockHeader, HeaderError};
use crate::SessionId;

/// Bytes of the authentication code after a header.
pub const MAC_BYTES: usize = 16;

/// Bytes of a header with its authentication code.
pub const SEALED_HEADER_BYTES: usize = BlockHeader::LENGTH + MAC_BYTES;

/// Flag of a header with an authentication code.
pub const FLAG: u8 = 1;

const CONTEXT: &str = "lfn 2026-11-22 block headers of a clear data stream v1";

/// Secret for the keys of a session's unencrypted streams: 256 random bits, chosen by the client. `Debug` output never
/// contains the secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StreamSecret([u8; 32]);

/// Authenticates or verifies the headers of one stream, in order.
#[derive(Clone)]
pub struct Seal {
    key: [u8; 32],
    next: u64,
}

impl StreamSecret {
    /// Creates a secret from random bits.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        StreamSecret(bytes)
    }
}

impl Seal {
    /// Creates the state of one stream. `scope` is the session id bound to the token
    /// ([`crate::TokenHash::scope`]).
    pub fn new(secret: &StreamSecret, scope: SessionId, stream: u16) -> Self {
        let mut material = [0; 50];
        material[..32].copy_from_slice(&secret.0);
        material[32..48].copy_from_slice(&scope.0);
        material[48..].copy_from_slice(&stream.to_be_bytes());
        Seal { key: blake3::derive_key(CONTEXT, &material), next: 0 }
    }

    /// Encodes the next header to send, with its authentication code.
    pub fn seal(&mut self, header: &BlockHeader) -> [u8; SEALED_HEADER_BYTES] {
        let mut bytes = [0; SEALED_HEADER_BYTES];
        bytes[..BlockHeader::LENGTH].copy_from_slice(&header.encode());
        bytes[1] |= FLAG;
        let code = self.code(&bytes);
        bytes[BlockHeader::LENGTH..].copy_from_slice(&code.as_bytes()[..MAC_BYTES]);
        self.next += 1;
        bytes
    }

    /// Verifies and decodes the next received header.
    pub fn open(&mut self, bytes: &[u8; SEALED_HEADER_BYTES]) -> Result<BlockHeader, HeaderError> {
        let code = self.code(bytes);
        let mut shown = *code.as_bytes();
        shown[..MAC_BYTES].copy_from_slice(&bytes[BlockHeader::LENGTH..]);
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

    /// Number and header together fit into one BLAKE3 block.
    fn code(&self, bytes: &[u8; SEALED_HEADER_BYTES]) -> blake3::Hash {
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
    use crate::wire::copy::digest::BlockHash;
    use crate::wire::copy::options::Verify;

    fn seal(session: u8, stream: u16) -> Seal {
        Seal::new(&StreamSecret::from_bytes([7; 32]), SessionId([session; 16]), stream)
    }

    fn header(file: u32) -> BlockHeader {
        let verify = if file.is_multiple_of(2) { Verify::Blake3 } else { Verify::Off };
        BlockHeader {
            file,
            offset: 4096,
            length: 1024,
            hash: BlockHash([3; 32]),
            hole: (file % 2 == 1).then_some(file as u8 % 3),
            verify,
        }
    }

    #[test]
    fn headers_are_verified_in_order() {
        let (mut here, mut there) = (seal(1, 0), seal(1, 0));
        for file in 0..3 {
            let bytes = here.seal(&header(file));
            assert_eq!(there.open(&bytes), Ok(header(file)));
        }
        let (first, second) = (here.seal(&header(3)), here.seal(&header(4)));
        assert_eq!(there.open(&second), Err(HeaderError::Seal(3)), "one header is missing");
        assert_eq!(there.open(&first), Ok(header(3)));
        assert_eq!(there.open(&first), Err(HeaderError::Seal(4)), "one came again");
    }

    #[test]
    fn modified_or_moved_headers_are_rejected() {
        let bytes = seal(1, 0).seal(&header(0));
        for at in 0..SEALED_HEADER_BYTES {
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
    fn secret_is_hidden_in_debug_output() {
        let secret = StreamSecret::from_bytes([9; 32]);
        assert!(!format!("{secret:?} {:?}", seal(1, 0)).contains("09"));
        let text = serde_json::to_string(&secret).unwrap();
        assert_eq!(serde_json::from_str::<StreamSecret>(&text).unwrap(), secret);
        assert!(serde_json::from_str::<StreamSecret>("\"09\"").is_err());
    }
}
