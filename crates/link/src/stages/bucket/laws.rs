//! Tests of the token buckets, stage by stage, against a simple reference bucket with random arrivals.
//!
//! They are unit tests because behind a line the exact times of a shaper are not visible.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::PacketCount;

const END: Instant = Instant::from_nanos(u64::MAX);

/// Outcome of one virtual packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Left alone or as the last of its range.
    Left(Instant),
    /// Left in a range whose last virtual packet left at this time.
    LeftBefore(Instant),
    Dropped,
}

type Arrivals = Vec<(Instant, Packet)>;

/// Strategy for a bucket, a queue limit, a slice, and arrivals at about the rate, so that tokens run out and come back.
fn scenario() -> impl Strategy<Value = (Shaper, Duration, Arrivals)> {
    let rate = prop_oneof![Just(135_000_000), 10_000_u64..10_000_000_000_000, 1_u64..10_000_000];
    let shaper = (rate, prop_oneof![1_u64..2_000, 1_u64..200_000], prop_oneof![0_u64..5_000, 0_u64..500_000])
        .prop_map(|(rate, burst, limit)| Shaper { rate: BitRate(rate), burst: Bytes(burst), limit: Bytes(limit) });
    let packet = (prop_oneof![Just(1_u32), 1_u32..64], 1_u32..9_014, 0.0..1.0, prop_oneof![Just(0.0), 0.0..2.5]);
    let slice = prop_oneof![Just(0), 0_u64..2_000_000].prop_map(Duration::from_nanos);
    (shaper, slice, prop::collection::vec(packet, 1..60)).prop_map(|(shaper, slice, packets)| {
        // The time is not zero, because a bucket starts full.
        let mut at = Instant::from_nanos(1_000_000_007);
        let mut arrivals = Vec::new();
        for ((count, wire, last, load), id) in packets.into_iter().zip(0..) {
            let packet = Packet::super_packet(id, count, wire, ((f64::from(wire) * last) as u32).max(1));
            arrivals.push((at, packet));
            at += Duration::from_nanos((packet.bytes() as f64 * 8e9 / shaper.rate.as_f64() * load) as u64);
        }
        (shaper, slice, arrivals)
    })
}

fn context() -> HopContext {
    crate::LinkConfig::default().context()
}

fn shape(shaper: Shaper, slice: Duration) -> ShaperStage {
    ShaperStage::new(Some(shaper), &HopContext { slice, ..context() })
}

fn police(shaper: Shaper) -> PolicerStage {
    let Shaper { rate, burst, .. } = shaper;
    PolicerStage::new(Some(Policer { rate, burst }), &context())
}

fn split_into_singles(arrivals: &Arrivals) -> Arrivals {
    let mut all = Vec::new();
    for (at, packet) in arrivals {
        for index in 0..packet.count {
            let wire = if index + 1 == packet.count { packet.last_wire_len } else { packet.wire_len };
            all.push((*at, Packet::single(all.len() as u64, wire)));
        }
    }
    all
}

fn run(stage: &mut impl Stage, arrivals: &Arrivals) -> Vec<LinkEvent> {
    let mut events = Vec::new();
    for (at, packet) in arrivals {
        while let Some(event) = stage.next_event_at().filter(|next| next < at).and_then(|next| stage.pop(next)) {
            events.push(event);
        }
        stage.push(*packet, *at);
    }
    events.extend(std::iter::from_fn(|| stage.pop(END)));
    assert_eq!(stage.next_event_at(), None);
    events
}

/// Returns the outcomes in the order of [`split_into_singles`]. Fails if a virtual packet has no outcome or two
/// outcomes.
fn outcomes(arrivals: &Arrivals, events: &[LinkEvent], cause: DropCause) -> Vec<Outcome> {
    let mut total = 0;
    let mut base = BTreeMap::new();
    for (_, packet) in arrivals {
        base.insert(packet.id, total);
        total += packet.count as usize;
    }
    let mut outcomes = vec![None; total];
    for event in events {
        let (LinkEvent::Forward { packet, .. } | LinkEvent::Drop { packet, .. } | LinkEvent::Duplicate { packet, .. }) =
            event;
        let first = base[&packet.id] + packet.first as usize;
        let end = first + packet.count as usize;
        for (index, slot) in outcomes.iter_mut().enumerate().take(end).skip(first) {
            let outcome = match event {
                LinkEvent::Forward { due, .. } if index + 1 == end => Outcome::Left(*due),
                LinkEvent::Forward { due, .. } => Outcome::LeftBefore(*due),
                LinkEvent::Drop { cause: dropped, .. } if *dropped == cause => Outcome::Dropped,
                other => panic!("{other:?}"),
            };
            assert_eq!(slot.replace(outcome), None);
        }
    }
    outcomes.into_iter().map(Option::unwrap).collect()
}

