//! Admission control: quotas per client address and in total, and a fair queue.
//!
//! [`AdmissionGate`] only does the accounting. Its caller reports demands, usage and ended sessions, and the gate
//! decides which sessions are admitted. It opens no connection and wakes no thread; `lfn_net::limits::admission` does
//! both. Sessions wait in the queue for concurrent resources (clients, sessions, streams, rate). Resources that are
//! counted over a window (bytes, seconds) only return with time. A session that exceeds them is rejected, and learns
//! when to try again.

mod expected_wait;
mod gate;
mod usage;

pub use expected_wait::ExpectedWait;
pub use gate::{AdmissionDecision, AdmissionGate};

use core::net::IpAddr;
use std::fmt;
use std::time::Duration;

use crate::units::{BitRate, Bytes, show_duration};

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

/// Limits of concurrent use and of use over a window; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaLimits {
    pub sessions: u32,
    /// Maximum concurrent data streams.
    pub streams: u32,
    /// Total rate of all sessions. Each session gets its part at the start and keeps it.
    pub rate: Option<BitRate>,
    /// Payload bytes in both directions, per [`Quotas::window`].
    pub bytes: Option<Bytes>,
    /// Total time of sessions, per [`Quotas::window`]. Two concurrent sessions count twice.
    pub time: Option<Duration>,
}

/// All limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Limits of all clients together.
    pub all: QuotaLimits,
    /// Limits of each client.
    pub client: QuotaLimits,
    /// Maximum clients with a running session.
    pub clients: u32,
    /// Maximum data streams of one session.
    pub session_streams: u16,
    /// Maximum duration of a test.
    pub session_time: Duration,
    /// Window in which bytes and seconds are counted.
    pub window: Duration,
    pub queue: u32,
    /// Maximum waiting sessions of one client.
    pub client_queue: u32,
}

impl Default for Quotas {
    fn default() -> Self {
        Quotas {
            all: QuotaLimits { sessions: 16, streams: 1024, rate: None, bytes: None, time: None },
            client: QuotaLimits { sessions: 8, streams: 512, rate: None, bytes: None, time: None },
            clients: 16,
            session_streams: 256,
            session_time: Duration::from_secs(3600),
            window: Duration::from_secs(24 * 3600),
            queue: 1024,
            client_queue: 256,
        }
    }
}

/// Message to a session that waits for a limit of all clients.
pub const FULL: &str = "the server is full";

/// Message to a session that waits for a limit of its own client.
pub const FULL_FOR_CLIENT: &str = "this client has reached its limit on the server";

/// Resources that a session requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionDemand {
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

/// Resources that an admitted session may use; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionGrant {
    pub streams: u16,
    /// Total rate of all its streams.
    pub rate: Option<BitRate>,
    /// Bytes left in the quotas. Other sessions may use the same bytes.
    pub bytes: Option<Bytes>,
    /// Maximum duration. Other sessions may use the same quota.
    pub time: Option<Duration>,
}

/// Scope of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaScope {
    Client,
    All,
}

impl fmt::Display for QuotaScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuotaScope::Client => "this client",
            QuotaScope::All => "all clients together",
        })
    }
}

