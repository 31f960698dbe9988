//! Properties of the stages before the queue: path MTU, outages, policer and shaper, alone and in a chain.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};
use lfn_link::{DropCause, Link, LinkConfig, LinkDirection, LinkError, LinkEvent, Packet, PacketCount, PathMtu};
use lfn_sim::{ScriptedArrival, run_link};
use proptest::prelude::*;

use crate::support::{END, link, packet_of, poll_at_event_times, poll_every, push_late, singles};

const EPOCH: Instant = Instant::from_nanos(3_000_000_000);

const fn ms(ms: u64) -> Instant {
    Instant::from_nanos(EPOCH.as_nanos() + ms * 1_000_000)
}

/// A line that never limits the traffic.
fn config() -> LinkConfig {
    LinkConfig {
        rate: BitRate(10_000_000_000_000).into(),
        queue: Bytes(1 << 40).into(),
        slice: Duration::from_secs(1),
        epoch: EPOCH,
        ..LinkConfig::default()
    }
}

fn single(id: u64, at: Instant, wire: u32) -> ScriptedArrival {
    ScriptedArrival { at, packet: Packet::single(id, wire) }
}

/// Cause of the drop of each virtual packet, if any, by super-packet and index.
fn causes(events: &[LinkEvent]) -> BTreeMap<(u64, u32), Option<DropCause>> {
    let mut causes = BTreeMap::new();
    for event in events {
        let cause = match event {
            LinkEvent::Drop { cause, .. } => Some(*cause),
            _ => None,
        };
        let packet = packet_of(event);
        for index in packet.first..packet.first + packet.count {
            assert_eq!(causes.insert((packet.id, index), cause), None, "{event:?}");
        }
    }
    causes
}

/// Reports whether packets pass that arrive at these milliseconds after the epoch.
fn up(config: &LinkConfig, at: impl IntoIterator<Item = u64>) -> Vec<bool> {
    let arrivals: Vec<_> = at.into_iter().zip(0..).map(|(at, id)| single(id, ms(at), 100)).collect();
    causes(&run_link(&mut link(config), arrivals)).into_values().map(|cause| cause.is_none()).collect()
}

mod path_mtu {
    use super::*;

    fn fates(text: &str, packet: Packet) -> Vec<(u32, u32, Option<Option<u16>>)> {
        let config = LinkConfig { path_mtu: Some(text.parse().unwrap()), ..config() };
        let fate = |event: LinkEvent| match event {
            LinkEvent::Drop { packet, cause: DropCause::TooBig, reply_mtu, .. } => {
                (packet.first, packet.count, Some(reply_mtu))
            }
            LinkEvent::Forward { packet, .. } => (packet.first, packet.count, None),
            other => panic!("{other:?}"),
        };
        let mut fates: Vec<_> =
            run_link(&mut link(&config), [ScriptedArrival { at: EPOCH, packet }]).into_iter().map(fate).collect();
        fates.sort_unstable();
        fates
    }

    #[test]
    fn vlan_tags_do_not_count_for_the_mtu() {
        for (link_header, wire, passes) in [(14, 1514, true), (14, 1515, false), (18, 1518, true), (18, 1519, false)] {
            let fates = fates("1500", Packet { link_header, ..Packet::single(0, wire) });
            assert_eq!(fates[0].2.is_none(), passes, "{wire} bytes, {link_header} of them in front");
        }
    }

    #[test]
    fn packets_above_the_mtu_are_dropped() {
        // The wire size includes an Ethernet header.
        assert_eq!(fates("1400", Packet::single(0, 1414)), [(0, 1, None)]);
        assert_eq!(fates("1400", Packet::single(0, 1415)), [(0, 1, Some(Some(1400)))]);
        assert_eq!(fates("1400:black-hole", Packet::single(0, 1415)), [(0, 1, Some(None))]);
        assert_eq!(fates("65535", Packet::single(0, 65_549)), [(0, 1, None)]);
    }

