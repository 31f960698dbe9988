//! Tests of the schedule: its laws for random meshes, agents in virtual time, and how near it comes to its bound.

mod agents;
mod laws;
mod packing;

use std::time::Duration;

use proptest::prelude::*;

use crate::sites::Sites;

/// A day of 2027.
const TODAY: Duration = Duration::from_secs(1_800_000_000 / 86_400 * 86_400);

/// Returns a file of sites with one host each.
fn sites_of(count: usize, rest: &str) -> Sites {
    let site = |at: usize| format!("[[site]]\nname = \"s{at}\"\naddress = \"h{at}\"\nrate = \"1gbit\"\n");
    let sites: String = (0..count).map(site).collect();
    parse(&format!("name = \"m\"\n{sites}\n{rest}"))
}

fn parse(text: &str) -> Sites {
    Sites::parse(text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// A load test of all sites.
fn load(name: &str, interval: &str, rest: &str) -> String {
    format!("[[test]]\nname = \"{name}\"\nkind = \"load\"\ninterval = \"{interval}\"\n{rest}\n")
}

/// A host of a random mesh: its site, and its keys.
fn any_host() -> impl Strategy<Value = (usize, String)> {
    let keys = prop_oneof![
        4 => Just(""),
        2 => Just(", interface = \"eth0\""),
        1 => Just(", dial-only = true"),
        1 => Just(", kind = \"serve\""),
        1 => Just(", kind = \"stamp\""),
        1 => Just(", kind = \"iperf3\", interface = \"eth0\""),
    ];
    (0..5_usize, keys).prop_map(|(site, keys)| (site, keys.to_owned()))
}

/// Test of a random mesh: its interval, its length in seconds, and its directions.
fn any_test() -> impl Strategy<Value = String> {
    let intervals = prop::sample::select(vec!["10min", "30min", "1h", "90min", "6h", "8h", "1d", "3d"]);
    let directions = prop::sample::select(vec!["both", "forward", "reverse"]);
    (intervals, 1..120_u64, directions).prop_map(|(interval, time, directions)| {
        load("NAME", interval, &format!("time = \"{time}s\"\ndirections = \"{directions}\""))
    })
}

/// A bottleneck of a random mesh: its site, a second site, and its loads at a time.
fn any_bottleneck() -> impl Strategy<Value = (usize, usize, u64)> {
    (0..5_usize, 0..5_usize, 1..4_u64)
}

/// Sites with hosts of all kinds, shared interfaces and bottlenecks, without tests.
fn any_topology() -> impl Strategy<Value = String> {
    let hosts = prop::collection::vec(any_host(), 0..8);
    let bottlenecks = prop::collection::vec(any_bottleneck(), 0..4);
    (hosts, bottlenecks).prop_map(|(hosts, bottlenecks)| {
        let mut text = "name = \"random\"\n".to_owned();
        for site in 0..5 {
            text += &format!("[[site]]\nname = \"s{site}\"\nhost = [{{ name = \"s{site}\", address = \"a{site}\" }}");
            for (number, (_, keys)) in hosts.iter().enumerate().filter(|(_, (own, _))| *own == site) {
                text += &format!(", {{ name = \"h{number}\", address = \"b{number}\"{keys} }}");
            }
            text += "]\n";
        }
        for (number, (first, second, loads)) in bottlenecks.iter().enumerate() {
            let pairs =
                if first == second { String::new() } else { format!("pairs = [[\"s{first}\", \"s{second}\"]]\n") };
            let sites = format!("sites = [\"s{first}\"]\n");
            let traffic = if number % 2 == 0 || first == second { sites } else { pairs };
            text += &format!("[[bottleneck]]\nname = \"b{number}\"\ncapacity = \"1gbit\"\nloads = {loads}\n{traffic}");
        }
        text
    })
}

/// One to three tests of a random mesh.
fn any_tests() -> impl Strategy<Value = String> {
    let number = |(number, test): (usize, String)| test.replace("NAME", &format!("t{number}"));
    prop::collection::vec(any_test(), 1..4).prop_map(move |tests| tests.into_iter().enumerate().map(number).collect())
}

/// A random mesh of five sites with its tests.
fn any_sites() -> impl Strategy<Value = Sites> {
    (any_topology(), any_tests()).prop_map(|(topology, tests)| parse(&format!("{topology}{tests}")))
}

/// A random mesh with two sets of tests.
fn any_two_plans() -> impl Strategy<Value = (Sites, Sites)> {
    (any_topology(), any_tests(), any_tests())
        .prop_map(|(topology, old, new)| (parse(&format!("{topology}{old}")), parse(&format!("{topology}{new}"))))
}

/// Time of one load on the resources of its pair.
#[derive(Debug, Clone)]
struct Use {
    from: String,
    to: String,
    start: Duration,
    end: Duration,
}

/// Names of everything that a pair occupies, from the text of the sites file alone, with the loads that each carries at once.
fn occupied(sites: &Sites, from: &str, to: &str) -> Vec<(String, u64)> {
    let hosts = [from, to].map(|name| sites.host(name).unwrap());
    let mut names: Vec<(String, u64)> = vec![(format!("host {from}"), 1), (format!("host {to}"), 1)];
    for host in hosts {
        if let Some(interface) = &host.interface {
            names.push((format!("interface {} {interface}", host.site), 1));
        }
    }
    let is = |name: &String, at: usize| *name == hosts[at].site || *name == hosts[at].name;
    for bottleneck in &sites.bottlenecks {
        let leaves_site =
            hosts[0].site != hosts[1].site && bottleneck.sites.iter().any(|site| is(site, 0) || is(site, 1));
        let is_pair = |[a, b]: &[String; 2]| (is(a, 0) && is(b, 1)) || (is(a, 1) && is(b, 0));
        if leaves_site || bottleneck.pairs.iter().any(is_pair) {
            names.push((format!("bottleneck {}", bottleneck.name), bottleneck.loads));
        }
    }
    names.sort();
    names.dedup();
    names
}

/// Checks that no resource carries more loads at once than it may.
fn check_uses(sites: &Sites, uses: &[Use]) -> Result<(), TestCaseError> {
    let mut by_resource: std::collections::BTreeMap<(String, u64), Vec<&Use>> = Default::default();
    for item in uses {
        for resource in occupied(sites, &item.from, &item.to) {
            by_resource.entry(resource).or_default().push(item);
        }
    }
    for ((name, loads), uses) in by_resource {
        for item in &uses {
            let at_once = uses.iter().filter(|other| other.start <= item.start && item.start < other.end).count();
            prop_assert!(at_once as u64 <= loads, "{name} carries {at_once} loads at {:?}: {uses:?}", item.start);
        }
    }
    Ok(())
}
