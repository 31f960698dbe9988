//! Result of a comparison: the orientation of each connection, the clock offset and the sums of all connections.

use core::net::SocketAddr;
use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::time::Instant;
use lfn_packet::TcpEndpoint;
use lfn_results::evidence::pair::{PairClock, PairDelay, PairDirection, PairEvidence, PairLoss};

use super::direction::Direction;
use super::matcher::{PairMatcher, PairedConnection};
use super::side::CaptureSide;

/// Maximum number of groups of losses in the result.
const MAX_LOSSES: usize = 20;

/// Both directions of a connection, from near to far and back.
struct Oriented<'a> {
    /// Near end and far end.
    ends: [TcpEndpoint; 2],
    forward: &'a Direction,
    reverse: &'a Direction,
}

impl PairMatcher {
    /// Ends the comparison.
    pub fn finish(mut self) -> PairEvidence {
        for connection in self.connections.values_mut() {
            for direction in &mut connection.directions {
                direction.finish(self.last);
            }
        }
        summarize(self)
    }
}

/// Adds up all connections.
fn summarize(matcher: PairMatcher) -> PairEvidence {
    let mut connections: Vec<_> = matcher.connections.iter().collect();
    connections.sort_by_key(|(ends, _)| **ends);
    let common = connections.iter().filter(|(_, connection)| connection.is_in_both());
    let oriented: Vec<Oriented<'_>> = common.map(|(ends, connection)| connection.oriented(**ends)).collect();
    let min = oriented.iter().filter_map(|connection| connection.forward.differences.min()).min();
    let max = oriented.iter().filter_map(|connection| connection.reverse.differences.max()).max();
    let clock = min.zip(max).map(|(min, max)| clock(min, max, matcher.offset));
    let first = matcher.first;
    PairEvidence {
        near_packets: matcher.packets[0],
        far_packets: matcher.packets[1],
        connections: oriented.len() as u64,
        skipped_packets: matcher.skipped,
        clock,
        forward: direction(&oriented, CaptureSide::Near, min, max, first),
        reverse: direction(&oriented, CaptureSide::Far, min, max, first),
    }
}

/// Returns the clock offset from the minimum difference forward and the maximum difference back.
fn clock(min_forward: i64, max_back: i64, estimate: i64) -> PairClock {
    let min_rtt = Duration::from_nanos(min_forward.saturating_sub(max_back).max(0).unsigned_abs());
    let offset = estimate.saturating_add(max_back.midpoint(min_forward));
    PairClock {
        offset_seconds: Figure::new(offset as f64 / 1e9).unwrap_or_default(),
        uncertainty: min_rtt / 2,
        min_rtt,
    }
}

/// Adds up one direction: that of the packets whose first capture is `sender`.
fn direction(
    connections: &[Oriented<'_>],
    sender: CaptureSide,
    min_forward: Option<i64>,
    max_back: Option<i64>,
    first: [Option<Instant>; 2],
) -> PairDirection {
    let mut sum = PairDirection::default();
    let mut full_packets = 0;
    let mut delays: Vec<i64> = Vec::new();
    let mut max_delay = 0;
    for connection in connections {
        let (direction, from, to) = match sender {
            CaptureSide::Near => (connection.forward, connection.ends[0], connection.ends[1]),
            CaptureSide::Far => (connection.reverse, connection.ends[1], connection.ends[0]),
        };
        let (sent, arrived) = (direction.counts(sender), direction.counts(sender.other()));
        sum.sent += sent.packets;
        sum.arrived += arrived.packets;
        sum.matched_bytes += direction.matched_bytes;
        sum.lost += sent.lost;
        sum.lost_bytes += sent.lost_bytes;
        sum.lost_acknowledgements += sent.lost_acknowledgements;
        sum.loss_bursts += sent.groups;
        sum.largest_burst = sum.largest_burst.max(sent.largest_group);
        sum.missed_by_first += arrived.missed + arrived.lost + arrived.lost_acknowledgements;
        sum.missed_by_second += sent.missed;
        sum.reordered += arrived.reordered;
        sum.max_lateness = sum.max_lateness.max(arrived.max_lateness);
        full_packets += sent.payload.div_ceil(direction.mss());
        sum.losses.extend(sent.losses.iter().map(|loss| PairLoss {
            from: text(from),
            to: text(to),
            time: first[sender.index()].map(|first| loss.at.saturating_since(first)),
            offset_bytes: loss.offset,
            bytes: loss.bytes,
            packets: loss.packets,
        }));
        let above_minimum = |difference: i64| match sender {
            CaptureSide::Near => difference.saturating_sub(min_forward.unwrap_or(difference)),
            CaptureSide::Far => max_back.unwrap_or(difference).saturating_sub(difference),
        };
        delays.extend(direction.differences.kept().iter().map(|difference| above_minimum(*difference)));
        for extreme in [direction.differences.min(), direction.differences.max()].into_iter().flatten() {
            max_delay = max_delay.max(above_minimum(extreme));
        }
    }
    sum.losses.sort_by_key(|loss| loss.time);
    sum.losses.truncate(MAX_LOSSES);
    sum.lost_share = if full_packets > 0 { sum.lost as f64 / full_packets as f64 } else { 0.0 };
    if let (Some(min), Some(max)) = (min_forward, max_back) {
        sum.delay = delay(&mut delays, max_delay, min.saturating_sub(max));
    }
    sum
}

/// Returns the delays from those above the minimum. The minimum of each direction is half of the minimum RTT, because
/// the offset is estimated so.
fn delay(above_minimum: &mut [i64], max: i64, min_rtt: i64) -> Option<PairDelay> {
    let nanos = |nanos: i64| Duration::from_nanos(nanos.max(0).unsigned_abs());
    above_minimum.sort_unstable();
    let at = |share: usize| above_minimum.get((above_minimum.len() * share / 100).min(above_minimum.len() - 1));
    (!above_minimum.is_empty()).then(|| PairDelay {
        min: nanos(min_rtt) / 2,
        median_queueing: nanos(at(50).copied().unwrap_or_default()),
        p95_queueing: nanos(at(95).copied().unwrap_or_default()),
        max_queueing: nanos(max),
    })
}

fn text(end: TcpEndpoint) -> String {
    SocketAddr::new(end.address, end.port).to_string()
}

impl PairedConnection {
    fn is_in_both(&self) -> bool {
        self.directions.iter().any(|direction| direction.differences.min().is_some())
    }

    /// Finds the near end: the differences from near to far are larger than those back, by the RTT.
    fn oriented(&self, ends: [TcpEndpoint; 2]) -> Oriented<'_> {
        let [up, down] = &self.directions;
        // With one direction only, the first estimate of the offset made its differences zero or more.
        let is_up = match (up.differences.median(), down.differences.median()) {
            (Some(up), Some(down)) => up >= down,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if is_up {
            Oriented { ends, forward: up, reverse: down }
        } else {
            Oriented { ends: [ends[1], ends[0]], forward: down, reverse: up }
        }
    }
}
