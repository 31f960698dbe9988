//! Laws of every plan: slots never overlap, each window has each load once, and budgets are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lfn_base::units::Bytes;
use proptest::prelude::*;

use super::{TODAY, Use, any_sites, check_uses, load, parse, sites_of};
use crate::schedule::timing::GUARD;
use crate::schedule::{DayPlan, NotFittingReason, Resource, continuous_tests};

const DAY: Duration = Duration::from_secs(86_400);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn slots_with_their_guards_never_overlap(sites in any_sites(), day in 0..1000_u32) {
        let plan = DayPlan::of_day(&sites, TODAY + day * DAY);
        let uses: Vec<Use> = plan.slots.iter().map(|slot| Use {
            from: slot.from.to_string(),
            to: slot.to.to_string(),
            start: slot.start,
            end: slot.end() + GUARD,
        }).collect();
        check_uses(&sites, &uses)?;
        prop_assert!(plan.slots.is_sorted_by_key(|slot| slot.start));
        for slot in &plan.slots {
            prop_assert!(slot.start >= plan.day && slot.end() + GUARD <= plan.day + DAY);
            prop_assert!(slot.deadline() > slot.start && slot.client != *slot.server());
        }
    }

    #[test]
    fn each_window_has_each_load_once(sites in any_sites(), day in 0..1000_u32) {
        let plan = DayPlan::of_day(&sites, TODAY + day * DAY);
        let refused: BTreeSet<_> =
            plan.not_fitting.iter().map(|load| (load.test.as_str(), load.from.as_str(), load.to.as_str())).collect();
        let mut windows: BTreeMap<_, Vec<u128>> = BTreeMap::new();
        for slot in &plan.slots {
            let interval = sites.test(&slot.test).unwrap().interval;
            let key = (&*slot.test, &*slot.from, &*slot.to);
            prop_assert!(!refused.contains(&key), "{key:?} has a slot and does not fit");
            windows.entry(key).or_default().push(slot.start.as_nanos() / interval.as_nanos());
        }
        for ((test, _, _), found) in &windows {
            let interval = sites.test(test).unwrap().interval;
            let expected = (DAY.as_secs() / interval.as_secs()).max(1);
            let first = plan.day.as_nanos() / interval.as_nanos();
            let all: Vec<u128> = (0..u128::from(expected)).map(|window| first + window).collect();
            prop_assert_eq!(found, &all);
        }
    }

    #[test]
    fn the_plan_is_the_same_on_every_host(sites in any_sites(), day in 0..1000_u32, second in 0..86_400_u32) {
        let plan = DayPlan::of_day(&sites, TODAY + day * DAY);
        prop_assert_eq!(plan, DayPlan::of_day(&sites.clone(), TODAY + day * DAY + second * Duration::from_secs(1)));
    }
}

#[test]
fn a_pair_sees_every_hour_and_keeps_its_interval() {
    let sites = sites_of(5, &load("t", "1d", ""));
    let mut starts = Vec::new();
    for day in 0..60 {
        let plan = DayPlan::of_day(&sites, TODAY + day * DAY);
        let own = plan.slots.iter().filter(|slot| &*slot.from == "s0" && &*slot.to == "s3");
        starts.extend(own.map(|slot| slot.start.as_secs()));
    }
    let hours: BTreeSet<u64> = starts.iter().map(|start| start % 86_400 / 3600).collect();
    assert_eq!((starts.len(), hours.len()), (60, 24));
    let longest = starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest < 27 * 3600, "{longest}");
}

#[test]
fn loads_of_several_days_are_divided_among_the_days() {
    let sites = sites_of(10, &load("t", "3d", ""));
    let mut seen = BTreeSet::new();
    for day in 0..3 {
        let plan = DayPlan::of_day(&sites, TODAY + day * DAY);
        assert!((25..=35).contains(&plan.slots.len()), "{}", plan.slots.len());
        seen.extend(plan.slots.iter().map(|slot| (slot.from.to_string(), slot.to.to_string())));
    }
    assert_eq!(seen.len(), 90);
}

#[test]
fn loads_beyond_a_budget_are_named() {
    // 1 Gb/s for 10 s are 1.25 GB; four times a day, both ways, to two sites: 20 GB.
    let text = "name = \"m\"\n\
        [[site]]\nname = \"a\"\naddress = \"h1\"\nbudget = \"12GB\"\nrate = \"1gbit\"\n\
        [[site]]\nname = \"b\"\naddress = \"h2\"\n[[site]]\nname = \"c\"\naddress = \"h3\"\n";
    let sites = parse(&format!("{text}{}", load("t", "6h", "group = \"g\"") + GROUP));
    let plan = DayPlan::of_day(&sites, TODAY);
    let named: Vec<_> = plan.not_fitting.iter().map(|load| (load.from.as_str(), load.to.as_str())).collect();
    assert_eq!(named, [("a", "c"), ("c", "a")]);
    let reason = &plan.not_fitting[0].reason;
    let (needed, permitted) = (Bytes(5_000_000_000), Bytes(12_000_000_000));
    let expected = NotFittingReason::Budget { site: "a".to_owned(), needed, used: Bytes(10_000_000_000), permitted };
    assert_eq!(*reason, expected);
    assert_eq!((plan.budgets[0].used, plan.slots.len()), (Bytes(10_000_000_000), 8));
    // Without a rate, the bytes of a load have no limit.
    let text = text.replace("rate = \"1gbit\"\n", "");
    let plan = DayPlan::of_day(&parse(&format!("{text}{}", load("t", "6h", "group = \"g\"") + GROUP)), TODAY);
    assert_eq!(plan.not_fitting[0].reason, NotFittingReason::UnlimitedBytes { site: "a".to_owned() });
    let limited = load("t", "6h", "group = \"g\"\nbytes = \"1GB\"") + GROUP;
    assert!(DayPlan::of_day(&parse(&format!("{text}{limited}")), TODAY).not_fitting.len() == 1);
}

