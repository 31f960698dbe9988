//! Discovery of a path in virtual time: a search of the path MTU over paths that lose, lie and delay, and traces over
//! routers that answer, keep silent or quote too little.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use lfn_core::discover::plpmtud::{self, LEAST, MOST, MOST_TRIES, Search};
use lfn_core::discover::report::{Hop, MtuFound, Searched, TraceEnd};
use lfn_core::discover::traceroute::{self, Answer, Fate, Settings, Traceroute};
use lfn_core::time::Instant;
use proptest::prelude::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A path that carries packets up to a size and loses some of them.
struct Pipe {
    mtu: u32,
    rtt: Duration,
    /// Whether the probe of that number is lost, whatever its size.
    loses: fn(u32) -> bool,
    /// An ICMP message with this MTU answers what is too large.
    tells: Option<u32>,
}

impl Pipe {
    /// Searches it; gives what was found and how long that took.
    fn search(&self, most: u32) -> (Option<MtuFound>, Duration) {
        let mut now = Instant::ZERO + MS(5_000);
        let begun = now;
        let mut search = Search::new(plpmtud::Settings::new(most, self.rtt), now);
        // When, in what order, and what: an acknowledgement or an MTU told.
        let mut events: BTreeMap<(Instant, u32), Option<u32>> = BTreeMap::new();
        loop {
            while events.first_key_value().is_some_and(|((at, _), _)| *at <= now) {
                let ((_, number), what) = events.pop_first().unwrap();
                match what {
                    Some(size) => search.acknowledged(number, size),
                    None => search.told(self.tells.unwrap()),
                }
            }
            match search.next(now) {
                plpmtud::Next::Send { size, number } if size <= self.mtu && !(self.loses)(number) => {
                    events.insert((now + self.rtt, number), Some(size));
                }
                plpmtud::Next::Send { size, number } if size > self.mtu && self.tells.is_some() => {
                    events.insert((now + self.rtt / 2, number), None);
                }
                plpmtud::Next::Send { .. } => {}
                plpmtud::Next::Wait(until) => {
                    assert!(until > now, "it waits for what is past");
                    now = events.first_key_value().map_or(until, |((at, _), _)| (*at).min(until));
                }
                plpmtud::Next::Done => return (search.found(), now.saturating_since(begun)),
            }
        }
    }
}

const CLEAN: Pipe = Pipe { mtu: 1500, rtt: MS_20, loses: |_| false, tells: None };
const MS_20: Duration = Duration::from_millis(20);

#[test]
fn a_path_as_wide_as_its_interfaces_takes_one_round_trip() {
    let (found, took) = CLEAN.search(1500);
    let found = found.unwrap();
    assert_eq!((found.path_mtu_bytes, found.smallest_lost_bytes, found.search), (1500, None, Searched::Complete));
    assert!(took <= MS(40), "{took:?}");
    assert!(found.probes_sent <= 20, "{found:?}");
}

#[test]
fn a_usual_size_takes_two_rounds_of_silence() {
    for mtu in [1280, 1400, 1492, 9000] {
        let (found, took) = Pipe { mtu, ..CLEAN }.search(16_384);
        let found = found.unwrap();
        assert_eq!((found.path_mtu_bytes, found.smallest_lost_bytes), (mtu, Some(mtu + 1)));
        assert!(took < MS(2_500), "{mtu}: {took:?}");
    }
    // 600 ms: what §5.1.1 of the RFC wants waited for makes it long, but bounded.
    let (found, took) = Pipe { mtu: 1437, rtt: MS(600), ..CLEAN }.search(9000);
    assert_eq!(found.unwrap().path_mtu_bytes, 1437);
    assert!(took < Duration::from_secs(13), "{took:?}");
}

