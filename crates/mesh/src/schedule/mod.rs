//! The schedule: a pure function of the sites file and the time, which every agent computes for itself.
//!
//! Loads have slots ([`DayPlan`]). A host, an interface and a bottleneck never carry two loads at once (see [`timing`]). Other
//! tests run always ([`continuous_tests`]).
//!
//! A plan is computed in three steps. [`load`] lists the loads and the resources of each. [`pack`] finds a short order for the
//! loads of each interval. [`placing`] checks the budgets and places the loads into the windows of the day.
//!
//! A new sites file has a new plan. All agents change to it at one time ([`DatedPlans`]).

mod changeover;
mod continuous;
mod due;
mod load;
mod pack;
mod placing;
mod plan;
mod resources;
mod roles;
mod timeline;
pub mod timing;

#[cfg(test)]
mod tests;

pub use changeover::{Dated, DatedPlans, Validity, next_valid_from};
pub use continuous::{ContinuousCount, ContinuousTest, continuous_counts, continuous_tests, excluded_continuous};
pub use due::{LoadStarter, due};
pub use load::{Excluded, excluded_loads};
pub use plan::{BudgetUse, DayPlan, NotFitting, NotFittingReason, Packing, ResourceLoad, Slot};
pub use resources::Resource;
pub use roles::ExclusionReason;

pub use crate::sites::limits::MAX_PARALLEL_MEASUREMENTS;
