//! Laws of the schedule.

use std::time::{Duration, Instant};

use super::*;
use crate::sites::Sites;

fn mesh(hosts: usize, test: &str) -> Sites {
    let site = |at: usize| format!("[[site]]\nname = \"s{at}\"\naddress = \"h{at}\"\nrate = \"1gbit\"\n");
    let sites: String = (0..hosts).map(site).collect();
    Sites::parse(&format!("name = \"m\"\n{sites}\n{test}")).unwrap()
}

const LOAD: &str = "[[test]]\nname = \"t\"\nkind = \"load\"\ninterval = \"6h\"\n";

#[test]
fn packing_of_full_meshes() {
    for hosts in [2, 3, 5, 6, 21, 100] {
        let sites = mesh(hosts, LOAD);
        #[allow(clippy::disallowed_methods, reason = "x")]
        let start = Instant::now();
        let plan = DayPlan::of_day(&sites, Duration::from_secs(1_800_000_000));
        let packing = &plan.packings[0];
        eprintln!(
            "{hosts}: {} loads, bound {} makespan {} slots {} not fitting {} {:?}",
            packing.loads,
            packing.bound.as_secs() / 17,
            packing.makespan.as_secs() / 17,
            plan.slots.len(),
            plan.not_fitting.len(),
            start.elapsed()
        );
    }
}
