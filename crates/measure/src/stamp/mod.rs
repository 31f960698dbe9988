//! STAMP over UDP: the reflector of `lfn serve --stamp` and the sender of `lfn test --stamp`.
//!
//! The protocol is in `crate::proto::stamp`. This module contains the sockets, the clock and the keyed hash. Timestamps
//! of received packets come from the kernel (`SO_TIMESTAMPNS`), those of sent packets are read just before sending.

mod key;
mod reflector;
mod sender;

pub use key::{StampKey, StampKeyError};
pub use reflector::{ReflectorConfig, StampReflector};
pub use sender::{StampError, StampProbeOptions, probe};

use lfn_session::clock::now;
use lfn_sys::clock;
use lfn_sys::message::Message;

use crate::proto::stamp::packet::{ErrorEstimate, Timestamp};

/// Size of the receive buffer, bytes.
const MAX_DATAGRAM: usize = 65_536;

/// Returns the current time as a STAMP timestamp.
fn timestamp() -> Timestamp {
    Timestamp::ntp(clock::since_1970())
}

/// Returns the kernel's timestamp of a message, or the current time if there is none.
fn arrival(message: &Message) -> Timestamp {
    message.timestamp.map_or_else(timestamp, Timestamp::ntp)
}

/// Returns the error estimate of this host's clock.
fn clock_error_estimate() -> ErrorEstimate {
    ErrorEstimate::new(clock::wall_error())
}
