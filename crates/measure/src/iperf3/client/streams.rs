//! Client's end of the streams. The streams are opened one after the other, because the server numbers them in order of
//! arrival.

use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use lfn_results::iperf3_report::LoadProtocol;
use lfn_results::measure::value_for_stream;
use lfn_session::SessionError;
use lfn_session::dial::BindAddress;
use lfn_session::transport::tcp::{TcpConnection, TcpSocket};
use lfn_session::transport::{Stream, is_timeout};
use socket2::{Domain, Protocol, Type};

use super::settings::IperfTest;
use crate::iperf3::Error;
use crate::iperf3::control::option;
use crate::iperf3::options::{self, UnknownCongestion};
use crate::iperf3::stream::OpenStream;
use crate::proto::iperf3::{Cookie, Parameters, datagram, stream_id};

/// Maximum datagrams of a reverse test's load that may arrive before the reply.
const MAX_EARLY_DATAGRAMS: u32 = 1000;

pub(super) fn open(
    address: SocketAddr,
    cookie: &Cookie,
    parameters: &Parameters,
    test: &IperfTest,
) -> Result<Vec<OpenStream>, Error> {
    let mut streams = Vec::new();
    for (number, (id, sends)) in (0..).zip(stream_directions(parameters)) {
        let failed = |source| Error::Stream { id: id.into(), source };
        let from = value_for_stream(&test.bind_addresses, number);
        streams.push(match parameters.protocol {
            LoadProtocol::Tcp => {
                OpenStream::tcp(id, sends, tcp(address, cookie, parameters, from, test.step_timeout, failed)?)
            }
            LoadProtocol::Udp => OpenStream::udp(id, sends, udp(address, parameters, from, test.step_timeout, failed)?),
        });
    }
    Ok(streams)
}

fn tcp(
    address: SocketAddr,
    cookie: &Cookie,
    parameters: &Parameters,
    from: Option<&BindAddress>,
    timeout: Duration,
    failed: impl Fn(io::Error) -> Error,
) -> Result<TcpSocket, Error> {
    let protocol = parameters.mptcp.then_some(Protocol::MPTCP);
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, protocol);
    let socket = socket.map_err(option("a data stream"))?;
    bind(&socket, from)?;
    options::apply(&socket, parameters, UnknownCongestion::Fails)?;
    let connected = TcpConnection::connect_socket(socket, address, timeout);
    let mut socket = connected.and_then(TcpConnection::into_socket).map_err(&failed)?;
    // The load loops have their own time-outs, and Nagle's algorithm is an option of the user.
    socket.set_write_timeout(None).and_then(|()| socket.set_no_delay(parameters.no_delay)).map_err(&failed)?;
    socket.write_all(cookie.wire()).map_err(&failed)?;
    // The route's congestion control replaces the algorithm that was set before the connect.
    if parameters.congestion.is_some() {
        let again = Parameters { congestion: parameters.congestion.clone(), ..Parameters::default() };
        options::apply(&socket, &again, UnknownCongestion::Fails)?;
    }
    Ok(socket)
}

fn udp(
    address: SocketAddr,
    parameters: &Parameters,
    from: Option<&BindAddress>,
    timeout: Duration,
    failed: impl Fn(io::Error) -> Error,
) -> Result<UdpSocket, Error> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::DGRAM, None).map_err(&failed)?;
    bind(&socket, from)?;
    let socket = UdpSocket::from(socket);
    options::apply(&socket, parameters, UnknownCongestion::Fails)?;
    socket.connect(address).map_err(&failed)?;
    // The request is sent once, because a server counts a second one as load.
    socket.send(&datagram::CONNECT).map_err(&failed)?;
    let deadline = Instant::now() + timeout;
    let mut buffer = [0; 64];
    for _ in 0..MAX_EARLY_DATAGRAMS {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        socket.set_read_timeout(Some(left)).map_err(&failed)?;
        match socket.recv(&mut buffer) {
            Ok(length) if datagram::is_reply(&buffer[..length]) => return Ok(socket),
            Ok(_) => {}
            Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let step = "to the request for a datagram stream (lost, or blocked by a firewall)";
    Err(Error::Timeout { peer: "the iperf3 server", after: timeout, step })
}

/// Binds a socket to its source address.
pub(super) fn bind(socket: &socket2::Socket, from: Option<&BindAddress>) -> Result<(), Error> {
    let Some(from) = from else { return Ok(()) };
    from.bind(socket).map_err(|error| match error {
        SessionError::Bind { place, source } => Error::Option { option: format!("connecting from {place}"), source },
        other => Error::Option { option: "binding the source address".into(), source: io::Error::other(other) },
    })
}

/// Returns the id of each stream, and whether this end sends on it.
fn stream_directions(parameters: &Parameters) -> Vec<(u16, bool)> {
    let (reverse, forward) = parameters.server_streams();
    // The streams on which this end sends come first.
    (0..usize::from(forward + reverse)).map(|index| (stream_id(index), index < usize::from(forward))).collect()
}
