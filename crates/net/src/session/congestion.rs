//! The congestion control of a sender's socket, asked for by the user or preferred by the plan.

use std::io;
use std::os::fd::AsFd;

use lfn_core::wire::CongestionWish;
use lfn_sys::tcp;

/// Sets it (`TCP_CONGESTION`). One that is only preferred may fail: the kernel's own stays.
///
/// An ordinary user gets those of `net.ipv4.tcp_allowed_congestion_control`, root of the network namespace any.
pub fn set(socket: impl AsFd, wish: &CongestionWish) -> io::Result<()> {
    let set = tcp::set_congestion(socket.as_fd(), wish.name());
    if wish.asked().is_none() { Ok(()) } else { set }
}
