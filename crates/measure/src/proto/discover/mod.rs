//! Discovery of a path: its routers, and the path MTU in each direction.
//!
//! These state machines choose the next packet and take the replies: [`traceroute`] finds the hops of one flow, and
//! [`plpmtud`] searches the path MTU with acknowledged probes only (RFC 8899). [`probe`] defines its probes on a
//! session's datagram stream. [`extension`] reads extensions of ICMP messages. Sockets, clocks and the kernel's ICMP
//! errors are in [`crate::path`]. [`lfn_results::path_report`] has the results.

pub mod extension;
pub mod plpmtud;
pub mod probe;
pub mod traceroute;
