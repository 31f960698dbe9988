//! Reasons why a session is refused, with the message and the hint for its client.

use std::fmt;
use std::time::Duration;

use lfn_base::units::{Bytes, show_duration};

use super::resources::{LimitScope, ResourceLimits};

/// Resource that is counted over a window. Amounts are bytes or nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaResource {
    Bytes,
    Time,
}

impl QuotaResource {
    /// Returns the limit of the resource, in bytes or nanoseconds.
    pub(super) fn limit(self, limits: &ResourceLimits) -> Option<u64> {
        match self {
            QuotaResource::Bytes => limits.bytes.map(|bytes| bytes.0),
            QuotaResource::Time => limits.time.map(nanos),
        }
    }

    /// Returns the least amount that is worth a new attempt: a byte, or a second.
    pub(super) fn minimum(self) -> u64 {
        match self {
            QuotaResource::Bytes => 1,
            QuotaResource::Time => 1_000_000_000,
        }
    }

    fn show(self, amount: u64) -> String {
        match self {
            QuotaResource::Bytes => Bytes(amount).to_string(),
            QuotaResource::Time => show_duration(Duration::from_nanos(amount)),
        }
    }

    /// Returns the instruction to use at most an amount.
    fn use_less(self, amount: u64) -> String {
        match self {
            QuotaResource::Bytes => format!("copy {} or less", Bytes(amount)),
            QuotaResource::Time => format!("use --time {} or less", Duration::from_nanos(amount).as_secs_f64()),
        }
    }

    /// Returns the flag of `lfn serve` that sets the quota.
    fn flag(self, scope: LimitScope) -> &'static str {
        match (self, scope) {
            (QuotaResource::Bytes, LimitScope::Client) => "--client-bytes",
            (QuotaResource::Bytes, LimitScope::Total) => "--max-bytes",
            (QuotaResource::Time, LimitScope::Client) => "--client-time",
            (QuotaResource::Time, LimitScope::Total) => "--max-time",
        }
    }
}

impl fmt::Display for QuotaResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuotaResource::Bytes => "byte",
            QuotaResource::Time => "time",
        })
    }
}

/// Converts a duration to the amount of a quota, at most 584 years.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Reason why a session is refused without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// More streams than the server ever permits.
    #[error("{requested} streams requested, but the server allows {max}")]
    Streams { requested: u16, max: u32 },
    /// Longer than the server permits for a test.
    #[error("a test of {} requested, but the server allows {}", show_duration(*.requested), show_duration(*.max))]
    Time { requested: Duration, max: Duration },
    /// The quota of the window is used up, or less is left than requested.
    #[error(
        "{resource} quota of {scope}: {} of {} per {} left{}",
        .resource.show(*.remaining), .resource.show(*.limit), show_duration(*.window),
        .requested.map_or(String::new(), |requested| format!(", {} requested", .resource.show(requested)))
    )]
    Quota {
        resource: QuotaResource,
        scope: LimitScope,
        requested: Option<u64>,
        remaining: u64,
        limit: u64,
        window: Duration,
        /// Time until enough is left.
        retry_after: Duration,
    },
    /// The queue is full.
    #[error(
        "{}, and {}",
        .limited_by.full_message(),
        if *.waiting == 0 { "no session may wait".into() } else { format!("{waiting} sessions of {scope} are waiting") }
    )]
    QueueFull {
        /// Scope of the limit that the session would wait for.
        limited_by: LimitScope,
        /// Scope of the full queue.
        scope: LimitScope,
        /// Count of waiting sessions.
        waiting: usize,
        /// Estimated wait behind these sessions, if known.
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
        match *self {
            Denial::Streams { max, .. } => format!("use --streams {max} or fewer"),
            Denial::Time { max, .. } => format!("use --time {} or less, or fewer records", max.as_secs_f64()),
            Denial::Quota { resource, scope, remaining, retry_after, .. } => {
                let less = if remaining == 0 { String::new() } else { resource.use_less(remaining) + ", or " };
                format!("{less}{}; {} of lfn serve sets the limit", later(retry_after), resource.flag(scope))
            }
            Denial::QueueFull { wait: Some(wait), .. } => later(wait),
            Denial::QueueFull { wait: None, .. } => "try again later".into(),
            Denial::Stopping => "try again when the server is running again, or use another server".into(),
        }
    }
}
