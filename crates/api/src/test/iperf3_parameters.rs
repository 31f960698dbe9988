//! The options of a test as parameters of iperf3's protocol.

use std::time::Duration;

use lfn_base::units::Bytes;
use lfn_measure::proto::iperf3::parameters::{MAX_BLOCK, MAX_STREAMS};
use lfn_measure::proto::iperf3::{DEFAULT_PORT, Parameters, TestEnd};
use lfn_results::iperf3_report::LoadProtocol;
use lfn_results::measure::{Dscp, Mode, PayloadData, SocketRequest, TestLoad};
use lfn_session::split_host_port;

use super::option_error::{Iperf3Limit, TestOptionsError};
use super::options::{Iperf3Options, TestOptions};

/// iperf3's default on Ethernet: fits an MTU of 1500 bytes with any headers.
const DEFAULT_DATAGRAM: Bytes = Bytes(1448);

/// Address of an iperf3 server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Iperf3Address {
    pub(super) host: String,
    pub(super) port: u16,
}

/// Converts the options to iperf3's parameters. Refuses options that the protocol does not support.
pub(super) fn parameters(options: &TestOptions, iperf3: &Iperf3Options) -> Result<Parameters, TestOptionsError> {
    let request = &options.request;
    let socket = &request.socket;
    let near = &options.near_socket;
    let unsupported = |limit| Err(TestOptionsError::Iperf3(limit));
    if request.streams > MAX_STREAMS {
        return unsupported(Iperf3Limit::Streams(request.streams));
    }
    let window = window(socket, near)?;
    if options.target_precision.is_some() {
        return unsupported(Iperf3Limit::Precision);
    }
    if request.modes.near != request.modes.far {
        return unsupported(Iperf3Limit::NoCopyAtOneEnd);
    }
    if socket.congestion.len() > 1 || socket.pacing.len() > 1 {
        return unsupported(Iperf3Limit::OptionsPerStream);
    }
    if request.check || request.blocks || request.data != PayloadData::default() {
        return unsupported(Iperf3Limit::Payload);
    }
    if request.latency.is_some() || request.udp.as_ref().is_some_and(|udp| udp.ramp.is_some() || udp.fragment) {
        return unsupported(Iperf3Limit::Probes);
    }
    if request.lockstep {
        return unsupported(Iperf3Limit::Lockstep);
    }
    let no_copy = request.modes.near == Mode::NoCopy;
    if request.record.0 > MAX_BLOCK {
        return unsupported(Iperf3Limit::Record(request.record));
    }
    let omit = options.omit.unwrap_or_default();
    let end = match request.load {
        TestLoad::TimeSeconds(time) => TestEnd::Time(time - omit.min(time)),
        TestLoad::Records(count) => TestEnd::Bytes(count.saturating_mul(request.record.0)),
        TestLoad::Bytes(bytes) => TestEnd::Bytes(bytes.0),
    };
    let fractional = |time: Duration| time.subsec_nanos() != 0;
    if fractional(omit) || matches!(end, TestEnd::Time(time) if fractional(time)) {
        return unsupported(Iperf3Limit::FractionalTime);
    }
    Ok(Parameters {
        protocol: if request.udp.is_some() { LoadProtocol::Udp } else { LoadProtocol::Tcp },
        end,
        omit,
        streams: request.streams,
        length: match &request.udp {
            Some(udp) => udp.datagram_bytes.map_or(DEFAULT_DATAGRAM, |bytes| Bytes(bytes.into())),
            None => request.record,
        },
        window,
        congestion: socket.congestion.first().and_then(|wish| wish.requested()).map(str::to_owned),
        rate: request.udp.as_ref().map(|udp| udp.rate).or(socket.pacing.first().copied()),
        // As in lfn, the kernel paces TCP (`--fq-rate`). iperf3 3.12 as the sender only supports the rate above.
        pacing: socket.pacing.first().copied().filter(|_| request.udp.is_none()),
        mss: near.mss.and_then(|mss| u16::try_from(mss.0).ok()),
        tos: socket.dscp.map(Dscp::tos),
        mptcp: socket.mptcp,
        zero_copy: no_copy,
        skip_copy: no_copy,
        server_output: iperf3.server_output,
        version: Some(concat!("lfn ", env!("CARGO_PKG_VERSION")).to_owned()),
        ..Parameters::default()
    })
}

/// Returns iperf3's single buffer size, for both buffers of both ends.
fn window(far: &SocketRequest, near: &SocketRequest) -> Result<Option<Bytes>, TestOptionsError> {
    let requested = [far.sndbuf, far.rcvbuf, far.window, near.sndbuf, near.rcvbuf, near.window];
    let mut sizes = requested.into_iter().flatten();
    let first = sizes.next();
    if (far.sndbuf, far.rcvbuf, far.window) != (near.sndbuf, near.rcvbuf, near.window) {
        return Err(TestOptionsError::Iperf3(Iperf3Limit::BuffersOfOneEnd));
    }
    if sizes.any(|size| Some(size) != first) {
        return Err(TestOptionsError::Iperf3(Iperf3Limit::DifferentBuffers));
    }
    Ok(first)
}

/// Parses `HOST`, `HOST:PORT`, `[V6]:PORT` or an IPv6 address without brackets.
pub(super) fn host_and_port(text: &str) -> Result<Iperf3Address, TestOptionsError> {
    let (host, port) = split_host_port(text).map_err(|_| TestOptionsError::Iperf3Server(text.to_owned()))?;
    Ok(Iperf3Address { host, port: port.unwrap_or(DEFAULT_PORT) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn server_name_with_and_without_port() {
        let cases = [
            ("far", "far", 5201),
            ("far:5300", "far", 5300),
            ("::1", "::1", 5201),
            ("[::1]", "::1", 5201),
            ("[::1]:5300", "::1", 5300),
        ];
        for (text, host, port) in cases {
            assert_eq!(host_and_port(text).unwrap(), Iperf3Address { host: host.to_owned(), port }, "{text}");
        }
        for text in ["", ":5201", "far:", "far:x", "far:0", "far:65536", "[::1]x", "[]:5"] {
            assert!(host_and_port(text).is_err(), "{text}");
        }
    }
}
