//! Events of an agent for its log.

use std::path::PathBuf;
use std::time::Duration;

/// An event of an agent.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEvent {
    /// The server for the tests of other agents listens.
    Serving { port: u16 },
    /// The server for the tests of other agents does not start.
    NotServing { reason: String },
    /// The hub announced a plan. `later` is the time since 1970 from which it is valid, if it is not valid yet.
    PlanReceived { host: String, tests: usize, later: Option<Duration> },
    /// The plan of the hub cannot be used.
    PlanRefused { reason: String },
    /// The hub answers again, or for the first time.
    Connected { pending: u64 },
    /// The hub does not answer. The agent keeps its entries and measures on.
    Disconnected { reason: String },
    /// The hub refuses this agent, which measures nothing.
    Refused { reason: String },
    /// The answer of the hub could not be recorded. The hub receives the entries again.
    NotAcknowledged { reason: String },
    /// Entries of the spool are damaged and lost. The file is kept.
    SpoolDamaged { lost: u64, path: PathBuf },
    /// The hub answered, but could not store the entries.
    NotStored { reason: String },
    /// The hub will never store an entry.
    EntryRefused { number: u64, reason: String },
    /// A load of the schedule begins.
    LoadStarted { test: String, from: String, to: String },
    /// A measurement has an entry.
    Measured { test: String, from: String, to: String, figures: String },
    /// A measurement failed, with another reason than before. The entry has the reason.
    MeasurementFailed { test: String, from: String, to: String, reason: String },
    /// A measurement that failed before has figures again.
    Recovered { test: String, from: String, to: String },
    /// There is no measurement, because its entry could not be kept.
    Skipped { reason: String },
    /// An entry could not be kept.
    NotKept { reason: String },
    /// The clock differs from the clock of the hub by this much; no loads run.
    ClockOff { by: Duration },
    /// The clock is right again.
    ClockRight,
}
