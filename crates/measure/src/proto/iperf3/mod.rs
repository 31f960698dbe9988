//! The iperf3 protocol as bytes and figures: states, frames, parameters, results, datagrams, tokens.
//!
//! A control connection carries states of one byte and JSON in frames. Data connections and datagrams begin with a
//! value that links them to their control connection. This module uses no socket and no clock: [`crate::iperf3`] reads
//! and writes, and this module interprets the bytes and rejects invalid ones. It follows the behaviour of iperf 3.12
//! and 3.21 on the wire. Where they differ, it reads both forms and writes the form that both understand. Any input
//! from a peer gives a value or an error, never a panic, and every length from a peer is checked before use.

pub mod auth;
pub mod code;
pub mod datagram;
pub mod frame;
mod number;
pub mod parameters;
pub mod results;
pub mod state;

pub use code::ErrorCode;
pub use parameters::{LoadDirection, Parameters, TestEnd};
pub use results::{Results, ServerOutput, StreamResult};
pub use state::TestState;

/// Default port of iperf3.
pub const DEFAULT_PORT: u16 = 5201;

/// Bytes of a cookie, with the final zero.
pub const COOKIE_LENGTH: usize = 37;

/// A client's identifier on each of its connections; it links data connections to the control connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie([u8; COOKIE_LENGTH]);

impl Cookie {
    /// Creates a cookie from 36 random bytes, as stock clients do.
    pub fn from_random(random: [u8; COOKIE_LENGTH - 1]) -> Self {
        const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let mut bytes = [0; COOKIE_LENGTH];
        for (byte, random) in bytes.iter_mut().zip(random) {
            *byte = LETTERS[usize::from(random) % LETTERS.len()];
        }
        Cookie(bytes)
    }

    /// Takes a cookie from the wire. Old clients used other characters, so any bytes are valid.
    pub fn from_wire(bytes: [u8; COOKIE_LENGTH]) -> Self {
        Cookie(bytes)
    }

    /// Returns the bytes for the wire.
    pub fn wire(&self) -> &[u8; COOKIE_LENGTH] {
        &self.0
    }
}

/// Text for reports, with letters and digits only.
impl std::fmt::Display for Cookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0
            .iter()
            .filter(|byte| byte.is_ascii_alphanumeric())
            .try_for_each(|&byte| write!(f, "{}", char::from(byte)))
    }
}

/// With a cookie, anyone can add streams to a test, so it must not be in logs.
impl std::fmt::Debug for Cookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cookie(…)")
    }
}

/// Returns the identifier of the stream with this number, from 0: 1, 3, 4, 5 and so on. iperf3 skips 2 for
/// compatibility between old and new versions.
pub fn stream_id(index: usize) -> u16 {
    let index = u16::try_from(index).unwrap_or(u16::MAX - 2);
    if index == 0 { 1 } else { index.saturating_add(2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_stream_is_number_three() {
        assert_eq!([0, 1, 2, 3].map(stream_id), [1, 3, 4, 5]);
        assert_eq!(stream_id(usize::MAX), u16::MAX);
    }

    #[test]
    fn cookie_has_letters_and_a_final_zero() {
        let cookie = Cookie::from_random(std::array::from_fn(|n| n as u8 * 7));
        let (text, zero) = cookie.wire().split_at(36);
        assert!(text.iter().all(|byte| byte.is_ascii_lowercase() || (b'2'..=b'7').contains(byte)));
        assert_eq!(zero, [0]);
        assert_eq!(cookie.to_string().len(), 36);
        assert_eq!(Cookie::from_wire(*cookie.wire()), cookie);
        assert_eq!(format!("{cookie:?}"), "Cookie(…)");
    }
}
