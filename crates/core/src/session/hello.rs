//! How a data stream in the clear shows that it belongs to a session: a fixed 56-byte hello with a MAC.
//!
//! The MAC is keyed with a key derived from the token, so only a bearer of the ticket can open a stream, and covers
//! the session and the stream number; a server takes each (session, stream) once, so a replayed hello opens nothing.
//! Streams inside TLS need none of this: they send a [`crate::wire::Hello`] frame instead.

use super::{SessionId, Token};

/// The first byte of every clear hello; TLS records never start with it (a handshake record starts with 22).
pub const FIRST_BYTE: u8 = MAGIC[0];

/// Length of a clear hello in bytes.
pub const LENGTH: usize = 56;

const MAGIC: [u8; 4] = *b"lfnD";
const VERSION: u8 = 1;
const KEY_CONTEXT: &str = "lfn 2026-11-21 clear data stream hello v1";
const MAC_AT: usize = 24;

/// Why a hello was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Some other program is speaking.
    #[error("not an lfn data stream")]
    NotLfn,
    /// A newer or older `lfn`.
    #[error("data stream of protocol version {0}, {VERSION} expected")]
    Version(u8),
    /// Made without the token, or damaged on the way.
    #[error("data stream with a wrong authentication code")]
    Mac,
}

/// The opening of a data stream that is not inside TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClearHello {
    /// The session the stream belongs to.
    pub session: SessionId,
    /// The number of the stream in its session, from 0.
    pub stream: u16,
}

impl ClearHello {
    /// The bytes to send.
    pub fn encode(&self, token: &Token) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[6..8].copy_from_slice(&self.stream.to_be_bytes());
        bytes[8..MAC_AT].copy_from_slice(&self.session.0);
        let mac = mac(token, &bytes[..MAC_AT]);
        bytes[MAC_AT..].copy_from_slice(mac.as_bytes());
        bytes
    }

    /// Reads and checks a hello; the MAC is compared in constant time.
    pub fn decode(bytes: &[u8; LENGTH], token: &Token) -> Result<Self, HelloError> {
        if bytes[..4] != MAGIC {
            return Err(HelloError::NotLfn);
        }
        if bytes[4] != VERSION {
            return Err(HelloError::Version(bytes[4]));
        }
        let mut shown = [0; 32];
        shown.copy_from_slice(&bytes[MAC_AT..]);
        // blake3::Hash compares in constant time.
        if mac(token, &bytes[..MAC_AT]) != blake3::Hash::from_bytes(shown) {
            return Err(HelloError::Mac);
        }
        let mut session = [0; 16];
        session.copy_from_slice(&bytes[8..MAC_AT]);
        Ok(ClearHello { session: SessionId(session), stream: u16::from_be_bytes([bytes[6], bytes[7]]) })
    }
}

fn mac(token: &Token, covered: &[u8]) -> blake3::Hash {
    blake3::keyed_hash(&blake3::derive_key(KEY_CONTEXT, token.as_bytes()), covered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_opens_a_stream() {
        let token = Token::from_bytes([1; 16]);
        let hello = ClearHello { session: SessionId([2; 16]), stream: 513 };
        let bytes = hello.encode(&token);
        assert_eq!(ClearHello::decode(&bytes, &token), Ok(hello));
        assert_eq!(ClearHello::decode(&bytes, &Token::from_bytes([0; 16])), Err(HelloError::Mac));
        for at in 5..LENGTH {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(ClearHello::decode(&damaged, &token), Err(HelloError::Mac), "byte {at}");
        }
    }
}
