//! Timed loads: both ends of a test. The ends differ only in who connects and who sends.
//!
//! One session is one direction. Each data stream is a thread with a blocking socket ([`crate::load`]). The
//! thread of the control connection samples all streams (`meter`), so the loops that move data take no lock and make no
//! system call except read and write. `client` and `server` hold the two ends of the protocol, `options` the requested
//! and granted socket options, `deadline` the client's time-outs. The diagnosis is elsewhere: `lfn_results::diagnose`.

mod both_directions;
mod client;
mod client_end;
mod clock;
mod convergence;
mod deadline;
mod measurement;
mod meter;
mod options;
mod probe;
mod server;
mod server_end;
mod udp;

pub use both_directions::run_both;
pub use client::run;
pub(crate) use deadline::INTERRUPT_TIMEOUT;
pub use measurement::{Test, TestProgress};
pub(crate) use options::current_dscp;
pub use options::{EMULATED, emulated_path_sysctls, read_kernel};
pub use server::serve;

use lfn_results::measure::{OutOfRange, RequestError};
use lfn_session::SessionError;
use lfn_session::transport::is_timeout;
use lfn_session::wire::{Refusal, RefusalCode};

use crate::load::LoadError;
use udp::DatagramTooLong;

/// Reasons why a test did not finish.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The kernel does not have this congestion control, or this user may not use it.
    #[error("congestion control '{name}' {reason} on {host}, which offers: {available}")]
    Congestion {
        name: String,
        /// "is not available" or "is not allowed to this user".
        reason: &'static str,
        host: String,
        /// Names that the kernel offers.
        available: String,
    },
    /// A fixed receive window needs `SO_RCVBUF`, which `net.core.rmem_max` limits, if the test may not change the
    /// sysctls of the network namespace.
    #[error("cannot set a receive window of {requested} B on {host}: net.core.rmem_max is {cap}")]
    Window {
        /// Window size in bytes.
        requested: u64,
        /// Value of `net.core.rmem_max`, bytes.
        cap: u64,
        host: String,
    },
    #[error("socket options on {host}: {source}")]
    Options { host: String, source: std::io::Error },
    #[error("the client opened {opened} of {requested} datagram streams")]
    MissingStreams { opened: usize, requested: u16 },
    #[error("data stream {stream}: {source}")]
    Stream { stream: u16, source: std::io::Error },
    /// The server reports figures that are out of range.
    #[error("the server reports {0}")]
    Implausible(#[from] OutOfRange),
    /// The server is an earlier version, which ignores the request and would not acknowledge blocks.
    #[error("the server does not know --lockstep: it runs an earlier version of lfn")]
    NoLockstep,
    /// The server admitted the second direction only after the first one ended.
    #[error("the two directions did not run at the same time: the server had no free place for both")]
    NotSimultaneous,
    /// The test was stopped while it waited in the queue.
    #[error("the test was stopped before it began")]
    Stopped,
    /// The receiver counted another number of bytes than the sender.
    #[error("{received} bytes received of {sent} sent")]
    Incomplete { sent: u64, received: u64 },
}

impl From<LoadError> for TestError {
    fn from(error: LoadError) -> Self {
        match error {
            // The text of the kernel (EAGAIN) does not say that the time is over.
            LoadError::Stream { stream, source } if is_timeout(&source) => {
                let source = std::io::Error::new(std::io::ErrorKind::TimedOut, "no data arrived in time");
                TestError::Stream { stream, source }
            }
            LoadError::Stream { stream, source } => TestError::Stream { stream, source },
            LoadError::Open(error) => (*error).into(),
        }
    }
}

impl TestError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            TestError::Session(error) => error.hint(),
            TestError::Window { requested, host, .. } => {
                Some(format!("sysctl -w net.core.rmem_max={requested}   # on {host}"))
            }
            TestError::NotSimultaneous => {
                Some("use --both to run one after the other, or start the server with --max-sessions 2 or more".into())
            }
            TestError::Congestion { .. } => Some(
                "load it with modprobe tcp_NAME; net.ipv4.tcp_allowed_congestion_control permits it to users".into(),
            ),
            TestError::NoLockstep => Some("install this version of lfn on the server, and restart it".into()),
            TestError::Implausible(_) => Some("check that both ends run the same version of lfn: lfn --version".into()),
            TestError::Stream { source, .. } if source.get_ref().is_some_and(|inner| inner.is::<DatagramTooLong>()) => {
                source.get_ref()?.downcast_ref().map(DatagramTooLong::hint)
            }
            TestError::Stream { .. } | TestError::Incomplete { .. } => {
                Some("check that the server is running and that the path carries traffic".into())
            }
            TestError::MissingStreams { .. } => {
                Some("open the server's port for UDP in every firewall on the path".into())
            }
            TestError::Request(error) => Some(error.hint().unwrap_or_else(|| "see lfn test --help".into())),
            TestError::Options { .. } | TestError::Stopped => None,
        }
    }
}

/// Converts a test's error at the server to the refusal that the client receives.
impl From<&TestError> for Refusal {
    fn from(error: &TestError) -> Refusal {
        let code = match error {
            TestError::Session(error) => return Refusal::from(error),
            TestError::Request(error) => return Refusal::from(error),
            TestError::MissingStreams { .. } | TestError::Implausible(_) => RefusalCode::BadMessage,
            TestError::Stopped => RefusalCode::Stopped,
            TestError::NoLockstep => RefusalCode::Protocol,
            TestError::Congestion { .. } | TestError::Window { .. } | TestError::NotSimultaneous => RefusalCode::Limit,
            TestError::Options { .. } | TestError::Stream { .. } | TestError::Incomplete { .. } => RefusalCode::Io,
        };
        Refusal { code, message: error.to_string(), hint: error.hint() }
    }
}
