//! Times of a slot. Two slots on one resource never carry loads at once, for clocks that differ from the true time by at most
//! [`MAX_CLOCK_ERROR`]:
//!
//! - a client starts its load between the start of the slot and [`LATEST_START`] after it, by its own clock;
//! - a client ends its load at the deadline at the latest, [`CLOSING_TIME`] before the end of the slot;
//! - the next slot on the same resource starts [`GUARD`] after the end, which is twice the maximum clock error.

use std::time::Duration;

/// Maximum difference between the clock of an agent and the true time. An agent with a larger difference starts no load.
pub const MAX_CLOCK_ERROR: Duration = Duration::from_secs(1);

/// Time after the start of a slot within which its load may still start.
pub const LATEST_START: Duration = Duration::from_secs(1);

/// Time after the start of an agent in which it starts no load. An agent that failed and came back with another clock error
/// does not repeat its slot.
pub const START_PAUSE: Duration = Duration::from_secs(2 * MAX_CLOCK_ERROR.as_secs());

/// Time for connections and parameters before the load sends data.
pub const SETUP_TIME: Duration = Duration::from_secs(3);

/// Time from the deadline of the load to the end of the slot, for the end of the sender and for data in flight.
pub const CLOSING_TIME: Duration = Duration::from_secs(1);

/// Time between two slots on one resource.
pub const GUARD: Duration = Duration::from_secs(2);

/// Returns the length of a slot for a load of at most this length, in whole seconds.
pub fn slot_length(load: Duration) -> Duration {
    let whole = Duration::from_secs(load.as_secs() + u64::from(load.subsec_nanos() > 0));
    whole + LATEST_START + SETUP_TIME + CLOSING_TIME
}
