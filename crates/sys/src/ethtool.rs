//! What `ethtool(8)` asks a network driver, as far as an emulator has to know it.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketType, socket};

/// `ETHTOOL_GFLAGS` of `linux/ethtool.h`.
const GET_FLAGS: u32 = 0x25;
/// `ETH_FLAG_LRO`.
const LARGE_RECEIVE_OFFLOAD: u32 = 1 << 15;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Whether the interface merges received packets in a way that cannot be undone (`large-receive-offload`); the other
/// way, GRO, can.
pub fn merges_received(interface: &str) -> io::Result<bool> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut value = Value { command: GET_FLAGS, data: 0 };
    // SAFETY: ifreq is plain data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().take(room).zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names an interface and points to a live ethtool_value, which this command reads and fills.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value.data & LARGE_RECEIVE_OFFLOAD != 0)
}
