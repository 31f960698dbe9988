//! Tests of the sites file: valid files, every kind of problem, and limits.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};
use proptest::prelude::*;

use super::pairs::HostTable;
use super::*;
use crate::entry::EntryKind;

const FULL: &str = r#"
name = "vbns"
[hub]
address = "192.0.2.100:7324"
keep-detail = "30d"
[[site]]
name = "ncar"
place = "Boulder"
budget = "300GB"
contacts = [{ name = "J9", mail = "j9@ncar.example", role = "technical" }]
host = [
  { name = "aztec", address = "192.0.2.1:7323", interface = "oc3", rate = "155mbit" },
  { name = "winterpark", address = "[2001:db8::1]:7323", interface = "oc3", kind = "serve" },
]
[[site]]
name = "sdsc"
address = "192.0.2.2"
contacts = [{ name = "NOC", mail = "noc@sdsc.example", role = "security" }]
[[site]]
name = "home"
dial-only = true
[[operator]]
name = "MCI"
contacts = [{ name = "Engineering", mail = "eng@mci.example", role = "operator" }]
[[bottleneck]]
name = "oc3-sdsc"
capacity = "135mbit"
sites = ["sdsc"]
pairs = [["ncar", "home"]]
loads = 2
[[circuit]]
name = "ds3"
between = ["ncar", "sdsc"]
operator = "MCI"
capacity = "135mbit"
rtt = "40ms"
bottleneck = "oc3-sdsc"
[[group]]
name = "centres"
kind = "mesh"
members = ["ncar", "sdsc"]
[[test]]
name = "goodput"
kind = "load"
group = "centres"
interval = "6h"
time = "12s"
bytes = "1GB"
streams = 4
congestion = "cubic"
[[test]]
name = "delay"
kind = "latency"
interval = "1min"
[[audience]]
name = "notices"
kind = "announce"
roles = ["technical", "security"]
mails = ["list@vbns.example"]
[[maintenance]]
circuit = "ds3"
start = 2026-12-01T02:00:00Z
duration = "2h"
every = "7d"
reason = "card"
"#;

#[test]
fn a_complete_file_is_read() {
    let sites = Sites::parse(FULL).unwrap();
    let names: Vec<&str> = sites.hosts().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["aztec", "winterpark", "sdsc", "home"]);
    let aztec = sites.host("aztec").unwrap();
    assert_eq!((aztec.kind, aztec.rate), (HostKind::Agent, Some(BitRate(155_000_000))));
    assert_eq!((aztec.site.as_str(), aztec.address.as_deref()), ("ncar", Some("192.0.2.1:7323")));
    assert_eq!(sites.site("ncar").unwrap().budget, Some(Bytes(300_000_000_000)));
    let home = sites.host("home").unwrap();
    assert_eq!((home.dial_only, &home.address, home.site.as_str()), (true, &None, "home"));
    let goodput = sites.test("goodput").unwrap();
    assert_eq!((goodput.kind, goodput.time), (EntryKind::Load, Duration::from_secs(12)));
    assert_eq!((goodput.bytes, goodput.streams), (Some(Bytes(1_000_000_000)), Some(4)));
    assert_eq!(sites.maintenance[0].length, Duration::from_secs(7200));
    assert_eq!(sites.hub.keep_detail, Some(Duration::from_secs(30 * 86_400)));
    assert_eq!(sites.bottleneck("oc3-sdsc").unwrap().loads, 2);
    assert_eq!(sites.circuit("ds3").unwrap().operator.as_deref(), Some("MCI"));
}

#[test]
fn a_site_means_its_hosts_in_pairs() {
    let sites = Sites::parse(FULL).unwrap();
    let table = HostTable::new(&sites);
    let names = |test: &str| -> Vec<String> {
        let pairs = table.pairs(sites.test(test).unwrap());
        pairs.iter().map(|pair| format!("{}-{}", table.host(pair.from).name, table.host(pair.to).name)).collect()
    };
    // Hosts of one site are no pair.
    assert_eq!(names("goodput"), ["aztec-sdsc", "sdsc-aztec", "winterpark-sdsc", "sdsc-winterpark"]);
    assert_eq!(names("delay").len(), 10);
    for test in &sites.tests {
        assert_eq!(table.count(test), table.pairs(test).len() as u64, "{}", test.name);
    }
}

