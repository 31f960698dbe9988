//! Mean times of a step.

use std::time::Duration;

use crate::plan::PlannedRun;
use crate::report::{ComponentReport, ReceivedVariable};

/// Returns the mean time that a model computes in one step; zero without a step.
pub(super) fn mean_compute(report: &ComponentReport) -> Duration {
    per_step(report.compute, report.steps)
}

/// Returns the mean of a time over a number of steps; zero without a step.
pub(super) fn per_step(time: Duration, steps: u64) -> Duration {
    if steps == 0 { Duration::ZERO } else { Duration::from_secs_f64(time.as_secs_f64() / steps as f64) }
}

/// Returns the planned mean time of the steps of a process. A process that resumed ran only the later steps.
pub(super) fn planned_step(plan: &PlannedRun, report: &ComponentReport) -> Duration {
    if report.steps == plan.steps { per_step(plan.run, plan.steps) } else { plan.step }
}

/// Returns the mean wait of a step for a variable, after the first `lag` steps.
pub(super) fn steady_wait(received: &ReceivedVariable, steps: u64, lag: u64) -> Duration {
    per_step(received.steady_wait, steps.saturating_sub(lag).max(1))
}
