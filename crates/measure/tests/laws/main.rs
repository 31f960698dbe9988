//! Laws of the protocols.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod iperf3_laws;
mod path_laws;
mod stamp_laws;
mod udp_laws;
