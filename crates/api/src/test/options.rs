//! Options of a test.

use std::time::Duration;

use lfn_base::units::{BitRate, Ratio};
use lfn_measure::iperf3::client::Login;
use lfn_results::evidence::TypedArgument;
use lfn_results::measure::{MIN_INTERVAL, SocketRequest, TestDirection, TestRequest};
use lfn_session::dial::BindAddress;

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
}
