//! Settings by name and as text, overlays of settings, hops from settings, and the built-in profiles.

use std::time::Duration;

use lfn_base::framing::Layer;
use lfn_base::path::PathProfile;
use lfn_base::units::{BitRate, Bytes};
use lfn_link::profile::{BUILT_IN, Profile};
use lfn_link::settings::{HopSettings, KEYS, SettingsError};
use lfn_link::{Discipline, EmulatedPath, QueueLimit};
use proptest::prelude::*;

fn hop(spec: &str) -> HopSettings {
    let mut hop = HopSettings::default();
    for pair in spec.split(',').filter(|pair| !pair.is_empty()) {
        hop.set_pair(pair).unwrap_or_else(|error| panic!("{pair}: {error}"));
    }
    hop
}

fn path(specs: &[&str]) -> Result<EmulatedPath, SettingsError> {
    EmulatedPath::new(&specs.iter().map(|spec| hop(spec)).collect::<Vec<_>>(), 1500)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn delay(hop: &lfn_link::LinkConfig) -> Duration {
    hop.delay.as_constant().unwrap()
}

#[test]
fn example_of_every_key_round_trips() {
    for key in KEYS.iter() {
        let mut settings = HopSettings::default();
        settings.set(key.name, key.example).unwrap_or_else(|error| panic!("{}: {error}", key.name));
        let (name, written) = settings.entries().next().unwrap();
        assert_eq!(name, key.name);
        assert!(!written.contains([',', ' ']), "{name}={written}");
        assert_eq!(hop(&format!("{name}={written}")), settings, "{name}={written}");
        for name in key.one_way {
            let set = HopSettings::default().set(name, key.example);
            assert_eq!(set.is_ok(), key.has_direction, "{name}");
        }
    }
}

#[test]
fn rtt_is_halved_and_delay_is_one_way() {
    let one = path(&["rate=1gbit,rtt=539000001ns"]).unwrap();
    assert_eq!(delay(&one.forward[0]) + delay(&one.back[0]), Duration::from_nanos(539_000_001));
    assert_eq!(delay(&one.forward[0]), Duration::from_nanos(269_500_000));
    let uneven = path(&["rate=1gbit,delay=20ms,return-delay=50ms"]).unwrap();
    assert_eq!((delay(&uneven.forward[0]), delay(&uneven.back[0])), (ms(20), ms(50)));
    assert_eq!(uneven.profile.base_rtt, ms(70));
}

#[test]
fn direction_setting_overrides_both() {
    let uneven = path(&["return-rate=5mbit,rate=100mbit,rtt=20ms,forward-loss=1e-3,loss=1e-2"]).unwrap();
    assert_eq!(uneven.capacities(), [BitRate(100_000_000), BitRate(5_000_000)]);
    assert_eq!([&uneven.forward, &uneven.back].map(|hops| hops[0].loss.mean().get()), [1e-3, 1e-2]);
    assert_eq!(uneven.profile.capacity, BitRate(100_000_000));
}

#[test]
fn delays_of_hops_in_series_add_up() {
    let chain = path(&["rate=2gbit,rtt=10ms,loss=1e-2", "rate=1gbit,rtt=90ms,queue=1bdp,loss=1e-2"]).unwrap();
    assert_eq!(chain.profile.base_rtt, ms(100));
    assert_eq!(chain.profile.capacity, BitRate(1_000_000_000));
    assert_eq!(chain.forward.iter().map(delay).collect::<Vec<_>>(), [ms(5), ms(45)]);
    assert_eq!(chain.back.iter().map(delay).collect::<Vec<_>>(), [ms(45), ms(5)]);
    // A BDP is computed for the whole path at the rate of the hop.
    assert_eq!(chain.forward[0].queue, QueueLimit::Bytes(Bytes(25_000_000)));
    assert_eq!(chain.forward[1].queue, QueueLimit::Bytes(Bytes(12_500_000)));
    assert!((chain.profile.loss.get() - 0.0199).abs() < 1e-12);
    // A hop without delay is valid if another hop has a delay.
    assert_eq!(path(&["rate=2gbit", "rate=1gbit,rtt=90ms"]).unwrap().profile.base_rtt, ms(90));
}

#[test]
fn bdp_queue_holds_at_least_ten_packets() {
    let queue = |spec: &str| path(&[&format!("rate=135mbit,rtt=539ms,{spec}")]).unwrap().forward[0].queue;
    assert_eq!(queue(""), QueueLimit::Bytes(Bytes(9_095_625)));
    assert_eq!(queue("queue=0.5bdp"), QueueLimit::Bytes(Bytes(4_547_813)));
    assert_eq!(queue("queue=300ms"), QueueLimit::Bytes(Bytes(5_062_500)));
    assert_eq!(queue("queue=100p"), QueueLimit::Packets(100));
    let short = path(&["rate=1mbit,rtt=1ms"]).unwrap();
    assert_eq!(short.forward[0].queue, QueueLimit::Bytes(Bytes(15_140)));
}

#[test]
fn layer_and_discipline_reach_link_and_profile() {
    let atm = path(&["rate=10mbit,rtt=20ms,overhead=atm-aal5,aqm=fq-codel,ecn=on"]).unwrap();
    assert_eq!((atm.profile.framing.layer, atm.forward[0].layer), (Layer::AtmAal5, Layer::AtmAal5));
    assert!(matches!(atm.back[0].discipline, Discipline::FqCoDel(_)) && atm.back[0].ecn);
}

#[test]
fn overlay_replaces_settings_of_the_same_kind() {
    let cases = [
        ("rate=1mbit,loss=1e-4", "loss=1e-5", "rate=1mbit,loss=1e-5"),
        ("rate=1mbit,return-loss=1e-4", "loss=1e-5", "rate=1mbit,loss=1e-5"),
        ("loss=1e-4", "return-loss=1e-5", "loss=1e-4,return-loss=1e-5"),
        ("delay=20ms", "rtt=90ms", "rtt=90ms"),
        ("forward-delay=20ms,return-delay=30ms", "rtt=90ms", "rtt=90ms"),
        ("rtt=90ms", "delay=20ms", "delay=20ms"),
        ("rtt=90ms", "return-delay=20ms", "forward-delay=45ms,return-delay=20ms"),
        ("rate=5mbit,loss=1e-4", "trace=lte-drive", "trace=lte-drive,loss=1e-4"),
        ("rate=5mbit", "return-trace=lte-drive", "rate=5mbit,return-trace=lte-drive"),
        ("return-trace=lte-drive", "rate=5mbit", "rate=5mbit"),
        ("trace=starlink-handovers", "rate=5mbit", "rate=5mbit,trace=starlink-handovers"),
        ("trace=starlink-handovers", "rtt=90ms", "rtt=90ms"),
        ("trace=starlink-handovers,rate=1mbit", "trace=none", "rate=1mbit,trace=none"),
        ("rtt=90ms", "trace=starlink-handovers", "trace=starlink-handovers"),
        ("policer=1mbit:20kB", "policer=none", "policer=none"),
        ("path-mtu=1400:black-hole", "forward-path-mtu=none", "path-mtu=1400:black-hole,forward-path-mtu=none"),
    ];
    for (under, over, wanted) in cases {
        let mut settings = hop(under);
        settings.overlay(&hop(over));
        let (mut got, mut want): (Vec<_>, Vec<_>) = (settings.entries().collect(), hop(wanted).entries().collect());
        got.sort();
        want.sort();
        assert_eq!(got, want, "{under} under {over}");
    }
}

#[test]
fn trace_sets_the_values_it_contains() {
    let drive = path(&["rtt=70ms,forward-rate=6mbit,return-trace=lte-drive"]).unwrap();
    assert_eq!(drive.forward[0].rate.as_constant(), Some(BitRate(6_000_000)));
    assert_eq!(drive.back[0].rate.period(), Some(Duration::from_secs(120)));
    let [_, back] = drive.capacities();
    assert!((12_000_000..14_000_000).contains(&back.0), "{back}");
    let dish = path(&["trace=starlink-handovers,rate=100mbit"]).unwrap();
    assert!((ms(20)..ms(21)).contains(&dish.profile.base_rtt), "{:?}", dish.profile.base_rtt);
    assert!(dish.forward[0].delay.as_constant().is_none());
}

#[test]
fn trace_file_is_read_by_the_caller() {
    let mut settings = hop("rtt=20ms,trace=some.csv");
    let unread = EmulatedPath::new(std::slice::from_ref(&settings), 1500).unwrap_err().to_string();
    assert!(unread.contains("some.csv"), "{unread}");
    let refused = settings.clone().read_traces(&mut |_| Err("no such file".to_owned())).unwrap_err().to_string();
    assert_eq!(refused, "trace some.csv: no such file");
    let broken = settings.clone().read_traces(&mut |_| Ok("1\nx".to_owned())).unwrap_err().to_string();
    assert_eq!(broken, "trace some.csv: line 2: 'x' is not a time in whole milliseconds");
    settings.read_traces(&mut |name| Ok(format!("# {name}\n1\n2\n4\n"))).unwrap();
    let path = EmulatedPath::new(&[settings], 1500).unwrap();
    assert_eq!(path.profile.capacity, BitRate(9_000_000));
    assert_eq!(path.profile.framing.layer, Layer::Ip);
}

#[test]
fn contradictory_settings_are_refused() {
    let cases = [
        ("rate=1mbit", "rtt is missing"),
        ("rtt=20ms", "rate is missing"),
        ("rtt=20ms,forward-rate=1mbit", "rate is missing for the direction from far to near"),
        ("rate=1mbit,return-delay=20ms", "delay is missing for the direction from near to far"),
        ("rate=1mbit,rtt=20ms,delay=5ms", "rtt and delay contradict each other"),
        ("rate=1mbit,rtt=20ms,return-delay=5ms", "rtt and return-delay contradict each other"),
        ("rate=1mbit,rtt=20ms,trace=starlink-handovers", "rtt and trace contradict each other"),
        ("rate=1mbit,rtt=20ms,trace=lte-drive", "rate and trace contradict each other"),
        ("rate=1mbit,delay=20ms,trace=starlink-handovers", "delay and trace contradict each other"),
        // This trace sets the rate only.
        ("rtt=20ms,delay=3ms,trace=lte-drive", "rtt and delay contradict each other"),
        ("rtt=20ms,return-delay=3ms,trace=lte-drive", "rtt and return-delay contradict each other"),
        ("rate=1mbit,rtt=20ms,return-trace=starlink-handovers", "rtt and return-trace contradict each other"),
        ("rate=1mbit,rtt=20ms,ecn=on", "ecn has no effect without an aqm"),
        ("rate=1mbit,rtt=20ms,aqm=drop-tail,ecn=on", "ecn has no effect without an aqm"),
        ("rate=0,rtt=20ms", "0 b/s"),
        ("rate=1mbit,rtt=0s", "the RTT of the path is zero"),
        ("rate=1mbit,rtt=20ms,queue=500B", "a queue of 500 B is too small for a packet of 1.514 kB"),
        ("rate=1mbit,rtt=20ms,jitter=0s:reorder", "a jitter of zero"),
    ];
    for (spec, said) in cases {
        let error = path(&[spec]).unwrap_err();
        assert!(error.to_string().contains(said), "{spec}: {error}");
        assert!(!error.hint().to_string().is_empty());
    }
    let mtu = |mtu| EmulatedPath::new(&[hop("rate=1mbit,rtt=20ms")], mtu).map(drop);
    assert_eq!((mtu(67), mtu(65_536)), (Err(SettingsError::Mtu(67)), Err(SettingsError::Mtu(65_536))));
}

#[test]
fn none_removes_settings_of_a_profile() {
    let settings = "jitter=5ms,duplicate=1%,corrupt=1%,corrupt-hidden=1%,reorder=1%:3,aqm=red,ecn=on,loss=1%,\
                    outage=every:15s:1s,path-mtu=1400,policer=1mbit:64KB,shaper=1mbit:64KB";
    let mut over = hop(&format!("rate=10mbit,rtt=20ms,{settings}"));
    let none = settings.split(',').map(|pair| format!("{}=none", pair.trim().split_once('=').unwrap().0));
    over.overlay(&hop(&none.collect::<Vec<_>>().join(",")));
    let off = EmulatedPath::new(&[over], 1500).unwrap();
    let plain = path(&["rate=10mbit,rtt=20ms"]).unwrap();
    assert_eq!((off.forward, off.back), (plain.forward, plain.back));
}

#[test]
fn repeated_key_is_refused() {
    let twice = |spec: &str| {
        let mut hop = HopSettings::default();
        let error = spec.split(',').try_for_each(|pair| hop.set_pair(pair)).unwrap_err();
        (error.to_string(), error.hint().to_string())
    };
    let (said, hint) = twice("rate=1mbit,rtt=10ms,rate=2mbit");
    assert_eq!((&*said, &*hint), ("rate is given twice: 1mbit and 2mbit", "remove rate=1mbit or rate=2mbit"));
    assert!(twice("return-loss=1%,return-loss = 1%").0.starts_with("return-loss is given twice"));
    assert!(twice("trace=a.csv,trace=b.csv").0.contains("a.csv and b.csv"));
    // A setting of both directions and a setting of one direction do not contradict each other.
    hop("loss=1%,return-loss=2%,forward-loss=none");
}

#[test]
fn misspelled_value_gets_a_hint() {
    let hint = |key: &str, value: &str| HopSettings::default().set(key, value).unwrap_err().hint().to_string();
    for (key, typed, meant) in [
        ("path-mtu", "1400:blackhole", "1400:black-hole"),
        ("aqm", "fqcodel", "fq-codel"),
        ("aqm", "droptail", "drop-tail"),
        ("aqm", "cdel:target=5ms", "codel:target=5ms"),
        ("overhead", "ethernet_header", "ethernet-header"),
        ("jitter", "nomal:5ms", "normal:5ms"),
        ("queue", "100pkts", "100p"),
        ("queue", "100 pkt", "100p"),
        ("loss", "5", "5%"),
        ("return-duplicate", "2.5", "2.5%"),
        ("reorder", "5:3", "5%:3"),
    ] {
        assert_eq!(hint(key, typed), format!("did you mean {meant}?"), "{key}={typed}");
    }
    // The suggestion is an accepted value.
    assert_eq!((&*hint("loss", "500"), &*hint("jitter", "normal")), ("loss=1e-4", "jitter=5ms"));
    for (key, typed, words) in
        [("queue", "100q", &["100p", "300ms", "1bdp"][..]), ("aqm", "pie", &["drop-tail", "red"])]
    {
        let said = hint(key, typed);
        assert!(words.iter().all(|word| said.contains(word)), "{key}={typed}: {said}");
    }
}

#[test]
fn unknown_key_gets_the_nearest_as_hint() {
    let hint = |key: &str| HopSettings::default().set(key, "1").unwrap_err().hint().to_string();
    for (typed, meant) in
        [("los", "loss"), ("return-los", "return-loss"), ("jiter", "jitter"), ("corupt-hidden", "corrupt-hidden")]
    {
        assert_eq!(hint(typed), format!("did you mean {meant}?"));
    }
    assert!(hint("bandwidth").starts_with("the settings are rate, "), "{}", hint("bandwidth"));
    let direction = HopSettings::default().set("forward-rtt", "20ms").unwrap_err().to_string();
    assert_eq!(direction, "rtt cannot be set for one direction");
}

#[test]
fn running_path_changes_hop_by_hop() {
    let before = path(&["rate=2gbit,rtt=10ms", "rate=1gbit,rtt=90ms"]).unwrap();
    let after = before.with_change(Some(1), &hop("rate=50mbit,forward-loss=1e-3")).unwrap();
    assert_eq!(after.forward[0], before.forward[0]);
    assert_eq!(after.profile.capacity, BitRate(50_000_000));
    assert_eq!([&after.forward[1], &after.back[0]].map(|hop| hop.loss.mean().get()), [1e-3, 0.0]);
    let all = before.with_change(None, &hop("loss=1e-3")).unwrap();
    assert!(all.forward.iter().chain(&all.back).all(|hop| hop.loss.mean().get() == 1e-3));
    assert!(before.with_change(None, &hop("ecn=on")).is_err());
    let beyond = before.with_change(Some(2), &hop("loss=1e-3")).unwrap_err().to_string();
    assert_eq!(beyond, "no link 3: the number of links is 2");
}

#[test]
fn symmetric_path_matches_its_settings() {
    let profile = PathProfile::new(BitRate(135_000_000), ms(539));
    let path = EmulatedPath::symmetric(profile);
    let again = EmulatedPath::new(&path.settings, profile.mtu).unwrap();
    assert_eq!((again.profile, again.forward, again.back), (path.profile, path.forward, path.back));
}

#[test]
fn every_profile_is_valid_and_has_a_source() {
    for (name, text) in BUILT_IN {
        let profile = Profile::parse(name, text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!profile.source.is_empty() && !profile.notes.is_empty(), "{name}");
        let path = EmulatedPath::new(std::slice::from_ref(&profile.settings), profile.mtu.unwrap_or(1500));
        path.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(hop(&profile.settings.to_string()), profile.settings, "{name}");
    }
}

#[test]
fn experiment_profiles_match_their_reports() {
    let read = |name: &str| {
        let profile = Profile::built_in(name).unwrap().unwrap();
        EmulatedPath::new(&[profile.settings], profile.mtu.unwrap()).unwrap().profile
    };
    let (acts, vbns, sc2000) = (read("acts"), read("vbns"), read("sc2000"));
    assert_eq!((acts.base_rtt, vbns.base_rtt, sc2000.base_rtt), (ms(539), ms(40), ms(50)));
    for (profile, link) in [(acts, "oc3c-atm"), (vbns, "oc3c-atm"), (sc2000, "oc48c-pos")] {
        let link: lfn_base::named_link::NamedLink = link.parse().unwrap();
        assert_eq!((Some(profile.capacity), profile.framing.layer), (link.capacity, link.layer));
    }
}

proptest! {
    #[test]
    fn any_key_and_value_cause_no_panic(key in "[a-z-]{0,12}", value in "\\PC{0,40}") {
        let mut settings = HopSettings::default();
        if let Err(error) = settings.set(&key, &value) {
            prop_assert!(!error.to_string().contains('\n'));
            error.hint();
        }
    }

    #[test]
    fn any_value_of_a_known_key_causes_no_panic(
        key in prop::sample::select(KEYS.iter().map(|key| key.name).collect::<Vec<_>>()),
        value in "[a-z0-9.%:=+-]{0,30}",
    ) {
        let mut settings = hop("rate=10mbit,rtt=20ms");
        let mut over = HopSettings::default();
        if over.set(key, &value).is_ok() {
            let written = over.entries().next().unwrap().1;
            prop_assert!(!written.contains(','), "{key}={written}");
            settings.overlay(&over);
            let _ = EmulatedPath::new(&[settings], 1500);
        }
    }

    #[test]
    fn any_profile_text_causes_no_panic(text in "\\PC{0,200}") {
        let _ = Profile::parse("any", &text);
    }
}
