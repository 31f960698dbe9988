//! The slot that an agent starts now. An agent asks often, at least every half second. Times are since 1970, by the clock of the
//! agent.

use std::time::Duration;

use super::plan::{DayPlan, Slot};
use super::timing::{LATEST_START, START_PAUSE};

/// Decides when an agent starts a load. A slot is started at most once, also by an agent that restarts with another clock
/// error, and never late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadStarter {
    /// Slots that start at this time or before are over.
    last: Duration,
}

impl LoadStarter {
    /// Begins for an agent that starts at `now`.
    pub fn new(now: Duration) -> Self {
        LoadStarter { last: now + START_PAUSE }
    }

    /// Returns the slot that `host` starts at `now`, once.
    pub fn due<'p>(&mut self, plan: &'p DayPlan, host: &str, now: Duration) -> Option<&'p Slot> {
        let slot = due(plan, host, Some(self.last), now)?;
        self.last = slot.start;
        Some(slot)
    }
}

/// Returns the slot of the client `host` that began at most [`LATEST_START`] ago and after `last`. An agent uses
/// [`LoadStarter`], which keeps `last`.
pub fn due<'p>(plan: &'p DayPlan, host: &str, last: Option<Duration>, now: Duration) -> Option<&'p Slot> {
    let earliest = now.saturating_sub(LATEST_START);
    let is_due = |slot: &&Slot| slot.start <= now && last.is_none_or(|last| slot.start > last);
    plan.client_slots(host, earliest).take_while(|slot| slot.start <= now).find(is_due)
}
