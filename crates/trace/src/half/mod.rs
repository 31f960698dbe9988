//! One direction of a connection: its data, and the acknowledgements of this data.
//!
//! The capture point can be anywhere on the path. [`Half`] judges from the view of the sender: an acknowledgement counts from the
//! time at which it has reached the sender, as far as the RTT from the capture point to the sender is known.

mod acknowledgements;
mod arrivals;
mod counts;
mod direction;
mod exchanges;
mod gaps;
mod packet;
mod retransmissions;
mod rounds;
mod segment_sizes;
mod sender_view;
mod sent;
mod windows;

pub(crate) use acknowledgements::MIN_UNANSWERED;
pub(crate) use arrivals::Arrival;
pub(crate) use counts::{LossEvent, Silence};
pub(crate) use direction::Half;
pub(crate) use packet::{AckPacket, DataPacket, PathRtt};
pub(crate) use rounds::Round;
