//! Which rates to try, to find the one where loss starts.
//!
//! A step at a time, each from an idle path: doubling until one fails, then halving the gap in between (geometrically)
//! until it is within `precision`. Doubling reaches any rate in few steps and hurts other traffic with no
//! more than one step of twice what fits; a fixed staircase would take a hundred steps for the same answer. A step
//! passes if no more was lost than allowed and it arrived as fast as it left: what takes longer to arrive fills a queue,
//! and that will lose, later.
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

/// Transit times that grow by more than this share of the step's time, by a straight line through them or from the first
/// to the last arrival: the path carries less than is sent, and queues.
const GROWTH: f64 = 0.02;

/// By both, less is enough: an end that stood still for a moment bends the one or the other, a queue that fills both
/// alike. It is a quarter of the precision, so that the rate found is not one the path cannot carry.
const GROWTH_BY_BOTH: f64 = 0.005;

/// No matter how short the step, growth below this is jitter.
const LEAST_GROWTH: Duration = Duration::from_millis(2);

/// Less loss than this may be chance: tried again.
const BY_A_HAIR: f64 = 0.01;

/// Steps a ramp takes at most; doubling from a bit a second would take fewer.
pub const MOST_STEPS: usize = 64;

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
    /// No more was lost than allowed, but it arrived more slowly than it left: loss comes when the queue is full.
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
    /// The rate of the step that had been begun when the ramp was broken off, which says nothing of that rate; absent of
    /// one that came to its end.
    #[serde(rename = "begun_bits_per_second", default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<BitRate>,
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
    over: bool,
    steps: Vec<StepReport>,
}

impl Ramp {
    /// Begins at the first rate.
    pub fn new(request: RampRequest) -> Self {
        let rate = BitRate(request.from.0.clamp(1, request.to.0.max(1)));
        Ramp {
            request,
            rate,
            highest: None,
            failed: None,
            sender_limit: false,
            again: false,
            over: false,
            steps: Vec::new(),
        }
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
        let next = self.take(&report).filter(|_| self.steps.len() < MOST_STEPS);
        self.over = next.is_none();
        self.rate = next.unwrap_or(self.rate);
        next
    }

