//! CoDel against the pseudocode of its RFC, and its effect on a responsive flow.

use std::collections::VecDeque;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};
use lfn_link::{CoDel, Discipline, DropCause, Link, LinkConfig, LinkEvent, Packet};
use lfn_packet::Ecn;
use lfn_sim::{ScriptedArrival, run_link};
use proptest::prelude::*;

use super::line::compare;
use super::reference::{Codel, expect};
use super::scenario::{outcomes, scenario};
use crate::support::link;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn matches_the_rfc_reference((config, arrivals) in scenario(), target in 1_u32..100, times in 1.5..20.0) {
        let target = config.rate.values().max().unwrap().time_for(Bytes(1500)) * target;
        let interval = target.mul_f64(times) + Duration::from_nanos(1);
        let config = LinkConfig { discipline: Discipline::CoDel(CoDel { target, interval }), ..config };
        let expected = expect(&config, &arrivals, &mut Codel::new(&config));
        compare(&outcomes(&arrivals, &run_link(&mut link(&config), arrivals.iter().copied())), &expected)?;
    }
}

/// Returns a link of 12 Mb/s, on which a full packet takes a millisecond.
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
fn first_drops_follow_the_control_law() {
    // Unresponsive overload of two packets per millisecond. The wait reaches 5 ms with the packet that starts at 10 ms
    // (it arrived at 5 ms). One interval later, at 110 ms, dropping begins and continues after 100/√1, 100/√2 … ms.
    let arrivals =
        (0..3000).map(|id| ScriptedArrival { at: Instant::from_nanos(id * 500_000), packet: Packet::single(id, 1500) });
    let mut drops: Vec<u64> = Vec::new();
    for event in run_link(&mut link(&config(false)), arrivals) {
        if let LinkEvent::Drop { cause, at, .. } = event {
            assert_eq!(cause, DropCause::Aqm);
            drops.push(at.as_nanos() / 1_000_000);
        }
    }
    let expected: Vec<u64> = (1..8)
        .scan(110.0, |next, count| {
            let now: f64 = *next;
            *next += 100.0 / f64::from(count).sqrt();
            // The decision falls when a packet starts: every millisecond.
            Some(now.ceil() as u64)
        })
        .collect();
    assert_eq!(drops[..7], expected);
}

#[test]
fn ecn_capable_packets_are_marked_at_the_same_rate() {
    let arrivals = (0..3000).map(|id| {
        let packet = Packet { ecn: Ecn::Capable, ..Packet::single(id, 1500) };
        ScriptedArrival { at: Instant::from_nanos(id * 500_000), packet }
    });
    let mut link = link(&config(true));
    let events = run_link(&mut link, arrivals);
    let marks: Vec<u64> = events
        .iter()
        .filter_map(|event| match event {
            LinkEvent::Forward { packet, due } if packet.changes.is_marked => Some(due.as_nanos() / 1_000_000 - 1),
            _ => None,
        })
        .collect();
    assert_eq!(marks[..4], [110, 210, 281, 339]);
    assert_eq!((link.stats().dropped.total().packets, link.stats().marked.packets), (0, marks.len() as u64));
}

/// Sender with Reno's congestion avoidance. It adds a packet to its window every round trip, and halves the window
/// after a loss, at most once per round trip. Acknowledgements return after a fixed time.
struct Responsive {
    window: f64,
    in_flight: u32,
    /// Times at which acknowledgements and reports of losses return.
    returning: VecDeque<(Instant, bool)>,
    reduced: Instant,
}

impl Responsive {
    /// Runs over `link` until `end`, and returns the waits of all packets sent after half of this time.
    fn run(link: &mut Link, rtt: Duration, end: Instant) -> Vec<Duration> {
        let mut sender = Responsive { window: 10.0, in_flight: 0, returning: VecDeque::new(), reduced: Instant::ZERO };
        let (mut now, mut id, mut waits) = (Instant::ZERO, 0, Vec::new());
        let half = Instant::from_nanos(end.as_nanos() / 2);
        while now < end {
            while f64::from(sender.in_flight) < sender.window {
                link.push(Packet::single(id, 1500), now);
                (sender.in_flight, id) = (sender.in_flight + 1, id + 1);
            }
            let next = [link.next_event_at(), sender.returning.front().map(|(at, _)| *at)];
            now = next.into_iter().flatten().min().unwrap();
            while let Some(event) = link.poll(now) {
                let was_lost = matches!(event, LinkEvent::Drop { .. });
                sender.returning.push_back((event.at().max(now) + rtt, was_lost));
                if let LinkEvent::Forward { packet, due } = event
                    && due > half
                {
                    waits.push(packet.queue_delay);
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
fn responsive_flow_stays_near_the_target() {
    let rtt = Duration::from_millis(40);
    let end = Instant::from_nanos(120_000_000_000);
    let median = |discipline| {
        // A bloated queue: 1.5 MB take a second.
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
