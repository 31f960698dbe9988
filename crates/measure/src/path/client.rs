//! Client of the path probes: a session that measures path MTUs, traces in parallel, and the report of both.
//!
//! A failed measurement is an entry in the report and not an error. For example, a firewall that drops UDP prevents the
//! path MTU, but not the trace with TCP. Only an unreachable server is an error.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use lfn_results::path_report::{MtuReport, PathReport, RouteTrace, TraceEnd, TraceProtocol};
use lfn_session::datagram::PATH_STREAM;
use lfn_session::dial::{self, ServerConnection, Target};
use lfn_session::wire::Request;
use lfn_session::wire::path::{PathReady, PathRequest};
use lfn_session::{SessionError, queue};
use lfn_sys::names;

use super::trace::{TraceOptions, UDP_PORT, trace};
use super::{interface_mtu, mtu, server};
use crate::proto::discover::traceroute::TracerouteSettings;

/// Time limits of the search of the path MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MtuTimeLimits {
    /// Maximum time to open the datagram stream. Without an answer over UDP, there is no search.
    pub open: Duration,
    /// Maximum duration of the search.
    pub search: Duration,
}

impl Default for MtuTimeLimits {
    fn default() -> Self {
        MtuTimeLimits { open: Duration::from_secs(5), search: Duration::from_secs(20) }
    }
}

/// The two ends of a path, as the control connection sees them.
#[derive(Clone, Copy, Debug)]
struct Endpoints {
    near: SocketAddr,
    far: SocketAddr,
    rtt: Duration,
}

/// Searches the path MTU of both directions.
pub fn search_mtus(target: &Target, limits: MtuTimeLimits) -> Result<MtuReport, SessionError> {
    let connection = ServerConnection::connect(target)?;
    let endpoints = endpoints(&connection)?;
    measure_mtus(target, connection, endpoints, limits)
}

/// Measures the path to a server, in both directions if the server supports this. Looks up the names of the hops
/// `with_names`.
pub fn discover(target: &Target, with_names: bool) -> Result<PathReport, SessionError> {
    let connection = ServerConnection::connect(target)?;
    let endpoints = endpoints(&connection)?;
    let mut report = PathReport::default();
    thread::scope(|scope| {
        let tracing = scope.spawn(|| run_traces(endpoints));
        match measure_mtus(target, connection, endpoints, MtuTimeLimits::default()) {
            Ok(mtu) => report.mtu = mtu,
            Err(error) => {
                report.mtu.near_interface_mtu_bytes = interface_mtu(endpoints.near.ip());
                report.errors.push(format!("no path MTU: {error}"));
            }
        }
        // A panic of the thread has already been reported on stderr.
        if let Ok((traces, errors)) = tracing.join() {
            report.traces = traces;
            report.errors.extend(errors);
        }
    });
    if with_names {
        resolve_names(&mut report.traces);
    }
    Ok(report)
}

/// Measures the path to a host without its help: traces with UDP, and no path MTU. No TCP trace is sent, because an
/// iperf3 server would accept it as its client.
pub fn discover_alone(to: IpAddr, with_names: bool) -> PathReport {
    let from = local_address(to);
    let mut report = PathReport::default();
    report.mtu.near_interface_mtu_bytes = from.and_then(interface_mtu);
    report.errors.push("no path MTU: only an lfn serve acknowledges the probes".into());
    report.errors.push("no trace by TCP: an iperf3 server takes each connection for a client".into());
    let max_hops = TracerouteSettings::default().max_hops;
    let to = SocketAddr::new(to, UDP_PORT);
    match trace(&TraceOptions { protocol: TraceProtocol::Udp, to, from, rtt: Duration::ZERO, max_hops }) {
        Ok(trace) => report.traces.push(trace),
        Err(error) => report.errors.push(error.to_string()),
    }
    if with_names {
        resolve_names(&mut report.traces);
    }
    report
}

/// Returns the local address that the kernel uses for this destination.
fn local_address(to: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((to, UDP_PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn endpoints(connection: &ServerConnection) -> Result<Endpoints, SessionError> {
    let failed = |source| SessionError::Io { peer: "the server", source };
    let handle = connection.handle();
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    Ok(Endpoints {
        near: canonical(handle.local_address().map_err(failed)?),
        far: canonical(handle.peer_address().map_err(failed)?),
        rtt: handle.min_rtt(),
    })
}

/// Measures path MTUs of both directions in a separate session.
fn measure_mtus(
    target: &Target,
    connection: ServerConnection,
    endpoints: Endpoints,
    limits: MtuTimeLimits,
) -> Result<MtuReport, SessionError> {
    let mut session = dial::new_session_id()?;
    let mut control = connection.open_control(target, session, Request::Path(PathRequest::default()))?;
    if let Some(turn) = queue::wait_for_admission(&mut control, &target.queue, target.connect_timeout, None, || ())? {
        session = turn;
    }
    let ready: PathReady = control.recv(target.connect_timeout, "before the path probes")?;
    let stream = dial::open_datagrams(target, &**control.handle(), session, PATH_STREAM, limits.open)?;
    let (near, far) = (interface_mtu(endpoints.near.ip()), ready.interface_mtu_bytes);
    let failed = |source| SessionError::Io { peer: "the server", source };
    let found = mtu::search(&server::probe_socket(&stream), near, far, endpoints.rtt, limits.search).map_err(failed)?;
    control.close();
    Ok(MtuReport {
        near_interface_mtu_bytes: near,
        far_interface_mtu_bytes: far,
        forward: found.forward,
        reverse: found.reverse,
        icmp_too_big: found.packet_too_big,
        near_tcp_pmtu_bytes: None,
        far_tcp_pmtu_bytes: None,
    })
}

/// Traces with TCP and then with UDP. Both at once would exceed the ICMP rate limit of routers.
fn run_traces(endpoints: Endpoints) -> (Vec<RouteTrace>, Vec<String>) {
    let (mut traces, mut errors) = (Vec::new(), Vec::new());
    let max_hops = TracerouteSettings::default().max_hops;
    let from = Some(endpoints.near.ip());
    let by_tcp = TraceOptions { protocol: TraceProtocol::Tcp, to: endpoints.far, from, rtt: endpoints.rtt, max_hops };
    let tcp = trace(&by_tcp);
    // If TCP reached the destination, its distance limits the UDP trace.
    let distance = tcp.as_ref().ok().filter(|trace| trace.end == TraceEnd::Reached).map(|trace| trace.hops.len());
    let max_hops = distance.and_then(|hops| u8::try_from(hops).ok()).unwrap_or(max_hops);
    let to = SocketAddr::new(endpoints.far.ip(), UDP_PORT);
    let by_udp = TraceOptions { protocol: TraceProtocol::Udp, to, max_hops, ..by_tcp };
    for result in [tcp, trace(&by_udp)] {
        match result {
            Ok(trace) => traces.push(trace),
            Err(error) => errors.push(error.to_string()),
        }
    }
    (traces, errors)
}

/// Looks up the names of all addresses. Each address costs at most one resolver time-out.
fn resolve_names(traces: &mut [RouteTrace]) {
    let mut known: Vec<(IpAddr, Option<String>)> = Vec::new();
    for node in traces.iter_mut().flat_map(|trace| &mut trace.hops).flat_map(|hop| &mut hop.nodes) {
        let found = known.iter().find(|(address, _)| *address == node.address).map(|(_, name)| name.clone());
        node.name = found.unwrap_or_else(|| {
            let name = names::reverse_lookup(node.address);
            known.push((node.address, name.clone()));
            name
        });
    }
}