    fn take(&mut self, report: &StepReport) -> Option<BitRate> {
        if report.may_be_chance() && !self.again {
            self.again = true;
            return Some(self.rate);
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
        self.next_rate()
    }

    /// What was found, or is known so far.
    pub fn report_all(&self) -> RampReport {
        let (highest, onset, sender_limit) = (self.highest, self.failed, self.sender_limit);
        let begun = Some(self.rate).filter(|_| !self.over);
        RampReport { highest, onset, sender_limit, steps: self.steps.clone(), begun }
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
        let stretched = seen.time.as_secs_f64() - sent.time.as_secs_f64();
        report.outcome = self.outcome(&report, stretched, sent.time);
        report
    }

    /// `stretched` is by how much longer a step took to arrive than to leave: received and sent rate differ by its share of
    /// the step's time.
    fn outcome(&self, report: &StepReport, stretched: f64, time: Duration) -> Outcome {
        if report.lost as f64 > self.request.loss_allowed.get() * report.datagrams as f64 {
            return Outcome::Lost;
        }
        let beyond = |growth: f64, share: f64| growth > (share * time.as_secs_f64()).max(LEAST_GROWTH.as_secs_f64());
        let growths = [report.delay_growth_seconds.get(), stretched];
        if growths.iter().any(|growth| beyond(*growth, GROWTH))
            || growths.iter().all(|growth| beyond(*growth, GROWTH_BY_BOTH))
        {
            return Outcome::Queued;
        }
        if report.sent.as_f64() < KEPT * report.asked.as_f64() { Outcome::SenderLimit } else { Outcome::Passed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::step::StepMeter;

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
                assert!((0.97..1.006).contains(&share), "{capacity} {queue}: {share} {:#?}", found.steps);
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

    /// What a step comes to whose line through the transit times grows by `line`, and which takes `stretched` longer to
    /// arrive than the 500 ms it takes to leave; milliseconds.
    fn grown(line: f64, stretched: u64) -> Outcome {
        let mut ramp = Ramp::new(RampRequest::default());
        let time = Duration::from_millis(500);
        let sent = StepSent { datagrams: 43, datagram_bytes: BYTES, time };
        let delay_growth_seconds = Figure::new(line / 1e3).unwrap();
        let time = time + Duration::from_millis(stretched);
        ramp.judge(&sent, &StepSeen { datagrams: 43, time, delay_growth_seconds, ..StepSeen::default() });
        ramp.report_all().steps[0].outcome
    }

    #[test]
    fn what_arrives_more_slowly_than_it_leaves_has_not_passed() {
        // Seen on a real path: 1.4 % less received than sent, the delay 7 ms longer at the end of the step.
        assert_eq!(grown(7.0, 7), Outcome::Queued);
        assert_eq!(grown(3.0, 3), Outcome::Queued);
        assert_eq!(grown(2.0, 2), Outcome::Passed, "jitter");
        // A moment's standstill at the end, or in the middle, is in one of the two.
        assert_eq!((grown(1.0, 7), grown(7.0, 0)), (Outcome::Passed, Outcome::Passed));
        assert_eq!((grown(11.0, 0), grown(1.0, 11)), (Outcome::Queued, Outcome::Queued), "too long for that");
        assert_eq!(grown(-7.0, 0), Outcome::Passed);
        let mut ramp = Ramp::new(RampRequest::default());
        let sent = StepSent { datagrams: 1000, datagram_bytes: BYTES, time: Duration::from_millis(400) };
        let early = StepSeen { datagrams: 999, time: Duration::from_millis(300), ..StepSeen::default() };
        ramp.judge(&sent, &early);
        assert_eq!(ramp.report_all().steps[0].outcome, Outcome::Lost, "the last was lost, and nothing took longer");
    }

    #[test]
    fn a_queue_that_fills_by_a_hundredth_is_noticed() {
        // 101 Mb/s into 100 Mb/s: a second of queue, so that nothing is lost.
        let only = |rate: u64| RampRequest { from: BitRate(rate), to: BitRate(rate), ..RampRequest::default() };
        let over = try_path(only(101_000_000), 1e8, 1.0, 1e12, 0.0);
        assert_eq!((over.steps[0].lost, over.steps[0].outcome), (0, Outcome::Queued), "{:?}", over.steps[0]);
        assert_eq!(over.onset, Some(BitRate(101_000_000)));
        let just = try_path(only(100_000_000), 1e8, 1.0, 1e12, 0.0);
        assert_eq!((just.highest, just.onset), (Some(BitRate(100_000_000)), None));
    }

    #[test]
    fn the_rate_that_had_been_begun_is_told_until_the_ramp_is_over() {
        let request = RampRequest { to: BitRate(2_000_000), ..RampRequest::default() };
        let mut ramp = Ramp::new(request);
        assert_eq!(ramp.report_all().begun, Some(BitRate(1_000_000)));
        let time = Duration::from_millis(500);
        let pass = |ramp: &mut Ramp| {
            let datagrams = 1 + ramp.rate().0 / 2 / (BYTES * 8);
            let sent = StepSent { datagrams, datagram_bytes: BYTES, time };
            ramp.judge(&sent, &StepSeen { datagrams, time, ..StepSeen::default() })
        };
        assert_eq!(pass(&mut ramp), Some(BitRate(2_000_000)));
        let so_far = ramp.report_all();
        assert_eq!((so_far.highest, so_far.begun), (Some(BitRate(1_000_000)), Some(BitRate(2_000_000))));
        assert_eq!(pass(&mut ramp), None);
        assert_eq!((ramp.report_all().highest, ramp.report_all().begun), (Some(BitRate(2_000_000)), None));
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