/// A short valid file, to which tests add tables.
const SHORT: &str =
    "name = \"m\"\n[[site]]\nname = \"a\"\naddress = \"h1\"\n[[site]]\nname = \"b\"\naddress = \"h2\"\n";

fn problems(text: &str) -> Vec<String> {
    let errors = Sites::parse(text).unwrap_err();
    for error in &errors.problems {
        assert!(!error.problem.hint().is_empty());
    }
    errors.problems.iter().map(SitesError::to_string).collect()
}

#[test]
fn every_problem_names_line_column_and_value() {
    let load = |keys: &str| format!("[[test]]\nname = \"t\"\nkind = \"load\"\n{keys}");
    let cases = [
        ("speed = 3".to_owned(), "line 8, column 1: unknown key 'speed' in [[site]]"),
        (
            "[[site]]\nname = \"a\"\naddress = \"h3\"".to_owned(),
            "line 9, column 8: site 'a' occurs twice: the first one is in line 3",
        ),
        ("[[site]]\nname = \"c\"\naddress = \"h1\"".to_owned(), "line 10, column 11: address 'h1' occurs twice"),
        ("[[site]]\nname = \"c\"".to_owned(), "line 8, column 1: [[site]] has no 'address'"),
        ("[[site]]\nname = \"c d\"\naddress = \"h3\"".to_owned(), "'c d' is not a valid name"),
        ("[[site]]\nname = \"c\"\naddress = \"h:0\"".to_owned(), "'h:0' is not an address"),
        ("host = [{ name = \"a\", address = \"h4\" }]".to_owned(), "host 'a' has the name of another site"),
        ("kind = \"router\"".to_owned(), "'kind' in [[site]]: 'router' is not one of agent, serve, iperf3, stamp"),
        ("kind = \"serve\"\ndial-only = true".to_owned(), "line 9, column 1: host 'b' is dial-only"),
        ("rate = \"155\"".to_owned(), "'rate' in [[site]]: '155' has no unit"),
        ("budget = 5".to_owned(), "'budget' in [[site]] is not a text in quotes"),
        (
            "contacts = [{ name = \"x\", mail = \"nomail\", role = \"technical\" }]".to_owned(),
            "'nomail' is not a mail address",
        ),
        (load("interval = \"7h\""), "line 11, column 1: interval 7 h of load test 't' neither divides a day"),
        (load(""), "[[test]] has no 'interval'"),
        (load("interval = \"6h\"\ngroup = \"g\""), "line 12, column 9: unknown group 'g'"),
        (load("interval = \"6h\"\ntime = \"2h\""), "'time' in [[test]] is 2 h: the range is 1 s to 1 h"),
        (load("interval = \"6h\"\nstreams = 0"), "'streams' in [[test]] is 0: the range is 1 to 128"),
        (
            "[[test]]\nname = \"t\"\nkind = \"path\"\ninterval = \"1min\"\nbytes = \"1GB\"".to_owned(),
            "line 12, column 1: 'bytes' is not for a test of kind path",
        ),
        (
            "[[group]]\nname = \"g\"\nkind = \"mesh\"\nmembers = [\"a\", \"z\"]".to_owned(),
            "line 11, column 17: unknown site or host 'z'",
        ),
        (
            "[[group]]\nname = \"g\"\nkind = \"mesh\"\nmembers = []\ncenter = \"a\"".to_owned(),
            "'center' is not for a group of kind mesh",
        ),
        (
            "[[group]]\nname = \"g\"\nkind = \"list\"\npairs = [[\"a\", \"a\"]]".to_owned(),
            "a pair joins 'a' with itself",
        ),
        ("[[bottleneck]]\nname = \"x\"\ncapacity = \"1gbit\"".to_owned(), "[[bottleneck]] names no traffic"),
        ("[[bottleneck]]\nname = \"x\"\nsites = [\"a\"]".to_owned(), "[[bottleneck]] has no 'capacity'"),
        (
            "[[maintenance]]\nsite = \"a\"\nstart = 2026-12-01T02:00:00Z\nend = 2026-12-01T01:00:00Z".to_owned(),
            "before its start at 2026-12-01T02:00:00.000Z",
        ),
        ("[[maintenance]]\nsite = \"a\"\nstart = 2026-12-01T02:00:00Z".to_owned(), "[[maintenance]] names no end"),
        (
            "[[maintenance]]\nstart = 2026-12-01T02:00:00Z\nduration = \"1h\"".to_owned(),
            "[[maintenance]] names no place",
        ),
        (
            "[[maintenance]]\nsite = \"a\"\nstart = 2026-12-01\nduration = \"2h\"\nevery = \"1h\"".to_owned(),
            "a window of 2 h repeats after 1 h",
        ),
        ("[hub]\nticket = \"x\"".to_owned(), "unknown key 'ticket' in [hub]"),
        (
            "[[circuit]]\nname = \"c\"\nbetween = [\"a\", \"b\"]\noperator = \"MCI\"".to_owned(),
            "line 11, column 12: unknown operator 'MCI'",
        ),
        (
            "[[test]]\nname = \"t\"\nkind = \"latency\"\ninterval = \"10s\"\ntime = \"20s\"".to_owned(),
            "line 12, column 1: 'time' 20 s of test 't' is longer than its interval 10 s",
        ),
        ("stamp-port = 8620".to_owned(), "line 8, column 1: 'stamp-port' is not for a host of kind agent"),
        ("name = ".to_owned(), "not TOML: "),
    ];
    for (added, says) in cases {
        let found = problems(&format!("{SHORT}{added}\n"));
        assert!(found.iter().any(|problem| problem.contains(says)), "{added}: {found:?}");
    }
}

