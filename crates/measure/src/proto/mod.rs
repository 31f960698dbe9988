//! Messages, schedules and statistics of the protocols. Pure: `now` is an argument.
//!
//! - [`udp`]: paced datagrams and their statistics.
//! - [`iperf3`], [`stamp`]: messages of the iperf3 protocol and of STAMP.
//! - [`discover`]: hops and path MTU: the next probe, and the meaning of each reply.

pub mod discover;
pub mod iperf3;
pub mod stamp;
pub mod udp;
