//! Discovery of a path in virtual time: MTU searches over paths with loss, false ICMP messages and delay, and traces
//! over routers that answer, stay silent or quote too little.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_measure::proto::discover::plpmtud::{self, MAX_PACKET, MAX_PROBES, MIN_PLPMTU, MtuSearch};
use lfn_measure::proto::discover::traceroute::{self, HopAnswer, ProbeOutcome, Traceroute, TracerouteSettings};
use lfn_results::path_report::{Hop, MtuFound, SearchEnd, TraceEnd};
use proptest::prelude::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A path that carries packets up to a size and loses some of them.
struct Pipe {
    mtu: u32,
    rtt: Duration,
    /// Whether the probe with this number is lost, independent of its size.
    loses: fn(u32) -> bool,
    /// MTU of the ICMP message that answers a packet above the path MTU.
    icmp_mtu: Option<u32>,
}

impl Pipe {
    /// Runs a search; returns the result and the duration.
    fn search(&self, limit: u32) -> (Option<MtuFound>, Duration) {
        let mut now = Instant::ZERO + MS(5_000);
        let begun = now;
        let mut search = MtuSearch::new(plpmtud::MtuSearchSettings::new(limit, self.rtt), now);
        // Time and order of each event: an acknowledgement (`Some`) or an ICMP message (`None`).
        let mut events: BTreeMap<(Instant, u32), Option<u32>> = BTreeMap::new();
        loop {
            while events.first_key_value().is_some_and(|((at, _), _)| *at <= now) {
                let ((_, number), what) = events.pop_first().unwrap();
                match what {
                    Some(size) => search.on_acknowledged(number, size),
                    None => search.add_hint(self.icmp_mtu.unwrap()),
                }
            }
            match search.next(now) {
                plpmtud::MtuSearchAction::Send { size, number } if size <= self.mtu && !(self.loses)(number) => {
                    events.insert((now + self.rtt, number), Some(size));
                }
                plpmtud::MtuSearchAction::Send { size, number } if size > self.mtu && self.icmp_mtu.is_some() => {
                    events.insert((now + self.rtt / 2, number), None);
                }
                plpmtud::MtuSearchAction::Send { .. } => {}
                plpmtud::MtuSearchAction::Wait(until) => {
                    assert!(until > now, "the search waits for a time in the past");
                    now = events.first_key_value().map_or(until, |((at, _), _)| (*at).min(until));
                }
                plpmtud::MtuSearchAction::Done => return (search.result(), now.saturating_since(begun)),
            }
        }
    }
}

const CLEAN: Pipe = Pipe { mtu: 1500, rtt: MS_20, loses: |_| false, icmp_mtu: None };
const MS_20: Duration = Duration::from_millis(20);

#[test]
fn full_interface_mtu_takes_one_round_trip() {
    let (found, took) = CLEAN.search(1500);
    let found = found.unwrap();
    assert_eq!((found.path_mtu_bytes, found.smallest_lost_bytes, found.search), (1500, None, SearchEnd::Complete));
    assert!(took <= MS(40), "{took:?}");
    assert!(found.probes_sent <= 20, "{found:?}");
}

#[test]
fn common_mtu_takes_two_rounds_of_timeouts() {
    for mtu in [1280, 1400, 1492, 9000] {
        let (found, took) = Pipe { mtu, ..CLEAN }.search(16_384);
        let found = found.unwrap();
        assert_eq!((found.path_mtu_bytes, found.smallest_lost_bytes), (mtu, Some(mtu + 1)));
        assert!(took < MS(2_500), "{mtu}: {took:?}");
    }
    // 600 ms: the wait of RFC 8899 §5.1.1 makes the search long, but bounded.
    let (found, took) = Pipe { mtu: 1437, rtt: MS(600), ..CLEAN }.search(9000);
    assert_eq!(found.unwrap().path_mtu_bytes, 1437);
    assert!(took < Duration::from_secs(13), "{took:?}");
}

