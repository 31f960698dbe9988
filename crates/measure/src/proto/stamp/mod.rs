//! STAMP, the Simple Two-way Active Measurement Protocol (RFC 8762), without sockets: packets, reflector and sender.
//!
//! The sender sends numbered packets with timestamps. The reflector returns each packet in the same size, with its own
//! timestamps and number. [`packet`] and [`tlv`] define the bytes (RFC 8762 §4, RFC 8972 §4), [`reflector`] and
//! [`sender`] are the two ends, and [`report`] has the figures. The reflector also serves TWAMP Light senders (RFC 8762
//! §4.6). The caller supplies the timestamps and the keyed hash of the authenticated mode.

pub mod packet;
pub mod reflector;
pub mod report;
pub mod sender;
pub mod tlv;

/// UDP port of test packets (RFC 8762 §4.1).
pub const PORT: u16 = 862;

/// Keyed hash of the authenticated mode: the first 16 bytes of HMAC-SHA-256 (RFC 8762 §4.4).
pub type Mac<'a> = &'a dyn Fn(&[u8]) -> [u8; 16];
