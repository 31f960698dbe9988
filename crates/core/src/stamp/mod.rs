//! STAMP, the Simple Two-way Active Measurement Protocol (RFC 8762), without a socket: packets, what a reflector answers,
//! and what a sender makes of the answers.
//!
//! One numbered and stamped packet goes out, one comes back with the reflector's own stamps and number, of the same
//! size. [`packet`] and [`tlv`] are the bytes (RFC 8762 §4, RFC 8972 §4), [`reflector`] and [`sender`] the two ends,
//! [`report`] the figures. The same reflector serves TWAMP Light senders (RFC 8762 §4.6). Time stamps come in from the
//! caller, and so does the keyed hash of the authenticated mode.

pub mod packet;
pub mod reflector;
pub mod report;
pub mod sender;
pub mod tlv;

/// The port of test packets (RFC 8762 §4.1).
pub const PORT: u16 = 862;

/// A keyed hash of the authenticated mode: HMAC-SHA-256, the first 16 bytes of it (RFC 8762 §4.4).
pub type Mac<'a> = &'a dyn Fn(&[u8]) -> [u8; 16];
