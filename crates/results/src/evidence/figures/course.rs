//! Course of a test of TCP: rate, RTT and losses of each interval, and the direction in which its packets waited.

use std::time::Duration;

use lfn_base::stats::median;
use lfn_base::tcp_info::TcpInfo;
use lfn_base::units::{BitRate, Bytes};

use super::SteadyPart;
use super::steady_window::{length, sample};
use super::stream::covers_whole_stream;
use crate::evidence::Evidence;
use crate::measure::{EndReport, Interval};

/// Maximum round trips of start-up: later intervals belong to the settled part, also if no part of the test is steady.
pub const MAX_START_UP_ROUND_TRIPS: u32 = 30;
/// Distance from the median rate within which an interval belongs to a plateau, as a share.
pub const PLATEAU_WIDTH: f64 = 0.03;
/// Minimum intervals whose packets have known waits.
pub const MIN_INTERVALS_WITH_WAITS: usize = 3;
/// Maximum retransmitted share of an interval whose packets have known waits: data behind a hole is not in order.
const MAX_RETRANSMITTED_OF_WAITS: f64 = 0.001;

/// Maximum quotient of the lengths of the intervals of both ends.
const MAX_PAUSED_FACTOR: f64 = 1.5;

/// The intervals of a test with the figures of all streams together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Course {
    /// The intervals from the first byte on.
    pub intervals: Vec<IntervalFigures>,
    /// Number of intervals of start-up at the start.
    pub start_up: usize,
}

/// Figures of all streams in an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct IntervalFigures {
    /// Start on the receiver's clock.
    pub start: Duration,
    /// End on the receiver's clock.
    pub end: Duration,
    /// Received payload over the length of the interval.
    pub goodput: BitRate,
    /// Largest smoothed RTT of a stream at the end of the interval; zero if unknown.
    pub rtt: Duration,
    /// Largest mean deviation of the RTT of a stream.
    pub rtt_deviation: Duration,
    /// Segments retransmitted in the interval.
    pub retransmitted: u64,
    /// Retransmission timeouts in the interval.
    pub timeouts: u64,
    /// Waits of the packets at the end of the interval, if the clocks of both ends were compared.
    pub waits: Option<Waits>,
}

/// Time that packets spent on their way beyond half of the base RTT.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Waits {
    /// Wait of the data, seconds.
    pub data: f64,
    /// Wait of the acknowledgements, with the time in which the receiver collected them, seconds.
    pub acknowledgements: f64,
}

impl Course {
    /// Takes the intervals of the receiver and the samples of the sender at the same times.
    pub(super) fn of(evidence: &Evidence, whole: &[Interval], steady: Option<SteadyPart>) -> Course {
        let (sender, receiver) = (evidence.sender(), evidence.receiver());
        if !sender.streams.iter().all(covers_whole_stream) {
            return Course::default();
        }
        let base = evidence.base_rtt();
        let mut before = Totals::default();
        let mut intervals = Vec::with_capacity(whole.len());
        for interval in whole {
            let (from, to) = interval.placed();
            let at = sender.intervals.iter().rfind(|sent| (from..to).contains(&sent.middle()));
            let totals = at.map_or(before, |sent| Totals::of(sender, sent));
            let goodput = Bytes(interval.bytes).per(length(interval));
            let mut figures = IntervalFigures {
                start: interval.start,
                end: interval.end,
                goodput,
                rtt: totals.rtt,
                rtt_deviation: totals.rtt_deviation,
                retransmitted: totals.retransmitted.saturating_sub(before.retransmitted),
                timeouts: totals.timeouts.saturating_sub(before.timeouts),
                waits: None,
            };
            let resent = figures.retransmitted as f64 * f64::from(totals.mss);
            // The ends of a copy have intervals of different lengths.
            let is_placed = |sent: &&Interval| evidence.copy.is_some() || !has_paused(sent, interval);
            if resent <= MAX_RETRANSMITTED_OF_WAITS * interval.bytes as f64 && evidence.clock.is_some() {
                figures.waits = at.filter(is_placed).and_then(|sent| waits(&totals, sent, receiver, interval, base));
            }
            before = totals;
            intervals.push(figures);
        }
        let latest = base.saturating_mul(MAX_START_UP_ROUND_TRIPS);
        let latest = steady.map_or(latest, |steady| steady.start.min(latest));
        // The interval in which start-up ends belongs to it.
        let start_up = intervals.iter().position(|at| at.start >= latest).unwrap_or(intervals.len()).max(1);
        Course { intervals, start_up }
    }

    /// Returns the intervals after start-up.
    pub fn settled(&self) -> &[IntervalFigures] {
        self.intervals.get(self.start_up..).unwrap_or_default()
    }

    /// Returns the goodput of the settled part, if it has several intervals.
    pub fn goodput(&self) -> Option<BitRate> {
        let settled = self.settled();
        let time: f64 = settled.iter().map(IntervalFigures::seconds).sum();
        let bits: f64 = settled.iter().map(|at| at.goodput.as_f64() * at.seconds()).sum();
        (settled.len() > 1 && time > 0.0).then(|| BitRate((bits / time) as u64))
    }

