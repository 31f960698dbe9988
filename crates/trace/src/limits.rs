//! Limits of the lists of a connection: all open connections share the memory.

/// Entries of all open connections together. Each connection has its share of these.
const ALL_ROUNDS: usize = 100_000;
const ALL_ARRIVALS: usize = 400_000;
const ALL_RUNS: usize = 320_000;
const ALL_GAPS: usize = 100_000;
const ALL_EVENTS: usize = 100_000;
const ALL_PENDING: usize = 160_000;
const ALL_RESENT: usize = 80_000;
const ALL_TIMESTAMPS: usize = 80_000;
/// Number of open connections above which the total size of all lists decreases: the states of the connections then take most
/// of the memory.
const MANY: usize = 2_500;

/// Maximum number of entries of the lists of one direction. Beyond it, neighbours are merged, or the oldest are forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Finished round trips of the data.
    pub(crate) rounds: u16,
    /// Packets that passed or were lost.
    pub(crate) arrivals: u16,
    /// Sent data that is not acknowledged.
    pub(crate) runs: u16,
    /// Bytes that the capture lacks.
    pub(crate) gaps: u16,
    /// Loss events. Later ones are only counted.
    pub(crate) events: u16,
    /// Acknowledgements on their way to the sender.
    pub(crate) pending: u16,
    /// Ranges of data that were sent again.
    pub(crate) resent: u16,
    /// Timestamps without an echo.
    pub(crate) timestamps: u16,
}

impl Limits {
    /// Limits of a connection while few are open.
    pub(crate) const MAX: Limits = Limits {
        rounds: 1024,
        arrivals: 8192,
        runs: 512,
        gaps: 128,
        events: 512,
        pending: 256,
        resent: 32,
        timestamps: 32,
    };
    /// Limits of a connection while too many are open.
    const MIN: Limits =
        Limits { rounds: 6, arrivals: 8, runs: 8, gaps: 8, events: 8, pending: 4, resent: 4, timestamps: 4 };

    /// Returns the limits of each connection when `open` connections share the memory.
    pub(crate) fn per_connection(open: usize) -> Self {
        let (min, max) = (Limits::MIN, Limits::MAX);
        let parts = open.max(1).max(open * open / MANY);
        let share = |all: usize, min: u16, max: u16| u16::try_from(all / parts).unwrap_or(u16::MAX).clamp(min, max);
        Limits {
            rounds: share(ALL_ROUNDS, min.rounds, max.rounds),
            arrivals: share(ALL_ARRIVALS, min.arrivals, max.arrivals),
            runs: share(ALL_RUNS, min.runs, max.runs),
            gaps: share(ALL_GAPS, min.gaps, max.gaps),
            events: share(ALL_EVENTS, min.events, max.events),
            pending: share(ALL_PENDING, min.pending, max.pending),
            resent: share(ALL_RESENT, min.resent, max.resent),
            timestamps: share(ALL_TIMESTAMPS, min.timestamps, max.timestamps),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits::MAX
    }
}
