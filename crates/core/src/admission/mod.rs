//! Who may be served now, who waits, and what each is allowed: quotas per client address and in all, and a fair queue.
//!
//! [`Gate`] is accounting alone: it is asked, told what was used and when something ended, and says who goes in. It
//! opens nothing and wakes nobody; `lfn_net::server::admission` is the shell with the threads. What is taken at once
//! (clients, sessions, streams, rate) is waited for in the queue; what is spent over a window (bytes, seconds) comes
//! back only with time, so that who has spent it is refused and told when to come again.

mod gate;
mod projection;
mod spent;

pub use gate::{Gate, Turn};
pub use projection::Expected;

use core::net::IpAddr;
use std::fmt;
use std::time::Duration;

use crate::units::{BitRate, Bytes, show_duration};

/// One client: an IPv4 address, or the /64 of an IPv6 address, which is what one subscriber has (RFC 6177).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client(IpAddr);

impl Client {
    /// Whose address this is.
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

/// What may be used at once, and over a window; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Sessions at once.
    pub sessions: u32,
    /// Data streams at once.
    pub streams: u32,
    /// Rate of all sessions together. Each is granted its part when it begins, and keeps it.
    pub rate: Option<BitRate>,
    /// Payload bytes, both ways, in any [`Quotas::window`].
    pub bytes: Option<Bytes>,
    /// Time of sessions, in any [`Quotas::window`]; two at once count twice.
    pub time: Option<Duration>,
}

/// All limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Everybody together.
    pub all: Share,
    /// One client.
    pub client: Share,
    /// Clients with a session at once.
    pub clients: u32,
    /// Data streams of one session.
    pub session_streams: u16,
    /// How long one test may take.
    pub session_time: Duration,
    /// Over which bytes and seconds are counted.
    pub window: Duration,
    /// Sessions that may wait.
    pub queue: u32,
    /// Sessions of one client that may wait.
    pub client_queue: u32,
}

impl Default for Quotas {
    fn default() -> Self {
        Quotas {
            all: Share { sessions: 16, streams: 1024, rate: None, bytes: None, time: None },
            client: Share { sessions: 8, streams: 512, rate: None, bytes: None, time: None },
            clients: 16,
            session_streams: 256,
            session_time: Duration::from_secs(3600),
            window: Duration::from_secs(24 * 3600),
            queue: 1024,
            client_queue: 256,
        }
    }
}

/// What is said to who must wait because all together have what there is.
pub const FULL: &str = "the server is full";

/// What is said to who must wait because its own client has what one client may have.
pub const FULL_FOR_CLIENT: &str = "this client has all that the server allows one client at once";

/// What a session asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Data streams.
    pub streams: u16,
    /// How long it will take, where it says so.
    pub time: Option<Duration>,
    /// How many payload bytes it will move, where it says so.
    pub bytes: Option<Bytes>,
    /// The rate it will keep to, where it says so.
    pub rate: Option<BitRate>,
    /// It ends only when all is moved, however long that takes: a copy. The limit on one test's time is not for it.
    pub unbounded: bool,
    /// How long after its time it is still let go on, where its client ends it.
    pub grace: Duration,
    /// Another session that would have to wait for it is what it is there for: no quota but that of bytes counts it. Of such
    /// there are 64 at once.
    pub uncounted: bool,
}

/// What a session that goes in is allowed; `None` is as much as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Data streams.
    pub streams: u16,
    /// Rate of all its streams together.
    pub rate: Option<BitRate>,
    /// What is left of the quotas; others may spend of the same.
    pub bytes: Option<Bytes>,
    /// How long it may take; others may spend of the same.
    pub time: Option<Duration>,
}

/// Whose quota it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The client's own.
    Client,
    /// Of everybody together.
    All,
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Whose::Client => "this client",
            Whose::All => "all clients together",
        })
    }
}

