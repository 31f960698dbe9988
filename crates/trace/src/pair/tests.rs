//! Comparisons of generated captures with known losses, delays and clocks.

#![allow(clippy::unwrap_used, reason = "a test")]

use core::net::{IpAddr, Ipv4Addr};

use lfn_packet::{TcpEndpoint, TcpFlags, TcpOptions, Timestamps};

use lfn_base::time::Instant;
use lfn_packet::TcpSegment;
use lfn_results::evidence::pair::PairEvidence;
use std::time::Duration;

use super::*;

const MSS: u32 = 1000;
/// Delay of each direction, milliseconds.
const FORWARD: u64 = 30;
const BACK: u64 = 20;

/// Both captures of a generated transfer. Times are microseconds on one clock.
#[derive(Default)]
struct Captures {
    near: Vec<(u64, TcpSegment)>,
    far: Vec<(u64, TcpSegment)>,
}

fn end(last: u8, port: u16) -> TcpEndpoint {
    TcpEndpoint { address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)), port }
}

/// Segment of the near end, or of the far end. `stamp` is the timestamp and the IP identification.
fn segment(is_near: bool, sequence: u32, ack: u32, payload: u32, stamp: u32) -> TcpSegment {
    let (near, far) = (end(9, 40000), end(2, 5001));
    let (source, destination) = if is_near { (near, far) } else { (far, near) };
    TcpSegment {
        source,
        destination,
        ip_id: Some(stamp as u16 + 1),
        ttl: 64,
        ecn: 0,
        sequence,
        acknowledgement: ack,
        flags: TcpFlags::ACK,
        window: 1000,
        payload,
        options: TcpOptions { timestamps: Some(Timestamps { value: stamp, echo: 0 }), ..TcpOptions::default() },
    }
}

impl Captures {
    /// Sends data from the near end, and its acknowledgement. Data that is lost is sent again 200 ms later.
    fn send(&mut self, at: u64, index: u32, is_lost: bool) {
        let sequence = (u32::MAX - 5_000).wrapping_add(index * MSS);
        let data = segment(true, sequence, 7, MSS, index);
        self.near.push((at, data));
        let again = at + 200_000;
        let arrives = if is_lost { again + FORWARD * 1000 } else { at + FORWARD * 1000 };
        let data = if is_lost {
            let data = segment(true, sequence, 7, MSS, index + 10_000);
            self.near.push((again, data));
            data
        } else {
            data
        };
        self.far.push((arrives, data));
        let ack = segment(false, 7, sequence.wrapping_add(MSS), 0, index);
        self.far.push((arrives + 10, ack));
        self.near.push((arrives + 10 + BACK * 1000, ack));
    }

    /// Compares both captures. The far clock is ahead by `ahead` microseconds.
    fn compare(mut self, ahead: u64) -> PairEvidence {
        self.near.sort_by_key(|(at, _)| *at);
        self.far.sort_by_key(|(at, _)| *at);
        let near = self.near.iter().map(|(at, segment)| (Instant::from_nanos(at * 1000), segment));
        let far = self.far.iter().map(|(at, segment)| (Instant::from_nanos((at + ahead) * 1000), segment));
        let mut estimate = OffsetEstimate::default();
        near.clone().for_each(|(at, segment)| estimate.add(CaptureSide::Near, at, segment));
        far.clone().for_each(|(at, segment)| estimate.add(CaptureSide::Far, at, segment));
        let mut matcher = PairMatcher::new(estimate.offset().unwrap());
        let (mut near, mut far) = (near.peekable(), far.peekable());
        loop {
            let far_at = far.peek().map(|(at, _)| matcher.near_time(CaptureSide::Far, *at));
            let is_near = match (near.peek(), far_at) {
                (Some((near_at, _)), Some(far_at)) => *near_at <= far_at,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => return matcher.finish(),
            };
            let side = if is_near { CaptureSide::Near } else { CaptureSide::Far };
            let (at, segment) = if is_near { near.next().unwrap() } else { far.next().unwrap() };
            matcher.add(side, at, segment);
        }
    }
}

/// Sends 100 packets, one each millisecond.
fn transfer(is_lost: impl Fn(u32) -> bool) -> Captures {
    let mut captures = Captures::default();
    for index in 0..100 {
        captures.send(1_000_000 + u64::from(index) * 1000, index, is_lost(index));
    }
    // A second later, so that the ends of both captures do not matter.
    captures.send(4_000_000, 100, false);
    captures
}

#[test]
fn same_packets_have_no_losses() {
    let pair = transfer(|_| false).compare(0);
    assert_eq!((pair.forward.sent, pair.forward.arrived, pair.reverse.sent), (101, 101, 101));
    assert_eq!((pair.forward.lost, pair.reverse.lost, pair.forward.missed_by_second), (0, 0, 0));
    assert_eq!((pair.forward.matched_bytes, pair.forward.reordered), (101_000, 0));
}