    #[test]
    fn last_packet_of_super_packet_may_pass() {
        assert_eq!(fates("1400", Packet::super_packet(0, 40, 1514, 1414)), [(0, 39, Some(Some(1400))), (39, 1, None)]);
        assert_eq!(fates("1400", Packet::super_packet(0, 40, 1514, 1415)), [(0, 40, Some(Some(1400)))]);
        assert_eq!(fates("1500", Packet::super_packet(0, 40, 1514, 60)), [(0, 40, None)]);
    }

    #[test]
    fn reply_contains_mtu_of_dropping_hop() {
        let hop = |mtu| LinkConfig { path_mtu: Some(PathMtu { mtu, is_black_hole: false }), ..config() };
        let mut chain = Link::chain(&[hop(1500), config(), hop(1400), hop(1300)]).unwrap();
        let arrivals = [1600, 1500, 1400, 1300].into_iter().zip(0..).map(|(wire, id)| single(id, EPOCH, wire));
        let mtus: BTreeMap<_, _> = run_link(&mut chain, arrivals)
            .iter()
            .filter_map(|event| match event {
                LinkEvent::Drop { packet, reply_mtu, .. } => Some((packet.id, *reply_mtu)),
                _ => None,
            })
            .collect();
        assert_eq!(mtus, BTreeMap::from([(0, Some(1500)), (1, Some(1400)), (2, Some(1300))]));
    }
}

mod outages {
    use super::*;

    fn with(text: &str) -> LinkConfig {
        LinkConfig { outage: text.parse().unwrap(), ..config() }
    }

    #[test]
    fn outage_includes_start_and_excludes_end() {
        let config = with("at:1s:500ms+3s:1ms");
        let at = [0, 999, 1000, 1250, 1499, 1500, 2999, 3000, 3001, 1_000_000];
        let expected = [true, true, false, false, false, true, true, false, true, true];
        assert_eq!(up(&config, at), expected);
        // A link without earlier traffic gives the same result.
        for (at, expected) in at.into_iter().zip(expected) {
            assert_eq!(up(&config, [at]), [expected], "{at}");
        }
    }

    #[test]
    fn periodic_outage_is_at_end_of_period() {
        let down: Vec<_> =
            up(&with("every:15s:200ms"), 0..60_000).into_iter().zip(0_u64..).filter(|(up, _)| !up).collect();
        let expected: Vec<_> = (0..60_000).filter(|at| at % 15_000 >= 14_800).map(|at| (false, at)).collect();
        assert_eq!(down, expected);
    }

    #[test]
    fn packets_in_flight_survive_an_outage() {
        let config = LinkConfig { delay: Duration::from_millis(500).into(), ..with("at:100ms:1h") };
        let events = run_link(&mut link(&config), [single(0, ms(99), 100), single(1, ms(100), 100)]);
        assert_eq!(causes(&events), BTreeMap::from([((0, 0), None), ((1, 0), Some(DropCause::Outage))]));
    }

    /// Durations up and down, in milliseconds.
    fn times(up: &[bool]) -> [Vec<f64>; 2] {
        let mut times = [Vec::new(), Vec::new()];
        for same in up.chunk_by(|a, b| a == b) {
            times[usize::from(!same[0])].push(same.len() as f64);
        }
        times
    }

    #[test]
    fn flapping_times_are_exponential() {
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
        for (seed, up_mean, down_mean) in [(1, 300.0, 100.0), (2, 50.0, 400.0)] {
            let config = LinkConfig { seed, ..with(&format!("flap:up={up_mean}ms:down={down_mean}ms")) };
            let seen = up(&config, 0..1_000_000);
            assert!(seen[0], "up at first");
            for (times, expected) in times(&seen).iter().zip([up_mean, down_mean]) {
                // The standard error of the mean of an exponential distribution is the mean divided by the square root
                // of the count. Sampling once per millisecond misses the shortest durations.
                let error = 4.0 / (times.len() as f64).sqrt() + 0.02;
                assert!((mean(times) / expected - 1.0).abs() < error, "{expected}: {}", mean(times));
                let longer = times.iter().filter(|time| **time > expected).count() as f64 / times.len() as f64;
                assert!((longer - (-1.0_f64).exp()).abs() < 2.0 / (times.len() as f64).sqrt() + 0.02, "{longer}");
            }
        }
    }

