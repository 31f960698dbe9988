//! Both ends of STAMP over UDP: the reflector of `lfn serve --stamp`, the sender of `lfn test --stamp`.
//!
//! What is said and what it means is `lfn_core::stamp`; here are the sockets, the clock and the keyed hash. Stamps of
//! what arrives are the kernel's (`SO_TIMESTAMPNS`), those of what leaves are read just before it does.

mod key;
mod reflector;
mod sender;

pub use key::{Key, KeyError};
pub use reflector::{Reflecting, ReflectorConfig};
pub use sender::{Probing, SendError, probe};

use std::time::Duration;

use lfn_core::stamp::packet::{ErrorEstimate, Timestamp};
use lfn_core::time::Instant;
use lfn_sys::clock;
use lfn_sys::message::Message;

/// Largest datagram that is looked at.
const ROOM: usize = 65_536;

/// Now, as a packet tells it.
fn stamp() -> Timestamp {
    Timestamp::ntp(Duration::from_nanos(clock::wall_nanos()))
}

/// When a message came: by the kernel, or now.
fn arrival(message: &Message) -> Timestamp {
    message.stamp.map_or_else(stamp, Timestamp::ntp)
}

fn now() -> Instant {
    Instant::from_nanos(clock::monotonic_nanos())
}

/// How good this host's clock is.
fn estimate() -> ErrorEstimate {
    ErrorEstimate::new(clock::wall_error())
}