#[test]
fn lost_packets_are_counted_in_groups() {
    let pair = transfer(|index| index == 20 || (40..43).contains(&index)).compare(0);
    let forward = &pair.forward;
    assert_eq!((forward.lost, forward.lost_bytes), (4, 4000), "{forward:?}");
    assert_eq!((forward.loss_bursts, forward.largest_burst), (2, 3), "{forward:?}");
    let losses: Vec<_> = forward.losses.iter().map(|loss| (loss.offset_bytes, loss.packets)).collect();
    assert_eq!(losses, [(20_000, 1), (40_000, 3)]);
    assert_eq!(forward.losses[0].time, Some(Duration::from_millis(20)));
    assert_eq!((forward.missed_by_second, forward.missed_by_first), (0, 0));
}

#[test]
fn offset_and_delays_follow_from_both_directions() {
    for ahead in [0, 5_000_000_000] {
        let pair = transfer(|_| false).compare(ahead);
        let clock = pair.clock.unwrap();
        assert_eq!(clock.min_rtt, Duration::from_millis(FORWARD + BACK));
        // The delays differ by 10 ms, which the offset takes for 5 ms of the clock.
        let expected = ahead as f64 / 1e6 + 0.005;
        assert!((clock.offset_seconds.get() - expected).abs() < 1e-6, "{clock:?}");
        assert_eq!(clock.uncertainty, Duration::from_millis(25));
        let delay = pair.forward.delay.unwrap();
        assert_eq!((delay.min, delay.max_queueing), (Duration::from_millis(25), Duration::ZERO));
    }
}

#[test]
fn queueing_delay_is_above_the_minimum() {
    let mut captures = transfer(|_| false);
    // The last hundred packets wait 8 ms at the far end.
    captures.far.iter_mut().filter(|(_, segment)| segment.payload > 0).skip(60).for_each(|(at, _)| *at += 8_000);
    let delay = captures.compare(0).forward.delay.unwrap();
    assert_eq!((delay.median_queueing, delay.p95_queueing), (Duration::ZERO, Duration::from_millis(8)));
}

#[test]
fn super_packets_of_different_sizes_match() {
    let mut captures = transfer(|_| false);
    // The near capture has two packets as one; the far one has four.
    let mut merged: Vec<(u64, TcpSegment)> = Vec::new();
    for (at, segment) in std::mem::take(&mut captures.far) {
        match merged.iter_mut().rev().find(|(_, last)| last.payload > 0) {
            Some((_, last))
                if segment.payload > 0
                    && last.payload < 4 * MSS
                    && last.sequence.wrapping_add(last.payload) == segment.sequence =>
            {
                last.payload += segment.payload;
                last.options.timestamps = None;
            }
            _ => merged.push((at, segment)),
        }
    }
    captures.far = merged;
    let pair = captures.compare(0);
    assert_eq!((pair.forward.matched_bytes, pair.forward.lost), (101_000, 0), "{:?}", pair.forward);
    assert!(pair.forward.arrived < 30);
}

#[test]
fn packets_that_a_capture_missed_are_not_lost() {
    let mut captures = transfer(|_| false);
    let is_data = |segment: &TcpSegment, stamp: u32| {
        segment.payload > 0 && segment.options.timestamps.is_some_and(|stamps| stamps.value == stamp)
    };
    captures.far.retain(|(_, segment)| !is_data(segment, 30));
    captures.near.retain(|(_, segment)| !is_data(segment, 50));
    let forward = captures.compare(0).forward;
    assert_eq!((forward.lost, forward.missed_by_second, forward.missed_by_first), (0, 1, 1), "{forward:?}");
}

#[test]
fn lost_acknowledgements_are_counted() {
    let mut captures = transfer(|_| false);
    captures.near.retain(|(_, segment)| segment.payload > 0 || segment.options.timestamps.unwrap().value % 10 != 5);
    let reverse = captures.compare(0).reverse;
    assert_eq!((reverse.lost_acknowledgements, reverse.lost), (10, 0), "{reverse:?}");
}

#[test]
fn late_packets_are_reordered() {
    let mut captures = transfer(|_| false);
    let late = captures.far.iter_mut().filter(|(_, segment)| segment.payload > 0).nth(10).unwrap();
    late.0 += 5_500;
    let forward = captures.compare(0).forward;
    assert_eq!(forward.reordered, 1);
    assert_eq!(forward.max_lateness, Duration::from_micros(4_500), "{forward:?}");
}

#[test]
fn packet_captured_twice_counts_once() {
    let mut captures = transfer(|_| false);
    captures.near = captures.near.iter().flat_map(|packet| [*packet, *packet]).collect();
    let forward = captures.compare(0).forward;
    assert_eq!((forward.sent, forward.lost, forward.missed_by_second), (101, 0, 0), "{forward:?}");
}
