//! UDP load without sockets: the receiver's statistics, and the rates of a ramp.
//!
//! [`receiver`], [`jitter`] and [`runs`] use only sequence numbers and times, so they work for the datagrams of any
//! tool; [`datagram`] is lfn's own format. [`ramp`] chooses rates, and [`step`] measures the steps.
//! [`lfn_results::udp`] has the results for messages and output.

pub mod datagram;
pub mod jitter;
pub mod ramp;
pub mod receiver;
pub mod runs;
pub mod step;
