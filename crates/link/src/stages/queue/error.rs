//! Reasons why parameters of a queue discipline are refused, and their limits.

use std::time::Duration;

use lfn_base::queue_limit::QueueLimit;
use lfn_base::units::{Bytes, show_duration};

/// Maximum number of flow queues of the kernel.
pub(super) const MAX_FLOWS: u32 = 65_536;
pub(super) const MIN_QUANTUM: Bytes = Bytes(256);
pub(super) const MAX_QUANTUM: Bytes = Bytes(16 << 20);

/// Reason why the parameters of a discipline are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DisciplineError {
    /// CoDel reacts to a wait that stays above the target for an interval.
    #[error("codel: target {} is not above zero and below interval {}", show_duration(*target), show_duration(*interval))]
    Target {
        target: Duration,
        /// Configured or default value.
        interval: Duration,
    },
    /// An hour exceeds every round-trip time.
    #[error("codel: interval {} is above 1 h", show_duration(*.0))]
    Interval(Duration),
    /// More flows would only use memory.
    #[error("fq-codel: flows {0} is not from 1 to {max}", max = MAX_FLOWS)]
    FlowQueues(u32),
    /// With a few bytes a packet needs many turns, and gigabytes leave no turns.
    #[error(
        "fq-codel: quantum {} is not from {} to {}", .0.exact(),
        MIN_QUANTUM.exact(), MAX_QUANTUM.exact()
    )]
    Quantum(Bytes),
    /// The probability rises from min to max.
    #[error("red: min {min} is not below max {max}")]
    Thresholds {
        /// Configured or default value.
        min: QueueLimit,
        /// Configured or default value.
        max: QueueLimit,
    },
    /// The average has one unit and cannot be compared with both.
    #[error("red: min {min} and max {max} have different units: give both in bytes or both in packets")]
    Units {
        /// Configured or default value.
        min: QueueLimit,
        /// Configured or default value.
        max: QueueLimit,
    },
    /// A value of zero has no effect.
    #[error("red: {0} of zero has no effect")]
    Zero(&'static str),
}
