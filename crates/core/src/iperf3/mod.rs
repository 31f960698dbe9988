//! iperf3's protocol as bytes and figures: states, frames, parameters, results, datagrams, tokens.
//!
//! A control connection carries states of one byte and JSON in frames; data connections and datagrams begin with what
//! ties them to it. Nothing here knows a socket or a clock: `lfn-net` reads and writes, this module says what bytes
//! mean and which are refused. Written from what iperf 3.12 and 3.21 do on the wire; where they differ, both are read
//! and what both read is written. Whatever a peer sends ends in a value or an error, never in a panic, and every length
//! of a peer's is bounded before it is believed.

pub mod auth;
pub mod code;
pub mod datagram;
pub mod frame;
mod number;
pub mod parameters;
pub mod results;
pub mod state;

pub use code::Code;
pub use parameters::{End, Parameters, Protocol, Way};
pub use results::{Output, Results, StreamResult};
pub use state::State;

/// Where iperf3 listens if nothing else is said.
pub const DEFAULT_PORT: u16 = 5201;

/// Bytes of a cookie, the closing zero among them.
pub const COOKIE_LENGTH: usize = 37;

/// What a client calls itself by on each of its connections: it ties data connections to the control connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie([u8; COOKIE_LENGTH]);

impl Cookie {
    /// A cookie as stock clients make them, of 36 random bytes.
    pub fn from_random(random: [u8; COOKIE_LENGTH - 1]) -> Self {
        const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let mut bytes = [0; COOKIE_LENGTH];
        for (byte, random) in bytes.iter_mut().zip(random) {
            *byte = LETTERS[usize::from(random) % LETTERS.len()];
        }
        Cookie(bytes)
    }

    /// As it came. Old clients made them otherwise, so any bytes are a cookie.
    pub fn from_wire(bytes: [u8; COOKIE_LENGTH]) -> Self {
        Cookie(bytes)
    }

    /// As it goes over the wire.
    pub fn wire(&self) -> &[u8; COOKIE_LENGTH] {
        &self.0
    }
}

/// As text, for reports: what is no letter or digit is left out.
impl std::fmt::Display for Cookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0
            .iter()
            .filter(|byte| byte.is_ascii_alphanumeric())
            .try_for_each(|&byte| write!(f, "{}", char::from(byte)))
    }
}

/// A cookie lets whoever knows it add streams to a test: it is not for logs.
impl std::fmt::Debug for Cookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cookie(…)")
    }
}

/// The identifier of the stream with this number, from 0: 1, 3, 4, 5 and so on. iperf3 leaves out 2 so that old and new
/// versions understand each other.
pub fn stream_id(index: usize) -> u32 {
    let index = u32::try_from(index).unwrap_or(u32::MAX - 2);
    if index == 0 { 1 } else { index.saturating_add(2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_stream_is_number_three() {
        assert_eq!([0, 1, 2, 3].map(stream_id), [1, 3, 4, 5]);
        assert_eq!(stream_id(usize::MAX), u32::MAX);
    }

    #[test]
    fn a_cookie_is_letters_and_ends_with_a_zero() {
        let cookie = Cookie::from_random(std::array::from_fn(|n| n as u8 * 7));
        let (text, zero) = cookie.wire().split_at(36);
        assert!(text.iter().all(|byte| byte.is_ascii_lowercase() || (b'2'..=b'7').contains(byte)));
        assert_eq!(zero, [0]);
        assert_eq!(cookie.to_string().len(), 36);
        assert_eq!(Cookie::from_wire(*cookie.wire()), cookie);
        assert_eq!(format!("{cookie:?}"), "Cookie(…)");
    }
}