/// Bucket with a token count, and time as nanoseconds times rate.
struct ReferenceBucket {
    rate: u128,
    burst: u128,
    tokens: u128,
    as_of: u128,
}

impl ReferenceBucket {
    fn new(shaper: &Shaper) -> Self {
        let burst = u128::from(shaper.burst.0) * 8_000_000_000;
        ReferenceBucket { rate: u128::from(shaper.rate.0), burst, tokens: burst, as_of: 0 }
    }

    fn fill(&mut self, now: u128) {
        self.tokens = self.burst.min(self.tokens + (now - self.as_of));
        self.as_of = now;
    }

    /// Takes the tokens if the packet conforms, and reports whether it does.
    fn take(&mut self, need: u128) -> bool {
        let conforms = need <= self.tokens;
        self.tokens -= if conforms { need } else { 0 };
        conforms
    }

    /// Waits until the packet conforms, and returns that time.
    fn wait(&mut self, need: u128) -> u128 {
        self.as_of += need - self.tokens;
        self.tokens = 0;
        self.as_of
    }
}

fn reference_policer(shaper: &Shaper, arrivals: &Arrivals) -> Vec<Outcome> {
    let mut bucket = ReferenceBucket::new(shaper);
    let mut fate = |(at, packet): (Instant, Packet)| {
        bucket.fill(u128::from(at.as_nanos()) * bucket.rate);
        if bucket.take(u128::from(packet.bytes()) * 8_000_000_000) { Outcome::Left(at) } else { Outcome::Dropped }
    };
    split_into_singles(arrivals).into_iter().map(&mut fate).collect()
}

fn reference_shaper(shaper: &Shaper, arrivals: &Arrivals) -> Vec<Outcome> {
    let mut bucket = ReferenceBucket::new(shaper);
    let mut queue: Vec<(u128, u64)> = Vec::new();
    let mut fate = |(at, packet): (Instant, Packet)| {
        let now = u128::from(at.as_nanos()) * bucket.rate;
        let need = u128::from(packet.bytes()) * 8_000_000_000;
        queue.retain(|(leaves, _)| *leaves > now);
        if queue.is_empty() {
            bucket.fill(now);
            if bucket.take(need) {
                return Outcome::Left(at);
            }
        }
        let held: u64 = queue.iter().map(|(_, bytes)| bytes).sum();
        if need > bucket.burst || held + packet.bytes() > shaper.limit.0 {
            return Outcome::Dropped;
        }
        let leaves = bucket.wait(need);
        queue.push((leaves, packet.bytes()));
        Outcome::Left(Instant::from_nanos(leaves.div_ceil(bucket.rate) as u64))
    };
    split_into_singles(arrivals).into_iter().map(&mut fate).collect()
}