#[test]
fn a_wrong_site_name_is_the_only_problem() {
    let file = |name: &str| format!("{SHORT}[[site]]\n{name}address = \"h3\"\nrate = \"1gbit\"\n");
    assert_eq!(problems(&file("name = \"c d\"\n")), ["line 9, column 8: 'c d' is not a valid name"]);
    assert_eq!(problems(&file("")), ["line 8, column 1: [[site]] has no 'name'"]);
    let host = format!("{SHORT}[[site]]\nname = \"c\"\nhost = [{{ address = \"h3\", rate = \"1gbit\" }}]\n");
    assert_eq!(problems(&host), ["line 10, column 9: host of [[site]] has no 'name'"]);
}

/// Returns the hints of the problems of a file.
fn hints(text: &str) -> Vec<String> {
    Sites::parse(text).unwrap_err().problems.iter().map(|error| error.problem.hint()).collect()
}

#[test]
fn a_key_near_a_known_one_is_one_problem() {
    let text = format!("{SHORT}[[test]]\nname = \"t\"\nkind = \"path\"\nintervall = \"1min\"\n");
    assert_eq!(problems(&text), ["line 11, column 1: unknown key 'intervall' in [[test]]"]);
    assert_eq!(hints(&text), ["did you mean interval?"]);
    let text = format!("{SHORT}[[test]]\nname = \"t\"\nkind = \"path\"\nx = \"1min\"\n");
    assert_eq!(problems(&text).len(), 2);
}

#[test]
fn an_interval_without_a_unit_suggests_seconds_and_hours() {
    let text = format!("{SHORT}[[test]]\nname = \"t\"\nkind = \"load\"\ninterval = \"6\"\n");
    assert_eq!(hints(&text), ["write \"6s\" for seconds or \"6h\" for hours"]);
}

#[test]
fn a_host_with_too_many_measurements_at_once_is_a_problem() {
    let site = |at: usize| format!("[[site]]\nname = \"s{at}\"\naddress = \"h{at}\"\n");
    let sites: String = (0..100).map(site).collect();
    let file = |time: &str| {
        let test = format!("[[test]]\nname = \"t\"\nkind = \"latency\"\ninterval = \"1min\"\ntime = \"{time}\"\n");
        format!("name = \"m\"\n{sites}{test}")
    };
    assert!(Sites::parse(&file("30s")).is_ok());
    let found = problems(&file("1min"));
    assert_eq!(found.len(), 100);
    assert!(found[0].ends_with("would run 99 measurements at once: the maximum of an agent is 64"), "{}", found[0]);
}

#[test]
fn a_latency_measurement_is_at_most_an_interval() {
    let test = "[[test]]\nname = \"t\"\nkind = \"latency\"\ninterval = \"1s\"\n";
    let sites = Sites::parse(&format!("{SHORT}{test}")).unwrap();
    assert_eq!(sites.test("t").unwrap().time, Duration::from_secs(1));
}

