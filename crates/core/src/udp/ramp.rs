//! Which rates to try, to find the one where loss starts.
//!
//! A step at a time, each from an idle path: doubling until one fails, then halving the gap in between (geometrically)
//! until it is within `precision`. Doubling reaches any rate in few steps and hurts other traffic with no
//! more than one step of twice what fits; a fixed staircase would take a hundred steps for the same answer. A step
//! passes if no more was lost than allowed and the delay did not grow along it: a queue that fills will lose, later.
//! A step that fails by a hair is tried once more, because one lost datagram is no onset; so is one that lost nothing and
//! failed by its delay alone, because an end that stood still for a moment looks like a queue that grows.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::figure::Figure;
use crate::path::seconds;
use crate::units::{BitRate, Ratio};

/// A ramp asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RampRequest {
    /// First rate, payload.
    #[serde(rename = "from_bits_per_second")]
    pub from: BitRate,
    /// Highest rate.
    #[serde(rename = "to_bits_per_second")]
    pub to: BitRate,
    /// Share that may be lost in a step that passes.
    pub loss_allowed: Ratio,
    /// How long a step sends.
    #[serde(rename = "step_seconds", with = "seconds")]
    pub step: Duration,
}

impl Default for RampRequest {
    fn default() -> Self {
        RampRequest {
            from: BitRate(1_000_000),
            to: BitRate(100_000_000_000),
            loss_allowed: Ratio::default(),
            step: Duration::from_millis(500),
        }
    }
}

/// How close the highest rate that passes and the lowest that fails come.
const PRECISION: f64 = 1.02;

/// A sender that reached less of what it was asked was the limit.
const KEPT: f64 = 0.97;

/// A delay that grows by more than this share of the step's time: the path carries less than is sent, and queues.
const GROWTH: f64 = 0.02;

/// No matter how short the step, growth below this is jitter.
const LEAST_GROWTH: Duration = Duration::from_millis(2);

/// Less loss than this may be chance: tried again.
const BY_A_HAIR: f64 = 0.01;

/// Steps a ramp takes at most; doubling from a bit a second would take fewer.
const MOST_STEPS: usize = 64;

/// What came of one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepReport {
    /// Its number, from 0.
    pub step: u32,
    /// Asked for.
    #[serde(rename = "asked_bits_per_second")]
    pub asked: BitRate,
    /// What the sender made of it.
    #[serde(rename = "sent_bits_per_second")]
    pub sent: BitRate,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Of these, lost.
    pub lost: u64,
    /// What arrived, over the time from the first to the last arrival.
    #[serde(rename = "received_bits_per_second")]
    pub received: BitRate,
    /// How much longer the last datagrams took than the first, by a straight line through all of them.
    pub delay_growth_seconds: Figure,
    /// What it came to.
    pub outcome: Outcome,
}

impl StepReport {
    /// Whether the same rate may pass, tried once more.
    fn may_be_chance(&self) -> bool {
        match self.outcome {
            // Of the few datagrams of a slow step one is more than that share.
            Outcome::Lost => self.lost <= 1 || self.lost as f64 <= BY_A_HAIR * self.datagrams as f64,
            Outcome::Queued => true,
            Outcome::Passed | Outcome::SenderLimit => false,
        }
    }
}

/// What a step came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The path carried it.
    #[default]
    Passed,
    /// More was lost than allowed.
    Lost,
    /// Nothing to speak of was lost, but the delay grew all the while: loss comes when the queue is full.
    Queued,
    /// The sender did not reach the rate.
    SenderLimit,
}

/// What the receiver saw of one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepSeen {
    /// Its number.
    pub step: u32,
    /// Datagrams of it, each counted once.
    pub datagrams: u64,
    /// From the first to the last arrival.
    #[serde(rename = "time_seconds", with = "seconds")]
    pub time: Duration,
    /// How much the transit time grew from the first to the last.
    pub delay_growth_seconds: Figure,
}

/// What the sender did of one step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepSent {
    /// Datagrams.
    pub datagrams: u64,
    /// Payload of each, bytes.
    pub datagram_bytes: u64,
    /// From the first to the last departure.
    pub time: Duration,
}

/// What a ramp found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RampReport {
    /// The highest rate that passed.
    #[serde(rename = "highest_bits_per_second")]
    pub highest: Option<BitRate>,
    /// The lowest rate above it that failed; none if the ramp reached its end or the sender's.
    #[serde(rename = "onset_bits_per_second")]
    pub onset: Option<BitRate>,
    /// The sender could do no more: the path may carry more than the highest.
    pub sender_limit: bool,
    /// Each step in the order it was made.
    pub steps: Vec<StepReport>,
}

