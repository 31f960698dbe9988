//! The path to a host looked at: hops by traceroute, path MTUs by probes, what ICMP told meanwhile.
//!
//! `trace` asks the routers, with sockets any user may open: ICMP answers are taken from the sockets' error queues
//! (`IP_RECVERR`). `mtu` drives the search of `lfn_core::discover::plpmtud` over a datagram socket to an `lfn serve`, in
//! both directions; `client` does all of it in a session of its own, before any load, and `server` is the other end.

mod client;
mod mtu;
mod server;
mod trace;

pub use client::{discover, discover_alone};
pub(crate) use server::{LONGEST, serve};
pub use trace::{TraceError, Tracing, trace};

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use lfn_core::time::Instant;
use lfn_sys::clock;
use lfn_sys::message::Message;
use lfn_sys::netlink::Netlink;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The monotonic clock as the machines of the core count it.
fn now() -> Instant {
    Instant::from_nanos(clock::monotonic_nanos())
}

/// When the kernel got a message, by the monotonic clock; now, where it did not say or cannot be right.
fn arrival(message: &Message) -> Instant {
    let now = now();
    let wall = Duration::from_nanos(clock::wall_nanos());
    let ago = message.stamp.and_then(|stamp| wall.checked_sub(stamp)).unwrap_or_default();
    // A clock that was set meanwhile.
    if ago < Duration::from_secs(1) { now.before(ago) } else { now }
}

/// Waits until something can be done with the socket, or an error is queued at it, at most until then.
fn wait(socket: BorrowedFd<'_>, flags: PollFlags, until: Instant) -> io::Result<()> {
    let left = clock::most_of(until.saturating_since(now()));
    let timeout =
        Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(left.subsec_nanos()) };
    match poll(&mut [PollFd::from_borrowed_fd(socket, flags)], Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// MTU of the interface that has this address of this host, if it can be told.
fn interface_mtu(address: IpAddr) -> Option<u32> {
    Netlink::open().and_then(|mut netlink| netlink.mtu_of(address.to_canonical())).ok().flatten()
}