/// Checks that over any interval at most a burst and the rate leave. Times are rounded up to 1 ns. With slices, only
/// packets that leave after the start of an interval count.
fn assert_rate_and_burst(shaper: &Shaper, events: &[LinkEvent], begin_counts: bool) {
    let rate = i128::from(shaper.rate.0);
    let (mut work, mut lowest) = (0, i128::MAX);
    for event in events {
        let LinkEvent::Forward { packet, due } = event else { continue };
        let could = rate * i128::from(due.as_nanos());
        let before = work - could;
        work += i128::from(packet.bytes()) * 8_000_000_000;
        let after = work - could;
        lowest = lowest.min(if begin_counts { before } else { after });
        let excess = after - lowest - i128::from(shaper.burst.0) * 8_000_000_000;
        assert!(excess <= rate, "{event:?}: {excess}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_policer_is_the_simple_bucket((shaper, _, arrivals) in scenario()) {
        let expected = reference_policer(&shaper, &arrivals);
        let apart = split_into_singles(&arrivals);
        let events = run(&mut police(shaper), &apart);
        assert_rate_and_burst(&shaper, &events, true);
        prop_assert_eq!(&outcomes(&apart, &events, DropCause::Policer), &expected);
        let together = outcomes(&arrivals, &run(&mut police(shaper), &arrivals), DropCause::Policer);
        for (together, expected) in together.iter().zip(&expected) {
            match together {
                Outcome::LeftBefore(due) => prop_assert_eq!(&Outcome::Left(*due), expected),
                other => prop_assert_eq!(other, expected),
            }
        }
    }

    #[test]
    fn the_shaper_is_the_simple_bucket_with_a_queue((shaper, slice, arrivals) in scenario()) {
        let expected = reference_shaper(&shaper, &arrivals);
        let apart = split_into_singles(&arrivals);
        let events = run(&mut shape(shaper, Duration::ZERO), &apart);
        assert_rate_and_burst(&shaper, &events, true);
        prop_assert_eq!(&outcomes(&apart, &events, DropCause::Shaper), &expected);
        // With slices the outcome is the same, but packets wait for the end of their slice.
        let events = run(&mut shape(shaper, slice), &arrivals);
        assert_rate_and_burst(&shaper, &events, false);
        for (together, expected) in outcomes(&arrivals, &events, DropCause::Shaper).iter().zip(&expected) {
            match (together, expected) {
                (Outcome::LeftBefore(due), Outcome::Left(exact)) => {
                    prop_assert!(due >= exact && *due - *exact <= slice, "{due:?} for {exact:?}");
                }
                (together, expected) => prop_assert_eq!(together, expected),
            }
        }
    }

    #[test]
    fn what_conforms_is_neither_dropped_nor_delayed((shaper, slice, arrivals) in scenario()) {
        let conforming: Arrivals = run(&mut police(shaper), &arrivals).into_iter().filter_map(|event| match event {
            LinkEvent::Forward { packet, due } => Some((due, packet)),
            _ => None,
        }).collect();
        let untouched: Vec<_> = conforming.iter().map(|(due, packet)| LinkEvent::Forward { packet: *packet, due: *due }).collect();
        prop_assert_eq!(run(&mut police(shaper), &conforming), untouched.clone());
        prop_assert_eq!(run(&mut shape(shaper, slice), &conforming), untouched);
    }

    /// A policer of the same rate and burst passes the output of a shaper, apart from rounding to 1 ns.
    #[test]
    fn what_is_shaped_conforms((shaper, _, arrivals) in scenario()) {
        let shaped: Arrivals = run(&mut shape(shaper, Duration::ZERO), &arrivals).into_iter().filter_map(|event| match event {
            LinkEvent::Forward { packet, due } => Some((due, packet)),
            _ => None,
        }).collect();
        let wider = Shaper { burst: Bytes(shaper.burst.0 + shaper.rate.0.div_ceil(8_000_000_000)), ..shaper };
        for event in run(&mut police(wider), &shaped) {
            prop_assert!(matches!(event, LinkEvent::Forward { .. }), "{event:?}");
        }
    }

    #[test]
    fn waiting_is_counted_and_bounded((shaper, slice, arrivals) in scenario()) {
        let came: BTreeMap<_, _> = arrivals.iter().map(|(at, packet)| (packet.id, *at)).collect();
        let mut stage = shape(shaper, slice);
        let longest = shaper.rate.time_for(shaper.limit) + Duration::from_nanos(1);
        let mut left = PacketCount::default();
        for event in run(&mut stage, &arrivals) {
            let (LinkEvent::Forward { packet, .. } | LinkEvent::Drop { packet, .. } | LinkEvent::Duplicate { packet, .. }) = event;
            if let LinkEvent::Forward { packet, due } = event {
                prop_assert_eq!(packet.queue_delay, due - came[&packet.id]);
                prop_assert!(packet.queue_delay <= longest, "{packet:?}");
            }
            left.add(&packet);
        }
        let mut stats = LinkStats::default();
        stage.add_stats(&mut stats);
        prop_assert_eq!(stats.queued, Bytes(0));
        prop_assert!(stats.queue_peak <= shaper.limit);
        prop_assert_eq!(left.bytes.0, arrivals.iter().map(|(_, packet)| packet.bytes()).sum::<u64>());
    }

    /// Any change of settings keeps the order and loses nothing. Without a shaper packets leave immediately.
    #[test]
    fn settings_change_and_nothing_is_lost_by_it(
        (shaper, slice, arrivals) in scenario(),
        others in prop::collection::vec(prop::option::of((0.1..10.0, 1_u64..200_000)), 60),
    ) {
        let mut stage = shape(Shaper { limit: Bytes(1 << 40), ..shaper }, slice);
        let mut events = Vec::new();
        for ((at, packet), other) in arrivals.iter().zip(others) {
            let other = other.map(|(times, burst)| Shaper {
                rate: BitRate((shaper.rate.as_f64() * times) as u64 + 1),
                burst: Bytes(burst.max(9_014)),
                limit: Bytes(1 << 40),
            });
            stage.set(other, &HopContext { slice, ..context() }, *at);
            events.extend(std::iter::from_fn(|| stage.pop(*at)));
            if other.is_none() {
                prop_assert_eq!(stage.next_event_at(), None);
            }
            stage.push(*packet, *at);
        }
        events.extend(std::iter::from_fn(|| stage.pop(END)));
        let order: Vec<_> = events.iter().map(|event| match event {
            LinkEvent::Forward { packet, due } => (*due, packet.id, packet.first),
            other => panic!("{other:?}"),
        }).collect();
        prop_assert!(order.is_sorted());
        outcomes(&arrivals, &events, DropCause::Shaper);
    }
}

#[test]
fn neither_bucket_drifts() {
    // 135 Mb/s carry 1,350,000 packets of 1,250 B in 100 s to the nanosecond, though one takes 74,074.07… ns; the
    // burst, of 54,000 of them, takes 4 s.
    let shaper = Shaper { rate: BitRate(135_000_000), burst: Bytes(67_500_000), limit: Bytes(1 << 31) };
    let arrivals: Arrivals = (0..1_350_000).map(|id| (Instant::ZERO, Packet::single(id, 1250))).collect();
    let events = run(&mut shape(shaper, Duration::ZERO), &arrivals);
    assert_eq!(events.last().map(LinkEvent::at), Some(Instant::from_nanos(96_000_000_000)));
    // One packet every 50 µs for 100 s, from a full bucket: the tokens of 99.99995 s and the burst pass.
    let arrivals: Arrivals =
        (0..2_000_000).map(|id| (Instant::from_nanos(id * 50_000), Packet::single(id, 1250))).collect();
    let passed =
        run(&mut police(shaper), &arrivals).iter().filter(|event| matches!(event, LinkEvent::Forward { .. })).count();
    assert_eq!(passed, 1_349_999 + 54_000);
}

#[test]
fn tokens_are_kept_when_settings_change_as_far_as_they_fit() {
    let mbit = |rate: u64, burst| Some(Policer { rate: BitRate(rate * 1_000_000), burst: Bytes(burst) });
    let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
    let passes = |stage: &mut PolicerStage, ms, bytes| {
        stage.push(Packet::single(0, bytes), at(ms));
        matches!(stage.pop(at(ms)), Some(LinkEvent::Forward { .. }))
    };
    let mut stage = PolicerStage::new(mbit(8, 10_000), &context());
    // 10,000 B, and 1,000 more a millisecond.
    assert!(passes(&mut stage, 0, 9_000));
    stage.set(mbit(16, 20_000), &context(), at(2));
    // 3,000 tokens remained; now the bucket receives 2,000 in a millisecond.
    assert!(!passes(&mut stage, 2, 3_001) && passes(&mut stage, 2, 3_000) && passes(&mut stage, 3, 2_000));
    stage.set(mbit(8, 500), &context(), at(100));
    assert!(!passes(&mut stage, 100, 501) && passes(&mut stage, 100, 500) && !passes(&mut stage, 100, 1));
    stage.set(None, &context(), at(100));
    assert!(passes(&mut stage, 100, 1_000_000));
}
