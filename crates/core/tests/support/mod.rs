//! What laws of links are tried with: arrivals taken apart, a link that is polled in ways that must all come to the same,
//! and what became of every virtual packet. What counts as a fate, each file of laws says itself.

#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::iter::from_fn;
use std::time::Duration;

use lfn_core::link::{Event, Link, LinkConfig, Packet};
use lfn_core::sim::Arrival;
use lfn_core::time::Instant;
use proptest::prelude::*;

pub const END: Instant = Instant::from_nanos(u64::MAX);

pub fn link(config: &LinkConfig) -> Link {
    Link::new(config).unwrap()
}

pub fn packet_of(event: &Event) -> Packet {
    let (Event::Forward { packet, .. } | Event::Drop { packet, .. } | Event::Duplicate { packet, .. }) = event;
    *packet
}

/// The arrivals taken apart into single packets, at the same instants.
pub fn singles(arrivals: &[Arrival]) -> Vec<Arrival> {
    let apart = arrivals.iter().flat_map(|Arrival { at, packet }| {
        (0..packet.count).map(|index| {
            let wire = if index + 1 == packet.count { packet.last_wire } else { packet.wire };
            (*at, Packet { count: 1, wire, last_wire: wire, ..*packet })
        })
    });
    apart.zip(0..).map(|((at, packet), id)| Arrival { at, packet: Packet { id, ..packet } }).collect()
}

/// What `fate` makes of the events of every virtual packet, in the order of [`singles`]; it is told the event, and which
/// of its range is meant.
pub fn all_fates<Fate>(
    arrivals: &[Arrival],
    events: &[Event],
    fate: impl Fn(&Event, u32) -> Option<Fate>,
) -> Vec<Vec<Fate>> {
    let mut first = BTreeMap::new();
    let mut fates = Vec::new();
    for Arrival { packet, .. } in arrivals {
        first.insert(packet.id, fates.len());
        fates.extend((0..packet.count).map(|_| Vec::new()));
    }
    for event in events {
        let packet = packet_of(event);
        for index in 0..packet.count {
            fates[first[&packet.id] + (packet.first + index) as usize].extend(fate(event, index));
        }
    }
    fates
}

/// As [`all_fates`], where every virtual packet has one.
pub fn fates<Fate: Debug>(arrivals: &[Arrival], events: &[Event], fate: impl Fn(&Event, u32) -> Fate) -> Vec<Fate> {
    let all = all_fates(arrivals, events, |event, index| Some(fate(event, index)));
    let only = |fates| <[Fate; 1]>::try_from(fates).map(|[fate]| fate).expect("every virtual packet comes out once");
    all.into_iter().map(only).collect()
}

/// All that is left in a link, and then nothing is.
pub fn rest(link: &mut Link) -> Vec<Event> {
    let events = from_fn(|| link.poll(END)).collect();
    assert_eq!(link.next(), None);
    events
}

/// Polls after every so many arrivals only.
pub fn poll_seldom(link: &mut Link, arrivals: &[Arrival], seldom: usize) -> Vec<Event> {
    let mut events = Vec::new();
    for (index, Arrival { at, packet }) in arrivals.iter().enumerate() {
        link.push(*packet, *at);
        if index % seldom == 0 {
            events.extend(from_fn(|| link.poll(*at)));
        }
    }
    events.extend(rest(link));
    events
}

/// Tells of every arrival so late, when the link was polled already.
pub fn stamp_late(link: &mut Link, arrivals: &[Arrival], late: Duration) -> Vec<Event> {
    let mut events = Vec::new();
    for Arrival { at, packet } in arrivals {
        events.extend(from_fn(|| link.poll(*at + late)));
        link.push(*packet, *at);
    }
    events.extend(rest(link));
    events
}

/// Polls when the link says so, which moves it on, and just before, when nothing must leave. Gives what was told when.
pub fn poll_as_told(link: &mut Link, arrivals: &[Arrival]) -> Result<Vec<(Instant, Event)>, TestCaseError> {
    let mut told = Vec::new();
    let mut upcoming = arrivals.iter().peekable();
    loop {
        let next = link.next();
        if let Some(arrival) = upcoming.next_if(|arrival| next.is_none_or(|next| arrival.at < next)) {
            link.push(arrival.packet, arrival.at);
            continue;
        }
        let Some(next) = next else { break };
        if let Some(before) = next.as_nanos().checked_sub(1) {
            while let Some(event) = link.poll(Instant::from_nanos(before)) {
                prop_assert!(!matches!(event, Event::Forward { .. }), "{event:?} before {next:?}");
            }
        }
        for event in from_fn(|| link.poll(next)) {
            prop_assert!(event.at() <= next, "{event:?} at {next:?}");
            told.push((next, event));
        }
        prop_assert!(link.next().is_none_or(|after| after > next));
    }
    prop_assert_eq!(link.poll(END), None);
    prop_assert_eq!(upcoming.next(), None);
    Ok(told)
}
