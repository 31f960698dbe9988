//! The change from one plan to the next. All agents change at the same time, which the hub announces.
//!
//! The hub announces a plan early enough for each connected agent to hear of it before its last load of the old plan starts
//! ([`next_valid_from`]). A hub announces no further plan before the announced one is valid, so that an agent has two plans at
//! most ([`DatedPlans`]).

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::plan::Slot;
use super::timing::{GUARD, slot_length};
use crate::entry::EntryKind;
use crate::sites::Sites;

/// Time in which every connected agent hears of a new plan, also after a lost connection.
pub const MAX_NOTICE_TIME: Duration = Duration::from_secs(90);

/// Plans become valid at the start of a minute, which is easy to read in logs.
const MINUTE: u64 = 60;

/// Returns the time from which a plan that is announced at `now` is valid. Both times are since 1970. Loads of the plan
/// before it have ended by then.
pub fn next_valid_from(now: Duration, before: &Sites) -> Duration {
    let loads = before.tests.iter().filter(|test| test.kind == EntryKind::Load);
    let longest = loads.map(|test| slot_length(test.time)).max().unwrap_or_default();
    let earliest = now + MAX_NOTICE_TIME + longest + GUARD;
    Duration::from_secs((earliest.as_secs() + 1).div_ceil(MINUTE) * MINUTE)
}

/// A plan with the time from which it is valid.
pub trait Dated {
    /// Returns the time since 1970 from which the plan is valid.
    fn valid_from(&self) -> Duration;
}

impl<P: Dated> Dated for Arc<P> {
    fn valid_from(&self) -> Duration {
        self.as_ref().valid_from()
    }
}

/// The plan that is valid now, and the plan that follows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatedPlans<P> {
    current: Option<P>,
    next: Option<P>,
}

/// Time in which a plan is valid, since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub from: Duration,
    /// Start of the next plan.
    pub until: Option<Duration>,
}

impl Validity {
    /// Reports whether a load of the plan may run in this slot: it neither starts before the plan is valid nor meets a load of
    /// the next plan.
    pub fn permits(&self, slot: &Slot) -> bool {
        slot.start >= self.from && self.until.is_none_or(|until| slot.end() + GUARD <= until)
    }
}

impl<P> Default for DatedPlans<P> {
    fn default() -> Self {
        DatedPlans { current: None, next: None }
    }
}

impl<P: Dated> DatedPlans<P> {
    /// Adds an announced plan at `now` (since 1970). It replaces a plan that is not valid yet.
    pub fn announce(&mut self, plan: P, now: Duration) {
        self.change(now);
        self.next = Some(plan);
        self.change(now);
    }

    /// Returns the plan that is valid at `now` (since 1970), and the time in which it is valid.
    pub fn valid_at(&mut self, now: Duration) -> Option<(&P, Validity)> {
        self.change(now);
        let current = self.current.as_ref()?;
        let until = self.next.as_ref().map(Dated::valid_from);
        Some((current, Validity { from: current.valid_from(), until }))
    }

    /// Returns the plan that was announced last.
    pub fn newest(&self) -> Option<&P> {
        self.next.as_ref().or(self.current.as_ref())
    }

    /// Turns both plans into another type. Plans without a result are omitted.
    pub fn filter_map<T>(&self, convert: impl Fn(&P) -> Option<T>) -> DatedPlans<T> {
        DatedPlans { current: self.current.as_ref().and_then(&convert), next: self.next.as_ref().and_then(&convert) }
    }

    fn change(&mut self, now: Duration) {
        if let Some(next) = self.next.take_if(|next| next.valid_from() <= now) {
            self.current = Some(next);
        }
    }
}