    /// Outages do not depend on the traffic or its direction.
    #[test]
    fn flapping_depends_on_seed_not_on_traffic() {
        let config = LinkConfig { seed: 7, ..with("flap:up=30ms:down=20ms") };
        let often = up(&config, 0..10_000);
        let seldom = up(&config, (0..10_000).step_by(97));
        assert!(often.iter().step_by(97).eq(&seldom));
        let back = LinkConfig { direction: LinkDirection::Return, ..config.clone() };
        assert_eq!(up(&back, 0..10_000), often);
        let other_seed = LinkConfig { seed: 8, ..config.clone() };
        let other_hop = LinkConfig { hop: 1, ..config.clone() };
        for other in [other_seed, other_hop] {
            assert_ne!(up(&other, 0..10_000), often);
        }
        // The same settings from the same epoch give the same result again.
        let mut changed = link(&LinkConfig { seed: 7, ..with("none") });
        changed.set(0, &config, ms(5_000)).unwrap();
        let arrivals = (5_000..10_000).map(|at| single(at, ms(at), 100));
        let after: Vec<_> =
            causes(&run_link(&mut changed, arrivals)).into_values().map(|cause| cause.is_none()).collect();
        assert_eq!(after, often[5_000..]);
    }

    /// Also after a time without traffic that contains thousands of outages.
    #[test]
    fn flapping_is_equal_in_both_directions() {
        let config = LinkConfig { seed: 7, ..with("flap:up=1ms:down=1ms") };
        let late = 300_000..301_000;
        let often = up(&config, (0..late.start).step_by(50).chain(late.clone()));
        let back = up(&LinkConfig { direction: LinkDirection::Return, ..config.clone() }, late);
        assert_eq!(often[often.len() - 1_000..], back);
        assert!(back.contains(&true) && back.contains(&false));
    }

    #[test]
    fn idle_centuries_cost_no_time() {
        let config = LinkConfig { seed: 1, ..with("flap:up=1ms:down=3ms") };
        // 500 samples, one year apart: down in three of four cases.
        let up = up(&config, (0..500).map(|year| year * 31_536_000_000));
        let seen = up.iter().filter(|up| **up).count() as f64 / up.len() as f64;
        assert!((seen - 0.25).abs() < 0.08, "{seen}");
        let last = ScriptedArrival { at: END, packet: Packet::single(0, 100) };
        assert_eq!(run_link(&mut link(&config), [last]).len(), 1);
    }
}

