//! Distance of the schedule from its bound.

use super::{TODAY, load, parse, sites_of};
use crate::schedule::{DayPlan, Packing};
use crate::sites::Sites;

/// Returns the only packing of a plan in which everything fits.
fn packing(sites: &Sites) -> Packing {
    let plan = DayPlan::of_day(sites, TODAY);
    assert!(plan.not_fitting.is_empty() && plan.packings.len() == 1, "{:?}", plan.not_fitting.first());
    plan.packings[0].clone()
}

/// Asserts that the packing needs at most `percent` of its bound.
fn assert_within(name: &str, packing: &Packing, percent: u64) {
    let (made, bound) = (packing.makespan.as_secs(), packing.bound.as_secs());
    eprintln!("{name}: {} loads, {made} s of {bound} s ({} %)", packing.loads, made * 100 / bound);
    assert!(made >= bound && made * 100 <= bound * percent, "{name}: {made} s, the bound is {bound} s");
}

#[test]
fn full_meshes_meet_their_bound() {
    for hosts in [2, 3, 4, 5, 6, 21, 50, 100] {
        let sites = sites_of(hosts, &load("t", "6h", ""));
        assert_within(&format!("{hosts} hosts"), &packing(&sites), 100);
    }
}

#[test]
fn shared_interfaces_and_uplinks_stay_near_the_bound() {
    let mut text = "name = \"m\"\n".to_owned();
    for site in 0..10 {
        let host =
            |at: usize| format!("{{ name = \"h{site}-{at}\", address = \"h{site}-{at}\", interface = \"oc3\" }}");
        let hosts: Vec<String> = (0..3).map(host).collect();
        text += &format!("[[site]]\nname = \"s{site}\"\nhost = [{}]\n", hosts.join(", "));
    }
    assert_within("shared interfaces", &packing(&parse(&(text.clone() + &load("t", "6h", "")))), 105);
    text += "[[bottleneck]]\nname = \"b\"\ncapacity = \"1gbit\"\nloads = 3\nsites = [\"s0\", \"s1\", \"s2\", \"s3\", \"s4\"]\n";
    assert_within("three loads on one uplink", &packing(&parse(&(text + &load("t", "1d", "")))), 105);
    let star = "[[group]]\nname = \"g\"\nkind = \"star\"\ncenter = \"s0\"\nmembers = [\"s1\", \"s2\", \"s3\"]\n";
    assert_within("star", &packing(&sites_of(4, &(load("t", "6h", "group = \"g\"") + star))), 100);
    let two = load("a", "6h", "") + &load("b", "6h", "time = \"30s\"");
    assert_within("two lengths", &packing(&sites_of(20, &two)), 110);
}

#[test]
fn random_pairs_over_shared_uplinks_meet_the_bound() {
    for seed in 0..5_u64 {
        // Numbers of a linear congruential generator.
        let mut state = seed;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut text = String::new();
        for uplink in 0..50 {
            let sites: Vec<String> = (0..20).map(|at| format!("\"s{}\"", at * 50 + uplink)).collect();
            let sites = sites.join(", ");
            text += &format!("[[bottleneck]]\nname = \"u{uplink}\"\ncapacity = \"1gbit\"\nsites = [{sites}]\n");
        }
        let mut pairs = std::collections::BTreeSet::new();
        while pairs.len() < 1000 {
            let (first, second) = (draw(1000), draw(1000));
            if first < second {
                pairs.insert(format!("[\"s{first}\", \"s{second}\"]"));
            }
        }
        let pairs: Vec<String> = pairs.into_iter().collect();
        text += &format!("[[group]]\nname = \"g\"\nkind = \"list\"\npairs = [{}]\n", pairs.join(", "));
        let sites = sites_of(1000, &(load("t", "6h", "group = \"g\"") + &text));
        assert_within(&format!("random pairs, seed {seed}"), &packing(&sites), 105);
    }
}
