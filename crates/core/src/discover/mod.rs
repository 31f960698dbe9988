//! What lies between two hosts: the routers on the way, and the largest packet that gets through in each direction.
//!
//! Pure machines that say what to send next and take what came back: [`traceroute`] counts hops along one flow,
//! [`plpmtud`] searches the path MTU by acknowledged probes alone (RFC 8899), [`probe`] is what its probes look like on
//! a session's datagram stream, [`extension`] reads what routers add to their ICMP messages. Sockets, clocks and ICMP as
//! the kernel tells it are in `lfn-net`; [`report`] is what becomes of it all.

pub mod extension;
pub mod plpmtud;
pub mod probe;
pub mod report;
pub mod traceroute;
