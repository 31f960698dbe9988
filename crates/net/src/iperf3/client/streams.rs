//! The client's end of streams: dialled one after the other, because the server numbers them as they come.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_core::iperf3::{Cookie, Parameters, Protocol, datagram};
use lfn_core::wire::test::of_stream;
use socket2::{Domain, Protocol as Transport, Type};

use super::{Test, bind, numbered};
use crate::iperf3::Error;
use crate::iperf3::control::option;
use crate::iperf3::flow::{Flow, Load, Socket};
use crate::iperf3::options::{self, Unknown};
use crate::session::dial::{Place, set_liveness};
use crate::session::timed_out;

/// Load datagrams of a reverse test may overtake the answer; more of them than this do not.
const OVERTAKEN: u32 = 1000;

pub(super) fn open(
    address: SocketAddr,
    cookie: &Cookie,
    parameters: &Parameters,
    load: &Arc<Load>,
    test: &Test,
) -> Result<Vec<Flow>, Error> {
    let mut flows = Vec::new();
    for (number, (id, sends)) in (0..).zip(numbered(parameters)) {
        let failed = |source| Error::Stream { id, source };
        let from = of_stream(&test.from, number);
        let socket = match parameters.protocol {
            Protocol::Tcp => Socket::Tcp(tcp(address, cookie, parameters, (from, test.within), failed)?),
            Protocol::Udp => Socket::Udp(udp(address, parameters, (from, test.within), failed)?),
        };
        flows.push(Flow::new(id, sends, socket, load.clone()));
    }
    Ok(flows)
}

fn tcp(
    address: SocketAddr,
    cookie: &Cookie,
    parameters: &Parameters,
    (from, within): (Option<&Place>, Duration),
    failed: impl Fn(io::Error) -> Error,
) -> Result<TcpStream, Error> {
    let transport = parameters.mptcp.then_some(Transport::MPTCP);
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, transport);
    let socket = socket.map_err(option("a data stream"))?;
    bind(&socket, from)?;
    options::apply(&socket, parameters, Unknown::Fails)?;
    socket.connect_timeout(&address.into(), within).map_err(&failed)?;
    let mut socket = TcpStream::from(socket);
    set_liveness(&socket).map_err(&failed)?;
    // Those loops decide themselves when enough is enough, and Nagle is the user's to choose.
    socket.set_write_timeout(None).and_then(|()| socket.set_nodelay(parameters.no_delay)).map_err(&failed)?;
    socket.write_all(cookie.wire()).map_err(&failed)?;
    // A route's congestion control overrides what was set before the connect.
    if parameters.congestion.is_some() {
        let again = Parameters { congestion: parameters.congestion.clone(), ..Parameters::default() };
        options::apply(&socket, &again, Unknown::Fails)?;
    }
    Ok(socket)
}

fn udp(
    address: SocketAddr,
    parameters: &Parameters,
    (from, within): (Option<&Place>, Duration),
    failed: impl Fn(io::Error) -> Error,
) -> Result<UdpSocket, Error> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::DGRAM, None).map_err(&failed)?;
    bind(&socket, from)?;
    let socket = UdpSocket::from(socket);
    options::apply(&socket, parameters, Unknown::Fails)?;
    socket.connect(address).map_err(&failed)?;
    // Asked once: a server counts a second request as load.
    socket.send(&datagram::CONNECT).map_err(&failed)?;
    let deadline = Instant::now() + within;
    let mut buffer = [0; 64];
    for _ in 0..OVERTAKEN {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        socket.set_read_timeout(Some(left)).map_err(&failed)?;
        match socket.recv(&mut buffer) {
            Ok(length) if datagram::is_reply(&buffer[..length]) => return Ok(socket),
            Ok(_) => {}
            Err(error) if timed_out(&error) || error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let doing = "when a stream of datagrams was asked for: lost, or a firewall is in between";
    Err(Error::Timeout { peer: "the iperf3 server", after: within, doing })
}
