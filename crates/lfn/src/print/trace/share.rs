//! Shares of the time, the same in text and pictures.

use lfn_results::evidence::capture::PeriodLimit;

/// Returns a limit with its share of the time, from 0 to 1.
pub fn limit_and_share(limit: PeriodLimit, share: f64) -> String {
    match share * 100.0 {
        percent if percent < 0.5 => format!("{} < 1 %", limit.name()),
        percent => format!("{} {percent:.0} %", limit.name()),
    }
}
