//! Timed loads: both ends of a test, which differ only in who dials and who sends.
//!
//! One session is one direction. Each data stream is a plain thread with a blocking socket (`load`); the control
//! connection's thread samples them all (`meter`), so the loops that move data take no lock and make no call but read
//! or write. `client` and `server` are the two conversations around that, `options` the socket options with what was
//! asked and what was granted, `deadline` how long a client waits for words. Nothing is judged here: that is
//! `lfn_core::diagnose`.

mod client;
mod clock;
mod deadline;
mod host;
mod load;
mod measurement;
mod meter;
mod options;
mod pair;
mod probe;
mod server;
mod udp;

pub use client::run;
pub(crate) use deadline::AFTER_STOP;
pub use measurement::{Measurement, Progress, Test};
pub(crate) use options::marked;
pub use options::{kernel, tuned_on_an_emulated_path};
pub use pair::run_both;
pub(crate) use server::serve;

use lfn_core::wire::test::{RequestError, Unbounded};
use lfn_core::wire::{Refusal, RefusalCode};

use crate::session::SessionError;
use udp::TooLong;

/// Set to 1 by `lfn emulate` on both sides: the network namespace is the test's own, and its sysctls may be changed.
pub const EMULATED: &str = "LFN_EMULATED";

/// Why a test did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// The session failed: unreachable, refused, cut.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The request makes no sense.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The kernel has no congestion control of that name, or keeps it from this user.
    #[error("congestion control '{name}' {why} on {host}, which offers: {available}")]
    Congestion {
        /// As asked for.
        name: String,
        /// "is not available" or "is not allowed to this user".
        why: &'static str,
        /// Whose kernel.
        host: String,
        /// What may be asked for instead.
        available: String,
    },
    /// Without the right to change this network namespace, a window is held by `SO_RCVBUF`, which is capped.
    #[error("a receive window of {asked} B cannot be held on {host}: net.core.rmem_max is {cap}")]
    Window {
        /// As asked for, bytes.
        asked: u64,
        /// `net.core.rmem_max`.
        cap: u64,
        /// Whose kernel.
        host: String,
    },
    /// A socket option was not taken.
    #[error("socket options on {host}: {source}")]
    Options {
        /// Whose kernel.
        host: String,
        /// What it said.
        source: std::io::Error,
    },
    /// A stream of datagrams was not opened.
    #[error("the client opened {opened} streams of datagrams of {asked}")]
    Streams {
        /// So many came.
        opened: usize,
        /// Of so many.
        asked: u16,
    },
    /// One data stream failed.
    #[error("data stream {stream}: {source}")]
    Stream {
        /// Its number.
        stream: u16,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The far end tells what cannot be.
    #[error("the server tells of {0}")]
    Unbounded(#[from] Unbounded),
    /// The server had a place for one direction only once the other was over.
    #[error("the two directions did not run at the same time: the server had no place for both")]
    Apart,
    /// It was ended while it waited for its turn.
    #[error("the test was stopped before it began")]
    Stopped,
    /// The receiver counted other bytes than were sent.
    #[error("{received} bytes arrived of {sent} sent")]
    Incomplete {
        /// What should have arrived.
        sent: u64,
        /// What did.
        received: u64,
    },
}

impl TestError {
    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            TestError::Session(error) => error.hint(),
            TestError::Window { asked, host, .. } => Some(format!("sysctl -w net.core.rmem_max={asked}   (on {host})")),
            TestError::Apart => {
                Some("--both does one after the other; lfn serve --max-sessions 2 has room for both".into())
            }
            TestError::Congestion { .. } => {
                Some("modprobe tcp_NAME loads one; net.ipv4.tcp_allowed_congestion_control allows it".into())
            }
            TestError::Unbounded(_) => Some("see whether both ends run the same version of lfn: lfn --version".into()),
            TestError::Stream { source, .. } if source.get_ref().is_some_and(|inner| inner.is::<TooLong>()) => {
                source.get_ref()?.downcast_ref().map(TooLong::hint)
            }
            TestError::Stream { .. } | TestError::Incomplete { .. } => {
                Some("see whether the server still runs and the path still carries traffic".into())
            }
            TestError::Streams { .. } => Some("see whether a firewall between lets UDP through".into()),
            TestError::Request(error) => Some(error.hint().unwrap_or_else(|| "see lfn test --help".into())),
            TestError::Options { .. } | TestError::Stopped => None,
        }
    }
}

/// What the client is told when a test fails at the server.
impl From<&TestError> for Refusal {
    fn from(error: &TestError) -> Refusal {
        let code = match error {
            TestError::Session(error) => return Refusal::from(error),
            TestError::Request(_) | TestError::Streams { .. } | TestError::Unbounded(_) => RefusalCode::BadMessage,
            TestError::Stopped => RefusalCode::Stopped,
            TestError::Congestion { .. } | TestError::Window { .. } | TestError::Apart => RefusalCode::Limit,
            TestError::Options { .. } | TestError::Stream { .. } | TestError::Incomplete { .. } => RefusalCode::Io,
        };
        Refusal { code, message: error.to_string(), hint: error.hint() }
    }
}
