//! The client's end: a session for path MTUs, traces beside it, and what both amount to.
//!
//! What cannot be done is a trouble of the report and no error: a firewall that drops UDP takes the path MTU away, and the
//! trace by TCP stands. Only a server that cannot be reached at all ends it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use lfn_core::discover::report::{MtuReport, PathReport, Protocol, Trace, TraceEnd};
use lfn_core::discover::traceroute::Settings;
use lfn_core::tcp_info::TcpInfo;
use lfn_core::wire::Request;
use lfn_core::wire::path::{PathReady, PathRequest};
use lfn_sys::{names, tcp};

use super::trace::{Tracing, UDP_PORT, trace};
use super::{interface_mtu, mtu, server};
use crate::session::SessionError;
use crate::session::datagram::PATH;
use crate::session::dial::{self, Line, Target};
use crate::session::queue::{self, Entered};

/// How long the stream of datagrams may take to open.
const STREAM_WITHIN: Duration = Duration::from_secs(5);

/// The two ends of a path, as the control connection has them.
#[derive(Clone, Copy, Debug)]
struct Ends {
    near: SocketAddr,
    far: SocketAddr,
    rtt: Duration,
}

/// Looks at the path to a server, both ways as far as the server helps. With `names`, addresses of hops are looked up.
pub fn discover(target: &Target, names: bool) -> Result<PathReport, SessionError> {
    let line = Line::connect(target)?;
    let ends = ends(&line)?;
    let mut report = PathReport::default();
    thread::scope(|scope| {
        let tracing = scope.spawn(|| traces(ends));
        match mtus(target, line, ends) {
            Ok(mtu) => report.mtu = mtu,
            Err(error) => {
                report.mtu.near_interface_mtu_bytes = interface_mtu(ends.near.ip());
                report.troubles.push(format!("no path MTU: {error}"));
            }
        }
        // A thread that panicked has said so already.
        if let Ok((traces, troubles)) = tracing.join() {
            report.traces = traces;
            report.troubles.extend(troubles);
        }
    });
    if names {
        look_up(&mut report.traces);
    }
    Ok(report)
}

/// Looks at the path to a host without its help: hops by UDP, and no path MTU. Its service is left alone, because what
/// takes every connection for a client would lose one by a trace.
pub fn discover_alone(to: IpAddr, names: bool) -> PathReport {
    let from = local_address(to);
    let mut report = PathReport::default();
    report.mtu.near_interface_mtu_bytes = from.and_then(interface_mtu);
    report.troubles.push("no path MTU: only an lfn serve acknowledges the probes".into());
    report.troubles.push("no trace by TCP: an iperf3 server takes each connection for a client".into());
    let most_hops = Settings::default().most_hops;
    let to = SocketAddr::new(to, UDP_PORT);
    match trace(&Tracing { protocol: Protocol::Udp, to, from, rtt: Duration::ZERO, most_hops }) {
        Ok(trace) => report.traces.push(trace),
        Err(error) => report.troubles.push(error.to_string()),
    }
    if names {
        look_up(&mut report.traces);
    }
    report
}

/// This host's address on the way there, as the routes have it.
fn local_address(to: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((to, UDP_PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn ends(line: &Line) -> Result<Ends, SessionError> {
    let failed = |source| SessionError::Io { peer: "the server", source };
    let socket = line.socket();
    let info = tcp::info(socket).ok().and_then(|bytes| TcpInfo::parse(&bytes).ok()).unwrap_or_default();
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    Ok(Ends {
        near: plain(socket.local_addr().map_err(failed)?),
        far: plain(socket.peer_addr().map_err(failed)?),
        rtt: info.min_rtt.unwrap_or(info.rtt),
    })
}

/// Path MTUs of both directions, in a session of its own.
fn mtus(target: &Target, line: Line, ends: Ends) -> Result<MtuReport, SessionError> {
    let mut session = dial::new_session_id()?;
    let mut control = line.control(target, session, Request::Path(PathRequest::default()))?;
    if let Entered::After(turn) = queue::enter(&mut control, &target.patience, target.within, None, || ())? {
        session = turn;
    }
    let ready: PathReady = control.recv(target.within, "before the path probes")?;
    let stream = dial::datagrams(target, control.socket(), session, PATH, STREAM_WITHIN)?;
    let (near, far) = (interface_mtu(ends.near.ip()), ready.interface_mtu_bytes);
    let failed = |source| SessionError::Io { peer: "the server", source };
    let found = mtu::search(&server::port(&stream), near, far, ends.rtt).map_err(failed)?;
    control.close();
    Ok(MtuReport {
        near_interface_mtu_bytes: near,
        far_interface_mtu_bytes: far,
        forward: found.forward,
        reverse: found.reverse,
        told: found.told,
        near_tcp_pmtu_bytes: None,
        far_tcp_pmtu_bytes: None,
    })
}

/// By TCP, then by UDP: one after the other, because routers answer only so many probes in a second.
fn traces(ends: Ends) -> (Vec<Trace>, Vec<String>) {
    let (mut traces, mut troubles) = (Vec::new(), Vec::new());
    let most_hops = Settings::default().most_hops;
    let from = Some(ends.near.ip());
    let by_tcp = Tracing { protocol: Protocol::Tcp, to: ends.far, from, rtt: ends.rtt, most_hops };
    let tcp = trace(&by_tcp);
    // Where TCP arrived there is nothing further to ask.
    let distance = tcp.as_ref().ok().filter(|trace| trace.end == TraceEnd::Reached).map(|trace| trace.hops.len());
    let most_hops = distance.and_then(|hops| u8::try_from(hops).ok()).unwrap_or(most_hops);
    let to = SocketAddr::new(ends.far.ip(), UDP_PORT);
    let by_udp = Tracing { protocol: Protocol::Udp, to, most_hops, ..by_tcp };
    for result in [tcp, trace(&by_udp)] {
        match result {
            Ok(trace) => traces.push(trace),
            Err(error) => troubles.push(error.to_string()),
        }
    }
    (traces, troubles)
}

/// Names of all addresses; a resolver that does not answer costs its time once an address.
fn look_up(traces: &mut [Trace]) {
    let mut known: Vec<(IpAddr, Option<String>)> = Vec::new();
    for node in traces.iter_mut().flat_map(|trace| &mut trace.hops).flat_map(|hop| &mut hop.nodes) {
        let found = known.iter().find(|(address, _)| *address == node.address).map(|(_, name)| name.clone());
        node.name = found.unwrap_or_else(|| {
            let name = names::name_of(node.address);
            known.push((node.address, name.clone()));
            name
        });
    }
}
