//! Trains of datagrams, reduced to the rate that passes and to the reason why more does not.

use std::time::Duration;

use lfn_base::units::BitRate;

use crate::evidence::trains::TrainEvidence;
use crate::udp::figures::RunCount;
use crate::udp::ramp::{StepReport, StepSlice};

/// Minimum sent rate over received rate of a train above the rate that passes.
pub const MIN_OVERLOAD: f64 = 1.08;
/// Maximum difference of the received rates of several such trains, as a share of the largest.
pub const MAX_PLATEAU_WIDTH: f64 = 0.12;
/// Minimum lost share of the excess of a train that a policer drops.
pub const MIN_DROPPED_EXCESS: f64 = 0.6;
/// Minimum of the same quotient for a queue.
pub const MIN_QUEUED_DELAY: f64 = 0.3;
/// Minimum delay in the last third of half of these trains for a queue: a queue may be full long before the end of a train.
pub const MIN_QUEUE: Duration = Duration::from_millis(5);
/// The same delay over the variation of the delay at low rates.
pub const MIN_QUEUE_FACTOR: u32 = 3;
/// Minimum bytes that arrive before a line of the rate that passes has sent them, as a share of the train: only a bucket passes a
/// burst. Measured: 4 % at most on lines, and 6 to 60 % with buckets.
pub const MIN_BURST_SHARE: f64 = 0.05;
/// Minimum of the same bytes as time at the rate that passes: pauses of the hosts make bursts, too.
pub const MIN_BURST: Duration = Duration::from_millis(20);
/// Maximum sent rate of a train below the rate that passes, as a share of it: its losses have another reason.
pub const MAX_QUIET_SHARE: f64 = 0.75;

/// Maximum datagrams of a slice over their mean, for a train without losses that its sender sent evenly.
pub const MAX_SENDER_PEAK: f64 = 1.5;
/// Minimum growth of the delay of such a train, as a share of the growth that a queue for its excess has.
pub const MIN_GROWTH: f64 = 0.3;
/// Minimum sent rate of the fastest train over that of the next one, if only these two pass at the same rate.
pub const MIN_MORE_SENT: f64 = 1.5;
/// Minimum growth of the received rate of trains that wait in the same queue, for a queue that others fill too.
pub const MIN_RISING: f64 = 1.3;

/// Minimum trains above the rate that passes, and minimum lost share of their excess, for a rate without any queue.
pub const MIN_TRAINS_WITHOUT_QUEUE: usize = 2;
pub const MIN_ALL_DROPPED: f64 = 0.9;
/// Minimum time of a datagram at the rate that passes, for delays that the clocks of hosts show: 100 Mb/s with 1500 bytes.
pub const MIN_VISIBLE_DELAY: Duration = Duration::from_micros(100);

/// Headers of Ethernet, IPv4 and UDP in a datagram, bytes.
const DATAGRAM_HEADERS: u64 = 42;

/// The trains of one direction in a few figures.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrainFigures {
    /// Rate that passes, if a train was sent faster.
    pub plateau: Option<TrainPlateau>,
    /// Highest payload rate of the last third of a train.
    pub max_passed: BitRate,
    /// Capacity of the line, counted with the Ethernet header, if the trains passed at the rate of a line and not of a bucket.
    pub line_capacity: Option<BitRate>,
    /// Minimum capacity, counted likewise: the rate of the fastest train that passed, if no train shows the capacity.
    pub min_capacity: Option<BitRate>,
    /// Lowest and highest received rate of trains that waited in a queue, if the rate grows with the sent rate: the trains
    /// displace other traffic. A line, a shaper and a policer have one rate.
    pub rising: Option<(BitRate, BitRate)>,
    /// Sent and lost datagrams of the trains below the rate that passes.
    pub quiet: (u64, u64),
    /// Mean number of datagrams in a run of lost ones.
    pub mean_loss_run: Option<f64>,
    /// Reordered share of the received datagrams.
    pub reordered_share: f64,
    /// Median delay of the slices of the trains below the rate that passes, over the shortest delay of their train.
    pub delay_variation: Option<Duration>,
}

/// The rate that passes, and the fate of the excess of faster trains.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TrainPlateau {
    /// Received payload rate of the trains that were sent faster.
    pub rate: BitRate,
    /// Number of these trains.
    pub trains: usize,
    /// Lost share of their excess.
    pub dropped_excess: f64,
    /// Their delay over the delay of a queue that holds all excess.
    pub delay_of_excess: f64,
    /// Longest delay of a train.
    pub max_delay: Duration,
    /// Delay in the last third of half of the trains.
    pub usual_delay: Duration,
    /// Bytes that arrived before a line of this rate had sent them: the size of a bucket.
    pub burst_bytes: Option<u64>,
    /// The excess of several trains is lost without a delay of one datagram: no line has so short a queue.
    pub lacks_queue: bool,
}