#[test]
fn loss_does_not_look_like_a_small_mtu() {
    // Two of three probes are lost, but no size is lost three times in series.
    let lossy = Pipe { loses: |number| number % 3 != 2, ..CLEAN };
    let (found, _) = lossy.search(1500);
    assert_eq!(found.unwrap().path_mtu_bytes, 1500);
    // All first and second tries of the 14 sizes of the first round are lost.
    let (found, _) = Pipe { loses: |number| number < 28, ..CLEAN }.search(1500);
    assert_eq!(found.unwrap().path_mtu_bytes, 1500);
}

#[test]
fn a_path_that_carries_nothing_has_no_mtu() {
    let (found, took) = Pipe { loses: |_| true, ..CLEAN }.search(1500);
    assert_eq!(found, None);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn false_icmp_mtu_does_no_harm() {
    let with_icmp = Pipe { mtu: 1437, icmp_mtu: Some(1437), ..CLEAN };
    let (found, quick) = with_icmp.search(9000);
    assert_eq!(found.unwrap().path_mtu_bytes, 1437);
    let (_, slow) = Pipe { mtu: 1437, ..CLEAN }.search(9000);
    assert!(quick < slow, "{quick:?} {slow:?}");
    for lie in [0, 68, 576, 1300, 1499, 65_535, u32::MAX] {
        let (found, _) = Pipe { mtu: 1437, icmp_mtu: Some(lie), ..CLEAN }.search(9000);
        assert_eq!(found.unwrap().path_mtu_bytes, 1437, "false MTU {lie}");
    }
}

#[test]
fn acknowledgement_of_an_unsent_probe_is_ignored() {
    let mut search = MtuSearch::new(plpmtud::MtuSearchSettings::new(9000, MS_20), Instant::ZERO);
    let plpmtud::MtuSearchAction::Send { size, number } = search.next(Instant::ZERO) else { panic!("nothing to send") };
    for (number, size) in [(number, size + 1), (number + 1, size), (u32::MAX, 9000), (number, u32::MAX)] {
        search.on_acknowledged(number, size);
        assert_eq!(search.result(), None);
    }
    search.on_acknowledged(number, size);
    assert_eq!(search.result().unwrap().probes_arrived, 1);
    search.on_acknowledged(number, size);
    assert_eq!(search.result().unwrap().probes_arrived, 1, "a duplicate");
}

#[test]
fn smaller_interface_mtu_bounds_the_search() {
    let mut now = Instant::ZERO;
    let mut search = MtuSearch::new(plpmtud::MtuSearchSettings::new(9000, MS_20), now);
    search.limit_mtu(1500);
    loop {
        match search.next(now) {
            plpmtud::MtuSearchAction::Send { size, number } => {
                assert!(size <= 1500);
                search.on_acknowledged(number, size);
            }
            plpmtud::MtuSearchAction::Wait(until) => now = until,
            plpmtud::MtuSearchAction::Done => break,
        }
    }
    assert_eq!(search.result().unwrap().path_mtu_bytes, 1500);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any path MTU is found to the byte, in bounded time and with bounded probes.
    #[test]
    fn any_mtu_is_found_to_the_byte(mtu in MIN_PLPMTU..=MAX_PACKET, limit in MIN_PLPMTU..=MAX_PACKET, rtt in 0u64..700) {
        let (found, took) = Pipe { mtu, rtt: MS(rtt), ..CLEAN }.search(limit);
        let found = found.unwrap();
        prop_assert_eq!(found.path_mtu_bytes, mtu.min(limit));
        prop_assert_eq!(found.search, SearchEnd::Complete);
        prop_assert!(found.probes_sent < 400, "{} probes", found.probes_sent);
        prop_assert!(took < Duration::from_secs(20));
    }

    /// Loss makes the search slower, but the result is never above the path MTU. It is below only if one size lost all
    /// tries.
    #[test]
    fn loss_never_raises_the_mtu(mtu in MIN_PLPMTU..=9000u32) {
        let lossy = Pipe { mtu, loses: |number| number.wrapping_mul(2_654_435_761) >> 30 == 0, ..CLEAN };
        let (found, _) = lossy.search(9000);
        prop_assert!(found.is_some_and(|found| found.path_mtu_bytes <= mtu));
    }

    /// With acknowledgements and hints from anyone in any order, the search ends and ignores probes that it never sent.
    #[test]
    fn search_ends_with_invalid_input(noise in proptest::collection::vec((any::<u32>(), any::<u32>()), 0..50)) {
        let mut now = Instant::ZERO;
        let mut search = MtuSearch::new(plpmtud::MtuSearchSettings::new(9000, MS_20), now);
        let mut noise = noise.into_iter().cycle().take(5_000);
        for _ in 0..10_000 {
            if let Some((number, size)) = noise.next() {
                search.on_acknowledged(number, size);
                search.add_hint(size);
            }
            match search.next(now) {
                plpmtud::MtuSearchAction::Send { size, .. } => prop_assert!((MIN_PLPMTU..=9000).contains(&size)),
                plpmtud::MtuSearchAction::Wait(until) => now = until,
                plpmtud::MtuSearchAction::Done => return Ok(()),
            }
        }
prop_assert!(false, "the search never ends");
    }
}

#[test]
fn size_is_tried_as_often_as_in_the_rfc() {
    let mut now = Instant::ZERO;
    let mut search = MtuSearch::new(plpmtud::MtuSearchSettings::new(1500, MS_20), now);
    let mut tries: BTreeMap<u32, u8> = BTreeMap::new();
    loop {
        match search.next(now) {
            plpmtud::MtuSearchAction::Send { size, .. } => *tries.entry(size).or_default() += 1,
            plpmtud::MtuSearchAction::Wait(until) => now = until,
            plpmtud::MtuSearchAction::Done => break,
        }
    }
    assert_eq!(tries[&MIN_PLPMTU], MAX_PROBES);
    assert!(tries.values().all(|&tries| tries <= MAX_PROBES), "{tries:?}");
}

/// Routers in series before a destination.
struct Row {
    /// Round trip to each router in ms; `None` is a silent router.
    routers: Vec<Option<u64>>,
    destination: Option<u64>,
    /// Whether answers identify their probe.
    quotes: bool,
    outcome: ProbeOutcome,
}

fn address(ttl: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, ttl, 1).into()
}