const GROUP: &str = "[[group]]\nname = \"g\"\nkind = \"star\"\ncenter = \"a\"\nmembers = [\"b\", \"c\"]\n";

#[test]
fn a_full_resource_names_the_loads_that_do_not_fit() {
    // 10 loads of 267 s on one bottleneck do not fit into 30 minutes.
    let text = "[[bottleneck]]\nname = \"uplink\"\ncapacity = \"1gbit\"\nsites = [\"s0\"]\n";
    let group = "[[group]]\nname = \"g\"\nkind = \"star\"\ncenter = \"s0\"\nmembers = [\"s1\", \"s2\", \"s3\", \"s4\", \"s5\"]\n";
    let sites = sites_of(6, &(load("t", "30min", "time = \"260s\"\ngroup = \"g\"") + text + group));
    let plan = DayPlan::of_day(&sites, TODAY);
    assert_eq!((plan.not_fitting.len(), plan.slots.len()), (4, 6 * 48));
    let is_full = |reason: &NotFittingReason| matches!(reason, NotFittingReason::Full { resource: Resource::Host { name }, percent: 89 } if name == "s0");
    assert!(plan.not_fitting.iter().all(|load| is_full(&load.reason)), "{:?}", plan.not_fitting);
    let sites = sites_of(2, &load("t", "5min", "time = \"5min\""));
    let plan = DayPlan::of_day(&sites, TODAY);
    assert!(plan.not_fitting[0].reason.to_string().contains("needs 307 s and the interval has 300 s"));
}

#[test]
fn dial_only_hosts_are_clients_and_no_pair() {
    let text = "name = \"m\"\n\
        [[site]]\nname = \"open\"\naddress = \"h1\"\n[[site]]\nname = \"nat1\"\ndial-only = true\n\
        [[site]]\nname = \"nat2\"\ndial-only = true\n[[site]]\nname = \"server\"\naddress = \"h2\"\nkind = \"serve\"\n";
    let plan = DayPlan::of_day(&parse(&format!("{text}{}", load("t", "1d", ""))), TODAY);
    let clients: BTreeSet<_> = plan.slots.iter().map(|slot| (&*slot.from, &*slot.to, &*slot.client)).collect();
    assert!(clients.contains(&("open", "nat1", "nat1")) && clients.contains(&("nat1", "open", "nat1")));
    assert!(clients.contains(&("server", "open", "open")) && clients.contains(&("server", "nat2", "nat2")));
    let excluded: Vec<_> = plan.excluded.iter().map(|pair| (pair.from.as_str(), pair.to.as_str())).collect();
    assert_eq!(excluded, [("nat1", "nat2"), ("nat2", "nat1")]);
    assert!(plan.excluded[0].reason.to_string().contains("both hosts are dial-only"));
}

#[test]
fn own_loads_are_found_on_shared_resources() {
    let bottleneck = "[[bottleneck]]\nname = \"uplink\"\ncapacity = \"1gbit\"\nsites = [\"s0\", \"s2\"]\n";
    let group = "[[group]]\nname = \"g\"\nkind = \"list\"\npairs = [[\"s0\", \"s1\"]]\n";
    let sites = sites_of(5, &(load("t", "1d", "group = \"g\"\ndirections = \"forward\"") + bottleneck + group));
    let plan = DayPlan::of_day(&sites, TODAY);
    let slot = &plan.slots[0];
    let second = Duration::from_secs(1);
    let during = |first: &str, other: &str| plan.own_load(first, other, slot.start, slot.start + second);
    assert!(during("s0", "s4") && during("s3", "s1"));
    // The path from s2 to s3 passes the bottleneck, the path from s3 to s4 does not.
    assert!(during("s2", "s3") && !during("s3", "s4") && !during("nowhere", "s0"));
    let own = |from, until| plan.own_load("s0", "s1", from, until);
    assert!(!own(TODAY, slot.start - 2 * second) && !own(slot.end() + 2 * second, TODAY + DAY));
    assert!(own(TODAY, TODAY + DAY) && own(slot.end() + second, slot.end() + second));
}

#[test]
fn continuous_tests_have_phases_and_no_slots() {
    let text = "[[test]]\nname = \"delay\"\nkind = \"latency\"\ninterval = \"1min\"\n\
        [[test]]\nname = \"own\"\nkind = \"counters\"\ninterval = \"10s\"\n";
    let sites = sites_of(4, text);
    assert!(DayPlan::of_day(&sites, TODAY).slots.is_empty());
    let tests = continuous_tests(&sites, "s0");
    let names: Vec<_> = tests.iter().map(|test| (test.test.as_str(), test.to.as_str())).collect();
    assert_eq!(names, [("delay", "s1"), ("delay", "s2"), ("delay", "s3"), ("own", "s0")]);
    for test in &tests {
        let first = test.next_start(TODAY);
        assert!(first > TODAY && first <= TODAY + test.interval && test.phase < test.interval);
        assert_eq!(test.next_start(first), first + test.interval);
        assert_eq!(test.next_start(Duration::ZERO).max(test.phase), test.next_start(Duration::ZERO));
    }
    assert!(continuous_tests(&sites, "nowhere").is_empty());
}
