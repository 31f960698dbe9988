//! Settings, arrivals, and the outcome of every virtual packet.

use std::time::Duration;

use lfn_base::framing::Layer;
use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes, Ratio};
use lfn_link::{CoDel, Discipline, DropCause, FqCoDel, LinkConfig, LinkEvent, Packet, QueueLimit, Red, Timetable};
use lfn_packet::Ecn;
use lfn_sim::ScriptedArrival;
use proptest::prelude::*;

/// Outcome of one virtual packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Forwarded {
        marked: bool,
        /// Time at which its range left.
        due: Instant,
        /// Whether it was the last of its range, so that `due` is its own time.
        is_last: bool,
        /// Wait of the first packet of the range.
        waited: Option<Duration>,
    },
    Dropped {
        cause: DropCause,
        at: Instant,
    },
}

impl Outcome {
    /// Returns the part of the outcome that is equal for super-packets and single packets.
    pub fn kind(self) -> Option<Result<bool, (DropCause, Instant)>> {
        Some(match self {
            Outcome::Forwarded { marked, .. } => Ok(marked),
            Outcome::Dropped { cause, at } => Err((cause, at)),
        })
    }
}

/// Strategy for a constant rate, or a rate that varies and may stall, once or repeatedly.
pub fn rates() -> impl Strategy<Value = Timetable<BitRate>> {
    let rate = || prop_oneof![Just(135_000_000), 1_000_000_u64..20_000_000_000];
    let step = (1_u64..3_000_000, prop_oneof![4 => rate(), 1 => Just(0)]);
    let varying = (rate(), prop::collection::vec(step, 1..8), rate(), prop::option::of(1_u64..2_000_000)).prop_map(
        |(first, steps, last, repeat)| {
            let mut at = 0;
            let mut all = vec![(Duration::ZERO, BitRate(first))];
            for (length, rate) in steps {
                at += length;
                all.push((Duration::from_nanos(at), BitRate(rate)));
            }
            all.push((Duration::from_nanos(at + 500_000), BitRate(last)));
            let period = repeat.map(|after| Duration::from_nanos(at + 500_000 + after));
            Timetable::new(all, period).unwrap()
        },
    );
    prop_oneof![rate().prop_map(|rate| BitRate(rate).into()), varying]
}

/// Strategy for disciplines with times of about the sending time of some packets, so that each has an effect.
fn disciplines(packet: Duration) -> impl Strategy<Value = Discipline> {
    let codel = (1_u32..200, 1.5..30.0).prop_map(move |(target, times)| {
        let target = packet * target;
        CoDel { target: target.max(Duration::from_nanos(1)), interval: target.mul_f64(times) + Duration::from_nanos(2) }
    });
    let fq_codel = (codel.clone(), 1_u32..20, 256_u64..4000).prop_map(|(codel, flows, quantum)| FqCoDel {
        codel,
        flows,
        quantum: Bytes(quantum),
    });
    let red = (1_u64..20_000, 1_u64..40_000, 0.001..1.0, 0.001..1.0, any::<bool>()).prop_map(
        |(min, more, probability, weight, in_packets)| {
            let threshold = |bytes: u64| match in_packets {
                true => QueueLimit::Packets((bytes / 1000) as u32),
                false => QueueLimit::Bytes(Bytes(bytes)),
            };
            Red {
                min: Some(threshold(min)),
                max: Some(threshold(min + more + 1000)),
                probability: Ratio::new(probability).unwrap(),
                weight: Ratio::new(weight).unwrap(),
            }
        },
    );
    prop_oneof![
        Just(Discipline::DropTail),
        codel.prop_map(Discipline::CoDel),
        fq_codel.prop_map(Discipline::FqCoDel),
        red.prop_map(Discipline::Red),
    ]
}

pub fn settings() -> impl Strategy<Value = LinkConfig> {
    let limit = prop_oneof![
        (0_u64..400_000).prop_map(|bytes| QueueLimit::Bytes(Bytes(bytes))),
        (0_u32..300).prop_map(QueueLimit::Packets),
    ];
    let slice = prop_oneof![Just(0), Just(150_000), 0_u64..2_000_000];
    let rest = (limit, any::<bool>(), prop::sample::select(&Layer::ALL[..]), slice, any::<u64>(), 0_u64..2_000_000);
    (rates(), rest).prop_flat_map(|(rate, (queue, ecn, layer, slice, seed, epoch))| {
        let packet = rate.values().max().unwrap().time_for(Bytes(1500));
        disciplines(packet).prop_map(move |discipline| LinkConfig {
            rate: rate.clone(),
            queue,
            discipline,
            ecn,
            layer,
            seed,
            epoch: Instant::from_nanos(epoch),
            slice: Duration::from_nanos(slice),
            ..LinkConfig::default()
        })
    })
}

/// Strategy for packets of several flows, at about the rate of the line and in bursts.
pub fn scenario() -> impl Strategy<Value = (LinkConfig, Vec<ScriptedArrival>)> {
    let ecn = prop_oneof![Just(Ecn::NotCapable), Just(Ecn::Capable), Just(Ecn::Congested)];
    let load = prop_oneof![2 => Just(0.0), 4 => 0.0..1.5, 1 => 0.0..20.0];
    let packet = (prop_oneof![Just(1_u32), 1_u32..64], 15_u32..1_515, 0.0..1.0, load, 0_u32..5, ecn);
    (settings(), prop::collection::vec(packet, 1..80)).prop_map(|(config, packets)| {
        let rate = config.rate.values().max().unwrap();
        let mut at = Instant::ZERO;
        let mut arrivals = Vec::new();
        for ((count, wire, last, load, flow, ecn), id) in packets.into_iter().zip(0..) {
            let last_wire = ((f64::from(wire) * last) as u32).max(15);
            let packet = Packet { flow, ecn, ..Packet::super_packet(id, count, wire.max(last_wire), last_wire) };
            arrivals.push(ScriptedArrival { at, packet });
            at += rate.time_for(Bytes(packet.bytes())).mul_f64(load);
        }
        (config, arrivals)
    })
}

/// Returns the outcome of every virtual packet, in the order of [`singles`](crate::support::singles).
pub fn outcomes(arrivals: &[ScriptedArrival], events: &[LinkEvent]) -> Vec<Outcome> {
    crate::support::outcomes(arrivals, events, |event, index| match *event {
        LinkEvent::Forward { packet, due } => Outcome::Forwarded {
            marked: packet.changes.is_marked,
            due,
            is_last: index + 1 == packet.count,
            waited: (index == 0).then_some(packet.queue_delay),
        },
        LinkEvent::Drop { cause, at, .. } => Outcome::Dropped { cause, at },
        LinkEvent::Duplicate { .. } => panic!("nothing is duplicated here"),
    })
}