impl Row {
    fn new(routers: &[Option<u64>], destination: Option<u64>) -> Self {
        Row { routers: routers.to_vec(), destination, quotes: true, outcome: ProbeOutcome::Arrived }
    }

    /// Runs a trace; returns the hops, the reason for the end, the duration and the maximum number of probes in flight.
    fn trace(&self, settings: TracerouteSettings) -> (Vec<Hop>, TraceEnd, Duration, usize) {
        let (mut now, mut limit) = (Instant::ZERO, 0);
        let mut trace = Traceroute::new(settings, now);
        let mut events: BTreeMap<(Instant, u16), HopAnswer> = BTreeMap::new();
        loop {
            while events.first_key_value().is_some_and(|((at, _), _)| *at <= now) {
                let ((_, number), answer) = events.pop_first().unwrap();
                if self.quotes {
                    trace.on_answer(number, answer, now);
                } else {
                    let _ = trace.on_unmatched_answer(answer, now);
                }
            }
            match trace.next(now) {
                traceroute::TracerouteAction::Send { number, ttl } => {
                    if let Some((after, answer)) = self.answer(ttl) {
                        events.insert((now + after, number), answer);
                    }
                    limit = limit.max(events.len());
                }
                traceroute::TracerouteAction::Wait(until) => {
                    assert!(until > now, "the trace waits for a time in the past");
                    now = events.first_key_value().map_or(until, |((at, _), _)| (*at).min(until));
                }
                traceroute::TracerouteAction::Done => {
                    let (hops, end) = trace.hops();
                    return (hops, end, now.saturating_since(Instant::ZERO), limit);
                }
            }
        }
    }

    fn answer(&self, ttl: u8) -> Option<(Duration, HopAnswer)> {
        let hop = usize::from(ttl) - 1;
        let (after, outcome, from) = match self.routers.get(hop) {
            Some(router) => ((*router)?, ProbeOutcome::Expired, ttl),
            None => (self.destination?, self.outcome, self.routers.len() as u8 + 1),
        };
        Some((MS(after), HopAnswer { outcome, from: address(from), mpls: Vec::new() }))
    }
}

