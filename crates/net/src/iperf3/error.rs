//! Why a conversation with an iperf3 peer did not come to its end.

use std::io;
use std::time::Duration;

use lfn_core::iperf3::frame::FrameError;
use lfn_core::iperf3::parameters::ParameterError;
use lfn_core::iperf3::results::ResultsError;
use lfn_core::iperf3::state::UnknownState;
use lfn_core::iperf3::{Code, State};
use lfn_core::units::show_duration;
use lfn_core::wire::Refusal;

use super::rsa::KeyError;

/// What went wrong between the two ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name has no address.
    #[error("unknown host '{host}': {source}")]
    UnknownHost {
        /// As typed.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// Nobody listens there, or nobody answers.
    #[error("cannot reach {address}: {source}")]
    Connect {
        /// Who was called.
        address: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The other end went away.
    #[error("{peer} closed the connection {doing}")]
    Closed {
        /// Which end.
        peer: &'static str,
        /// In which step.
        doing: &'static str,
    },
    /// The other end said nothing for too long.
    #[error("{peer} said nothing for {} {doing}", show_duration(*.after))]
    Timeout {
        /// Which end.
        peer: &'static str,
        /// How long it was waited for.
        after: Duration,
        /// In which step.
        doing: &'static str,
    },
    /// The connection broke.
    #[error("connection to {peer} failed {doing}: {source}")]
    Io {
        /// Which end.
        peer: &'static str,
        /// In which step.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A state that makes no sense in this step.
    #[error("{peer} said '{state}' {doing}")]
    Unexpected {
        /// Which end.
        peer: &'static str,
        /// What it said.
        state: State,
        /// In which step.
        doing: &'static str,
    },
    /// A byte that is no state: whoever is there speaks something else.
    #[error("not the iperf3 protocol: {0}")]
    Unknown(#[from] UnknownState),
    /// JSON that is too long, or none.
    #[error("not the iperf3 protocol: {0}")]
    Frame(#[from] FrameError),
    /// The client asked for what cannot be served.
    #[error("parameter {0}")]
    Parameter(#[from] ParameterError),
    /// The other end's figures make no sense.
    #[error("results not understood: {0}")]
    Results(#[from] ResultsError),
    /// The server runs another test; stock servers run one at a time.
    #[error("the iperf3 server is busy with another test")]
    Busy,
    /// The server cannot, and says why by number.
    #[error("the iperf3 server refused: {code}{}", because(*.errno))]
    Refused {
        /// Its own number.
        code: Code,
        /// Its kernel's number; 0 if there is none.
        errno: i32,
    },
    /// Somebody stopped the server.
    #[error("the iperf3 server was stopped")]
    Stopped,
    /// Somebody stopped the client.
    #[error("the client was stopped")]
    ClientStopped,
    /// Our own limits.
    #[error("{}", .0.message)]
    Limit(Refusal),
    /// User or password.
    #[error("{0}")]
    Denied(&'static str),
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A socket option was not taken.
    #[error("{what}: {source}")]
    Option {
        /// Which, and what it was to be.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A stream broke.
    #[error("stream {id}: {source}")]
    Stream {
        /// Its identifier.
        id: u32,
        /// What the kernel said.
        source: io::Error,
    },
    /// Fewer streams came than were announced.
    #[error("{came} of {expected} streams came within {}", show_duration(*.within))]
    Streams {
        /// How many came.
        came: usize,
        /// How many were announced.
        expected: usize,
        /// How long they were waited for.
        within: Duration,
    },
    /// Nothing came on any stream.
    #[error("no data came for {}", show_duration(*.0))]
    Silence(Duration),
    /// The client did not end its test.
    #[error("the test did not end within {}", show_duration(*.0))]
    Expired(Duration),
}

fn because(errno: i32) -> String {
    if errno > 0 { format!(" ({})", io::Error::from_raw_os_error(errno)) } else { String::new() }
}

impl Error {
    /// What a server tells its client of it, where it still can.
    pub(super) fn code(&self) -> Option<(Code, i32)> {
        let errno = |source: &io::Error| source.raw_os_error().unwrap_or(0);
        Some(match self {
            Error::Parameter(error) => (error.code, 0),
            Error::Frame(_) => (Code::PARAMETERS, 0),
            Error::Results(ResultsError::Id(_)) => (Code::STREAM_ID, 0),
            Error::Results(_) => (Code::RESULTS, 0),
            Error::Denied(_) | Error::Key(_) => (Code::AUTHENTICATION, 0),
            // Of those that say so, the ones 3.12 has words for.
            Error::Limit(refusal) if refusal.message.contains("streams") => (Code::STREAMS, 0),
            Error::Limit(_) => (Code::DURATION, 0),
            Error::Option { source, .. } => (Code::SET_BUFFER, errno(source)),
            Error::Stream { source, .. } => (Code::STREAM, errno(source)),
            Error::Streams { .. } => (Code::STREAM, 0),
            Error::Unexpected { .. } | Error::Unknown(_) => (Code::MESSAGE, 0),
            Error::Silence(_) => (Code::SILENCE, 0),
            Error::Expired(_) | Error::Timeout { .. } => (Code::EXPIRED, 0),
            _ => return None,
        })
    }

    /// What the user of a client can do about it.
    pub fn hint(&self) -> String {
        match self {
            Error::UnknownHost { .. } => "give the server's name or address, with a port as HOST:PORT".into(),
            Error::Connect { .. } => {
                "see whether `iperf3 -s` or `lfn serve --iperf3` runs there, and on which port".into()
            }
            Error::Busy => {
                "a stock server runs one test at a time: try again later, or use `lfn serve --iperf3` there".into()
            }
            Error::Refused { code: Code::AUTHENTICATION, .. } => {
                "see --iperf3-user, --iperf3-rsa-public-key and the clocks; servers before 3.17 want --iperf3-pkcs1"
                    .into()
            }
            Error::Refused { code: Code::RATE | Code::TOO_LONG | Code::DURATION, .. } => {
                "ask for less: a shorter --time, a lower rate".into()
            }
            Error::Refused { code: Code::STREAMS, .. } => "ask for fewer --streams".into(),
            Error::Refused { .. } | Error::Stopped => "see what the server prints".into(),
            Error::Unknown(_) | Error::Frame(_) | Error::Unexpected { .. } | Error::Results(_) => {
                "see whether it is an iperf3 server: to an `lfn serve` use its ticket, without --iperf3".into()
            }
            Error::Key(error) => error.hint().into(),
            Error::Option { .. } | Error::Parameter(_) | Error::Denied(_) => "see lfn test --help".into(),
            Error::Limit(refusal) => refusal.hint.clone().unwrap_or_else(|| "ask for less".into()),
            _ => "see whether the server still runs and the path still carries traffic".into(),
        }
    }
}