/// Reason why a session is rejected without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// More streams than the server ever permits.
    #[error("{requested} streams requested, but the server allows {max}")]
    Streams { requested: u16, max: u32 },
    /// Longer than the server permits for a test.
    #[error("a test of {} requested, but the server allows {}", show_duration(*.requested), show_duration(*.max))]
    Time { requested: Duration, max: Duration },
    /// The bytes of the window are used up, or fewer are left than requested.
    #[error("byte quota of {scope}: {remaining} of {limit} per {} left{}", show_duration(*.window), requested_bytes(.requested))]
    Bytes {
        scope: QuotaScope,
        requested: Option<Bytes>,
        remaining: Bytes,
        limit: Bytes,
        /// Window of the quota.
        window: Duration,
        /// Time until enough is left.
        retry_after: Duration,
    },
    /// The time of the window is used up, or less is left than requested.
    #[error(
        "time quota of {scope}: {} of {} per {} left{}",
        show_duration(*.remaining), show_duration(*.limit), show_duration(*.window), requested_time(.requested)
    )]
    Seconds {
        scope: QuotaScope,
        requested: Option<Duration>,
        remaining: Duration,
        limit: Duration,
        /// Window of the quota.
        window: Duration,
        /// Time until enough is left.
        retry_after: Duration,
    },
    /// The queue is full.
    #[error("{}, and {}", wait_reason(*.limited_by), queue_state(*.waiting, *.scope))]
    QueueFull {
        /// Scope of the quota that the session waits for.
        limited_by: QuotaScope,
        /// Scope of the full queue.
        scope: QuotaScope,
        /// Count of waiting sessions.
        waiting: u32,
        /// Maximum wait of the last waiting session, if known.
        wait: Option<Duration>,
    },
    /// No more sessions are admitted.
    #[error("the server is stopping")]
    Stopping,
}

impl Denial {
    /// Returns the action for the user. For an exhausted quota, names the flag that sets it.
    pub fn hint(&self) -> String {
        let later = |wait: Duration| format!("try again in {}", show_duration(Duration::from_secs(wait.as_secs() + 1)));
        let raised = |hint: String| match self.flag() {
            Some(flag) => format!("{hint}; {flag} of lfn serve sets the limit"),
            None => hint,
        };
        raised(match self {
            Denial::Streams { max: most, .. } => format!("use --streams {most} or fewer"),
            Denial::Time { max: most, .. } => format!("use --time {} or less, or fewer records", most.as_secs_f64()),
            Denial::Bytes { remaining: Bytes(0), retry_after, .. } => later(*retry_after),
            Denial::Bytes { remaining: left, retry_after, .. } => {
                format!("copy {left} or less, or {}", later(*retry_after))
            }
            Denial::Seconds { remaining: left, retry_after, .. } if left.is_zero() => later(*retry_after),
            Denial::Seconds { remaining: left, retry_after, .. } => {
                format!("use --time {} or less, or {}", left.as_secs_f64(), later(*retry_after))
            }
            Denial::QueueFull { wait: Some(wait), .. } => later(*wait),
            Denial::QueueFull { wait: None, .. } => "try again later".into(),
            Denial::Stopping => "try again when the server is running again, or use another server".into(),
        })
    }

    /// Returns the flag of `lfn serve` that sets the exhausted quota.
    fn flag(&self) -> Option<&'static str> {
        Some(match self {
            Denial::Bytes { scope: QuotaScope::Client, .. } => "--client-bytes",
            Denial::Bytes { scope: QuotaScope::All, .. } => "--max-bytes",
            Denial::Seconds { scope: QuotaScope::Client, .. } => "--client-time",
            Denial::Seconds { scope: QuotaScope::All, .. } => "--max-time",
            Denial::Streams { .. } | Denial::Time { .. } | Denial::QueueFull { .. } | Denial::Stopping => return None,
        })
    }
}

fn wait_reason(limiting_scope: QuotaScope) -> &'static str {
    match limiting_scope {
        QuotaScope::Client => FULL_FOR_CLIENT,
        QuotaScope::All => FULL,
    }
}

fn queue_state(waiting: u32, scope: QuotaScope) -> String {
    match waiting {
        0 => "no session may wait".into(),
        waiting => format!("{waiting} sessions of {scope} are waiting"),
    }
}

fn requested_bytes(requested: &Option<Bytes>) -> String {
    requested.map_or(String::new(), |requested| format!(", {requested} requested"))
}

fn requested_time(requested: &Option<Duration>) -> String {
    requested.map_or(String::new(), |requested| format!(", {} requested", show_duration(requested)))
}