/// A ramp that is going on.
#[derive(Debug, Clone)]
pub struct Ramp {
    request: RampRequest,
    rate: BitRate,
    highest: Option<BitRate>,
    failed: Option<BitRate>,
    sender_limit: bool,
    /// The rate in hand failed once, in a way that may be chance.
    again: bool,
    steps: Vec<StepReport>,
}

impl Ramp {
    /// Begins at the first rate.
    pub fn new(request: RampRequest) -> Self {
        let rate = BitRate(request.from.0.clamp(1, request.to.0.max(1)));
        Ramp { request, rate, highest: None, failed: None, sender_limit: false, again: false, steps: Vec::new() }
    }

    /// The rate to send at now.
    pub fn rate(&self) -> BitRate {
        self.rate
    }

    /// The number of the step to make now.
    pub fn step(&self) -> u32 {
        u32::try_from(self.steps.len()).unwrap_or(u32::MAX)
    }

    /// Takes what a step came to; the next rate, or none when the ramp is over.
    pub fn judge(&mut self, sent: &StepSent, seen: &StepSeen) -> Option<BitRate> {
        let report = self.report(sent, seen);
        self.steps.push(report);
        if report.may_be_chance() && !self.again {
            self.again = true;
            return Some(self.rate).filter(|_| self.steps.len() < MOST_STEPS);
        }
        self.again = false;
        match report.outcome {
            Outcome::Passed => self.highest = Some(self.rate.max(self.highest.unwrap_or_default())),
            Outcome::Lost | Outcome::Queued => self.failed = Some(self.rate),
            Outcome::SenderLimit => {
                self.sender_limit = true;
                self.highest = Some(report.sent.max(self.highest.unwrap_or_default()));
            }
        }
        self.rate = self.next_rate().filter(|_| self.steps.len() < MOST_STEPS)?;
        Some(self.rate)
    }

    /// What was found.
    pub fn report_all(&self) -> RampReport {
        let (highest, onset) = (self.highest, self.failed);
        RampReport { highest, onset, sender_limit: self.sender_limit, steps: self.steps.clone() }
    }

    fn next_rate(&self) -> Option<BitRate> {
        match (self.highest, self.failed) {
            _ if self.sender_limit => None,
            (Some(highest), None) if highest >= self.request.to => None,
            (Some(highest), None) => Some(BitRate(highest.0.saturating_mul(2).min(self.request.to.0))),
            (Some(highest), Some(failed)) if failed.as_f64() <= highest.as_f64() * PRECISION => None,
            (Some(highest), Some(failed)) => {
                // A gap too narrow for whole bits a second is none.
                let middle = BitRate((highest.as_f64() * failed.as_f64()).sqrt() as u64);
                (middle > highest && middle < failed).then_some(middle)
            }
            // The first rate was too high: down by fours, not for ever.
            (None, Some(failed)) => Some(BitRate(failed.0 / 4)).filter(|rate| rate.0 >= 1000 && self.steps.len() < 8),
            (None, None) => None,
        }
    }

    fn report(&self, sent: &StepSent, seen: &StepSeen) -> StepReport {
        let rate = |datagrams: u64, time: Duration| {
            // From the first to the last: one datagram fewer than were counted.
            let bits = datagrams.saturating_sub(1).saturating_mul(sent.datagram_bytes) as f64 * 8.0;
            BitRate(if time.is_zero() { 0 } else { (bits / time.as_secs_f64()) as u64 })
        };
        let mut report = StepReport {
            step: self.step(),
            asked: self.rate,
            sent: rate(sent.datagrams, sent.time),
            datagrams: sent.datagrams,
            lost: sent.datagrams.saturating_sub(seen.datagrams),
            received: rate(seen.datagrams, seen.time),
            delay_growth_seconds: seen.delay_growth_seconds,
            outcome: Outcome::Passed,
        };
        report.outcome = self.outcome(&report, sent.time);
        report
    }

    fn outcome(&self, report: &StepReport, time: Duration) -> Outcome {
        let most_growth = (GROWTH * time.as_secs_f64()).max(LEAST_GROWTH.as_secs_f64());
        if report.lost as f64 > self.request.loss_allowed.get() * report.datagrams as f64 {
            return Outcome::Lost;
        }
        if report.delay_growth_seconds.get() > most_growth {
            return Outcome::Queued;
        }
        if report.sent.as_f64() < KEPT * report.asked.as_f64() { Outcome::SenderLimit } else { Outcome::Passed }
    }
}