impl TrainFigures {
    /// Reduces the trains of a direction to the figures of the rules.
    pub(super) fn of(evidence: &TrainEvidence) -> TrainFigures {
        let bytes = evidence.sent.as_ref().map(|sent| sent.datagram_bytes);
        let plateau = TrainPlateau::of(&evidence.trains, bytes);
        let fastest = evidence.trains.iter().map(|train| train.received).max().unwrap_or_default();
        let max_quiet = MAX_QUIET_SHARE * plateau.map_or(fastest, |plateau| plateau.rate).as_f64();
        let is_quiet = |train: &&StepReport| train.sent.as_f64() <= max_quiet;
        let quiet = evidence.trains.iter().filter(is_quiet).fold((0, 0), |(sent, lost), train| {
            (u64::saturating_add(sent, train.datagrams), u64::saturating_add(lost, train.lost))
        });
        // Without a rate that passes, other traffic may delay the trains at any rate.
        let slices = evidence.trains.iter().filter(|train| plateau.is_none() || is_quiet(train));
        let slices = slices.flat_map(|train| &train.slices.slices);
        let delays: Vec<f64> = slices.filter(|at| at.datagrams > 0).map(|at| at.delay_seconds.get()).collect();
        let middle = lfn_base::stats::median(&delays);
        let delay_variation = middle.and_then(|delay| Duration::try_from_secs_f64(delay).ok());
        let received = evidence.received.as_ref();
        let max_passed = evidence.trains.iter().map(|train| passed(train, bytes)).max().unwrap_or_default();
        TrainFigures {
            plateau,
            line_capacity: plateau.zip(bytes).and_then(|(plateau, bytes)| plateau.line_capacity(bytes)),
            min_capacity: bytes.filter(|_| plateau.is_none()).map(|bytes| on_wire(BitRate(max_passed), bytes)),
            max_passed: BitRate(max_passed),
            rising: rising(&evidence.trains, bytes),
            quiet,
            mean_loss_run: received.and_then(|received| mean_run(&received.loss_bursts)),
            reordered_share: received
                .map_or(0.0, |received| received.reordered as f64 / received.datagrams.max(1) as f64),
            delay_variation,
        }
    }

    /// Returns true if a queue delays the trains above the rate that passes, also if it holds a small part of their excess.
    pub fn has_queue(&self) -> bool {
        let min = MIN_QUEUE.max(self.delay_variation.unwrap_or_default().saturating_mul(MIN_QUEUE_FACTOR));
        self.plateau.is_some_and(|plateau| plateau.delay_of_excess >= MIN_QUEUED_DELAY || plateau.usual_delay >= min)
    }

    /// Returns the lost share of the trains below the rate that passes.
    pub fn quiet_loss(&self) -> f64 {
        self.quiet.1 as f64 / self.quiet.0.max(1) as f64
    }
}

impl TrainPlateau {
    fn of(trains: &[StepReport], datagram_bytes: Option<u64>) -> Option<TrainPlateau> {
        let mut above: Vec<&StepReport> = trains.iter().filter(|train| is_above(train, datagram_bytes)).collect();
        above.sort_by_key(|train| train.sent);
        let (fastest, slower) = above.split_last()?;
        let rate = |train: &StepReport| passed(train, datagram_bytes);
        let of_all = Self::of_trains(&above, datagram_bytes);
        // A large bucket is empty only at the end of the fastest train. Slower trains then pass at a higher rate.
        let is_lowest = fastest.lost > 0 && slower.iter().all(|train| rate(train) >= rate(fastest));
        // Trains displace other traffic, until they have all of the rate.
        let has_more = |train: &&StepReport| fastest.sent.as_f64() >= MIN_MORE_SENT * train.sent.as_f64();
        let last = above.get(above.len().saturating_sub(2)..).unwrap_or_default();
        let is_bound = fastest.lost > 0 && slower.last().is_some_and(has_more);
        of_all
            .or_else(|| Self::of_trains(&[*fastest], datagram_bytes).filter(|_| is_lowest))
            .or_else(|| Self::of_trains(last, datagram_bytes).filter(|_| is_bound))
    }

    /// Returns the capacity of a line that has this rate; none for a bucket, which passes a burst.
    fn line_capacity(&self, datagram_bytes: u64) -> Option<BitRate> {
        (self.burst_bytes.is_none() && !self.lacks_queue).then(|| on_wire(self.rate, datagram_bytes))
    }