/// Why a session is not let in, and need not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// More streams than it could ever have.
    #[error("{asked} streams asked for, the server allows {most}")]
    Streams {
        /// As asked.
        asked: u16,
        /// As allowed.
        most: u32,
    },
    /// Longer than any test may take.
    #[error("a test of {} asked for, the server allows {}", show_duration(*.asked), show_duration(*.most))]
    Time {
        /// As asked.
        asked: Duration,
        /// As allowed.
        most: Duration,
    },
    /// The window's bytes are spent, or fewer are left than asked for.
    #[error("{left} of the {limit} in {} that {whose} may move are left{}", show_duration(*.window), asked_bytes(.asked))]
    Bytes {
        /// Whose quota.
        whose: Whose,
        /// As asked, if it was said.
        asked: Option<Bytes>,
        /// What is left.
        left: Bytes,
        /// The quota.
        limit: Bytes,
        /// Over which it is counted.
        window: Duration,
        /// When there is more.
        again: Duration,
    },
    /// The window's seconds are spent, or fewer are left than asked for.
    #[error(
        "{} of the {} in {} that {whose} may use are left{}",
        show_duration(*.left), show_duration(*.limit), show_duration(*.window), asked_time(.asked)
    )]
    Seconds {
        /// Whose quota.
        whose: Whose,
        /// As asked, if it was said.
        asked: Option<Duration>,
        /// What is left.
        left: Duration,
        /// The quota.
        limit: Duration,
        /// Over which it is counted.
        window: Duration,
        /// When there is more.
        again: Duration,
    },
    /// No place to wait.
    #[error("{}, and {}", full(*.held_by), already(*.waiting, *.whose))]
    QueueFull {
        /// Whose quota makes it wait.
        held_by: Whose,
        /// Whose places.
        whose: Whose,
        /// How many wait.
        waiting: u32,
        /// How long the last of them may wait, where that can be said.
        wait: Option<Duration>,
    },
    /// Nobody is let in any more.
    #[error("the server is stopping")]
    Stopping,
}

impl Denied {
    /// What the user can do about it; of a quota that is spent, which flag of the server sets it.
    pub fn hint(&self) -> String {
        let later = |wait: Duration| format!("try again in {}", show_duration(Duration::from_secs(wait.as_secs() + 1)));
        let raised = |hint: String| match self.flag() {
            Some(flag) => format!("{hint}; {flag} of lfn serve sets the limit"),
            None => hint,
        };
        raised(match self {
            Denied::Streams { most, .. } => format!("use --streams {most} or fewer"),
            Denied::Time { most, .. } => format!("use --time {} or less, or fewer records", most.as_secs_f64()),
            Denied::Bytes { left: Bytes(0), again, .. } => later(*again),
            Denied::Bytes { left, again, .. } => format!("ask for {left} or less, or {}", later(*again)),
            Denied::Seconds { left, again, .. } if left.is_zero() => later(*again),
            Denied::Seconds { left, again, .. } => {
                format!("use --time {} or less, or {}", left.as_secs_f64(), later(*again))
            }
            Denied::QueueFull { wait: Some(wait), .. } => later(*wait),
            Denied::QueueFull { wait: None, .. } => "try again later".into(),
            Denied::Stopping => "try again when it runs again, or use another server".into(),
        })
    }

    /// The flag of `lfn serve` that sets what is spent.
    fn flag(&self) -> Option<&'static str> {
        Some(match self {
            Denied::Bytes { whose: Whose::Client, .. } => "--client-bytes",
            Denied::Bytes { whose: Whose::All, .. } => "--max-bytes",
            Denied::Seconds { whose: Whose::Client, .. } => "--client-time",
            Denied::Seconds { whose: Whose::All, .. } => "--max-time",
            Denied::Streams { .. } | Denied::Time { .. } | Denied::QueueFull { .. } | Denied::Stopping => return None,
        })
    }
}

fn full(held_by: Whose) -> &'static str {
    match held_by {
        Whose::Client => FULL_FOR_CLIENT,
        Whose::All => FULL,
    }
}

fn already(waiting: u32, whose: Whose) -> String {
    match waiting {
        0 => "nobody may wait".into(),
        waiting => format!("{waiting} sessions of {whose} wait already"),
    }
}

fn asked_bytes(asked: &Option<Bytes>) -> String {
    asked.map_or(String::new(), |asked| format!(", {asked} asked for"))
}

fn asked_time(asked: &Option<Duration>) -> String {
    asked.map_or(String::new(), |asked| format!(", {} asked for", show_duration(asked)))
}
