//! Congestion control of a sender's socket, as the user requests or the plan prefers.

use std::io;
use std::os::fd::AsFd;

use lfn_base::congestion_request::CongestionRequest;
use lfn_sys::tcp;

/// Sets the congestion control (`TCP_CONGESTION`). A preferred one may fail; the kernel's default then stays.
///
/// An ordinary user can use those in `net.ipv4.tcp_allowed_congestion_control`; root of the network namespace can use
/// any.
pub fn set(socket: impl AsFd, request: &CongestionRequest) -> io::Result<()> {
    let set = tcp::set_congestion(socket.as_fd(), request.name());
    if request.requested().is_none() { Ok(()) } else { set }
}
