//! Both ends of a session: its control connection, its data streams, and the TLS under them.
//!
//! A client calls [`dial::control`] and, at the same time from other threads, [`dial::data`]; the server gets the
//! same two types, [`Control`] and [`DataStream`], from its listener. Nothing here knows what a session is for.

pub mod congestion;
mod control;
mod data;
pub mod datagram;
pub mod dial;
pub mod identity;
pub mod queue;
mod tls;
pub(crate) use tls::{TlsStream, server_config};

pub use control::Control;
pub(crate) use control::Heard;
pub use data::DataStream;
pub use datagram::DatagramStream;

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use lfn_core::tcp_info::TcpInfo;
use lfn_core::units::show_duration;
use lfn_core::wire::queue::Place;
use lfn_core::wire::{FrameError, Refusal};
use lfn_sys::tcp;

/// How long a peer may be silent, unacknowledged by its kernel, before its connection counts as dead.
///
/// Long enough for a 600 ms path that loses a few retransmissions in a row, short enough that a dead peer does not
/// hold a server's slot.
pub const DEAD_AFTER: Duration = Duration::from_secs(30);

/// The round trip of a connection as its kernel knows it, the least it has seen (`tcpi_min_rtt`, else `tcpi_rtt`); zero
/// where the kernel does not say.
pub(crate) fn round_trip(socket: &TcpStream) -> Duration {
    let info = tcp::info(socket).ok().and_then(|bytes| TcpInfo::parse(&bytes).ok()).unwrap_or_default();
    info.min_rtt.unwrap_or(info.rtt)
}

/// Whether what a data stream carries is encrypted. Both kinds are authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// Inside TLS 1.3.
    Tls,
    /// In the clear, opened by a hello that only a bearer of the token can make.
    Clear,
}

/// Why a session did not come about, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The host has no address, or the name no entry.
    #[error("unknown host '{host}': {source}")]
    UnknownHost {
        /// As typed.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// Nobody listens there, or a firewall is in between.
    #[error("cannot reach {address}: {source}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The address is not this host's, or there is no such interface.
    #[error("cannot dial from {place}: {source}")]
    From {
        /// As typed.
        place: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The server showed another key than the ticket's: a server of the same address with a new key, or a
    /// man in the middle.
    #[error("the server at {address} shows another key than the ticket's: its fingerprint is {shown}")]
    WrongFingerprint {
        /// Host and port.
        address: String,
        /// SHA-256 of the certificate shown.
        shown: String,
    },
    /// The handshake failed for another reason: not an `lfn` server, or one of another TLS.
    #[error("no TLS session with {address}: {source}")]
    Tls {
        /// Host and port.
        address: String,
        /// What rustls said.
        source: rustls::Error,
    },
    /// The other side said no, and why.
    #[error("{0}")]
    Refused(Refusal),
    /// All places of the server, or all that one client may have, are taken, and the client does not wait.
    #[error("{}{}", .0.why(), in_queue(.0))]
    Full(Place),
    /// They were taken for as long as the client waits.
    #[error("{}, and was so for the {} that were waited{}", .place.why(), show_duration(*.after), in_queue(.place))]
    Waited {
        /// How long the client waited.
        after: Duration,
        /// Its place in the queue at the end.
        place: Place,
    },
    /// The other side closed the connection without a word: it was killed, or the path was cut.
    #[error("{peer} closed the connection {while_doing}")]
    Closed {
        /// "the server", "the client" …
        peer: &'static str,
        /// What this side was waiting for.
        while_doing: &'static str,
    },
    /// Nothing came in time.
    #[error("no answer from {peer} within {} s {while_doing}", .after.as_secs_f32())]
    Timeout {
        /// "the server", "the client" …
        peer: &'static str,
        /// How long this side waited.
        after: Duration,
        /// What this side was waiting for.
        while_doing: &'static str,
    },
    /// Nothing came back over UDP, while TCP goes through.
    #[error("no answer over UDP from {address} within {} s", .after.as_secs_f32())]
    NoDatagrams {
        /// Host and port.
        address: String,
        /// How long hellos were sent.
        after: Duration,
    },
    /// The other side speaks nonsense.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// Any other error of the connection.
    #[error("connection to {peer}: {source}")]
    Io {
        /// "the server", "the client" …
        peer: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl SessionError {
    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            SessionError::UnknownHost { .. } => {
                Some("give a ticket (lfn://…), an address, or a name saved with `lfn hosts add NAME TICKET`".into())
            }
            SessionError::Unreachable { .. } => {
                Some("start `lfn serve` there, and open its TCP port in the firewall".into())
            }
            SessionError::From { .. } => Some("`ip address` lists the interfaces here and their addresses".into()),
            SessionError::WrongFingerprint { .. } => Some(
                "if the server was reinstalled, take its new ticket from `lfn serve`; otherwise do not go on".into(),
            ),
            SessionError::Tls { .. } => Some("is it an `lfn serve` that listens on this port?".into()),
            SessionError::Refused(refusal) => refusal.hint.clone(),
            SessionError::Closed { peer: "the client", .. } | SessionError::Timeout { peer: "the client", .. } => {
                Some("see whether the path still carries what the client sends".into())
            }
            SessionError::Closed { .. } | SessionError::Timeout { .. } => {
                Some("see whether the server still runs and the path still carries traffic".into())
            }
            SessionError::NoDatagrams { .. } => {
                Some("open the server's port for UDP too in every firewall between".into())
            }
            SessionError::Full(place) => Some(format!("wait for a place with --wait {}s", patient(place))),
            SessionError::Waited { place, .. } => Some(format!("wait longer with --wait {}s", patient(place))),
            SessionError::Frame(_) => Some("see whether both ends run the same version of lfn: lfn --version".into()),
            SessionError::Io { peer: "the kernel", .. } => None,
            SessionError::Io { .. } => {
                Some("see whether the server still runs and the path still carries traffic".into())
            }
        }
    }
}

/// Whether an error of a socket with a time-out set means only that the time is over.
pub(crate) fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// What a place in a queue means, as the end of a sentence.
fn in_queue(place: &Place) -> String {
    let seconds = place.expected_wait_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.get()).ok());
    let wait = seconds.map_or("nobody can say how long".to_owned(), |wait| format!("up to {}", show_duration(wait)));
    format!(": {} ahead in its queue, {wait}", place.ahead)
}

/// A wait in seconds that would have been long enough, as far as anybody can say.
fn patient(place: &Place) -> u64 {
    const LONGEST: f64 = 86_400.0;
    let expected = place.expected_wait_seconds;
    expected.map_or(3600, |seconds| seconds.get().clamp(0.0, LONGEST) as u64 + 10)
}