/// All stages before the queue at once.
fn scenario() -> impl Strategy<Value = (LinkConfig, Vec<ScriptedArrival>)> {
    let mtu = prop_oneof![Just(None), (68_u16..9_000, any::<bool>()).prop_map(Some)];
    let outage = prop_oneof![
        Just("none".to_owned()),
        (1_u64..500, 1_u64..500).prop_map(|(up, down)| format!("every:{}ms:{down}ms", up + down)),
        (1_u64..500, 1_u64..500).prop_map(|(up, down)| format!("flap:up={up}ms:down={down}ms")),
    ];
    let loss = prop_oneof![Just("none"), Just("10%"), Just("gilbert:p=5%:r=30%"), Just("nth:7"), Just("at:20ms:30")];
    let bucket = || prop::option::of((10_000_u64..1_000_000_000, 1_u64..100_000, 1_u64..1_000_000));
    let config = (mtu, outage, loss, bucket(), bucket(), any::<u64>(), 0_u64..2_000_000).prop_map(
        |(mtu, outage, loss, policer, shaper, seed, slice)| LinkConfig {
            path_mtu: mtu.map(|(mtu, black_hole)| PathMtu { mtu, is_black_hole: black_hole }),
            outage: outage.parse().unwrap(),
            loss: loss.parse().unwrap(),
            policer: policer.map(|(rate, burst, _)| format!("{rate}bit:{burst}").parse().unwrap()),
            shaper: shaper.map(|(rate, burst, limit)| format!("{rate}bit:{burst}:{limit}").parse().unwrap()),
            seed,
            slice: Duration::from_nanos(slice),
            delay: Duration::from_millis(3).into(),
            ..config()
        },
    );
    let packet = (prop_oneof![Just(1_u32), 1_u32..64], 1_u32..9_014, 0.0..1.0, prop_oneof![Just(0), 0_u64..20_000_000]);
    (config, prop::collection::vec(packet, 1..60)).prop_map(|(config, packets)| {
        let mut at = EPOCH;
        let mut arrivals = Vec::new();
        for ((count, wire, last, gap), id) in packets.into_iter().zip(0..) {
            at += Duration::from_nanos(gap);
            let last_wire = ((f64::from(wire) * last) as u32).max(1);
            arrivals.push(ScriptedArrival { at, packet: Packet::super_packet(id, count, wire, last_wire) });
        }
        (config, arrivals)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn super_packets_match_single_packets((config, arrivals) in scenario()) {
        let together = causes(&run_link(&mut link(&config), arrivals.iter().copied()));
        let alone = causes(&run_link(&mut link(&config), singles(&arrivals)));
        prop_assert!(together.values().eq(alone.values()));
    }

    #[test]
    fn packets_leave_in_order_and_are_counted((config, arrivals) in scenario()) {
        let mut link = link(&config);
        let events = run_link(&mut link, arrivals.iter().copied());
        let offered: u64 = arrivals.iter().map(|arrival| u64::from(arrival.packet.count)).sum();
        prop_assert_eq!(causes(&events).len() as u64, offered);
        let forwarded: Vec<_> = events.iter().filter_map(|event| match event {
            LinkEvent::Forward { packet, due } => Some((*due, packet.id, packet.first)),
            _ => None,
        }).collect();
        prop_assert!(forwarded.is_sorted());
        let stats = link.stats();
        let sum = |of: fn(&PacketCount) -> u64| of(&stats.forwarded) + of(&stats.dropped.total());
        prop_assert_eq!((stats.offered.packets, stats.offered.bytes.0), (sum(|c| c.packets), sum(|c| c.bytes.0)));
        prop_assert_eq!(stats.queued, Bytes(0));
    }

    #[test]
    fn only_too_big_packets_need_a_reply((config, arrivals) in scenario()) {
        let wanted = config.path_mtu.filter(|limit| !limit.is_black_hole).map(|limit| limit.mtu);
        for event in run_link(&mut link(&config), arrivals.iter().copied()) {
            let LinkEvent::Drop { cause, reply_mtu, .. } = event else { continue };
            prop_assert_eq!(reply_mtu, wanted.filter(|_| cause == DropCause::TooBig));
        }
    }

    #[test]
    fn rare_polling_changes_nothing((config, arrivals) in scenario(), seldom in 1_usize..10) {
        let sorted = |mut events: Vec<LinkEvent>| {
            events.sort_by_key(|event| (packet_of(event).id, packet_of(event).first));
            events
        };
        let expected = sorted(run_link(&mut link(&config), arrivals.iter().copied()));
        let events = poll_every(&mut link(&config), &arrivals, seldom);
        prop_assert_eq!(sorted(events), expected);
    }

    /// If no queue overflows, an arrival with a timestamp before the last poll has the same result as a timely one.
    #[test]
    fn late_timestamps_are_respected((config, arrivals) in scenario(), late in 0_u64..3_000_000) {
        let mut punctual = link(&config);
        let expected = causes(&run_link(&mut punctual, arrivals.iter().copied()));
        prop_assume!(punctual.stats().dropped[DropCause::Shaper].packets == 0);
        let events = push_late(&mut link(&config), &arrivals, Duration::from_nanos(late));
        prop_assert_eq!(causes(&events), expected);
    }

    /// Each poll at the returned time makes progress, and nothing leaves before.
    #[test]
    fn next_poll_time_is_exact((config, arrivals) in scenario()) {
        poll_at_event_times(&mut link(&config), &arrivals)?;
    }
}

#[test]
fn stages_apply_in_order() {
    // Each stage would drop the packet.
    let config = |keep: usize| {
        let text = |index: usize, text: &'static str, idle: &'static str| if keep <= index { text } else { idle };
        LinkConfig {
            path_mtu: Some(text(0, "68", "1500").parse().unwrap()),
            outage: text(1, "at:0:1h", "none").parse().unwrap(),
            loss: text(2, "100%", "none").parse().unwrap(),
            policer: Some(text(3, "1bit:1", "1gbit:1MB").parse().unwrap()),
            shaper: Some(text(4, "1bit:1", "1gbit:1MB").parse().unwrap()),
            ..config()
        }
    };
    let fate = |keep| causes(&run_link(&mut link(&config(keep)), [single(0, EPOCH, 1000)]))[&(0, 0)];
    let expected = [DropCause::TooBig, DropCause::Outage, DropCause::Loss, DropCause::Policer, DropCause::Shaper];
    assert_eq!([0, 1, 2, 3, 4].map(fate), expected.map(Some));
    assert_eq!(fate(5), None);
    assert!(DropCause::ALL.is_sorted());
}

#[test]
fn shaper_queue_is_counted() {
    let shaper = Some("1mbit:1514:100KB".parse().unwrap());
    let shaped = LinkConfig { shaper, ..config() };
    let mut link = link(&shaped);
    link.push(Packet::super_packet(0, 40, 1514, 1514), EPOCH);
    // One packet conforms at once, the next after 12 ms.
    while link.poll(ms(1)).is_some() {}
    assert_eq!((link.stats().queued, link.stats().queue_peak), (Bytes(39 * 1514), Bytes(39 * 1514)));
    assert_eq!(Link::memory_needed(&shaped).0 - Link::memory_needed(&config()).0, 100_000);
}

#[test]
fn ineffective_settings_give_warnings() {
    use lfn_link::settings::HopSettings;
    let doubts = |spec: &str| {
        let mut hop = HopSettings::default();
        spec.split(',').for_each(|pair| hop.set_pair(pair).unwrap());
        let path = lfn_link::EmulatedPath::new(&[hop], 1500).unwrap();
        path.forward[0].warnings().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    for spec in [
        "rate=10kbit,rtt=10ms,jitter=5ms",
        "rate=1mbit,rtt=10ms,jitter=pareto:7ms,reorder=99%:3",
        "rate=1mbit,rtt=10ms,jitter=normal:2500us,reorder=0:3:hold=0ms",
        "rate=1mbit,rtt=10ms,queue=90kB,aqm=red:min=10kB:max=80kB",
        "rate=1mbit,rtt=10ms,queue=15kB,aqm=red",
    ] {
        assert_eq!(doubts(spec), "", "{spec}");
    }
    for (spec, said) in [
        ("rate=50bit,rtt=10ms", "a rate of 50 b/s is very low: is the unit missing?"),
        ("rate=9999bit,rtt=10ms", "is the unit missing?"),
        (
            "rate=1mbit,rtt=10ms,queue=15kB,aqm=red:min=30kB:max=90kB",
            "red: min 30 kB is not below the queue limit 15 kB",
        ),
        (
            "rate=1mbit,rtt=10ms,queue=50kB,aqm=red:min=30kB:max=90kB",
            "red: max 90 kB is not below the queue limit 50 kB",
        ),
        ("rate=1mbit,rtt=10ms,jitter=50ms", "a jitter of 50 ms exceeds the one-way delay of 5 ms"),
        ("rate=1mbit,rtt=10ms,jitter=normal:3ms", "a jitter of 3 ms"),
        ("rate=1mbit,rtt=10ms,jitter=pareto:8ms", "a jitter of 8 ms"),
        ("rate=1mbit,rtt=10ms,reorder=100%:3:hold=0ms", "every packet waits"),
        ("rate=1mbit,rtt=10ms,reorder=1%:3:hold=0ms", "a reordering hold of 0 s"),
    ] {
        let doubts = doubts(spec);
        assert!(doubts.contains(said) && !doubts.contains("; "), "{spec}: {doubts}");
    }
}

#[test]
fn unlikely_settings_give_warnings() {
    let doubts = |mtu: &str, loss: &str, policer: &str, shaper: &str| {
        let optional = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let config = LinkConfig {
            path_mtu: optional(mtu).map(|text| text.parse().unwrap()),
            loss: loss.parse().unwrap(),
            policer: optional(policer).map(|text| text.parse().unwrap()),
            shaper: optional(shaper).map(|text| text.parse().unwrap()),
            ..config()
        };
        config.warnings().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(doubts("1400", "5%", "1mbit:1414", "1mbit:1514B:1514B"), "");
    for (said, words) in [
        (doubts("", "1", "", ""), "loss 1 means 100 %"),
        (doubts("", "0.1", "", ""), "loss 0.1 means 10 %: write 0.1% for 0.1 per cent"),
        (doubts("", "nth:1", "", ""), "loss 1 means 100 %"),
        (doubts("", "none", "1mbit:1513", ""), "a policer with a burst of 1,513 B drops every packet of 1,514 B"),
        (
            doubts("1400", "none", "", "1mbit:1413B:1MB"),
            "a shaper with a burst of 1,413 B drops every packet of 1,414 B",
        ),
        (doubts("", "none", "", "1mbit:64KB:1kB"), "a shaper limit of 1,000 B is below"),
        (doubts("1500", "none", "", ""), "a path MTU of 1500 has no effect"),
        (doubts("1279:black-hole", "none", "", ""), "1279 is below 1280"),
    ] {
        assert!(said.contains(words) && !said.contains(';'), "{said}");
    }
}

#[test]
fn contradictory_settings_are_rejected() {
    use lfn_link::{LossModel, Outages, Policer, Shaper};
    let refused = |config: LinkConfig| Link::new(&config).err();
    let (rate, burst) = (BitRate(1_000_000), Bytes(1));
    let second = Duration::from_secs(1);
    for (config, error) in [
        (
            LinkConfig { path_mtu: Some(PathMtu { mtu: 67, is_black_hole: true }), ..config() },
            LinkError::MtuTooSmall(67),
        ),
        (LinkConfig { loss: LossModel::Nth(0), ..config() }, LinkError::ZerothPacket),
        (
            LinkConfig { outage: Outages::Periodic { period: second, down: second }, ..config() },
            LinkError::NeverUp { period: second, down: second },
        ),
        (
            LinkConfig { policer: Some(Policer { rate, burst: Bytes(0) }), ..config() },
            LinkError::ZeroBucketBurst("policer"),
        ),
        (
            LinkConfig { shaper: Some(Shaper { rate: BitRate(0), burst, limit: burst }), ..config() },
            LinkError::ZeroBucketRate("shaper"),
        ),
        (
            LinkConfig { shaper: Some(Shaper { rate, burst, limit: Bytes(1 << 40) }), ..config() },
            LinkError::QueueTooLong { queue: Bytes(1 << 40).into(), rate },
        ),
    ] {
        assert_eq!(refused(config), Some(error));
    }
    let mut link = link(&config());
    let wrong = LinkConfig { loss: LossModel::Nth(0), ..config() };
    assert_eq!(link.set(0, &wrong, EPOCH), Err(LinkError::ZerothPacket));
}
