//! Events of a server: one line of its log for each.

use core::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};
use lfn_results::measure::TestDirection;
use serde::Serialize;

use crate::limits::{QueuePosition, ResourceGrant, ResourceRequest};
use crate::wire::copy::byte_string::ByteString;
use crate::wire::copy::digest::Digest;
use crate::wire::copy::{CopyJob, CopyRequest, CopyTally, RemoteDestination, RemoteSource};
use crate::wire::{Refusal, Request, addresses, disk, facts, mesh, path};
use crate::{Fingerprint, SessionError, SessionId};

/// Packet counters of a reflector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflectorTally {
    pub reflected: u64,
    /// Packets that were unreadable or too short, or did not come from a sender.
    pub unreadable: u64,
    pub too_many: u64,
}

/// Client and purpose of a session.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    pub client: SocketAddr,
    /// Absent for protocols without session ids (iperf3).
    pub session: Option<SessionId>,
    /// Name of the client's token; none for the server's own ticket.
    pub token: Option<Arc<str>>,
    /// Purpose: `copy`, `test`, `path`, `facts`, `addresses`, `disk`, `issue_token`, `send`, `mesh`, `couple` or `iperf3`.
    pub verb: &'static str,
    /// Paths that the client requested, at most `MAX_PATHS`.
    pub paths: Arc<[String]>,
    /// Resources that the client requested.
    pub requested: ResourceRequest,
    /// The server sends the payload.
    pub sends: bool,
}

/// Reasons to close a connection that did not become part of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RefusedReason {
    /// `--allow` and `--deny` exclude the client's address.
    Access,
    /// All connection slots are in use.
    Connections,
    /// The connection did not authenticate in time, or was closed to free its slot.
    Silent,
    /// The hello is invalid or incomplete.
    Hello,
    /// The client closed the connection without data, as traceroutes, port scans and health checks do.
    Gone,
    /// The token is wrong or expired, or the protocol version differs.
    Token,
}

impl RefusedReason {
    /// Every reason, in the order of the metrics.
    pub const ALL: [RefusedReason; 6] = [
        RefusedReason::Access,
        RefusedReason::Connections,
        RefusedReason::Silent,
        RefusedReason::Hello,
        RefusedReason::Gone,
        RefusedReason::Token,
    ];

    /// Returns the name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            RefusedReason::Access => "access",
            RefusedReason::Connections => "connections",
            RefusedReason::Silent => "silent",
            RefusedReason::Hello => "hello",
            RefusedReason::Gone => "gone",
            RefusedReason::Token => "token",
        }
    }
}