    /// Returns the median of the settled intervals, and the share of the intervals that are near it.
    pub fn plateau(&self) -> Option<(BitRate, f64)> {
        let rates: Vec<f64> = self.settled().iter().map(|at| at.goodput.as_f64()).collect();
        let middle = median(&rates).filter(|rate| *rate > 0.0)?;
        let near = rates.iter().filter(|rate| (**rate - middle).abs() <= PLATEAU_WIDTH * middle).count();
        Some((BitRate(middle as u64), near as f64 / rates.len() as f64))
    }

    /// Returns the rate that a tenth of the settled intervals exceed.
    pub fn peak(&self) -> Option<BitRate> {
        let mut rates: Vec<u64> = self.settled().iter().map(|at| at.goodput.0).collect();
        rates.sort_unstable();
        lfn_base::stats::nearest_rank(&rates, 90).map(BitRate)
    }

    /// Returns the median waits of the settled part.
    pub fn waits(&self) -> Option<Waits> {
        let known: Vec<Waits> = self.settled().iter().filter_map(|at| at.waits).collect();
        let middle = |figure: fn(&Waits) -> f64| median(&known.iter().map(figure).collect::<Vec<_>>());
        let waits = Waits { data: middle(|at| at.data)?, acknowledgements: middle(|at| at.acknowledgements)? };
        (known.len() >= MIN_INTERVALS_WITH_WAITS).then_some(waits)
    }

    /// Returns the largest RTT of any interval, with start-up.
    pub fn max_rtt(&self) -> Duration {
        self.intervals.iter().map(|at| at.rtt).max().unwrap_or_default()
    }

    /// Returns the median of a figure over the settled intervals; 0 without intervals.
    pub fn median_of(&self, figure: fn(&IntervalFigures) -> f64) -> f64 {
        median(&self.settled().iter().map(figure).collect::<Vec<_>>()).unwrap_or_default()
    }

    /// Returns the share of the settled intervals with retransmissions.
    pub fn lossy_share(&self) -> f64 {
        let settled = self.settled();
        settled.iter().filter(|at| at.retransmitted > 0).count() as f64 / settled.len().max(1) as f64
    }
}

impl IntervalFigures {
    /// Returns the length in seconds.
    pub fn seconds(&self) -> f64 {
        self.end.saturating_sub(self.start).as_secs_f64()
    }
}

/// Totals of a sender's streams at the end of an interval.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    rtt: Duration,
    rtt_deviation: Duration,
    retransmitted: u64,
    timeouts: u64,
    mss: u32,
    /// Payload bytes sent once, and bytes acknowledged; none if a stream does not report them.
    once: Option<u64>,
    acked: Option<u64>,
}

impl Totals {
    fn of(sender: &EndReport, interval: &Interval) -> Totals {
        let all: Option<Vec<&TcpInfo>> = sender
            .streams
            .iter()
            .map(|stream| sample(interval, stream.stream).and_then(|sample| sample.tcp_info.as_ref()))
            .collect();
        let all = all.unwrap_or_default();
        let sum = |figure: fn(&TcpInfo) -> Option<u64>| all.iter().map(|info| figure(info)).sum::<Option<u64>>();
        Totals {
            rtt: all.iter().map(|info| info.rtt).max().unwrap_or_default(),
            rtt_deviation: all.iter().map(|info| info.rttvar).max().unwrap_or_default(),
            retransmitted: all.iter().map(|info| u64::from(info.retransmitted_segments)).sum(),
            timeouts: sum(|info| info.timeouts.map(u64::from)).unwrap_or_default(),
            mss: all.iter().map(|info| info.snd_mss_bytes).max().unwrap_or_default(),
            once: sum(|info| Some(info.sent_bytes?.saturating_sub(info.retransmitted_bytes?)))
                .filter(|_| !all.is_empty()),
            acked: sum(|info| info.acked_bytes).filter(|_| !all.is_empty()),
        }
    }
}

/// Returns true if one end took its samples later than the other: its process paused, and the rate between them is not
/// constant.
fn has_paused(sent: &Interval, received: &Interval) -> bool {
    let (sent, received) = (length(sent).as_secs_f64(), length(received).as_secs_f64());
    sent.max(received) > MAX_PAUSED_FACTOR * sent.min(received)
}

/// Returns the waits at the end of the sender's interval `sent`. The bytes between the sender and the receiver give the
/// time of the data on its way, and the received bytes without acknowledgement give that of the acknowledgements.
fn waits(totals: &Totals, sent: &Interval, receiver: &EndReport, interval: &Interval, base: Duration) -> Option<Waits> {
    let infos =
        receiver.streams.iter().map(|stream| sample(interval, stream.stream)?.tcp_info.as_ref()?.received_bytes);
    let received: u64 = infos.sum::<Option<u64>>()?;
    let per_second = interval.bytes as f64 / length(interval).as_secs_f64().max(f64::MIN_POSITIVE);
    if per_second <= 0.0 {
        return None;
    }
    // The two ends are sampled at slightly different times.
    let later = sent.placed().1.as_secs_f64() - interval.placed().1.as_secs_f64();
    let received = received as f64 + per_second * later;
    let half = base.as_secs_f64() / 2.0;
    Some(Waits {
        data: (totals.once? as f64 - received) / per_second - half,
        acknowledgements: (received - totals.acked? as f64) / per_second - half,
    })
}
