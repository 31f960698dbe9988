//! What a server tells whoever runs it: one event a line of its log.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lfn_core::admission::{Allowed, Ask, Expected};
use lfn_core::session::{Fingerprint, SessionId};
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::raw::Raw;
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::copy::{CopyRequest, From, Job, Tally, To};
use lfn_core::wire::test::Direction;
use lfn_core::wire::{Refusal, Request};

use crate::path;
use crate::session::SessionError;

/// Whose session, and what for.
#[derive(Clone, Debug)]
pub struct Who {
    /// Who dialled.
    pub client: SocketAddr,
    /// The session; absent where the protocol has no such id.
    pub session: Option<SessionId>,
    /// The name of the token it showed; none for the server's own ticket.
    pub token: Option<Arc<str>>,
    /// What for.
    pub verb: &'static str,
    /// The places it asks to copy from or to, the first of them.
    pub places: Arc<[String]>,
    /// What it asked for.
    pub ask: Ask,
    /// Whether the server is who sends.
    pub sends: bool,
}

/// Why a connection was turned away before it was a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Its address is not one that may connect.
    Access,
    /// As many connections as allowed.
    Connections,
    /// It showed no token in time, or made place for another.
    Silent,
    /// It spoke something else, or broke off.
    Hello,
    /// It went without a word, as a trace, a port scan or a health check does.
    Gone,
    /// It showed a wrong or an expired token, or another version of the protocol.
    Token,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 6] =
        [Reason::Access, Reason::Connections, Reason::Silent, Reason::Hello, Reason::Gone, Reason::Token];

    /// As logs and metrics name it.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Access => "access",
            Reason::Connections => "connections",
            Reason::Silent => "silent",
            Reason::Hello => "hello",
            Reason::Gone => "gone",
            Reason::Token => "token",
        }
    }
}

