//! Resources of sessions: the limits of a server, the request of a session, and what the server grants it.

use core::net::IpAddr;
use std::fmt;
use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};

/// One client: an IPv4 address, or the /64 of an IPv6 address, which is the prefix of one subscriber (RFC 6177).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client(IpAddr);

impl Client {
    /// Returns the client with this address.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) => Client(IpAddr::V6((v6.to_bits() >> 64 << 64).into())),
            v4 => Client(v4),
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(v4) => write!(f, "{v4}"),
            IpAddr::V6(v6) => write!(f, "{v6}/64"),
        }
    }
}

/// Scope of a limit: one client, or all clients together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitScope {
    Client,
    Total,
}

impl LimitScope {
    /// Returns the message to a session that waits for a limit of this scope.
    pub fn full_message(self) -> &'static str {
        match self {
            LimitScope::Client => "this client has reached its limit on the server",
            LimitScope::Total => "the server is full",
        }
    }
}

impl fmt::Display for LimitScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LimitScope::Client => "this client",
            LimitScope::Total => "all clients together",
        })
    }
}

/// Limits of one scope; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Maximum number of concurrent sessions.
    pub sessions: u32,
    /// Maximum number of concurrent data streams.
    pub streams: u32,
    /// Total rate of all sessions. Each session gets its part at the start and keeps it.
    pub rate: Option<BitRate>,
    /// Payload bytes in both directions, per [`ServerLimits::quota_window`].
    pub bytes: Option<Bytes>,
    /// Total time of sessions, per [`ServerLimits::quota_window`]. Two concurrent sessions count twice.
    pub time: Option<Duration>,
    /// Maximum number of waiting sessions.
    pub queue: u32,
}

/// All limits of a server's sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Limits of all clients together.
    pub total: ResourceLimits,
    /// Limits of each client.
    pub client: ResourceLimits,
    /// Maximum clients with a running session.
    pub clients: u32,
    /// Maximum data streams of one session.
    pub session_streams: u16,
    /// Maximum duration of one test.
    pub test_time: Duration,
    /// Window in which bytes and time are counted.
    pub quota_window: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        let unlimited =
            ResourceLimits { sessions: 16, streams: 1024, rate: None, bytes: None, time: None, queue: 1024 };
        ServerLimits {
            total: unlimited,
            client: ResourceLimits { sessions: 8, streams: 512, queue: 256, ..unlimited },
            clients: 16,
            session_streams: 256,
            test_time: Duration::from_secs(3600),
            quota_window: Duration::from_secs(24 * 3600),
        }
    }
}

/// Limits of one scope, and the client whose sessions they count: `None` counts all clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScopedLimits {
    pub(super) scope: LimitScope,
    pub(super) whose: Option<Client>,
    pub(super) limits: ResourceLimits,
}

impl ServerLimits {
    /// Returns the limits that apply to the sessions of a client.
    pub(super) fn scopes(&self, client: Client) -> [ScopedLimits; 2] {
        [
            ScopedLimits { scope: LimitScope::Client, whose: Some(client), limits: self.client },
            ScopedLimits { scope: LimitScope::Total, whose: None, limits: self.total },
        ]
    }
}

/// Resources that a session requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceRequest {
    pub streams: u16,
    /// Expected duration, if known.
    pub time: Option<Duration>,
    /// Expected payload bytes, if known.
    pub bytes: Option<Bytes>,
    /// Rate that the session will not exceed, if known.
    pub rate: Option<BitRate>,
    /// The session ends when all data is moved, as in a copy. The maximum duration of a test does not apply.
    pub unbounded: bool,
    /// Additional time after the expected duration in which the client normally ends the session.
    pub grace: Duration,
    /// The session supports another session that would otherwise wait for it. Only the quota of bytes applies. At most
    /// 64 of these sessions run at the same time.
    pub uncounted: bool,
}

impl ResourceRequest {
    /// Returns the expected time to the end of the session, if its time, or its bytes and rate are known.
    pub(super) fn expected_time(&self) -> Option<Duration> {
        let time = self.time.or_else(|| Some(self.rate?.time_for(self.bytes?)))?;
        Some(time.saturating_add(self.grace))
    }
}

/// Resources that an admitted session may use; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceGrant {
    pub streams: u16,
    /// Total rate of all its streams.
    pub rate: Option<BitRate>,
    /// Bytes left in the quotas. Other sessions may use the same bytes.
    pub bytes: Option<Bytes>,
    /// Maximum duration. Other sessions may use the same quota.
    pub time: Option<Duration>,
}
