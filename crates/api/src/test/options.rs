//! Options of a test, and the checks that need no server.

use std::time::Duration;

use lfn_core::evidence::TypedArgument;
use lfn_core::units::{BitRate, Ratio};
use lfn_core::wire::measure::{
    DEFAULT_READ, MIN_INTERVAL, Modes, PayloadData, SocketRequest, TestDirection, TestLoad, TestRequest,
};
use lfn_net::iperf3::client::Login;
use lfn_net::session::dial::BindAddress;

use super::iperf3_parameters;
use super::option_error::{TcpOption, TestOptionsError};
use super::path::known_paths;
use crate::emulator_env::EmulatorEnvironment;
use crate::hosts::HostError;

/// Slices of an interval in a test with a target precision.
const MAX_SLICES: u16 = 10;

/// Options of a test.
#[derive(Debug, Clone)]
pub struct TestOptions {
    /// Server: a saved name, a ticket, USER@HOST for ssh, or `far` inside an emulation. HOST or HOST:PORT of an iperf3
    /// server if `iperf3` is set.
    pub server: String,
    /// The server is an iperf3 server.
    pub iperf3: Option<Iperf3Options>,
    /// Directions of the tests, which run one after the other.
    pub directions: Vec<TestDirection>,
    /// Run both directions at the same time, each with its own streams.
    pub bidirectional: bool,
    /// Load, streams and socket options of the server.
    pub request: TestRequest,
    /// Socket options of this end.
    pub near_socket: SocketRequest,
    /// Source addresses: stream n uses the nth one. The routing table decides if the list is empty.
    pub bind_addresses: Vec<BindAddress>,
    /// Capacity of the bottleneck, if known; otherwise the figures of the emulator are used.
    pub rate: Option<BitRate>,
    /// Use the socket buffers of the plan for the path, and its congestion control if none is requested.
    pub tuned: bool,
    /// Round the interval up to whole round trips on a long path.
    pub round_to_rtt: bool,
    /// End the load when the 95 % confidence interval of the goodput is within this share of the goodput.
    pub target_precision: Option<Ratio>,
    /// Time at the start that is ignored; `None` detects the start-up.
    pub omit: Option<Duration>,
    /// Discover the hops and the path MTU before the load.
    pub path: Option<PathDiscovery>,
    /// Arguments of the command for the origin of the result, without secrets. An empty list stands for `test` and the
    /// name of the server.
    pub command: Vec<String>,
    /// Flags of the command that repeats the test, for the remedies of findings.
    pub arguments: Vec<TypedArgument>,
}

/// Options of a test with an iperf3 server.
#[derive(Debug, Clone, Default)]
pub struct Iperf3Options {
    /// User name and password, if the server requires them.
    pub login: Option<Login>,
    /// Request the output of the server.
    pub server_output: bool,
}

/// Options of path discovery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathDiscovery {
    /// Resolve the names of the hops.
    pub names: bool,
}

impl TestOptions {
    /// Creates options for a test from this host to the server.
    pub fn new(server: impl Into<String>) -> Self {
        TestOptions {
            server: server.into(),
            iperf3: None,
            directions: vec![TestDirection::Forward],
            bidirectional: false,
            request: TestRequest::default(),
            near_socket: SocketRequest::default(),
            bind_addresses: Vec::new(),
            rate: None,
            tuned: false,
            round_to_rtt: true,
            target_precision: None,
            omit: None,
            path: None,
            command: Vec::new(),
            arguments: Vec::new(),
        }
    }

    /// Refuses options that contradict each other. The environment has the figures of an emulated path.
    pub fn check(&self, environment: &EmulatorEnvironment) -> Result<(), TestOptionsError> {
        self.check_directions()?;
        self.check_sockets()?;
        for check in [self.request(TestDirection::Forward).check(), self.near_socket.check()] {
            check?;
        }
        if let Some(omit) = self.omit
            && matches!(self.request.load, TestLoad::TimeSeconds(time) if omit >= time)
        {
            return Err(TestOptionsError::OmitTooLong(omit));
        }
        if self.path.is_some() && self.bind_addresses.iter().any(|source| source.interface.is_some()) {
            return Err(TestOptionsError::PathFromInterface);
        }
        if self.tuned {
            self.check_plan(environment)?;
        }
        if self.rate == Some(BitRate(0)) {
            return Err(TestOptionsError::ZeroCapacity);
        }
        known_paths(self.rate, environment)?;
        if let Some(iperf3) = &self.iperf3 {
            iperf3_parameters::host_and_port(&self.server)?;
            iperf3_parameters::parameters(self, iperf3)?;
        }
        Ok(())
    }

