//! The plans of two days, which are computed once: a large plan takes seconds.

use std::sync::Arc;
use std::time::Duration;

use lfn_mesh::schedule::DayPlan;
use lfn_mesh::sites::Sites;
use parking_lot::Mutex;

/// Number of plans: today and tomorrow.
const MAX_PLANS: usize = 2;

/// Computed plans, newest first.
#[derive(Default)]
pub(crate) struct Plans(Mutex<Vec<(Arc<Sites>, Arc<DayPlan>)>>);

impl Plans {
    /// Returns the plan of the day that contains `time` (since 1970). A second caller waits for the plan of the first one.
    pub fn of_day(&self, sites: &Arc<Sites>, time: Duration) -> Arc<DayPlan> {
        let mut plans = self.0.lock();
        let is_of_day = |plan: &DayPlan| plan.day <= time && time < plan.day + Duration::from_secs(86_400);
        if let Some((_, plan)) = plans.iter().find(|(of, plan)| Arc::ptr_eq(of, sites) && is_of_day(plan)) {
            return Arc::clone(plan);
        }
        let plan = Arc::new(DayPlan::of_day(sites, time));
        plans.insert(0, (Arc::clone(sites), Arc::clone(&plan)));
        plans.truncate(MAX_PLANS);
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_of_a_day_is_computed_once_for_a_sites_file() {
        let parse =
            || Arc::new(Sites::parse("name = \"m\"\n[[site]]\nname = \"a\"\naddress = \"a.example\"\n").unwrap());
        let (sites, plans) = (parse(), Plans::default());
        let at = Duration::from_secs;
        let first = plans.of_day(&sites, at(100));
        assert!(Arc::ptr_eq(&first, &plans.of_day(&sites, at(86_399))));
        assert!(!Arc::ptr_eq(&first, &plans.of_day(&sites, at(86_400))));
        assert!(!Arc::ptr_eq(&first, &plans.of_day(&parse(), at(100))));
    }
}
