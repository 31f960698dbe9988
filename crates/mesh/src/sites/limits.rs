//! Limits of a sites file. A file beyond a limit is refused before it needs time or memory.

use std::time::Duration;

/// Maximum length of a sites file, bytes.
pub const MAX_FILE_BYTES: usize = 4 << 20;

/// Maximum sites, and maximum hosts, circuits, bottlenecks, groups, tests, audiences and maintenance windows each.
pub const MAX_ITEMS: usize = 10_000;

/// Maximum pairs of hosts of all tests together; each direction counts.
pub const MAX_PAIRS: u64 = 1_000_000;

/// Maximum loads a day of all tests together.
pub const MAX_LOADS_A_DAY: u64 = 1_000_000;

/// Maximum loads at a time of a bottleneck.
pub const MAX_CONCURRENT_LOADS: u64 = 100;

/// Maximum bottlenecks that name the same site, and that name the same pair.
pub const MAX_BOTTLENECKS_A_PLACE: usize = 16;

/// Maximum length of a name, bytes.
pub(super) const MAX_NAME: usize = 63;

/// Maximum length of other texts, characters.
pub(super) const MAX_TEXT: usize = 200;

/// Maximum problems that are listed.
pub(super) const MAX_LISTED_PROBLEMS: usize = 100;

/// Maximum problems that are collected before the reader stops.
pub(super) const MAX_PROBLEMS: usize = 10_000;

/// Maximum measurements without slots (latency and paths) that an agent runs at once.
pub const MAX_PARALLEL_MEASUREMENTS: usize = 64;

/// Time of one measurement of a path in the count of measurements at once.
pub(super) const PATH_TIME: Duration = Duration::from_secs(5);

/// Minimum interval of a test.
pub const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum interval of a test.
pub const MAX_INTERVAL: Duration = Duration::from_secs(366 * 86_400);

/// Minimum of the maximum length of a load.
pub const MIN_LOAD_TIME: Duration = Duration::from_secs(1);

/// Maximum length of a load.
pub const MAX_LOAD_TIME: Duration = Duration::from_secs(3600);

/// Maximum streams of a load.
pub const MAX_STREAMS: u64 = 128;