#[test]
fn all_problems_of_a_file_are_listed() {
    let text = format!("{SHORT}rat = 1\n[[test]]\nname = \"t\"\nkind = \"lod\"\ninterval = \"6\"\n[[tset]]\n");
    let found = problems(&text);
    assert_eq!(found.len(), 4, "{found:?}");
    let many = "[[site]]\nname = 3\n".repeat(5000);
    let errors = Sites::parse(&format!("name = \"m\"\n{many}")).unwrap_err();
    assert_eq!(errors.problems.len(), 100);
    assert!(errors.skipped >= 4900 && errors.to_string().contains("more"));
}

#[test]
fn a_mesh_beyond_the_limits_is_refused() {
    let site = |at: usize| format!("[[site]]\nname = \"s{at}\"\naddress = \"h{at}\"\n");
    let many: String = (0..10_000).map(site).collect();
    let text = format!("name = \"m\"\n{many}[[test]]\nname = \"t\"\nkind = \"load\"\ninterval = \"1d\"\n");
    assert!(problems(&text)[0].contains("99990000 pairs of hosts: the maximum is 1000000"));
    let few: String = (0..100).map(site).collect();
    let text = format!("name = \"m\"\n{few}[[test]]\nname = \"t\"\nkind = \"load\"\ninterval = \"1min\"\n");
    assert!(problems(&text)[0].contains("loads a day: the maximum is 1000000"));
    assert!(problems(&"#".repeat(5 << 20))[0].contains("the maximum is 4194304"));
    let deep = format!("name = {}", "[".repeat(100_000));
    assert!(!problems(&deep).is_empty());
}

proptest! {
    #[test]
    fn any_text_ends_in_sites_or_in_problems(text in "[a-z0-9\\[\\]=\"{},.:\n -]{0,200}") {
        if let Err(errors) = Sites::parse(&text) {
            prop_assert!(!errors.problems.is_empty() && !errors.to_string().is_empty());
        }
    }

    #[test]
    fn a_changed_file_ends_in_sites_or_in_problems(at in 0..FULL.len(), length in 0..30_usize, with in "[a-z0-9\\[\\]=\"{}\n -]{0,5}") {
        let end = (at + length).min(FULL.len());
        let text = format!("{}{with}{}", &FULL[..at], &FULL[end..]);
        if let Err(errors) = Sites::parse(&text) {
            prop_assert!(!errors.problems.is_empty());
            prop_assert!(errors.problems.iter().all(|error| error.line >= 1 && error.column >= 1));
        }
    }
}

#[test]
fn contacts_and_audiences_follow_roles_and_sites() {
    let sites = Sites::parse(FULL).unwrap();
    let mails = |people: Vec<Person>| people.into_iter().map(|person| person.mail).collect::<Vec<_>>();
    assert_eq!(mails(sites.circuit_contacts(sites.circuit("ds3").unwrap())), ["eng@mci.example", "j9@ncar.example"]);
    let bottleneck = sites.bottleneck("oc3-sdsc").unwrap();
    assert_eq!(mails(sites.bottleneck_contacts(bottleneck)), ["eng@mci.example", "j9@ncar.example"]);
    assert_eq!(mails(sites.audience_members(&sites.audiences[0])), ["j9@ncar.example", "noc@sdsc.example"]);
    let everybody = Audience { roles: Vec::new(), ..sites.audiences[0].clone() };
    assert_eq!(sites.audience_members(&everybody).len(), 3);
}

#[test]
fn maintenance_concerns_the_pairs_of_its_circuit() {
    let sites = Sites::parse(FULL).unwrap();
    let start = Duration::from_secs(1_796_090_400);
    let during = |first: &str, second: &str| sites.maintenance_of(first, second, start, start).is_some();
    // The bottleneck of the circuit has the traffic of sdsc, and that of ncar and home.
    assert!(during("aztec", "sdsc") && during("home", "sdsc") && during("home", "winterpark"));
    assert!(!during("aztec", "winterpark") && !during("aztec", "nowhere"));
    let hour = Duration::from_secs(3600);
    assert!(sites.maintenance_of("aztec", "sdsc", start - hour, start - hour / 2).is_none());
    let windows = sites.next_windows(start + 3 * hour);
    assert_eq!((windows.len(), windows[0].window.start), (1, start + 7 * 24 * hour));
}
