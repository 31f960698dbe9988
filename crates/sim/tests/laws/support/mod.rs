//! Shared parts of the link tests: splitting arrivals, polling a link in ways that must give the same result, and
//! collecting the outcome of every virtual packet. Each test file defines its own outcome.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::iter::from_fn;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_link::{Link, LinkConfig, LinkEvent, Packet};
use lfn_sim::ScriptedArrival;
use proptest::prelude::*;

pub const END: Instant = Instant::from_nanos(u64::MAX);

pub fn link(config: &LinkConfig) -> Link {
    Link::new(config).unwrap()
}

pub fn packet_of(event: &LinkEvent) -> Packet {
    let (LinkEvent::Forward { packet, .. } | LinkEvent::Drop { packet, .. } | LinkEvent::Duplicate { packet, .. }) =
        event;
    *packet
}

/// Splits the arrivals into single packets at the same instants.
pub fn singles(arrivals: &[ScriptedArrival]) -> Vec<ScriptedArrival> {
    let apart = arrivals.iter().flat_map(|ScriptedArrival { at, packet }| {
        (0..packet.count).map(|index| {
            let wire = if index + 1 == packet.count { packet.last_wire_len } else { packet.wire_len };
            (*at, Packet { count: 1, wire_len: wire, last_wire_len: wire, ..*packet })
        })
    });
    apart.zip(0..).map(|((at, packet), id)| ScriptedArrival { at, packet: Packet { id, ..packet } }).collect()
}

/// Collects the results of `outcome` for the events of every virtual packet, in the order of [`singles`]. Its arguments
/// are the event and the index of the virtual packet in the range.
pub fn all_outcomes<Outcome>(
    arrivals: &[ScriptedArrival],
    events: &[LinkEvent],
    outcome: impl Fn(&LinkEvent, u32) -> Option<Outcome>,
) -> Vec<Vec<Outcome>> {
    let mut first = BTreeMap::new();
    let mut outcomes = Vec::new();
    for ScriptedArrival { packet, .. } in arrivals {
        first.insert(packet.id, outcomes.len());
        outcomes.extend((0..packet.count).map(|_| Vec::new()));
    }
    for event in events {
        let packet = packet_of(event);
        for index in 0..packet.count {
            outcomes[first[&packet.id] + (packet.first + index) as usize].extend(outcome(event, index));
        }
    }
    outcomes
}

/// Works like [`all_outcomes`] if every virtual packet has exactly one outcome.
pub fn outcomes<Outcome: Debug>(
    arrivals: &[ScriptedArrival],
    events: &[LinkEvent],
    outcome: impl Fn(&LinkEvent, u32) -> Outcome,
) -> Vec<Outcome> {
    let all = all_outcomes(arrivals, events, |event, index| Some(outcome(event, index)));
    let only = |outcomes| {
        <[Outcome; 1]>::try_from(outcomes).map(|[outcome]| outcome).expect("every virtual packet comes out once")
    };
    all.into_iter().map(only).collect()
}

/// Returns all remaining events, and checks that the link is empty.
pub fn drain(link: &mut Link) -> Vec<LinkEvent> {
    let events = from_fn(|| link.poll(END)).collect();
    assert_eq!(link.next_event_at(), None);
    events
}

/// Polls only after every `every` arrivals.
pub fn poll_every(link: &mut Link, arrivals: &[ScriptedArrival], every: usize) -> Vec<LinkEvent> {
    let mut events = Vec::new();
    for (index, ScriptedArrival { at, packet }) in arrivals.iter().enumerate() {
        link.push(*packet, *at);
        if index % every == 0 {
            events.extend(from_fn(|| link.poll(*at)));
        }
    }
    events.extend(drain(link));
    events
}

/// Pushes every arrival late by `late`, after polling the link.
pub fn push_late(link: &mut Link, arrivals: &[ScriptedArrival], late: Duration) -> Vec<LinkEvent> {
    let mut events = Vec::new();
    for ScriptedArrival { at, packet } in arrivals {
        events.extend(from_fn(|| link.poll(*at + late)));
        link.push(*packet, *at);
    }
    events.extend(drain(link));
    events
}

/// Polls at the times that the link returns, and just before, when no packet may leave. Returns the events with their
/// poll times.
pub fn poll_at_event_times(
    link: &mut Link,
    arrivals: &[ScriptedArrival],
) -> Result<Vec<(Instant, LinkEvent)>, TestCaseError> {
    let mut events = Vec::new();
    let mut upcoming = arrivals.iter().peekable();
    loop {
        let next = link.next_event_at();
        if let Some(arrival) = upcoming.next_if(|arrival| next.is_none_or(|next| arrival.at < next)) {
            link.push(arrival.packet, arrival.at);
            continue;
        }
        let Some(next) = next else { break };
        if let Some(before) = next.as_nanos().checked_sub(1) {
            while let Some(event) = link.poll(Instant::from_nanos(before)) {
                prop_assert!(!matches!(event, LinkEvent::Forward { .. }), "{event:?} before {next:?}");
            }
        }
        for event in from_fn(|| link.poll(next)) {
            prop_assert!(event.at() <= next, "{event:?} at {next:?}");
            events.push((next, event));
        }
        prop_assert!(link.next_event_at().is_none_or(|after| after > next));
    }
    prop_assert_eq!(link.poll(END), None);
    prop_assert_eq!(upcoming.next(), None);
    Ok(events)
}
