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
/// Maximum delay of such a train over the delay that a queue with all of its excess would have.
pub const MAX_POLICED_DELAY: f64 = 0.1;
/// Minimum of the same quotient for a queue.
pub const MIN_QUEUED_DELAY: f64 = 0.3;
/// Minimum delay in the last third of half of these trains for a queue: a queue may be full long before the end of a train.
pub const MIN_QUEUE: Duration = Duration::from_millis(5);
/// The same delay over the variation of the delay at low rates.
pub const MIN_QUEUE_FACTOR: u32 = 3;
/// Minimum time at the start of such a train without delay, as a share of the train, that shows a bucket.
pub const MIN_BURST_SHARE: f64 = 0.12;
/// Maximum sent rate of a train below the rate that passes, as a share of it: its losses have another reason.
pub const MAX_QUIET_SHARE: f64 = 0.75;

/// The trains of one direction in a few figures.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrainFigures {
    /// Rate that passes, if a train was sent faster.
    pub plateau: Option<TrainPlateau>,
    /// Highest payload rate of the last third of a train that passed without loss.
    pub max_passed: BitRate,
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
    /// Bytes that passed above the rate before the first delay or loss.
    pub burst_bytes: Option<u64>,
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
        let passed = evidence.trains.iter().filter(|train| train.lost == 0);
        let max_passed = passed.map(|train| later_rate(train, bytes).min(train.received.0)).max().unwrap_or_default();
        TrainFigures {
            plateau,
            max_passed: BitRate(max_passed),
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
        let passed = |train: &StepReport| later_rate(train, datagram_bytes).min(train.received.0);
        let is_above =
            |train: &&StepReport| passed(train) > 0 && train.sent.as_f64() >= MIN_OVERLOAD * passed(train) as f64;
        let above: Vec<&StepReport> = trains.iter().filter(is_above).collect();
        // A bucket passes a part of each train at any rate, so the slowest of them is nearest to the rate.
        let rates = || above.iter().map(|train| passed(train));
        let (min, max) = (rates().min()?, rates().max()?);
        if (max - min) as f64 > MAX_PLATEAU_WIDTH * max as f64 {
            return None;
        }
        let mut plateau = TrainPlateau { rate: BitRate(min), trains: above.len(), ..TrainPlateau::default() };
        let (mut dropped, mut delayed, mut late_delays) = (Vec::new(), Vec::new(), Vec::new());
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
            let undelayed = delays().take_while(|delay| *delay <= 0.1 * longest).count();
            let free = undelayed as f64 * train.slices.width.as_secs_f64();
            if longest > 0.0 && free >= MIN_BURST_SHARE * seconds {
                let bytes = free * (train.sent.as_f64() - plateau.rate.as_f64()) / 8.0;
                plateau.burst_bytes = plateau.burst_bytes.max(Some(bytes as u64));
            }
        }
        plateau.dropped_excess = lfn_base::stats::median(&dropped)?;
        let usual = lfn_base::stats::median(&late_delays).unwrap_or_default();
        plateau.usual_delay = Duration::try_from_secs_f64(usual).unwrap_or_default();
        plateau.delay_of_excess = lfn_base::stats::median(&delayed).unwrap_or_default();
        Some(plateau)
    }
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
