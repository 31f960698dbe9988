//! Path discovery: hops by traceroute, path MTUs by probes, and the ICMP messages received meanwhile.
//!
//! `trace` probes the routers with unprivileged sockets. It reads ICMP messages from the error queues of the sockets
//! (`IP_RECVERR`). `mtu` runs the search of `crate::proto::discover::plpmtud` over a datagram stream to an `lfn serve`,
//! in both directions. `client` runs both in a separate session before any load. `server` is the other end.

mod client;
mod mtu;
mod server;
mod trace;

pub use client::{MtuTimeLimits, discover, discover_alone, search_mtus};
pub use server::serve;
pub use trace::{TraceError, TraceOptions, trace};

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_session::clock::now;
use lfn_sys::clock;
use lfn_sys::message::Message;
use lfn_sys::netlink::Netlink;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Returns the kernel's receive time of a message on the monotonic clock, or the current time if it is missing or
/// implausible.
fn arrival(message: &Message) -> Instant {
    let now = now();
    let wall = clock::since_1970();
    let age = message.timestamp.and_then(|stamp| wall.checked_sub(stamp)).unwrap_or_default();
    // The wall clock was set meanwhile if the difference is large.
    if age < Duration::from_secs(1) { now.before(age) } else { now }
}

/// Waits until the socket is ready or has a queued error, or until the given time.
fn wait(socket: BorrowedFd<'_>, flags: PollFlags, until: Instant) -> io::Result<()> {
    let remaining = clock::early_timeout(until.saturating_since(now()));
    let timeout = Timespec {
        tv_sec: i64::try_from(remaining.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(remaining.subsec_nanos()),
    };
    match poll(&mut [PollFd::from_borrowed_fd(socket, flags)], Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the MTU of the interface with this local address, if it is known.
fn interface_mtu(address: IpAddr) -> Option<u32> {
    Netlink::open().and_then(|mut netlink| netlink.mtu_of(address.to_canonical())).ok().flatten()
}