#[test]
fn loss_is_not_taken_for_a_small_mtu() {
    // Two of three, in a pattern that no size has three times in a row.
    let lossy = Pipe { loses: |number| number % 3 != 2, ..CLEAN };
    let (found, _) = lossy.search(1500);
    assert_eq!(found.unwrap().path_mtu_bytes, 1500);
    // Every first and second try of all 14 sizes of the first round.
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
fn what_icmp_tells_is_a_hint_and_a_lie_does_no_harm() {
    let told = Pipe { mtu: 1437, tells: Some(1437), ..CLEAN };
    let (found, quick) = told.search(9000);
    assert_eq!(found.unwrap().path_mtu_bytes, 1437);
    let (_, slow) = Pipe { mtu: 1437, ..CLEAN }.search(9000);
    assert!(quick < slow, "{quick:?} {slow:?}");
    for lie in [0, 68, 576, 1300, 1499, 65_535, u32::MAX] {
        let (found, _) = Pipe { mtu: 1437, tells: Some(lie), ..CLEAN }.search(9000);
        assert_eq!(found.unwrap().path_mtu_bytes, 1437, "{lie} told");
    }
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_counts_for_nothing() {
    let mut search = Search::new(plpmtud::Settings::new(9000, MS_20), Instant::ZERO);
    let plpmtud::Next::Send { size, number } = search.next(Instant::ZERO) else { panic!("nothing to send") };
    for (number, size) in [(number, size + 1), (number + 1, size), (u32::MAX, 9000), (number, u32::MAX)] {
        search.acknowledged(number, size);
        assert_eq!(search.found(), None);
    }
    search.acknowledged(number, size);
    assert_eq!(search.found().unwrap().probes_arrived, 1);
    search.acknowledged(number, size);
    assert_eq!(search.found().unwrap().probes_arrived, 1, "a duplicate");
}

#[test]
fn an_interface_that_takes_less_bounds_the_search() {
    let mut now = Instant::ZERO;
    let mut search = Search::new(plpmtud::Settings::new(9000, MS_20), now);
    search.limited(1500);
    loop {
        match search.next(now) {
            plpmtud::Next::Send { size, number } => {
                assert!(size <= 1500);
                search.acknowledged(number, size);
            }
            plpmtud::Next::Wait(until) => now = until,
            plpmtud::Next::Done => break,
        }
    }
    assert_eq!(search.found().unwrap().path_mtu_bytes, 1500);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the path takes is found to the byte, in bounded time and probes.
    #[test]
    fn any_mtu_is_found_to_the_byte(mtu in LEAST..=MOST, most in LEAST..=MOST, rtt in 0u64..700) {
        let (found, took) = Pipe { mtu, rtt: MS(rtt), ..CLEAN }.search(most);
        let found = found.unwrap();
        prop_assert_eq!(found.path_mtu_bytes, mtu.min(most));
        prop_assert_eq!(found.search, Searched::Complete);
        prop_assert!(found.probes_sent < 400, "{} probes", found.probes_sent);
        prop_assert!(took < Duration::from_secs(20));
    }

    /// Loss makes it slower, never larger than the path, and wrong only where one size lost every try.
    #[test]
    fn loss_never_makes_it_larger(mtu in LEAST..=9000u32) {
        let lossy = Pipe { mtu, loses: |number| number.wrapping_mul(2_654_435_761) >> 30 == 0, ..CLEAN };
        let (found, _) = lossy.search(9000);
        prop_assert!(found.is_some_and(|found| found.path_mtu_bytes <= mtu));
    }

    /// Acknowledgements and hints from anybody, in any order: it ends, and believes nothing it did not send.
    #[test]
    fn nonsense_ends_in_time(noise in proptest::collection::vec((any::<u32>(), any::<u32>()), 0..50)) {
        let mut now = Instant::ZERO;
        let mut search = Search::new(plpmtud::Settings::new(9000, MS_20), now);
        let mut noise = noise.into_iter().cycle().take(5_000);
        for _ in 0..10_000 {
            if let Some((number, size)) = noise.next() {
                search.acknowledged(number, size);
                search.told(size);
            }
            match search.next(now) {
                plpmtud::Next::Send { size, .. } => prop_assert!((LEAST..=9000).contains(&size)),
                plpmtud::Next::Wait(until) => now = until,
                plpmtud::Next::Done => return Ok(()),
            }
        }
        prop_assert!(false, "it never ends");
    }
}

#[test]
fn a_size_is_tried_as_often_as_the_rfc_says() {
    let mut now = Instant::ZERO;
    let mut search = Search::new(plpmtud::Settings::new(1500, MS_20), now);
    let mut tries: BTreeMap<u32, u8> = BTreeMap::new();
    loop {
        match search.next(now) {
            plpmtud::Next::Send { size, .. } => *tries.entry(size).or_default() += 1,
            plpmtud::Next::Wait(until) => now = until,
            plpmtud::Next::Done => break,
        }
    }
    assert_eq!(tries[&LEAST], MOST_TRIES);
    assert!(tries.values().all(|&tries| tries <= MOST_TRIES), "{tries:?}");
}

/// A row of routers before a destination.
struct Row {
    /// Round trip to each router in ms; `None` keeps silent.
    routers: Vec<Option<u64>>,
    destination: Option<u64>,
    /// Whether answers say which probe they are about.
    quotes: bool,
    fate: Fate,
}

fn address(ttl: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, ttl, 1).into()
}

impl Row {
    fn new(routers: &[Option<u64>], destination: Option<u64>) -> Self {
        Row { routers: routers.to_vec(), destination, quotes: true, fate: Fate::Arrived }
    }

    /// Traces it; gives the hops, how it ended, how long it took and the most probes in flight.
    fn trace(&self, settings: Settings) -> (Vec<Hop>, TraceEnd, Duration, usize) {
        let (mut now, mut most) = (Instant::ZERO, 0);
        let mut trace = Traceroute::new(settings, now);
        let mut events: BTreeMap<(Instant, u16), Answer> = BTreeMap::new();
        loop {
            while events.first_key_value().is_some_and(|((at, _), _)| *at <= now) {
                let ((_, number), answer) = events.pop_first().unwrap();
                match self.quotes {
                    true => trace.answered(number, answer, now),
                    false => drop(trace.answered_unknown(answer, now)),
                }
            }
            match trace.next(now) {
                traceroute::Next::Send { number, ttl } => {
                    if let Some((after, answer)) = self.answer(ttl) {
                        events.insert((now + after, number), answer);
                    }
                    most = most.max(events.len());
                }
                traceroute::Next::Wait(until) => {
                    assert!(until > now, "it waits for what is past");
                    now = events.first_key_value().map_or(until, |((at, _), _)| (*at).min(until));
                }
                traceroute::Next::Done => {
                    let (hops, end) = trace.hops();
                    return (hops, end, now.saturating_since(Instant::ZERO), most);
                }
            }
        }
    }

    fn answer(&self, ttl: u8) -> Option<(Duration, Answer)> {
        let hop = usize::from(ttl) - 1;
        let (after, fate, from) = match self.routers.get(hop) {
            Some(router) => ((*router)?, Fate::Expired, ttl),
            None => (self.destination?, self.fate, self.routers.len() as u8 + 1),
        };
        Some((MS(after), Answer { fate, from: address(from), mpls: Vec::new() }))
    }
}

fn addresses(hops: &[Hop]) -> Vec<Option<IpAddr>> {
    hops.iter().map(|hop| hop.nodes.first().map(|node| node.address)).collect()
}

#[test]
fn hops_are_named_in_order_with_their_round_trips() {
    let row = Row::new(&[Some(1), Some(10), Some(20)], Some(30));
    let (hops, end, took, most) = row.trace(Settings::default());
    assert_eq!(end, TraceEnd::Reached);
    assert_eq!(addresses(&hops), [1, 2, 3, 4].map(|ttl| Some(address(ttl))));
    assert_eq!(hops[2].nodes[0].rtt_seconds, [Duration::from_millis(20).into(); 3]);
    assert!(hops.iter().all(|hop| hop.probes >= 3));
    assert!(most <= 12, "{most} in flight");
    assert!(took < MS(80), "{took:?}");
}

#[test]
fn one_at_a_time_is_one_at_a_time() {
    let row = Row::new(&[Some(5), None, Some(5)], Some(5));
    let settings = Settings { in_flight: 1, silent_probes: 2, ..Settings::default() };
    let (hops, end, took, most) = row.trace(settings);
    assert_eq!((end, most), (TraceEnd::Reached, 1));
    assert_eq!(addresses(&hops), [Some(address(1)), None, Some(address(3)), Some(address(4))]);
    assert_eq!((hops[1].probes, hops[0].probes), (2, 3));
    // Two waits of a second, nine answers of 5 ms.
    assert_eq!(took, MS(2_045));
}

#[test]
fn a_silent_end_is_told_as_such() {
    let row = Row::new(&[Some(1), Some(2)], None);
    let (hops, end, took, _) = row.trace(Settings::default());
    assert_eq!(end, TraceEnd::Silent);
    assert_eq!(addresses(&hops), [Some(address(1)), Some(address(2)), None]);
    assert!(took <= Duration::from_secs(3), "{took:?}");
    let (hops, end, ..) = Row::new(&[], None).trace(Settings::default());
    assert_eq!((hops.len(), end), (1, TraceEnd::Silent));
}

#[test]
fn a_router_that_refuses_ends_it() {
    let row = Row { fate: Fate::Refused, ..Row::new(&[Some(1)], Some(2)) };
    let (hops, end, ..) = row.trace(Settings::default());
    assert_eq!((hops.len(), end), (2, TraceEnd::Unreachable));
}

#[test]
fn a_path_too_long_and_a_time_too_short_end_it() {
    let row = Row::new(&[Some(1); 40], Some(1));
    let (hops, end, ..) = row.trace(Settings::default());
    assert_eq!((hops.len(), end), (30, TraceEnd::TooFar));
    let row = Row::new(&[Some(400); 9], Some(400));
    let settings = Settings { in_flight: 1, within: MS(2_000), ..Settings::default() };
    let (hops, end, took, _) = row.trace(settings);
    assert_eq!((hops.len(), end, took), (2, TraceEnd::OutOfTime, MS(2_000)));
}

#[test]
fn routers_that_quote_too_little_are_still_told_apart() {
    let row = Row { quotes: false, ..Row::new(&[Some(1), Some(10), None, Some(3)], Some(30)) };
    let (hops, end, ..) = row.trace(Settings::default());
    assert_eq!(end, TraceEnd::Reached);
    let known = [Some(1), Some(2), None, Some(4), Some(5)].map(|ttl| ttl.map(address));
    assert_eq!(addresses(&hops), known);
    assert!(hops.iter().all(|hop| hop.nodes.len() <= 1), "{hops:?}");
}

#[test]
fn answers_to_probes_never_sent_count_for_nothing() {
    let mut trace = Traceroute::new(Settings::default(), Instant::ZERO);
    let answer = Answer { fate: Fate::Arrived, from: address(9), mpls: Vec::new() };
    trace.answered(0, answer.clone(), Instant::ZERO);
    trace.answered(u16::MAX, answer.clone(), Instant::ZERO);
    assert!(!trace.answered_unknown(answer, Instant::ZERO));
    assert_eq!(trace.hops().0, []);
}
