//! Options of a sender's socket: its congestion control and its pacing rate.

use std::io;
use std::os::fd::AsFd;

use lfn_base::congestion_request::CongestionRequest;
use lfn_base::units::BitRate;
use lfn_sys::tcp;

/// Sets the congestion control (`TCP_CONGESTION`). A preferred one may fail; the kernel's default then stays.
///
/// An ordinary user can use those in `net.ipv4.tcp_allowed_congestion_control`; root of the network namespace can use
/// any.
pub fn set_congestion_control(socket: impl AsFd, request: &CongestionRequest) -> io::Result<()> {
    let set = tcp::set_congestion(socket.as_fd(), request.name());
    if request.requested().is_none() { Ok(()) } else { set }
}

/// Sets the pacing rate (`SO_MAX_PACING_RATE`), if there is one: many streams may share a path of known capacity.
pub fn set_pacing_rate(socket: impl AsFd, rate: Option<BitRate>) -> io::Result<()> {
    rate.map_or(Ok(()), |rate| tcp::set_pacing(socket, rate.0))
}
