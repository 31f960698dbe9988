//! Socket options of a test's streams, as iperf3's parameters define them for both ends.

use std::io;
use std::os::fd::AsFd;

use lfn_results::iperf3_report::LoadProtocol;
use lfn_sys::tcp;
use socket2::SockRef;

use super::Error;
use super::control::option;
use crate::proto::iperf3::Parameters;

/// Behaviour if the kernel does not have the requested congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnknownCongestion {
    /// Report an error: the user of this end requested it.
    Fails,
    /// Keep the kernel's default, as stock servers do.
    KeepsDefault,
}

/// Sets the options on a socket before it connects, or on an accepted socket.
pub(super) fn apply(socket: impl AsFd, parameters: &Parameters, unknown: UnknownCongestion) -> Result<(), Error> {
    let socket = socket.as_fd();
    if let Some(window) = parameters.window {
        set_buffers(socket, window.0)?;
    }
    if let Some(tos) = parameters.tos {
        set_type_of_service(socket, tos.into()).map_err(option(format!("type of service {tos}")))?;
    }
    if let Some(rate) = parameters.pacing {
        tcp::set_pacing(socket, rate.0).map_err(option(format!("pacing of {rate}")))?;
    }
    if parameters.protocol == LoadProtocol::Udp {
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
            Err(error) if unknown == UnknownCongestion::KeepsDefault && error.kind() == io::ErrorKind::NotFound => {}
            set => set.map_err(option(format!("congestion control '{name}'")))?,
        }
    }
    Ok(())
}

/// Sets both buffers, as stock servers and clients do. The kernel may silently grant less, which is an error in iperf3
/// and here.
fn set_buffers(socket: impl AsFd, bytes: u64) -> Result<(), Error> {
    let socket = socket.as_fd();
    let what = || format!("socket buffers of {bytes} B");
    tcp::set_send_buffer(socket, bytes).map_err(option(what()))?;
    tcp::set_receive_buffer(socket, bytes).map_err(option(what()))?;
    let granted = || Ok(tcp::send_buffer(socket)?.min(tcp::receive_buffer(socket)?));
    // The kernel reports twice the granted size; iperf3 compares with this figure.
    if granted().map_err(option(what()))? * 2 < bytes {
        let text = "the kernel grants less; raise net.core.rmem_max and net.core.wmem_max";
        return Err(option(what())(io::Error::other(text)));
    }
    Ok(())
}

/// Sets the type of service for IPv4, and for IPv6 on an IPv6 socket; a dual-stack socket needs both.
fn set_type_of_service(socket: impl AsFd, tos: u32) -> io::Result<()> {
    let socket = SockRef::from(&socket);
    if socket.local_addr()?.is_ipv6() {
        // Packets to IPv4 addresses use the IPv4 option.
        let _ = socket.set_tos_v4(tos);
        return socket.set_tclass_v6(tos);
    }
    socket.set_tos_v4(tos)
}