    /// Refuses options of a comparison that contradict each other.
    pub fn check_comparison(&self, environment: &EmulatorEnvironment) -> Result<(), TestOptionsError> {
        let excluded = [
            ("tuned streams", self.tuned),
            ("path discovery", self.path.is_some()),
            ("both directions at the same time", self.bidirectional),
        ];
        if let Some((what, _)) = excluded.into_iter().find(|(_, given)| *given) {
            return Err(TestOptionsError::Comparison(what));
        }
        TestOptions { tuned: true, ..self.clone() }.check(environment)
    }

    /// Returns the request of one direction.
    pub(super) fn request(&self, direction: TestDirection) -> TestRequest {
        let mut request = TestRequest { direction, ..self.request.clone() };
        if self.target_precision.is_some() && request.slices_per_interval == 0 {
            // As many slices as fit into a short interval.
            let fit = request.interval.as_nanos() / MIN_INTERVAL.as_nanos();
            request.slices_per_interval = MAX_SLICES.min(u16::try_from(fit).unwrap_or(MAX_SLICES));
        }
        request
    }

    fn check_directions(&self) -> Result<(), TestOptionsError> {
        if self.directions.is_empty() {
            return Err(TestOptionsError::NoDirection);
        }
        let both = [TestDirection::Forward, TestDirection::Reverse];
        if self.bidirectional && self.directions != both {
            return Err(TestOptionsError::NotBothDirections);
        }
        Ok(())
    }

    /// Refuses socket options that the kind of the streams does not support.
    fn check_sockets(&self) -> Result<(), TestOptionsError> {
        let (request, near) = (&self.request, &self.near_socket);
        let has_window = near.window.or(request.socket.window).is_some();
        if request.udp.is_some() {
            // An iperf3 server has one buffer size, which its datagrams use too.
            let is_lfn = self.iperf3.is_none();
            let given = [
                (TcpOption::RatePerStream, near.pacing.len() > 1 || request.socket.pacing.len() > 1),
                (TcpOption::Congestion, !near.congestion.is_empty() || !request.socket.congestion.is_empty()),
                (TcpOption::Mptcp, near.mptcp),
                (TcpOption::Mss, near.mss.is_some()),
                (TcpOption::NoCopy, request.modes != Modes::default()),
                (TcpOption::BindAddresses, self.bind_addresses.len() > 1),
                (TcpOption::Window, is_lfn && has_window),
                (TcpOption::ReadLength, is_lfn && request.read != DEFAULT_READ),
                (TcpOption::Zeros, is_lfn && request.data == PayloadData::Zero),
                (TcpOption::PayloadCheck, request.check),
                (TcpOption::BlockTiming, request.blocks),
                (TcpOption::Precision, self.target_precision.is_some()),
            ];
            if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
                return Err(TestOptionsError::Datagrams(option));
            }
        }
        let given = [(TcpOption::Window, has_window), (TcpOption::Pacing, !near.pacing.is_empty())];
        match given.into_iter().find(|(_, given)| near.mptcp && *given) {
            Some((option, _)) => Err(TestOptionsError::Multipath(option)),
            None => Ok(()),
        }
    }

    /// Refuses settings of a plan for loads without a plan.
    fn check_plan(&self, environment: &EmulatorEnvironment) -> Result<(), TestOptionsError> {
        if self.request.udp.is_some() {
            return Err(TestOptionsError::PlanForDatagrams);
        }
        if self.iperf3.is_some() {
            return Err(TestOptionsError::PlanForIperf3);
        }
        if known_paths(self.rate, environment)?.is_incomplete() {
            return Err(TestOptionsError::UnknownCapacity);
        }
        Ok(())
    }
}

impl From<HostError> for TestOptionsError {
    fn from(error: HostError) -> Self {
        TestOptionsError::Host(Box::new(error))
    }
}
