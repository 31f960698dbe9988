//! How a data stream in the clear shows that it belongs to a session: a fixed 56-byte hello with a MAC.
//!
//! The MAC is keyed with a key derived from the token's hash, which a server keeps, so only a bearer of the ticket can
//! open a stream, and covers the session and the stream number; a server takes each (session, stream) once, so a
//! replayed hello opens nothing. Streams inside TLS need none of this: they send a [`crate::wire::Hello`] frame
//! instead.
//!
//! The same 56 bytes open a stream of UDP datagrams and answer that; which of the three it is stands under the MAC, so
//! that none can be taken for another.

use super::{SessionId, TokenHash};

/// The first byte of every clear hello; TLS records never start with it (a handshake record starts with 22).
pub const FIRST_BYTE: u8 = MAGIC[0];

/// Length of a clear hello in bytes.
pub const LENGTH: usize = 56;

const MAGIC: [u8; 4] = *b"lfnD";
const VERSION: u8 = 1;
const KEY_CONTEXT: &str = "lfn 2026-11-22 clear data stream hello v2";
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
    /// A hello of this session, but one for another kind of stream.
    #[error("hello of another kind of data stream")]
    Use,
}

/// What a hello is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Stream = 0,
    Datagrams = 1,
    Answer = 2,
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
    /// The bytes that open a TCP stream.
    pub fn encode(&self, token: impl Into<TokenHash>) -> [u8; LENGTH] {
        self.encode_for(Use::Stream, token)
    }

    /// The datagram that opens a stream of datagrams; it is sent again until it is answered.
    pub fn encode_datagram(&self, token: impl Into<TokenHash>) -> [u8; LENGTH] {
        self.encode_for(Use::Datagrams, token)
    }

    /// The server's answer to that, no longer than what it answers.
    pub fn encode_answer(&self, token: impl Into<TokenHash>) -> [u8; LENGTH] {
        self.encode_for(Use::Answer, token)
    }

    fn encode_for(&self, r#use: Use, token: impl Into<TokenHash>) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = r#use as u8;
        bytes[6..8].copy_from_slice(&self.stream.to_be_bytes());
        bytes[8..MAC_AT].copy_from_slice(&self.session.0);
        let mac = mac(&token.into(), &bytes[..MAC_AT]);
        bytes[MAC_AT..].copy_from_slice(mac.as_bytes());
        bytes
    }

    /// Reads and checks a hello; the MAC is compared in constant time.
    pub fn decode(bytes: &[u8; LENGTH], token: impl Into<TokenHash>) -> Result<Self, HelloError> {
        Self::decode_for(Use::Stream, bytes, token)
    }

    /// The same for a datagram of any length.
    pub fn decode_datagram(bytes: &[u8], token: impl Into<TokenHash>) -> Result<Self, HelloError> {
        Self::decode_for(Use::Datagrams, bytes.try_into().map_err(|_| HelloError::NotLfn)?, token)
    }

    fn decode_for(r#use: Use, bytes: &[u8; LENGTH], token: impl Into<TokenHash>) -> Result<Self, HelloError> {
        if bytes[..4] != MAGIC {
            return Err(HelloError::NotLfn);
        }
        if bytes[4] != VERSION {
            return Err(HelloError::Version(bytes[4]));
        }
        let mut shown = [0; 32];
        shown.copy_from_slice(&bytes[MAC_AT..]);
        // blake3::Hash compares in constant time.
        if mac(&token.into(), &bytes[..MAC_AT]) != blake3::Hash::from_bytes(shown) {
            return Err(HelloError::Mac);
        }
        if bytes[5] != r#use as u8 {
            return Err(HelloError::Use);
        }
        let mut session = [0; 16];
        session.copy_from_slice(&bytes[8..MAC_AT]);
        Ok(ClearHello { session: SessionId(session), stream: u16::from_be_bytes([bytes[6], bytes[7]]) })
    }
}

fn mac(token: &TokenHash, covered: &[u8]) -> blake3::Hash {
    blake3::keyed_hash(&blake3::derive_key(KEY_CONTEXT, &token.0), covered)
}

#[cfg(test)]
mod tests {
    use super::super::Token;
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
    #[test]
    fn a_hello_seen_on_tcp_opens_no_datagrams() {
        let token = Token::from_bytes([1; 16]);
        let hello = ClearHello { session: SessionId([2; 16]), stream: 0 };
        let (stream, datagram, answer) =
            (hello.encode(&token), hello.encode_datagram(&token), hello.encode_answer(&token));
        assert_eq!(ClearHello::decode_datagram(&datagram, &token), Ok(hello));
        assert_eq!(ClearHello::decode_datagram(&stream, &token), Err(HelloError::Use));
        assert_eq!(ClearHello::decode_datagram(&answer, &token), Err(HelloError::Use));
        assert_eq!(ClearHello::decode(&datagram, &token), Err(HelloError::Use));
        assert_eq!(ClearHello::decode_datagram(&datagram[..40], &token), Err(HelloError::NotLfn));
    }
}
