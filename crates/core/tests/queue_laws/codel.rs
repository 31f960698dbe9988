//! CoDel against the RFC's pseudocode, and what it is for.

use std::collections::VecDeque;
use std::time::Duration;

use lfn_core::link::{CoDel, Discipline, DropCause, Ecn, Event, Link, LinkConfig, Packet};
use lfn_core::sim::{Arrival, run};
use lfn_core::time::Instant;
use lfn_core::units::{BitRate, Bytes};
use proptest::prelude::*;

use crate::line::compare;
use crate::reference::{Codel, expect};
use crate::scenario::{fates, scenario};
use crate::support::link;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn it_does_what_the_rfc_says((config, arrivals) in scenario(), target in 1_u32..100, times in 1.5..20.0) {
        let target = config.rate.values().max().unwrap().time_for(Bytes(1500)) * target;
        let interval = target.mul_f64(times) + Duration::from_nanos(1);
        let config = LinkConfig { discipline: Discipline::CoDel(CoDel { target, interval }), ..config };
        let expected = expect(&config, &arrivals, &mut Codel::new(&config));
        compare(&fates(&arrivals, &run(&mut link(&config), arrivals.iter().copied())), &expected)?;
    }
}

/// 12 Mb/s, so a full packet takes a millisecond.
fn config(ecn: bool) -> LinkConfig {
    LinkConfig {
        rate: BitRate(12_000_000).into(),
        queue: Bytes(100_000_000).into(),
        discipline: Discipline::CoDel(CoDel::default()),
        ecn,
        ..LinkConfig::default()
    }
}

#[test]
fn the_first_drops_come_when_the_rfc_says() {
    // An unresponsive overload: two packets a millisecond. The wait reaches 5 ms with the packet that begins at 10 ms
    // (it came at 5); an interval later, at 110 ms, dropping begins, and goes on after 100/√1, 100/√2 … ms.
    let arrivals =
        (0..3000).map(|id| Arrival { at: Instant::from_nanos(id * 500_000), packet: Packet::single(id, 1500) });
    let mut drops: Vec<u64> = Vec::new();
    for event in run(&mut link(&config(false)), arrivals) {
        if let Event::Drop { cause, at, .. } = event {
            assert_eq!(cause, DropCause::Aqm);
            drops.push(at.as_nanos() / 1_000_000);
        }
    }
    let expected: Vec<u64> = (1..8)
        .scan(110.0, |next, count| {
            let now: f64 = *next;
            *next += 100.0 / f64::from(count).sqrt();
            // Decided when a packet begins: every millisecond.
            Some(now.ceil() as u64)
        })
        .collect();
    assert_eq!(drops[..7], expected);
}

#[test]
fn what_is_capable_is_marked_at_the_same_pace() {
    let arrivals = (0..3000).map(|id| {
        let packet = Packet { ecn: Ecn::Capable, ..Packet::single(id, 1500) };
        Arrival { at: Instant::from_nanos(id * 500_000), packet }
    });
    let mut link = link(&config(true));
    let events = run(&mut link, arrivals);
    let marks: Vec<u64> = events
        .iter()
        .filter_map(|event| match event {
            Event::Forward { packet, due } if packet.changes.congestion => Some(due.as_nanos() / 1_000_000 - 1),
            _ => None,
        })
        .collect();
    assert_eq!(marks[..4], [110, 210, 281, 339]);
    assert_eq!((link.stats().dropped.total().packets, link.stats().marked.packets), (0, marks.len() as u64));
}

/// A sender that adds a packet to its window every round trip and halves it for every loss, at most once a round trip:
/// Reno's congestion avoidance, acknowledgements coming back after a fixed time.
struct Responsive {
    window: f64,
    in_flight: u32,
    /// When acknowledgements, and word of losses, come back.
    returning: VecDeque<(Instant, bool)>,
    reduced: Instant,
}

impl Responsive {
    /// Runs over `link` until `end`; the waits of all packets that were sent after half of that.
    fn run(link: &mut Link, rtt: Duration, end: Instant) -> Vec<Duration> {
        let mut sender = Responsive { window: 10.0, in_flight: 0, returning: VecDeque::new(), reduced: Instant::ZERO };
        let (mut now, mut id, mut waits) = (Instant::ZERO, 0, Vec::new());
        let half = Instant::from_nanos(end.as_nanos() / 2);
        while now < end {
            while f64::from(sender.in_flight) < sender.window {
                link.push(Packet::single(id, 1500), now);
                (sender.in_flight, id) = (sender.in_flight + 1, id + 1);
            }
            let next = [link.next(), sender.returning.front().map(|(at, _)| *at)];
            now = next.into_iter().flatten().min().unwrap();
            while let Some(event) = link.poll(now) {
                let was_lost = matches!(event, Event::Drop { .. });
                sender.returning.push_back((event.at().max(now) + rtt, was_lost));
                if let Event::Forward { packet, due } = event
                    && due > half
                {
                    waits.push(packet.waited);
                }
            }
            while let Some(&(at, was_lost)) = sender.returning.front().filter(|(at, _)| *at <= now) {
                sender.returning.pop_front();
                sender.hear(at, was_lost, rtt);
            }
        }
        waits
    }

    fn hear(&mut self, now: Instant, was_lost: bool, rtt: Duration) {
        self.in_flight -= 1;
        if !was_lost {
            self.window += 1.0 / self.window;
        } else if now > self.reduced + rtt {
            (self.window, self.reduced) = ((self.window / 2.0).max(2.0), now);
        }
    }
}

#[test]
fn a_responsive_flow_is_held_near_the_target() {
    let rtt = Duration::from_millis(40);
    let end = Instant::from_nanos(120_000_000_000);
    let median = |discipline| {
        // A bloated queue: 1.5 MB are a second.
        let config = LinkConfig { queue: Bytes(1_500_000).into(), discipline, ..config(false) };
        let mut link = link(&config);
        let mut waits = Responsive::run(&mut link, rtt, end);
        waits.sort();
        (waits[waits.len() / 2], link.stats().busy.as_secs_f64() / 120.0)
    };
    let (wait, busy) = median(Discipline::CoDel(CoDel::default()));
    assert!(wait < Duration::from_millis(10), "{wait:?}");
    assert!(busy > 0.8, "{busy}");
    let (wait, _) = median(Discipline::DropTail);
    assert!(wait > Duration::from_millis(300), "{wait:?}");
}