/// Something that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A session waits for its turn.
    Queued(&'a Who, Expected),
    /// It went away before its turn, after this time.
    Left(&'a Who, Duration),
    /// A session began, after waiting this long.
    Opened(&'a Who, Allowed, Duration),
    /// A session ended.
    Ended {
        /// Which.
        who: &'a Who,
        /// Payload bytes it moved.
        bytes: Bytes,
        /// How long it took.
        time: Duration,
        /// Why it failed, if it did.
        error: Option<&'a SessionError>,
        /// What became of a copy's entries, as far as it came.
        copied: Option<&'a Copied>,
    },
    /// A session was not let in.
    Denied(&'a Who, &'a Refusal),
    /// A connection was turned away.
    Refused(SocketAddr, Reason, &'a str),
    /// The accept loop cannot take connections: files or memory are used up.
    Starved(&'a std::io::Error),
    /// The server takes no more sessions.
    Stopping {
        /// Sessions that run.
        running: usize,
        /// How long they have.
        drain: Duration,
    },
    /// It cut those that still ran.
    Cut(usize),
    /// What cannot be relied on any more, or again: the file of tokens, the audit log.
    Trouble(&'a str),
    /// What the kernel holds the server to.
    Confined(&'a str),
}

/// What became of a copy, for those who keep account of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Of the entries.
    pub tally: Tally,
    /// Of the file, if it was one.
    pub digest: Option<Digest>,
    /// Where it went below the root, if that is not what was asked for.
    pub into: Option<String>,
}

/// Most places of one request that are kept; the others are counted.
const MOST_PLACES: usize = 16;

/// The places that a request names, each cut to a length that a log can bear.
fn places(request: &Request) -> Arc<[String]> {
    const LONGEST: usize = 4096;
    let cut = |path: &Raw| path.to_string().chars().take(LONGEST).collect::<String>();
    if let Request::Clean(clean) = request {
        return clean.places.iter().take(MOST_PLACES).map(cut).collect();
    }
    let into = |to: &To| match to {
        To::File { path, .. } => cut(path),
        To::Null => "null:".to_owned(),
    };
    if let Request::Lend(lend) = request {
        return Arc::new([into(&lend.to)]);
    }
    let all = |from: &[From]| -> Vec<String> {
        let named = from.iter().take(MOST_PLACES).map(|from| match from {
            From::File { path } => cut(path),
            From::Random { bytes } => format!("random:{}", bytes.0),
            From::Zero { bytes } => format!("zero:{}", bytes.0),
        });
        let rest = from.len().checked_sub(MOST_PLACES + 1).map(|rest| format!("and {} more", rest + 1));
        named.chain(rest).collect()
    };
    match request {
        Request::Copy(CopyRequest { job: Job::Put { to }, .. }) => Arc::new([into(to)]),
        Request::Copy(CopyRequest { job: Job::Get { from, .. }, .. }) => all(from).into(),
        Request::Send(send) => {
            let peer = format!("to {}", send.receiver.host.chars().take(LONGEST).collect::<String>());
            all(&send.from).into_iter().chain([peer]).collect()
        }
        _ => Arc::default(),
    }
}

impl Who {
    /// `own` is this server's key.
    pub(super) fn new(
        client: SocketAddr,
        session: SessionId,
        request: &Request,
        token: Option<Arc<str>>,
        own: Fingerprint,
    ) -> Self {
        let (verb, sends) = match request {
            Request::Test(test) => ("test", test.direction == Direction::Reverse),
            Request::Copy(copy) => ("copy", matches!(copy.job, Job::Get { .. })),
            Request::Clean(_) => ("clean", false),
            Request::Lend(_) => ("lend", false),
            Request::Send(_) => ("send", true),
            Request::Path(_) => ("path", false),
        };
        Who { client, session: Some(session), token, verb, places: places(request), ask: ask(request, own), sends }
    }
}

/// What a request asks of the quotas.
fn ask(request: &Request, own: Fingerprint) -> Ask {
    match request {
        Request::Path(_) => Ask { streams: 1, time: Some(path::LONGEST), ..Ask::default() },
        Request::Clean(_) => Ask { streams: 1, unbounded: true, ..Ask::default() },
        // The copy that it lends for is counted.
        Request::Lend(_) => Ask { streams: 1, unbounded: true, uncounted: true, ..Ask::default() },
        Request::Test(test) => {
            let (time, bytes) = (test.time(), test.payload_bytes().map(Bytes));
            // Of a server that sends the pace is known.
            let sum = |sum: u64, stream| Some(sum.saturating_add(test.socket.pacing_of(stream)?.0));
            let rate = (0..test.streams).try_fold(0, sum).filter(|_| test.direction == Direction::Reverse).map(BitRate);
            Ask { streams: test.streams, time, bytes, rate, ..Ask::default() }
        }
        // To itself, which is known by its key wherever that is: the session that takes it is counted.
        Request::Send(send) => {
            let uncounted = send.receiver.fingerprint == own;
            Ask { streams: send.most_streams.max(1), unbounded: true, uncounted, ..Ask::default() }
        }
        Request::Copy(copy) => {
            let made = |from: &From| match from {
                From::Random { bytes } | From::Zero { bytes } => Some(*bytes),
                From::File { .. } => None,
            };
            let sum = |sum: Bytes, from| Some(Bytes(sum.0.saturating_add(made(from)?.0)));
            let bytes = match &copy.job {
                Job::Put { .. } => None,
                Job::Get { from, .. } => from.iter().try_fold(Bytes(0), sum),
            };
            Ask { streams: copy.streams, bytes, unbounded: true, ..Ask::default() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lfn_core::wire::test::{Load, TestRequest, UdpRequest};

    #[test]
    fn a_ramp_says_no_time_and_datagrams_are_as_long_as_they_are() {
        let of = |load, udp| {
            let request = TestRequest { load, udp: Some(Box::new(udp)), ..TestRequest::default() };
            let asked = ask(&Request::Test(Box::new(request)), Fingerprint([0; 32]));
            (asked.time, asked.bytes)
        };
        let ten = Duration::from_secs(10);
        let ramp = UdpRequest { ramp: Some(Default::default()), ..UdpRequest::default() };
        let small = UdpRequest { datagram_bytes: Some(400), ..UdpRequest::default() };
        assert_eq!(of(Load::TimeSeconds(ten), UdpRequest::default()), (Some(ten), None));
        assert_eq!(of(Load::TimeSeconds(ten), ramp), (None, None));
        assert_eq!(of(Load::Records(1000), small), (None, Some(Bytes(400_000))));
    }
}