/// Adds up what a receiver sees of one step: a straight line through transit times, by least squares.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepMeter {
    step: u32,
    datagrams: u64,
    first: Option<(u64, u64)>,
    last: u64,
    /// Sums of x, y, x·x, x·y: arrival and transit in seconds since the first datagram's.
    sums: [f64; 4],
}

impl StepMeter {
    /// For this step.
    pub fn new(step: u32) -> Self {
        StepMeter { step, ..StepMeter::default() }
    }

    /// The step it is for.
    pub fn step(&self) -> u32 {
        self.step
    }

    /// A datagram of the step came, for the first time; nanoseconds of each end's clock.
    pub fn arrived(&mut self, sent: u64, received: u64) {
        let (first_sent, first_received) = *self.first.get_or_insert((sent, received));
        self.datagrams += 1;
        self.last = self.last.max(received);
        let x = (i128::from(received) - i128::from(first_received)) as f64 / 1e9;
        let y = x - (i128::from(sent) - i128::from(first_sent)) as f64 / 1e9;
        for (sum, value) in self.sums.iter_mut().zip([x, y, x * x, x * y]) {
            *sum += value;
        }
    }

    /// What was seen.
    pub fn seen(&self) -> StepSeen {
        let (_, first) = self.first.unwrap_or_default();
        let time = Duration::from_nanos(self.last.saturating_sub(first));
        let (n, [x, y, xx, xy]) = (self.datagrams as f64, self.sums);
        let spread = n * xx - x * x;
        let slope = if spread > 0.0 { (n * xy - x * y) / spread } else { 0.0 };
        let delay_growth_seconds = Figure::new(slope * time.as_secs_f64()).unwrap_or_default();
        StepSeen { step: self.step, datagrams: self.datagrams, time, delay_growth_seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 1472;

    /// A path of this capacity and queue, and a sender that does no more than `sender`.
    fn try_path(request: RampRequest, capacity: f64, queue: f64, sender: f64, loss: f64) -> RampReport {
        let mut ramp = Ramp::new(request);
        loop {
            let rate = ramp.rate().as_f64().min(sender);
            let datagrams = (rate * request.step.as_secs_f64() / (BYTES as f64 * 8.0)).max(50.0) as u64;
            let gap = BYTES as f64 * 8.0 / rate;
            let (mut busy_until, mut meter, mut chance) = (0.0f64, StepMeter::new(ramp.step()), 0.0);
            for n in 0..datagrams {
                let at = n as f64 * gap;
                chance += loss;
                if busy_until - at > queue || chance >= 1.0 {
                    chance %= 1.0;
                    continue;
                }
                busy_until = busy_until.max(at) + BYTES as f64 * 8.0 / capacity;
                meter.arrived((at * 1e9) as u64, (busy_until * 1e9) as u64 + 7_000_000);
            }
            let time = Duration::from_secs_f64(gap * (datagrams - 1) as f64);
            let sent = StepSent { datagrams, datagram_bytes: BYTES, time };
            if ramp.judge(&sent, &meter.seen()).is_none() {
                return ramp.report_all();
            }
        }
    }

    #[test]
    fn it_finds_the_capacity_whatever_the_queue() {
        for capacity in [3e6, 1e8, 9.4e9] {
            for queue in [0.001, 0.05, 5.0] {
                let found = try_path(RampRequest::default(), capacity, queue, 1e12, 0.0);
                let highest = found.highest.unwrap().as_f64();
                let share = highest / capacity;
                assert!((0.95..1.05).contains(&share), "{capacity} {queue}: {share} {:#?}", found.steps);
                assert!(found.onset.unwrap().as_f64() <= highest * PRECISION && !found.sender_limit);
                assert!(found.steps.len() < 32, "{}", found.steps.len());
            }
        }
    }

    #[test]
    fn a_sender_that_can_do_no_more_is_no_onset() {
        let found = try_path(RampRequest::default(), 1e10, 0.01, 3e9, 0.0);
        assert!(found.sender_limit && found.onset.is_none());
        assert!((found.highest.unwrap().as_f64() / 3e9 - 1.0).abs() < 0.01, "{found:#?}");
    }

    #[test]
    fn random_loss_is_an_onset_unless_it_is_allowed() {
        let found = try_path(RampRequest::default(), 1e8, 0.01, 1e12, 0.05);
        assert_eq!(found.highest, None, "{found:#?}");
        assert!(found.steps.len() <= 9);
        let allowed = RampRequest { loss_allowed: Ratio::new(0.06).unwrap(), ..RampRequest::default() };
        let found = try_path(allowed, 1e8, 0.01, 1e12, 0.05);
        assert!((found.highest.unwrap().as_f64() / 1e8 - 1.0).abs() < 0.15, "{found:#?}");
    }

    #[test]
    fn one_lost_datagram_is_tried_again() {
        let mut ramp = Ramp::new(RampRequest::default());
        let sent = StepSent { datagrams: 1000, datagram_bytes: BYTES, time: Duration::from_millis(11_765) };
        let seen = |datagrams| StepSeen { datagrams, time: sent.time, ..StepSeen::default() };
        assert_eq!(ramp.judge(&sent, &seen(999)), Some(BitRate(1_000_000)));
        assert_eq!(ramp.judge(&sent, &seen(1000)), Some(BitRate(2_000_000)));
    }

    #[test]
    fn one_of_few_is_tried_again_once_and_two_are_not() {
        let sent = StepSent { datagrams: 50, datagram_bytes: BYTES, time: Duration::from_millis(577) };
        let seen = |datagrams| StepSeen { datagrams, time: sent.time, ..StepSeen::default() };
        let mut ramp = Ramp::new(RampRequest::default());
        assert_eq!(ramp.judge(&sent, &seen(49)), Some(BitRate(1_000_000)));
        assert_eq!(ramp.judge(&sent, &seen(49)), Some(BitRate(250_000)));
        let mut ramp = Ramp::new(RampRequest::default());
        assert_eq!(ramp.judge(&sent, &seen(48)), Some(BitRate(250_000)));
    }

    /// Of a step that took 60 ms longer for its last datagrams than for its first.
    fn stalled(ramp: &Ramp) -> (StepSent, StepSeen) {
        let time = Duration::from_millis(500);
        let sent = StepSent { datagrams: 1 + ramp.rate().0 / 2 / (BYTES * 8), datagram_bytes: BYTES, time };
        let delay_growth_seconds = Figure::new(0.06).unwrap();
        (sent, StepSeen { step: ramp.step(), datagrams: sent.datagrams, time, delay_growth_seconds })
    }

    #[test]
    fn an_end_that_stood_still_once_does_not_end_the_ramp() {
        let mut ramp = Ramp::new(RampRequest::default());
        let (sent, seen) = stalled(&ramp);
        assert_eq!(ramp.judge(&sent, &seen), Some(BitRate(1_000_000)), "tried again");
        let clean = StepSeen { delay_growth_seconds: Figure::default(), ..seen };
        assert_eq!(ramp.judge(&sent, &clean), Some(BitRate(2_000_000)), "and it passed");
        let outcomes: Vec<Outcome> = ramp.report_all().steps.iter().map(|step| step.outcome).collect();
        assert_eq!(outcomes, [Outcome::Queued, Outcome::Passed], "both are told");
        // A delay that grows each time is a queue.
        let (sent, seen) = stalled(&ramp);
        assert_eq!(ramp.judge(&sent, &seen), Some(BitRate(2_000_000)));
        let next = ramp.judge(&sent, &seen).unwrap();
        assert!(next < BitRate(2_000_000) && next > BitRate(1_000_000), "{next}");
        assert_eq!(ramp.report_all().onset, Some(BitRate(2_000_000)));
    }

    #[test]
    fn a_rate_that_fails_in_one_way_and_then_in_another_is_not_tried_a_third_time() {
        let mut ramp = Ramp::new(RampRequest::default());
        let (sent, seen) = stalled(&ramp);
        let one_lost = StepSeen { datagrams: sent.datagrams - 1, delay_growth_seconds: Figure::default(), ..seen };
        assert_eq!(ramp.judge(&sent, &seen), Some(BitRate(1_000_000)));
        assert_eq!(ramp.judge(&sent, &one_lost), Some(BitRate(250_000)));
        assert!(try_path(RampRequest::default(), 100.0, 1e6, 1e12, 0.0).steps.len() <= 8, "each twice, not for ever");
    }

    #[test]
    fn nonsense_of_a_peer_ends_the_ramp_too() {
        let mut ramp = Ramp::new(RampRequest::default());
        let seen = StepSeen {
            datagrams: u64::MAX,
            delay_growth_seconds: Figure::new(f64::MIN).unwrap(),
            ..StepSeen::default()
        };
        let mut steps = 0;
        while ramp.judge(&StepSent { datagrams: 1, ..StepSent::default() }, &seen).is_some() {
            steps += 1;
            assert!(steps <= MOST_STEPS);
        }
    }
}
