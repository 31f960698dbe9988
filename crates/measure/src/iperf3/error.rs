//! Errors of the protocol with an iperf3 peer.

use std::io;
use std::time::Duration;

use lfn_base::units::show_duration;
use lfn_session::wire::Refusal;

use super::rsa::RsaKeyError;
use crate::proto::iperf3::frame::Iperf3FrameError;
use crate::proto::iperf3::parameters::ParameterError;
use crate::proto::iperf3::results::ResultsError;
use crate::proto::iperf3::state::UnknownState;
use crate::proto::iperf3::{ErrorCode, TestState};

/// Reasons why a test with an iperf3 peer failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("unknown host '{host}': {source}")]
    UnknownHost { host: String, source: io::Error },
    #[error("cannot reach {address}: {source}")]
    Connect { address: String, source: io::Error },
    #[error("{peer} closed the connection {step}")]
    Closed {
        peer: &'static str,
        /// Step of the protocol.
        step: &'static str,
    },
    #[error("no answer from {peer} for {} {step}", show_duration(*.after))]
    Timeout {
        peer: &'static str,
        after: Duration,
        /// Step of the protocol.
        step: &'static str,
    },
    #[error("connection to {peer} failed {step}: {source}")]
    Io { peer: &'static str, step: &'static str, source: io::Error },
    /// The state is not valid in this step.
    #[error("{peer} sent the state '{state}' {step}")]
    Unexpected { peer: &'static str, state: TestState, step: &'static str },
    /// A byte that is not a state: the peer uses another protocol.
    #[error("not the iperf3 protocol: {0}")]
    Unknown(#[from] UnknownState),
    /// JSON that is too long or invalid.
    #[error("not the iperf3 protocol: {0}")]
    Frame(#[from] Iperf3FrameError),
    /// The client requests a test that cannot be served.
    #[error("parameter {0}")]
    Parameter(#[from] ParameterError),
    /// The peer's results are inconsistent.
    #[error("invalid results: {0}")]
    Results(#[from] ResultsError),
    /// The server runs another test; stock servers run one at a time.
    #[error("the iperf3 server is busy with another test")]
    Busy,
    /// The server refused the test with an error number.
    #[error("the iperf3 server refused: {code}{}", errno_text(*.errno))]
    Refused {
        /// Error number of iperf3 (`i_errno`).
        code: ErrorCode,
        /// The kernel's error number; 0 if there is none.
        errno: i32,
    },
    #[error("the iperf3 server was stopped")]
    Stopped,
    #[error("the client was stopped")]
    ClientStopped,
    /// A limit of this server.
    #[error("{}", .0.message)]
    Limit(Refusal),
    /// Wrong user name, password or time.
    #[error("{0}")]
    Denied(&'static str),
    #[error(transparent)]
    Key(#[from] RsaKeyError),
    #[error("{option}: {source}")]
    Option {
        /// Option and its value.
        option: String,
        source: io::Error,
    },
    #[error("stream {id}: {source}")]
    Stream { id: u32, source: io::Error },
    #[error("{arrived} of {expected} streams arrived within {}", show_duration(*.timeout))]
    Streams { arrived: usize, expected: usize, timeout: Duration },
    #[error("no data received for {}", show_duration(*.0))]
    Silence(Duration),
    #[error("the test did not end within {}", show_duration(*.0))]
    Expired(Duration),
}

fn errno_text(errno: i32) -> String {
    if errno > 0 { format!(" ({})", io::Error::from_raw_os_error(errno)) } else { String::new() }
}

impl Error {
    /// Returns the error number that a server sends to its client.
    pub(super) fn code(&self) -> Option<(ErrorCode, i32)> {
        let errno = |source: &io::Error| source.raw_os_error().unwrap_or(0);
        Some(match self {
            Error::Parameter(error) => (error.code, 0),
            Error::Frame(_) => (ErrorCode::PARAMETERS, 0),
            Error::Results(ResultsError::Id(_)) => (ErrorCode::STREAM_ID, 0),
            Error::Results(_) => (ErrorCode::RESULTS, 0),
            Error::Denied(_) | Error::Key(_) => (ErrorCode::AUTHENTICATION, 0),
            // Some codes have a text only in newer versions; these codes have one in 3.12.
            Error::Limit(refusal) if refusal.message.contains("streams") => (ErrorCode::STREAMS, 0),
            Error::Limit(_) => (ErrorCode::DURATION, 0),
            Error::Option { source, .. } => (ErrorCode::SET_BUFFER, errno(source)),
            Error::Stream { source, .. } => (ErrorCode::STREAM, errno(source)),
            Error::Streams { .. } => (ErrorCode::STREAM, 0),
            Error::Unexpected { .. } | Error::Unknown(_) => (ErrorCode::MESSAGE, 0),
            Error::Silence(_) => (ErrorCode::SILENCE, 0),
            Error::Expired(_) | Error::Timeout { .. } => (ErrorCode::EXPIRED, 0),
            _ => return None,
        })
    }

    /// Returns one action that may fix the error.
    pub fn hint(&self) -> String {
        match self {
            Error::UnknownHost { .. } => "use the server's name or address, with a port as HOST:PORT".into(),
            Error::Connect { .. } => {
                "check that `iperf3 -s` or `lfn serve --iperf3` runs on the server, and its port".into()
            }
            Error::Busy => {
                "a stock server runs one test at a time: try again later, or use `lfn serve --iperf3` on the server"
                    .into()
            }
            Error::Refused { code: ErrorCode::AUTHENTICATION, .. } => {
                "check --iperf3-user, --iperf3-rsa-public-key and both clocks; servers before 3.17 need --iperf3-pkcs1"
                    .into()
            }
            Error::Refused { code: ErrorCode::RATE | ErrorCode::TOO_LONG | ErrorCode::DURATION, .. } => {
                "use a shorter --time or a lower rate".into()
            }
            Error::Refused { code: ErrorCode::STREAMS, .. } => "reduce --streams".into(),
            Error::Refused { .. } | Error::Stopped => "check the output of the server".into(),
            Error::Unknown(_) | Error::Frame(_) | Error::Unexpected { .. } | Error::Results(_) => {
                "check that this is an iperf3 server; for an `lfn serve` use its ticket, without --iperf3".into()
            }
            Error::Key(error) => error.hint().into(),
            Error::Option { .. } | Error::Parameter(_) | Error::Denied(_) => "see lfn test --help".into(),
            Error::Limit(refusal) => refusal.hint.clone().unwrap_or_else(|| "use lower limits".into()),
            _ => "check that the server is running and that the path carries traffic".into(),
        }
    }
}
