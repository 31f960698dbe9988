//! The loads of the schedule: starts each one in its slot, and ends it at the deadline of the slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lfn_mesh::schedule::{LoadStarter, Slot};
use lfn_sys::clock;

use super::clock_watch::ClockState;
use super::event::AgentEvent;
use super::load_run;
use super::shared::{AgentPlan, Shared};

/// Interval at which the schedule is asked for the slot that starts now.
const TICK: Duration = Duration::from_millis(200);

/// Runs the loads of this host until the agent stops.
pub(super) fn run(shared: &Shared) {
    let mut before = clock::since_1970();
    let mut starter = LoadStarter::new(before);
    while !shared.is_stopping() {
        thread::sleep(TICK);
        let now = clock::since_1970();
        if now < before {
            // The clock was set back. The pause of a start keeps a slot from being repeated at once.
            starter = LoadStarter::new(now);
        }
        before = now;
        shared.prepare_tomorrow(now);
        let Some((plan, validity)) = shared.valid_plan() else { continue };
        let day = plan.day_plan(now);
        let Some(slot) = starter.due(&day, &plan.host, now) else { continue };
        if !validity.permits(slot) {
            continue;
        }
        if matches!(shared.clock_state(), ClockState::Off { .. }) {
            // The link reports the clock.
            continue;
        }
        if shared.is_refused() {
            // The link reports the refusal.
            continue;
        }
        match shared.reserve() {
            Ok(_space) => run_slot(shared, &plan, slot),
            Err(error) => shared.event(AgentEvent::Skipped { reason: error.to_string() }),
        }
    }
}

fn run_slot(shared: &Shared, plan: &AgentPlan, slot: &Slot) {
    let (test, from, to) = (slot.test.to_string(), slot.from.to_string(), slot.to.to_string());
    shared.event(AgentEvent::LoadStarted { test: test.clone(), from: from.clone(), to: to.clone() });
    let entry = with_deadline(shared, plan, slot.deadline(), |stop| load_run::run(shared, plan, slot, stop));
    let event = match (&entry.error, entry.goodput) {
        (Some(reason), _) => AgentEvent::MeasurementFailed { test, from, to, reason: reason.clone() },
        (None, Some(goodput)) => AgentEvent::Measured { test, from, to, figures: goodput.to_string() },
        (None, None) => AgentEvent::Measured { test, from, to, figures: "no goodput".to_owned() },
    };
    shared.keep(plan, entry, clock::since_1970());
    shared.event(event);
}

/// Sets the flag of `work` at a time since 1970, when the plan is not valid any longer, or when the agent stops. A plan ends
/// during a load only if the agent heard late of the next one. A clock that is set during the load does not move the deadline.
fn with_deadline<T>(
    shared: &Shared,
    plan: &AgentPlan,
    deadline: Duration,
    work: impl FnOnce(&Arc<AtomicBool>) -> T,
) -> T {
    let stop = Arc::new(AtomicBool::new(false));
    let is_over = AtomicBool::new(false);
    let end = clock::since_boot() + deadline.saturating_sub(clock::since_1970());
    thread::scope(|scope| {
        scope.spawn(|| {
            let is_valid = || shared.plan().is_some_and(|valid| valid.digest == plan.digest);
            while !is_over.load(Ordering::Relaxed) && clock::since_boot() < end && !shared.is_stopping() && is_valid() {
                thread::sleep(TICK / 4);
            }
            stop.store(true, Ordering::Relaxed);
        });
        let result = work(&stop);
        is_over.store(true, Ordering::Relaxed);
        result
    })
}