/// An event of the server's log.
#[derive(Debug)]
pub enum ServerEvent<'a> {
    /// A session waits in the queue.
    Queued(&'a SessionInfo, QueuePosition),
    /// A waiting client disconnected, after this wait.
    LeftQueue(&'a SessionInfo, Duration),
    /// A session started, after this wait.
    Opened(&'a SessionInfo, ResourceGrant, Duration),
    /// A session ended, with or without an error.
    Ended {
        info: &'a SessionInfo,
        bytes: Bytes,
        time: Duration,
        error: Option<&'a SessionError>,
        /// Entries of a copy, up to its end or its failure.
        copy_summary: Option<&'a CopySummary>,
    },
    /// A session was refused.
    Denied(&'a SessionInfo, &'a Refusal),
    /// A connection was closed before it belonged to a session.
    Refused(SocketAddr, RefusedReason, &'a str),
    /// accept(2) failed: no file descriptors or memory.
    AcceptFailed(&'a std::io::Error),
    /// The server accepts no more sessions.
    Stopping {
        running: usize,
        /// Time that the running sessions have.
        drain: Duration,
    },
    /// The stop of the server ended this number of sessions.
    Terminated(usize),
    /// The token file or the audit log cannot be used.
    FileError(&'a str),
    /// Sandbox of the server, as a sentence.
    Sandboxed(&'a str),
}

/// Result of a copy, for the log and the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopySummary {
    /// Counts of the entries.
    pub tally: CopyTally,
    /// Digest of a copied single file.
    pub digest: Option<Digest>,
    /// Directory below the root that the server chose for the copy (`--create-only`).
    pub directory: Option<String>,
}

/// Maximum paths of one request that are recorded; the others are counted.
const MAX_PATHS: usize = 16;

/// Returns the paths that a request names, each cut to a length that fits a log.
fn requested_paths(request: &Request) -> Arc<[String]> {
    const MAX_CHARS: usize = 4096;
    let cut = |path: &ByteString| path.to_string().chars().take(MAX_CHARS).collect::<String>();
    let into = |to: &RemoteDestination| match to {
        RemoteDestination::File { path, .. } => cut(path),
        RemoteDestination::Null => "null:".to_owned(),
    };
    if let Request::IssueToken(token_request) = request {
        return Arc::new([into(&token_request.to)]);
    }
    let all = |from: &[RemoteSource]| -> Vec<String> {
        let named = from.iter().take(MAX_PATHS).map(|from| match from {
            RemoteSource::File { path } => cut(path),
            RemoteSource::Random { bytes } => format!("random:{}", bytes.0),
            RemoteSource::Zero { bytes } => format!("zero:{}", bytes.0),
        });
        let rest = from.len().checked_sub(MAX_PATHS + 1).map(|rest| format!("and {} more", rest + 1));
        named.chain(rest).collect()
    };
    match request {
        Request::Copy(CopyRequest { job: CopyJob::Put { to }, .. }) => Arc::new([into(to)]),
        Request::Disk(disk) => Arc::new([cut(&disk.path)]),
        Request::Copy(CopyRequest { job: CopyJob::Get { from, .. }, .. }) => all(from).into(),
        Request::Send(send) => {
            let peer = format!("to {}", send.receiver.host.chars().take(MAX_CHARS).collect::<String>());
            all(&send.from).into_iter().chain([peer]).collect()
        }
        _ => Arc::default(),
    }
}

impl SessionInfo {
    /// Creates the description of a session. `own` is the fingerprint of this server's key.
    pub(super) fn new(
        client: SocketAddr,
        session: SessionId,
        request: &Request,
        token: Option<Arc<str>>,
        own: Fingerprint,
    ) -> Self {
        let (verb, sends) = match request {
            Request::Test(test) => ("test", test.direction == TestDirection::Reverse),
            Request::Copy(copy) => ("copy", matches!(copy.job, CopyJob::Get { .. })),
            Request::IssueToken(_) => ("issue_token", false),
            Request::Send(_) => ("send", true),
            Request::Path(_) => ("path", false),
            Request::Facts(_) => ("facts", false),
            Request::Addresses(_) => ("addresses", false),
            Request::Disk(_) => ("disk", false),
            Request::Mesh(_) => ("mesh", false),
            Request::Couple(_) => ("couple", false),
        };
        SessionInfo {
            client,
            session: Some(session),
            token,
            verb,
            paths: requested_paths(request),
            requested: requested_resources(request, own),
            sends,
        }
    }
}

/// Returns the resources that a request needs.
fn requested_resources(request: &Request, own: Fingerprint) -> ResourceRequest {
    match request {
        Request::Path(_) => {
            ResourceRequest { streams: 1, time: Some(path::MAX_SESSION_TIME), ..ResourceRequest::default() }
        }
        Request::Facts(_) => {
            ResourceRequest { streams: 0, time: Some(facts::MAX_SESSION_TIME), ..ResourceRequest::default() }
        }
        Request::Addresses(_) => {
            ResourceRequest { streams: 0, time: Some(addresses::MAX_SESSION_TIME), ..ResourceRequest::default() }
        }
        Request::Disk(_) => {
            ResourceRequest { streams: 0, time: Some(disk::MAX_SESSION_TIME), ..ResourceRequest::default() }
        }
        Request::Mesh(_) => {
            ResourceRequest { streams: 0, time: Some(mesh::MAX_SESSION_TIME), ..ResourceRequest::default() }
        }
        Request::Couple(couple) => {
            ResourceRequest { streams: couple.streams, unbounded: true, ..ResourceRequest::default() }
        }
        // The copy that uses the temporary token is counted.
        Request::IssueToken(_) => {
            ResourceRequest { streams: 1, unbounded: true, uncounted: true, ..ResourceRequest::default() }
        }
        Request::Test(test) => {
            let (time, bytes) = (test.time(), test.payload_bytes().map(Bytes));
            // If the server sends, the rate is known.
            let sum = |sum: u64, stream| Some(sum.saturating_add(test.socket.pacing_of(stream)?.0));
            let rate =
                (0..test.streams).try_fold(0, sum).filter(|_| test.direction == TestDirection::Reverse).map(BitRate);
            ResourceRequest { streams: test.streams, time, bytes, rate, ..ResourceRequest::default() }
        }
        // A copy to this server itself is not counted here: the receiving session is counted. The server recognises
        // itself by the fingerprint.
        Request::Send(send) => {
            let uncounted = send.receiver.fingerprint == own;
            ResourceRequest {
                streams: send.max_streams.max(1),
                unbounded: true,
                uncounted,
                ..ResourceRequest::default()
            }
        }
        Request::Copy(copy) => {
            let generated_bytes = |from: &RemoteSource| match from {
                RemoteSource::Random { bytes } | RemoteSource::Zero { bytes } => Some(*bytes),
                RemoteSource::File { .. } => None,
            };
            let sum = |sum: Bytes, from| Some(Bytes(sum.0.saturating_add(generated_bytes(from)?.0)));
            let bytes = match &copy.job {
                CopyJob::Put { .. } => None,
                CopyJob::Get { from, .. } => from.iter().try_fold(Bytes(0), sum),
            };
            ResourceRequest { streams: copy.streams, bytes, unbounded: true, ..ResourceRequest::default() }
        }
    }
}

#[cfg(test)]
mod tests {
    use lfn_results::measure::{TestLoad, TestRequest, UdpRequest};

    use super::*;

    #[test]
    fn ramp_has_no_time_and_datagram_size_counts() {
        let of = |load, udp| {
            let request = TestRequest { load, udp: Some(Box::new(udp)), ..TestRequest::default() };
            let asked = requested_resources(&Request::Test(Box::new(request)), Fingerprint([0; 32]));
            (asked.time, asked.bytes)
        };
        let ten = Duration::from_secs(10);
        let ramp = UdpRequest { ramp: Some(Default::default()), ..UdpRequest::default() };
        let small = UdpRequest { datagram_bytes: Some(400), ..UdpRequest::default() };
        assert_eq!(of(TestLoad::TimeSeconds(ten), UdpRequest::default()), (Some(ten), None));
        assert_eq!(of(TestLoad::TimeSeconds(ten), ramp), (None, None));
        assert_eq!(of(TestLoad::Records(1000), small), (None, Some(Bytes(400_000))));
    }
}