fn addresses(hops: &[Hop]) -> Vec<Option<IpAddr>> {
    hops.iter().map(|hop| hop.nodes.first().map(|node| node.address)).collect()
}

#[test]
fn hops_are_in_order_with_round_trips() {
    let row = Row::new(&[Some(1), Some(10), Some(20)], Some(30));
    let (hops, end, took, limit) = row.trace(TracerouteSettings::default());
    assert_eq!(end, TraceEnd::Reached);
    assert_eq!(addresses(&hops), [1, 2, 3, 4].map(|ttl| Some(address(ttl))));
    assert_eq!(hops[2].nodes[0].rtt_seconds, [Duration::from_millis(20).into(); 3]);
    assert!(hops.iter().all(|hop| hop.probes >= 3));
    assert!(limit <= 12, "{limit} in flight");
    assert!(took < MS(80), "{took:?}");
}

#[test]
fn single_probe_mode_has_one_in_flight() {
    let row = Row::new(&[Some(5), None, Some(5)], Some(5));
    let settings = TracerouteSettings { in_flight: 1, silent_probes: 2, ..TracerouteSettings::default() };
    let (hops, end, took, limit) = row.trace(settings);
    assert_eq!((end, limit), (TraceEnd::Reached, 1));
    assert_eq!(addresses(&hops), [Some(address(1)), None, Some(address(3)), Some(address(4))]);
    assert_eq!((hops[1].probes, hops[0].probes), (2, 3));
    // Two waits of a second and nine answers of 5 ms.
    assert_eq!(took, MS(2_045));
}

#[test]
fn silent_end_is_reported() {
    let row = Row::new(&[Some(1), Some(2)], None);
    let (hops, end, took, _) = row.trace(TracerouteSettings::default());
    assert_eq!(end, TraceEnd::Silent);
    assert_eq!(addresses(&hops), [Some(address(1)), Some(address(2)), None]);
    assert!(took <= Duration::from_secs(3), "{took:?}");
    let (hops, end, ..) = Row::new(&[], None).trace(TracerouteSettings::default());
    assert_eq!((hops.len(), end), (1, TraceEnd::Silent));
}

#[test]
fn refusal_ends_the_trace() {
    let row = Row { outcome: ProbeOutcome::Refused, ..Row::new(&[Some(1)], Some(2)) };
    let (hops, end, ..) = row.trace(TracerouteSettings::default());
    assert_eq!((hops.len(), end), (2, TraceEnd::Unreachable));
}

#[test]
fn hop_limit_and_time_limit_end_the_trace() {
    let row = Row::new(&[Some(1); 40], Some(1));
    let (hops, end, ..) = row.trace(TracerouteSettings::default());
    assert_eq!((hops.len(), end), (30, TraceEnd::TooFar));
    let row = Row::new(&[Some(400); 9], Some(400));
    let settings = TracerouteSettings { in_flight: 1, time_limit: MS(2_000), ..TracerouteSettings::default() };
    let (hops, end, took, _) = row.trace(settings);
    assert_eq!((hops.len(), end, took), (2, TraceEnd::OutOfTime, MS(2_000)));
}

#[test]
fn short_quotes_still_identify_routers() {
    let row = Row { quotes: false, ..Row::new(&[Some(1), Some(10), None, Some(3)], Some(30)) };
    let (hops, end, ..) = row.trace(TracerouteSettings::default());
    assert_eq!(end, TraceEnd::Reached);
    let known = [Some(1), Some(2), None, Some(4), Some(5)].map(|ttl| ttl.map(address));
    assert_eq!(addresses(&hops), known);
    assert!(hops.iter().all(|hop| hop.nodes.len() <= 1), "{hops:?}");
}

#[test]
fn answers_to_unsent_probes_are_ignored() {
    let mut trace = Traceroute::new(TracerouteSettings::default(), Instant::ZERO);
    let answer = HopAnswer { outcome: ProbeOutcome::Arrived, from: address(9), mpls: Vec::new() };
    trace.on_answer(0, answer.clone(), Instant::ZERO);
    trace.on_answer(u16::MAX, answer.clone(), Instant::ZERO);
    assert!(!trace.on_unmatched_answer(answer, Instant::ZERO));
    assert_eq!(trace.hops().0, []);
}
