//! The queue of the bottleneck, from the delivery rate and the RTT of each round trip.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};
use lfn_results::evidence::capture::QueueEvidence;

use crate::half::{Half, Round};
use crate::judge::JudgedDirection;

/// Minimum round trips for a steady rate.
const MIN_LATE_ROUNDS: usize = 5;
/// Maximum spread of a steady rate around its median.
const STEADY_SPREAD: f64 = 1.15;
/// Minimum rate of a burst, relative to the steady rate.
const MIN_BURST_FACTOR: f64 = 1.4;
/// Minimum time of a burst in base RTTs.
const MIN_BURST_TIME: u64 = 1;
/// Minimum payload of a burst in MSS.
const MIN_BURST_PACKETS: u64 = 8;
/// Share of the plateau that a round trip at the plateau reaches.
const MIN_PLATEAU_SHARE: f64 = 0.85;

/// A round trip that shows the rate of the path.
#[derive(Clone, Copy)]
struct RateSample<'a> {
    round: &'a Round,
    /// Delivery rate, bytes per second.
    rate: f64,
}

impl<'a> RateSample<'a> {
    /// The acknowledged data was sent in the round trip before. Acknowledgements can arrive closer together than this data
    /// was sent, so the longer one of both times counts.
    fn new(round: &'a Round, before: Option<&Round>, base_rtt: u64) -> Self {
        let time = round.time().max(before.map_or(0, Round::time)).max(base_rtt).max(1);
        RateSample { round, rate: round.acknowledged as f64 * 1e9 / time as f64 }
    }
}

/// Returns the evidence of the queue.
///
/// `active` is the time of all round trips, and `startup_loss` the end of the slow start that losses ended, both in
/// nanoseconds.
pub(crate) fn evidence(
    half: &Half,
    direction: &JudgedDirection,
    active: u64,
    startup_loss: Option<u64>,
) -> QueueEvidence {
    let rounds = half.rounds.as_slice();
    let share = |time: u64| if active == 0 { 0.0 } else { time as f64 / active as f64 };
    let standing: u64 = rounds.iter().filter(|round| !direction.is_flat(round.rtt)).map(Round::time).sum();
    let is_busy = |round: &Round| {
        round.timeout == 0
            && round.acknowledged >= 4 * u64::from(direction.mss)
            && !round.is_drained
            && round.time() > 0
            && !direction.is_window_limited(round)
    };
    let before = |number: usize| number.checked_sub(1).map(|before| &rounds[before]);
    let sample = |(number, round): (usize, _)| RateSample::new(round, before(number), direction.base_rtt);
    let busy = || rounds.iter().enumerate().filter(|(_, round)| is_busy(round));
    // The end of a recovery acknowledges at once data that had arrived before.
    let is_clean = |number: usize, round: &Round| round.resent == 0 && before(number).is_none_or(|one| one.resent == 0);
    let clean: Vec<RateSample<'_>> = busy().filter(|(number, round)| is_clean(*number, round)).map(sample).collect();
    let busy: Vec<RateSample<'_>> = busy().map(sample).collect();
    let plateau = plateau(if clean.len() >= MIN_LATE_ROUNDS { &clean } else { &busy });
    let is_at_plateau = |one: &&RateSample<'_>| plateau.is_some_and(|plateau| one.rate >= MIN_PLATEAU_SHARE * plateau);
    let at_plateau = busy.iter().filter(is_at_plateau).map(|one| one.round.time()).sum();
    let (bytes, time) = sums(&busy);
    let mean = if time == 0 { 0.0 } else { bytes as f64 * 1e9 / time as f64 };
    let capacities = [capacity(&clean, direction).or(plateau), startup_capacity(rounds, startup_loss)];
    let capacity = capacities.into_iter().flatten().reduce(f64::max);
    let delay = |rtt: u64| rtt.saturating_sub(direction.base_rtt);
    let mut delays: Vec<u64> = half.counts.events.iter().map(|event| delay(event.rtt)).collect();
    delays.sort_unstable();
    let max = rounds.iter().map(|round| delay(round.rtt)).max().unwrap_or(0);
    QueueEvidence {
        standing_share: share(standing),
        plateau: plateau.map(|plateau| BitRate((plateau * 8.0) as u64)),
        plateau_share: share(at_plateau),
        unused_share: capacity.map_or(0.0, |capacity| (1.0 - mean / capacity).max(0.0)),
        delay_at_loss: delays.get(delays.len() / 2).map(|delay| Duration::from_nanos(*delay)),
        max_delay: Duration::from_nanos(max),
        competing: None,
        burst: burst(&clean, direction),
    }
}

/// Returns the acknowledged bytes and the time of these round trips.
fn sums(samples: &[RateSample<'_>]) -> (u64, u64) {
    samples.iter().fold((0, 0), |(bytes, time), one| (bytes + one.round.acknowledged, time + one.round.time()))
}

/// Returns the rate at the end of a slow start that overflowed a queue, bytes per second.
fn startup_capacity(rounds: &[Round], startup_loss: Option<u64>) -> Option<f64> {
    let end = startup_loss?;
    let before = rounds.iter().take_while(|round| round.start < end);
    before.filter(|round| round.resent == 0).map(Round::rate).reduce(f64::max)
}

fn median(rates: impl Iterator<Item = f64>) -> Option<f64> {
    let mut rates: Vec<f64> = rates.collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}

/// Returns the rate of a full path: the median of the round trips with a queue, bytes per second.
fn capacity(samples: &[RateSample<'_>], direction: &JudgedDirection) -> Option<f64> {
    let has_queue = |one: &&RateSample<'_>| one.round.rtt > 0 && !direction.is_flat(one.round.rtt);
    median(samples.iter().filter(has_queue).map(|one| one.rate))
}

/// Returns the payload that passed faster than the later steady rate, before the first round trip at this rate.
fn burst(samples: &[RateSample<'_>], direction: &JudgedDirection) -> Option<Bytes> {
    let late = samples.get(samples.len() / 2..)?;
    if late.len() < MIN_LATE_ROUNDS {
        return None;
    }
    let mut rates: Vec<f64> = late.iter().map(|one| one.rate).collect();
    rates.sort_by(f64::total_cmp);
    let (low, steady, high) = (rates[rates.len() / 10], rates[rates.len() / 2], rates[rates.len() * 9 / 10]);
    if low < STEADY_SPREAD.recip() * steady || high > STEADY_SPREAD * steady {
        return None;
    }
    let fast = samples.iter().position(|one| one.rate >= MIN_BURST_FACTOR * steady)?;
    let end = samples.iter().skip(fast).position(|one| one.rate < STEADY_SPREAD * steady)?;
    let (bytes, time) = sums(&samples[fast..fast + end]);
    let is_long = time >= MIN_BURST_TIME * direction.base_rtt && bytes >= MIN_BURST_PACKETS * u64::from(direction.mss);
    let is_fast = bytes as f64 * 1e9 >= MIN_BURST_FACTOR * steady * time as f64;
    let (all, _) = sums(&samples[..fast + end]);
    (fast < samples.len() / 4 && is_long && is_fast).then_some(Bytes(all))
}

/// Returns the rate that the fastest tenth of the time exceeds, bytes per second.
fn plateau(samples: &[RateSample<'_>]) -> Option<f64> {
    let mut samples = samples.to_vec();
    samples.sort_by(|a, b| b.rate.total_cmp(&a.rate));
    let (_, all) = sums(&samples);
    let mut seen = 0;
    for one in samples {
        seen += one.round.time();
        if seen * 10 >= all {
            return Some(one.rate);
        }
    }
    None
}