    /// Returns the rate of trains that were sent faster, if it is the same for all of them.
    fn of_trains(above: &[&StepReport], datagram_bytes: Option<u64>) -> Option<TrainPlateau> {
        // A bucket passes a part of each train at any rate, so the slowest of them is nearest to the rate.
        let rates = || above.iter().map(|train| passed(train, datagram_bytes));
        let (min, max) = (rates().min()?, rates().max()?);
        if (max - min) as f64 > MAX_PLATEAU_WIDTH * max as f64 {
            return None;
        }
        let mut plateau = TrainPlateau { rate: BitRate(min), trains: above.len(), ..TrainPlateau::default() };
        let (mut dropped, mut delayed, mut late_delays, mut bursts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for train in above {
            let excess = 1.0 - plateau.rate.as_f64() / train.sent.as_f64().max(1.0);
            let lost = train.lost as f64 / train.datagrams.max(1) as f64;
            let seconds = train.slices.width.as_secs_f64() * train.slices.slices.len() as f64;
            let delays = || train.slices.slices.iter().filter(|at| at.datagrams > 0).map(|at| at.delay_seconds.get());
            let longest = delays().fold(train.delay_growth_seconds.get().max(0.0), f64::max);
            // Excess of the whole train, in seconds of the rate that passes.
            let whole = excess * seconds * train.sent.as_f64() / plateau.rate.as_f64();
            dropped.push(lost / excess.max(f64::MIN_POSITIVE));
            if whole > 0.0 {
                delayed.push(longest / whole);
            }
            // The bucket is empty in the last third, so a queue is as long as it gets.
            let last: Vec<f64> = last_third(train).iter().map(|at| at.delay_seconds.get()).collect();
            late_delays.push(lfn_base::stats::median(&last).unwrap_or_default());
            plateau.max_delay = plateau.max_delay.max(Duration::try_from_secs_f64(longest).unwrap_or_default());
            bursts.push(datagram_bytes.map_or(0.0, |bytes| burst_bytes(train, bytes)));
        }
        plateau.dropped_excess = lfn_base::stats::median(&dropped)?;
        let usual = lfn_base::stats::median(&late_delays).unwrap_or_default();
        plateau.usual_delay = Duration::try_from_secs_f64(usual).unwrap_or_default();
        plateau.delay_of_excess = lfn_base::stats::median(&delayed).unwrap_or_default();
        let burst = lfn_base::stats::median(&bursts).unwrap_or_default();
        plateau.burst_bytes = (burst > 0.0).then_some(burst as u64);
        let datagram = datagram_bytes.unwrap_or_default() as f64 * 8.0 / plateau.rate.as_f64().max(1.0);
        let datagram = Duration::try_from_secs_f64(datagram).unwrap_or_default();
        plateau.lacks_queue = above.len() >= MIN_TRAINS_WITHOUT_QUEUE
            && plateau.dropped_excess >= MIN_ALL_DROPPED
            && datagram >= MIN_VISIBLE_DELAY
            && plateau.usual_delay < datagram;
        Some(plateau)
    }
}

/// Returns the bytes of a train that arrived before a line of the rate that passes had sent them; 0 if they are too few for a
/// bucket. A line sends all the time while it is overloaded, so its queue delays the datagrams, and no byte arrives early.
fn burst_bytes(train: &StepReport, datagram_bytes: u64) -> f64 {
    let rate = passed(train, Some(datagram_bytes)) as f64 / 8.0;
    let (mut arrived, mut burst, mut sent_at) = (0.0, 0.0f64, 0.0);
    for slice in &train.slices.slices {
        if slice.datagrams > 0 {
            burst = burst.max(arrived - rate * (sent_at + slice.delay_seconds.get()));
        }
        arrived += slice.datagrams as f64 * datagram_bytes as f64;
        sent_at += train.slices.width.as_secs_f64();
    }
    if burst >= (MIN_BURST_SHARE * arrived).max(rate * MIN_BURST.as_secs_f64()) { burst } else { 0.0 }
}

/// Returns the rate of datagrams with their headers.
fn on_wire(payload: BitRate, datagram_bytes: u64) -> BitRate {
    let wire = datagram_bytes.saturating_add(DATAGRAM_HEADERS) as f64 / datagram_bytes.max(1) as f64;
    BitRate((payload.as_f64() * wire) as u64)
}

/// Returns the payload rate that passed at the end of a train.
fn passed(train: &StepReport, datagram_bytes: Option<u64>) -> u64 {
    later_rate(train, datagram_bytes).min(train.received.0)
}

/// Returns true for a train that was sent faster than it passed.
fn is_above(train: &StepReport, datagram_bytes: Option<u64>) -> bool {
    let passed = passed(train, datagram_bytes) as f64;
    passed > 0.0 && train.sent.as_f64() >= MIN_OVERLOAD * passed && (train.lost > 0 || (is_even(train) && fills(train)))
}

/// Returns true unless the sender paused within a train and sent the rest faster: such a train shows the rate of its sender.
fn is_even(train: &StepReport) -> bool {
    let slices = &train.slices.slices;
    let whole = slices.get(..slices.len().saturating_sub(1)).unwrap_or_default();
    let most = whole.iter().map(|at| at.datagrams).max().unwrap_or_default() as f64;
    let mean = whole.iter().map(|at| at.datagrams).sum::<u64>() as f64 / whole.len().max(1) as f64;
    most <= MAX_SENDER_PEAK * mean
}

/// Returns true if the delay of a train without losses grows as in a queue. Jitter delays its first and last datagrams
/// differently, and this is no rate.
fn fills(train: &StepReport) -> bool {
    let slices = &train.slices.slices;
    if slices.len() < 6 {
        return true;
    }
    let seconds = train.slices.width.as_secs_f64() * slices.len() as f64;
    let excess = (train.sent.as_f64() / train.received.as_f64().max(1.0) - 1.0) * seconds;
    let middle = |part: &[StepSlice]| {
        let delays: Vec<f64> = part.iter().map(|at| at.delay_seconds.get()).collect();
        lfn_base::stats::median(&delays).unwrap_or_default()
    };
    middle(last_third(train)) - middle(&slices[1..slices.len() / 3]) >= MIN_GROWTH * excess
}

/// Returns the lowest and the highest rate of the trains above the rate that passes, if each of them waited in a queue and a
/// faster train passes at a higher rate.
fn rising(trains: &[StepReport], datagram_bytes: Option<u64>) -> Option<(BitRate, BitRate)> {
    let waits = |train: &&StepReport| {
        let delays: Vec<f64> = last_third(train).iter().map(|at| at.delay_seconds.get()).collect();
        lfn_base::stats::median(&delays).is_some_and(|delay| delay >= MIN_QUEUE.as_secs_f64())
    };
    let mut above: Vec<&StepReport> =
        trains.iter().filter(|train| is_above(train, datagram_bytes)).filter(waits).collect();
    above.sort_by_key(|train| train.sent);
    let rates: Vec<u64> = above.iter().map(|train| passed(train, datagram_bytes)).collect();
    let (first, last) = (*rates.first()?, *rates.last()?);
    (last as f64 >= MIN_RISING * first as f64).then_some((BitRate(first), BitRate(last)))
}

/// Returns the slices of the last third of a train: the bucket is empty then.
fn last_third(train: &StepReport) -> &[StepSlice] {
    let slices = &train.slices.slices;
    // The last slice may be incomplete.
    slices.get(slices.len() * 2 / 3..slices.len().saturating_sub(1)).unwrap_or_default()
}

/// Returns the rate of the datagrams of the last third that arrived. A queue delays datagrams beyond this time, so their
/// number does not show its rate.
fn later_rate(train: &StepReport, datagram_bytes: Option<u64>) -> u64 {
    let later = last_third(train);
    let arrived: u64 = later.iter().map(|at| at.datagrams).sum();
    let time = train.slices.width.as_secs_f64() * later.len() as f64;
    match datagram_bytes {
        Some(bytes) if time > 0.0 => (arrived as f64 * bytes as f64 * 8.0 / time) as u64,
        _ => u64::MAX,
    }
}

fn mean_run(runs: &[RunCount]) -> Option<f64> {
    let count: u64 = runs.iter().map(|run| run.count).sum();
    let sum: f64 = runs.iter().map(|run| run.count as f64 * (run.from as f64 + run.to as f64) / 2.0).sum();
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use lfn_base::figure::Figure;

    use super::*;
    use crate::udp::figures::UdpSent;
    use crate::udp::ramp::StepSlices;

    const BYTES: u64 = 1250;

    /// A train sent at this rate in Mb/s, with the datagrams of its slices of 32 ms that arrived and their delay in
    /// milliseconds.
    fn train(sent: u64, slices: &[(u64, f64)]) -> StepReport {
        let figure = |seconds: f64| Figure::new(seconds).unwrap_or_default();
        let datagrams = sent * 32 * 100 / 1000 * slices.len() as u64;
        let arrived: u64 = slices.iter().map(|slice| slice.0).sum();
        let last = slices.last().map_or(0.0, |slice| slice.1 / 1e3);
        let time = 0.032 * slices.len() as f64 + last;
        let of = |slice: &(u64, f64)| StepSlice { datagrams: slice.0, delay_seconds: figure(slice.1 / 1e3) };
        StepReport {
            sent: BitRate(sent * 1_000_000),
            received: BitRate((arrived as f64 * BYTES as f64 * 8.0 / time) as u64),
            datagrams,
            lost: datagrams.saturating_sub(arrived),
            delay_growth_seconds: figure(last),
            slices: StepSlices { width: Duration::from_millis(32), slices: slices.iter().map(of).collect() },
            ..StepReport::default()
        }
    }

    fn rate(trains: &[StepReport]) -> Option<u64> {
        TrainPlateau::of(trains, Some(BYTES)).map(|plateau| plateau.rate.0 / 1_000_000)
    }

    #[test]
    fn a_bucket_that_empties_late_shows_in_the_fastest_train() {
        let late = train(20, &[[(64, 0.0); 10].as_slice(), &[(32, 0.0); 2]].concat());
        let early = train(70, &[[(224, 0.0); 2].as_slice(), &[(32, 0.0); 10]].concat());
        assert_eq!(rate(&[late.clone(), early.clone()]), Some(10));
        // Trains that get more the faster they are meet other traffic.
        let more = train(70, &[(160, 50.0); 12]);
        assert_eq!(rate(&[train(20, &[(48, 20.0); 12]), train(60, &[(130, 50.0); 12]), more]), None);
    }

    #[test]
    fn trains_without_a_limit_show_a_minimum_of_the_capacity() {
        let of = |trains: Vec<StepReport>| {
            let sent = Some(UdpSent { datagram_bytes: BYTES, ..UdpSent::default() });
            TrainFigures::of(&TrainEvidence { trains, sent, ..TrainEvidence::default() })
        };
        let passed = of(vec![train(10, &[(32, 0.0); 12]), train(50, &[(160, 0.0); 12])]);
        assert_eq!((passed.line_capacity, passed.min_capacity), (None, Some(BitRate(51_680_000))));
        let limited = of(vec![train(50, &[(160, 0.0); 12]), train(100, &[(160, 100.0); 12])]);
        assert!(limited.line_capacity.is_some() && limited.min_capacity.is_none());
    }

    #[test]
    fn excess_that_is_lost_without_delay_meets_no_line() {
        let of = |delay: f64| {
            let trains = [train(50, &[(32, delay); 12]), train(70, &[(32, delay); 12])];
            TrainPlateau::of(&trains, Some(BYTES)).unwrap()
        };
        assert!(of(0.0).lacks_queue && of(0.0).line_capacity(BYTES).is_none());
        // A datagram takes 1 ms at 10 Mb/s.
        assert!(!of(4.0).lacks_queue && of(4.0).line_capacity(BYTES).is_some());
    }

    #[test]
    fn a_sender_that_pauses_shows_no_rate() {
        let growing: Vec<(u64, f64)> = (0..12).map(|slice| (160, 8.0 * f64::from(slice))).collect();
        assert_eq!(rate(&[train(50, &growing)]), Some(40));
        let paused: Vec<(u64, f64)> =
            (0..12).map(|slice| if slice < 6 { (40, 0.0) } else { (280, 8.0 * f64::from(slice)) }).collect();
        assert_eq!(rate(&[train(50, &paused)]), None);
    }

    #[test]
    fn a_constant_delay_without_loss_shows_no_rate() {
        let jitter = [&[(160, 0.0)], [(160, 40.0); 11].as_slice()].concat();
        assert_eq!(rate(&[train(50, &jitter)]), None);
    }

    #[test]
    fn rates_that_grow_with_the_sent_rate_are_shared() {
        let trains = [train(20, &[(48, 20.0); 12]), train(60, &[(130, 50.0); 12])];
        let (low, high) = rising(&trains, Some(BYTES)).unwrap();
        assert_eq!((low.0 / 1_000_000, high.0 / 1_000_000), (14, 35));
        assert_eq!(
            rising(&[train(20, &[(32, 20.0); 12]), train(60, &[(32, 50.0); 12])], Some(BYTES)),
            None,
            "a bucket"
        );
        assert_eq!(rising(&[train(20, &[(48, 0.0); 12]), train(60, &[(130, 0.0); 12])], Some(BYTES)), None, "loss");
    }
}
