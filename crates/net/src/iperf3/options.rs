//! Socket options of a test's streams, as iperf3's parameters ask for them at both ends.

use std::io;
use std::os::fd::AsFd;

use lfn_core::iperf3::{Parameters, Protocol};
use lfn_sys::tcp;
use socket2::SockRef;

use super::Error;
use super::control::option;

/// What to do about a congestion control this kernel has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// Say so: the user at this end asked for it.
    Fails,
    /// Keep the kernel's own, as stock servers do.
    KeepsDefault,
}

/// Sets them on a socket before it connects, or on one that was accepted.
pub(super) fn apply(socket: impl AsFd, parameters: &Parameters, unknown: Unknown) -> Result<(), Error> {
    let socket = socket.as_fd();
    if let Some(window) = parameters.window {
        buffers(socket, window.0)?;
    }
    if let Some(tos) = parameters.tos {
        type_of_service(socket, tos.into()).map_err(option(format!("type of service {tos}")))?;
    }
    if let Some(rate) = parameters.pacing {
        tcp::set_pacing(socket, rate.0).map_err(option(format!("pacing of {rate}")))?;
    }
    if parameters.protocol == Protocol::Udp {
        return Ok(());
    }
    if parameters.no_delay {
        SockRef::from(&socket).set_tcp_nodelay(true).map_err(option("no delay"))?;
    }
    if let Some(mss) = parameters.mss {
        SockRef::from(&socket).set_tcp_mss(mss.into()).map_err(option(format!("segment size {mss}")))?;
    }
    if let Some(name) = &parameters.congestion {
        match tcp::set_congestion(socket, name) {
            Err(error) if unknown == Unknown::KeepsDefault && error.kind() == io::ErrorKind::NotFound => {}
            set => set.map_err(option(format!("congestion control '{name}'")))?,
        }
    }
    Ok(())
}

/// Both buffers, as stock servers and clients set them. The kernel grants less without a word, which they call an
/// error, and so do we.
fn buffers(socket: impl AsFd, bytes: u64) -> Result<(), Error> {
    let socket = socket.as_fd();
    let what = || format!("socket buffers of {bytes} B");
    tcp::set_send_buffer(socket, bytes).map_err(option(what()))?;
    tcp::set_receive_buffer(socket, bytes).map_err(option(what()))?;
    let granted = || Ok(tcp::send_buffer(socket)?.min(tcp::receive_buffer(socket)?));
    // The kernel says the double of what it granted; iperf3 compares that.
    if granted().map_err(option(what()))? * 2 < bytes {
        let text = "the kernel grants less: see net.core.rmem_max and net.core.wmem_max";
        return Err(option(what())(io::Error::other(text)));
    }
    Ok(())
}

/// Of IPv4, and of IPv6 where the socket speaks that; a dual-stack socket has both.
fn type_of_service(socket: impl AsFd, tos: u32) -> io::Result<()> {
    let socket = SockRef::from(&socket);
    if socket.local_addr()?.is_ipv6() {
        // What goes to an IPv4 address takes the other.
        let _ = socket.set_tos_v4(tos);
        return socket.set_tclass_v6(tos);
    }
    socket.set_tos_v4(tos)
}
