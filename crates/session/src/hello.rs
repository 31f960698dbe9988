//! Clear hello: 56 bytes with a MAC that assign an unencrypted data stream to a session.
//!
//! The MAC key is derived from the token's hash, which the server stores, so that only a holder of the ticket can open
//! a stream. The MAC covers the session and the stream number. The server accepts each (session, stream) pair once, so
//! a replayed hello opens nothing. Streams inside TLS send a [`crate::wire::Hello`] frame instead.
//!
//! The same 56 bytes open a stream of UDP datagrams, and answer such a hello. The MAC covers the kind of hello, so that
//! one kind cannot be used as another.

use super::{SessionId, TokenHash};

/// First byte of every clear hello. TLS records never start with it (a handshake record starts with 22).
pub const FIRST_BYTE: u8 = MAGIC[0];

/// Length of a clear hello in bytes.
pub const HELLO_BYTES: usize = 56;

const MAGIC: [u8; 4] = *b"lfnD";
const VERSION: u8 = 1;
const KEY_CONTEXT: &str = "lfn 2026-11-22 clear data stream hello v2";
const MAC_AT: usize = 24;

/// Reason why a hello was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Another program is connected.
    #[error("not an lfn data stream")]
    NotLfn,
    /// A newer or older `lfn`.
    #[error("data stream of protocol version {0}, {VERSION} expected")]
    Version(u8),
    /// Created without the token, or damaged on the path.
    #[error("data stream with a wrong authentication code")]
    Mac,
    /// A hello of this session for another kind of stream.
    #[error("hello for another kind of data stream")]
    Use,
}

/// Kind of a hello, covered by the MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HelloKind {
    Stream = 0,
    Datagrams = 1,
    Answer = 2,
}

/// First bytes of a data stream outside TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClearHello {
    pub session: SessionId,
    /// Stream number in the session, from 0.
    pub stream: u16,
}

impl ClearHello {
    /// Returns the bytes that open a TCP stream.
    pub fn encode(&self, token: impl Into<TokenHash>) -> [u8; HELLO_BYTES] {
        self.encode_for(HelloKind::Stream, token)
    }

    /// Returns the datagram that opens a stream of datagrams. The client repeats it until it receives an answer.
    pub fn encode_datagram(&self, token: impl Into<TokenHash>) -> [u8; HELLO_BYTES] {
        self.encode_for(HelloKind::Datagrams, token)
    }

    /// Returns the server's answer to such a datagram, of the same length.
    pub fn encode_answer(&self, token: impl Into<TokenHash>) -> [u8; HELLO_BYTES] {
        self.encode_for(HelloKind::Answer, token)
    }

    fn encode_for(&self, r#use: HelloKind, token: impl Into<TokenHash>) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = r#use as u8;
        bytes[6..8].copy_from_slice(&self.stream.to_be_bytes());
        bytes[8..MAC_AT].copy_from_slice(&self.session.0);
        let mac = mac(&token.into(), &bytes[..MAC_AT]);
        bytes[MAC_AT..].copy_from_slice(mac.as_bytes());
        bytes
    }

    /// Decodes and verifies a hello. The MAC is compared in constant time.
    pub fn decode(bytes: &[u8; HELLO_BYTES], token: impl Into<TokenHash>) -> Result<Self, HelloError> {
        Self::decode_for(HelloKind::Stream, bytes, token)
    }

    /// Decodes and verifies the hello in a datagram of any length.
    pub fn decode_datagram(bytes: &[u8], token: impl Into<TokenHash>) -> Result<Self, HelloError> {
        Self::decode_for(HelloKind::Datagrams, bytes.try_into().map_err(|_| HelloError::NotLfn)?, token)
    }

    fn decode_for(
        r#use: HelloKind,
        bytes: &[u8; HELLO_BYTES],
        token: impl Into<TokenHash>,
    ) -> Result<Self, HelloError> {
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
    fn only_matching_token_opens_a_stream() {
        let token = Token::from_bytes([1; 16]);
        let hello = ClearHello { session: SessionId([2; 16]), stream: 513 };
        let bytes = hello.encode(&token);
        assert_eq!(ClearHello::decode(&bytes, &token), Ok(hello));
        assert_eq!(ClearHello::decode(&bytes, &Token::from_bytes([0; 16])), Err(HelloError::Mac));
        for at in 5..HELLO_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(ClearHello::decode(&damaged, &token), Err(HelloError::Mac), "byte {at}");
        }
    }
    #[test]
    fn tcp_hello_cannot_open_a_datagram_stream() {
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
