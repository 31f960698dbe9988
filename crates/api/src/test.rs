//! The verb `test`: measures the path to a server under load, in one direction or in both, one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use lfn_core::date::rfc3339;
use lfn_core::evidence::{Evidence, HostNames, TypedArgument};
use lfn_core::path::PathProfile;
use lfn_core::report::{Origin, Run, TestDocument, TestSchema};
use lfn_core::units::BitRate;
use lfn_core::wire::measure::{RequestError, SocketRequest, TestDirection, TestRequest};
use lfn_net::tester::{self, Test, TestError, TestProgress};

use crate::emulator_env::{self, EmulatorEnvironment};
use crate::error_kind::ErrorKind;
use crate::hosts::HostError;
use crate::resolve::{ReachedServer, ServerResolver, is_ticket};
use crate::ssh::SshError;

/// Options of a test.
#[derive(Debug, Clone)]
pub struct TestOptions {
    /// Server: a saved name, a ticket, USER@HOST for ssh, or `far` inside an emulation.
    pub server: String,
    /// Directions of the tests, which run one after the other.
    pub directions: Vec<TestDirection>,
    /// Load, streams and socket options of the server.
    pub request: TestRequest,
    /// Socket options of this end.
    pub near_socket: SocketRequest,
    /// Capacity of the bottleneck, if known; otherwise the figures of the emulator are used.
    pub rate: Option<BitRate>,
    /// Use the socket buffers of the plan for the path.
    pub tuned: bool,
    /// Time at the start that is ignored; `None` detects the start-up.
    pub omit: Option<Duration>,
}

impl TestOptions {
    /// Creates options for a test from this host to the server.
    pub fn new(server: impl Into<String>) -> Self {
        TestOptions {
            server: server.into(),
            directions: vec![TestDirection::Forward],
            request: TestRequest::default(),
            near_socket: SocketRequest::default(),
            rate: None,
            tuned: false,
            omit: None,
        }
    }
}

/// Event of a running test.
#[derive(Debug)]
pub struct TestEvent<'a> {
    /// Number of the test, from 0.
    pub test: usize,
    pub progress: &'a TestProgress<'a>,
}

/// Reasons why a test has no result.
#[derive(Debug, thiserror::Error)]
pub enum TestVerbError {
    #[error("no direction is requested")]
    NoDirection,
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Ssh(#[from] SshError),
    #[error(transparent)]
    Test(#[from] TestError),
}

impl TestVerbError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            TestVerbError::NoDirection => None,
            TestVerbError::Request(error) => error.hint(),
            TestVerbError::Host(error) => error.hint(),
            TestVerbError::Ssh(error) => error.hint(),
            TestVerbError::Test(TestError::Session(error)) => error.hint(),
            TestVerbError::Test(error) => error.hint(),
        }
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            TestVerbError::NoDirection | TestVerbError::Request(_) | TestVerbError::Test(TestError::Request(_)) => {
                ErrorKind::Usage
            }
            TestVerbError::Host(error) => error.kind(),
            TestVerbError::Ssh(error) => error.kind(),
            TestVerbError::Test(_) => ErrorKind::Failed,
        }
    }
}

/// Runs the tests, and returns the result with one run for each direction. A set `stop` ends the load of the running test, whose
/// figures up to then are its result; later tests do not start.
pub fn test(
    options: &TestOptions,
    resolver: &ServerResolver,
    stop: &Arc<AtomicBool>,
    on_event: &mut dyn FnMut(&TestEvent<'_>),
) -> Result<TestDocument, TestVerbError> {
    if options.directions.is_empty() {
        return Err(TestVerbError::NoDirection);
    }
    options.request.check()?;
    options.near_socket.check()?;
    let paths = known_paths(options.rate, &resolver.environment)?;
    let server = reach(&options.server, resolver, stop)?;
    let origin = origin(options, &server);
    let mut runs = Vec::new();
    for (number, &direction) in options.directions.iter().enumerate() {
        let test = Test {
            request: TestRequest { direction, ..options.request.clone() },
            near_socket: options.near_socket.clone(),
            path: paths[usize::from(direction == TestDirection::Reverse)],
            tuned: options.tuned,
            round_to_rtt: false,
            target_precision: None,
            omit: options.omit,
            stop: Arc::clone(stop),
        };
        let mut watch = |progress: TestProgress<'_>| on_event(&TestEvent { test: number, progress: &progress });
        let evidence = tester::run(&server.target, &test, &mut watch)?;
        let server = TypedArgument { flag: None, text: origin.hosts.far.clone() };
        runs.push(Run::new(Evidence { hosts: origin.hosts.clone(), arguments: vec![server], ..evidence }));
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(TestDocument { schema: TestSchema::V3, origin, runs, unfinished: None, error: None })
}

/// Returns the origin of the result. A ticket is a secret, so the host of the ticket stands for it.
fn origin(options: &TestOptions, server: &ReachedServer) -> Origin {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let address = server.target.address();
    let far = if is_ticket(&options.server) {
        address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host).to_owned()
    } else {
        options.server.clone()
    };
    let near = if emulator_env::is_inside() { "near".to_owned() } else { tester::read_kernel().host };
    Origin {
        lfn_version: env!("CARGO_PKG_VERSION").to_owned(),
        started: rfc3339(now),
        command: vec!["test".to_owned(), far.clone()],
        hosts: HostNames { near, far },
    }
}

fn reach(name: &str, resolver: &ServerResolver, stop: &AtomicBool) -> Result<ReachedServer, SshError> {
    if resolver.is_over_ssh(name)? {
        return resolver.start_for_test(name, stop);
    }
    Ok(ReachedServer::running(resolver.resolve(name)?))
}

/// Returns the figures of the path, forward and reverse: those of the emulator, with this capacity if one is given.
pub fn known_paths(
    rate: Option<BitRate>,
    emulator: &EmulatorEnvironment,
) -> Result<[Option<PathProfile>; 2], HostError> {
    let known = |emulated: Option<PathProfile>| match (rate, emulated) {
        (Some(capacity), Some(path)) => Some(PathProfile { capacity, ..path }),
        (Some(capacity), None) => Some(PathProfile::new(capacity, Duration::ZERO)),
        (None, emulated) => emulated,
    };
    Ok([known(emulator.path()?), known(emulator.return_path()?)])
}
