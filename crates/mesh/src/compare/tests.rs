//! Tests of the comparison, with the records of the vBNS of 1997 and with changed figures.

use std::time::Duration;

use lfn_base::date;
use lfn_base::units::BitRate;
use proptest::prelude::*;

use super::*;
use crate::entry::{Entry, EntryKind, Marks};

/// Records of the quarterly report of NLANR, January to March 1997.
const VBNS: &str = include_str!("../../../../contrib/mesh/vbns-1997.ndjson");

fn vbns() -> Vec<Entry> {
    VBNS.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn day(text: &str) -> Duration {
    date::parse(text).unwrap()
}

fn compare_vbns(to: &str) -> DayComparison {
    let entries = vbns();
    let log = |time| DayLog::of(&entries, "ncar", to, day(time));
    compare(&log("1997-03-03"), &log("1997-03-04"))
}

fn explaining(direction: &DirectionComparison) -> Vec<(&str, u64)> {
    let causes = direction.differences.iter().filter(|difference| difference.effect.explains());
    causes.map(|cause| (cause.name.as_str(), cause.effect.limit.unwrap().0)).collect()
}

/// A load with the goodput in Mb/s at an RTT of 100 ms.
fn load(time: &str, goodput: u64, conditions: &[(&str, &str)]) -> Entry {
    let conditions = conditions.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Entry {
        goodput: Some(BitRate(goodput * 1_000_000)),
        base_rtt: Some(Duration::from_millis(100)),
        capacity: Some(BitRate(1_000_000_000)),
        conditions,
        ..Entry::new(EntryKind::Load, "a", "b", day(time))
    }
}

fn compare_loads(first: Entry, second: Entry) -> DayComparison {
    let [one, other] = [first.time, second.time];
    let entries = [first, second];
    compare(&DayLog::of(&entries, "a", "b", one), &DayLog::of(&entries, "a", "b", other))
}

#[test]
fn missing_window_scale_explains_the_two_days_of_1997() {
    for (to, limit) in [("sdsc", 13_107_000), ("psc", 14_563_333)] {
        let compared = compare_vbns(to);
        for direction in [&compared.forward, &compared.reverse] {
            assert_eq!(explaining(direction), [("window_scale", limit)], "{to}");
            assert!(!direction.has(DifferenceKind::Network), "{to}");
        }
        assert_eq!(compared.conclusion, Conclusion::TestChanged);
        assert!(compared.summary.contains("window_scale (none → 4) explains"), "{}", compared.summary);
    }
}

#[test]
fn small_buffer_of_1997_is_no_explanation() {
    let compared = compare_vbns("psc");
    let buffer = compared.forward.differences.iter().find(|difference| difference.name == "receive_buffer").unwrap();
    assert_eq!(buffer.effect.explanation, Explanation::NoLowerLimit);
    assert_eq!(buffer.effect.limit, Some(BitRate(88_888_889)));
}

#[test]
fn order_of_the_days_does_not_change_the_cause() {
    let entries = vbns();
    let log = |time| DayLog::of(&entries, "ncar", "sdsc", day(time));
    let compared = compare(&log("1997-03-04"), &log("1997-03-03"));
    assert_eq!(explaining(&compared.forward), [("window_scale", 13_107_000)]);
}

#[test]
fn log_of_a_day_has_what_the_five_centres_kept() {
    let log = DayLog::of(&vbns(), "ncar", "sdsc", day("1997-03-03T23:59:59Z"));
    assert_eq!((log.day, log.entries()), (day("1997-03-03"), 6));
    let forward = &log.forward;
    assert_eq!(forward.routes.len(), 1);
    assert_eq!(forward.bdp.unwrap().0, 675_000);
    assert_eq!(forward.goodput.unwrap().median, BitRate(9_862_000));
    assert_eq!(forward.predicted, Some(BitRate(13_107_000)));
    assert_eq!((forward.packets, forward.lost_packets), (4, 0));
    assert_eq!(forward.conditions["window_scale"], "none");
    assert_eq!(log.reverse.rtt.unwrap().min, forward.rtt.unwrap().min);
}

#[test]
fn same_goodput_needs_no_explanation() {
    let compared = compare_loads(
        load("2026-01-01", 900, &[("send_buffer", "100000000")]),
        load("2026-01-02", 910, &[("send_buffer", "200000000")]),
    );
    assert_eq!(compared.conclusion, Conclusion::Unchanged);
    assert_eq!(compared.forward.differences.len(), 1);
}

#[test]
fn each_condition_with_a_known_effect_explains() {
    // Conditions of the slower day and of the faster day, and a goodput of the slower day near the limit.
    let cases: [(&str, &str, &str, u64); 7] = [
        ("receive_buffer", "1000000", "50000000", 75),
        ("send_buffer", "1000000", "50000000", 75),
        ("window", "1000000", "50000000", 75),
        ("window_scale", "0", "10", 5),
        ("pacing", "100000000", "2000000000", 90),
        ("rate_limit", "100000000", "2000000000", 90),
        ("interface_rate.to", "100000000", "10000000000", 90),
    ];
    for (name, slow, fast, goodput) in cases {
        let compared =
            compare_loads(load("2026-01-01", goodput, &[(name, slow)]), load("2026-01-02", 900, &[(name, fast)]));
        assert_eq!(compared.conclusion, Conclusion::TestChanged, "{name}: {compared:?}");
        assert_eq!(compared.forward.differences[0].name, name);
    }
}

#[test]
fn streams_explain_with_a_window_per_stream() {
    let window = ("receive_buffer", "1250000");
    let compared = compare_loads(
        load("2026-01-01", 90, &[window, ("streams", "1")]),
        load("2026-01-02", 700, &[window, ("streams", "8")]),
    );
    assert_eq!(explaining(&compared.forward), [("streams", 100_000_000)]);
}

#[test]
fn longer_rtt_is_a_change_of_the_network() {
    let window = [("receive_buffer", "1250000")];
    let near = Entry { base_rtt: Some(Duration::from_millis(10)), ..load("2026-01-01", 900, &window) };
    let compared = compare_loads(near, load("2026-01-02", 95, &window));
    assert_eq!(explaining(&compared.forward), [("base_rtt", 100_000_000)]);
    assert_eq!(compared.conclusion, Conclusion::NetworkChanged);
    assert!(compared.summary.starts_with("The network changed."), "{}", compared.summary);
}

#[test]
fn loss_is_a_change_of_the_network() {
    let conditions = [("congestion", "reno")];
    let lost = |time: &str, lost_packets| Entry {
        packets: Some(100_000),
        lost_packets: Some(lost_packets),
        ..Entry::new(EntryKind::Latency, "a", "b", day(time))
    };
    let entries = [
        load("2026-01-01", 900, &conditions),
        lost("2026-01-01", 0),
        load("2026-01-02", 4, &conditions),
        lost("2026-01-02", 100),
    ];
    let log = |time| DayLog::of(&entries, "a", "b", day(time));
    let compared = compare(&log("2026-01-01"), &log("2026-01-02"));
    let [(name, limit)] = explaining(&compared.forward)[..] else { panic!("{compared:?}") };
    assert_eq!((name, compared.conclusion), ("loss", Conclusion::NetworkChanged));
    assert!((4_000_000..5_000_000).contains(&limit), "{limit}");
}

#[test]
fn samples_under_own_load_do_not_count_as_loss() {
    let sample = |time: &str, own_load, lost_packets| Entry {
        packets: Some(100),
        lost_packets: Some(lost_packets),
        marks: Marks { own_load, ..Marks::default() },
        ..Entry::new(EntryKind::Latency, "a", "b", day(time))
    };
    let entries = [sample("2026-01-01T01:00:00Z", false, 1), sample("2026-01-01T02:00:00Z", true, 60)];
    let log = |entries: &[Entry]| DayLog::of(entries, "a", "b", day("2026-01-01")).forward;
    assert_eq!((log(&entries).packets, log(&entries).lost_packets), (100, 1));
    assert_eq!(log(&entries[1..]).lost_packets, 60);
}

#[test]
fn loads_during_maintenance_do_not_count() {
    let marks = Marks { maintenance: true, ..Marks::default() };
    let usual = load("2026-01-01T01:00:00Z", 900, &[("mtu", "9000")]);
    let other = Entry { marks, ..load("2026-01-01T02:00:00Z", 10, &[("mtu", "1500")]) };
    let log = DayLog::of(&[usual.clone(), other.clone()], "a", "b", usual.time).forward;
    let goodput = log.goodput.unwrap();
    assert_eq!((log.loads.len(), goodput.min, goodput.max), (2, BitRate(900_000_000), BitRate(900_000_000)));
    assert_eq!(log.conditions["mtu"], "9000");
    let compared = compare_loads(Entry { time: day("2026-01-02"), ..usual }, other);
    assert_eq!(compared.conclusion, Conclusion::NoGoodput);
}

#[test]
fn other_path_alone_explains_nothing() {
    let trace = |time: &str, hop: &str| Entry {
        hops: vec!["192.0.2.1".into(), hop.into()],
        ..Entry::new(EntryKind::Path, "a", "b", day(time))
    };
    let entries = [
        load("2026-01-01", 900, &[("kernel.from", "6.1")]),
        trace("2026-01-01", "198.51.100.1"),
        load("2026-01-02", 400, &[("kernel.from", "6.12")]),
        trace("2026-01-02", "198.51.100.2"),
    ];
    let log = |time| DayLog::of(&entries, "a", "b", day(time));
    let compared = compare(&log("2026-01-01"), &log("2026-01-02"));
    assert_eq!(compared.conclusion, Conclusion::Unexplained);
    let names: Vec<&str> = compared.forward.differences.iter().map(|difference| difference.name.as_str()).collect();
    assert_eq!(names, ["kernel.from", "path"]);
}

#[test]
fn condition_that_changes_within_a_day_is_listed_with_its_times() {
    let entries =
        [load("2026-01-01T01:00:00Z", 900, &[("mtu", "9000")]), load("2026-01-01T02:00:00Z", 900, &[("mtu", "1500")])];
    let log = DayLog::of(&entries, "a", "b", day("2026-01-01")).forward;
    assert!(log.conditions.is_empty());
    let values: Vec<_> = log.changed_conditions["mtu"].iter().map(|period| period.value.as_deref()).collect();
    assert_eq!(values, [Some("9000"), Some("1500")]);
}

#[test]
fn two_changes_can_explain_only_together() {
    // Half the window and twice the RTT.
    let first =
        Entry { base_rtt: Some(Duration::from_millis(50)), ..load("2026-01-01", 780, &[("window", "5000000")]) };
    let compared = compare_loads(first, load("2026-01-02", 170, &[("window", "2500000")]));
    assert!(compared.forward.together, "{compared:?}");
    assert_eq!(compared.conclusion, Conclusion::BothChanged);
}

proptest! {
    #[test]
    fn any_conditions_are_compared(
        values in proptest::collection::vec(("[a-z_.]{1,12}|window_scale|streams|mss|mtu|window|send_buffer", "[0-9]{0,20}|none|[a-z]{0,5}"), 0..8),
        goodputs in (0_u64..u64::MAX, 0_u64..u64::MAX),
        rtt in 0_u64..u64::MAX,
    ) {
        let conditions: Vec<(&str, &str)> = values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let entry = |time: &str, goodput, conditions: &[(&str, &str)]| Entry {
            goodput: Some(BitRate(goodput)),
            base_rtt: Some(Duration::from_nanos(rtt)),
            ..load(time, 0, conditions)
        };
        let half = conditions.len() / 2;
        let compared = compare_loads(
            entry("2026-01-01", goodputs.0, &conditions[..half]),
            entry("2026-01-02", goodputs.1, &conditions[half..]),
        );
        prop_assert!(serde_json::to_string(&compared).is_ok());
    }
}
