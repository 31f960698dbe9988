//! Any text as a sites file: all problems have a position and a hint, and a valid file has a schedule without overlaps on hosts.

#![no_main]

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_mesh::schedule::{DayPlan, continuous_tests};
use lfn_mesh::sites::Sites;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Sites::parse(text) {
        Err(errors) => {
            assert!(!errors.problems.is_empty());
            for error in &errors.problems {
                assert!(error.line >= 1 && error.column >= 1 && !error.problem.hint().is_empty());
            }
        }
        Ok(sites) => {
            let plan = DayPlan::of_day(&sites, Duration::from_secs(1_800_000_000));
            let mut ends: BTreeMap<&str, Duration> = BTreeMap::new();
            for slot in &plan.slots {
                for host in [&*slot.from, &*slot.to] {
                    let end = ends.insert(host, slot.end()).unwrap_or_default();
                    assert!(end <= slot.start, "{host} has two loads");
                }
            }
            if let Some(host) = sites.hosts().next() {
                let _ = continuous_tests(&sites, &host.name);
            }
        }
    }
});
