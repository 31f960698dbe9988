//! The slot that an agent starts now. An agent asks often, at least every half second; nothing is remembered but the last
//! started slot.

use std::time::Duration;

use super::plan::{DayPlan, Slot};
use super::timing::LATEST_START;

/// Returns the slot that `host` starts at `now`: one that began at most [`LATEST_START`] ago, and after the start of the last
/// slot that the host started. A slot that was missed is never started late. All times are since 1970, by the clock of the host.
pub fn due<'p>(plan: &'p DayPlan, host: &'p str, last: Option<Duration>, now: Duration) -> Option<&'p Slot> {
    let earliest = now.saturating_sub(LATEST_START);
    plan.slots_of_client(host)
        .find(|slot| slot.start >= earliest && slot.start <= now && last.is_none_or(|last| slot.start > last))
}

/// Returns the start of the next slot of `host` after `now`, if this day has one.
pub fn next_start(plan: &DayPlan, host: &str, now: Duration) -> Option<Duration> {
    plan.slots_of_client(host).map(|slot| slot.start).find(|start| *start > now)
}
