//! Choice of rates to find the rate where loss starts.
//!
//! The ramp makes one step at a time, each from an idle path. It doubles the rate until a step fails, then halves the
//! gap geometrically until the gap is within `PRECISION`. Doubling reaches any rate in few steps, and disturbs other
//! traffic with at most one step of twice the capacity; a fixed staircase would need a hundred steps for the same
//! result. A step passes if the loss is allowed and the datagrams arrive as fast as they left: slower arrival fills a
//! queue, which later causes loss. A step that fails narrowly is repeated once, because one lost datagram does not show
//! the onset of loss. A step without loss that fails by its delay is also repeated, because a short pause of one end
//! looks like a growing queue.
//!
//! A ramp of given rates makes each of its steps once, whatever their outcomes.

use std::time::Duration;

use lfn_base::units::BitRate;
use lfn_results::udp::ramp::{MAX_STEPS, RampReport, RampRequest, StepOutcome, StepReceived, StepReport, StepSent};

/// Maximum ratio between the lowest failed rate and the highest passed rate.
const PRECISION: f64 = 1.02;

/// Minimum share of the requested rate; below, the sender is the limit.
const MIN_SENT_SHARE: f64 = 0.97;

/// Maximum growth of the transit time as a share of the step's time, by a straight line through all transit times or
/// from the first to the last arrival. Above, the path carries less than is sent, and a queue grows.
const MAX_GROWTH: f64 = 0.02;

/// Maximum growth by both measures together. A short pause of an end changes one of them; a growing queue changes both
/// equally. The value is a quarter of the precision, so that the path can carry the result.
const MAX_GROWTH_BY_BOTH: f64 = 0.005;

/// Minimum growth that counts for a short step; less is jitter.
const MIN_GROWTH: Duration = Duration::from_millis(2);

/// Maximum loss that may be chance; the step is repeated.
const MAX_CHANCE_LOSS: f64 = 0.01;

/// Returns whether the rate of a step may pass in a second try.
fn may_be_chance(step: &StepReport) -> bool {
    match step.outcome {
        // In a slow step, one of few datagrams is already more than this share.
        StepOutcome::Lost => step.lost <= 1 || step.lost as f64 <= MAX_CHANCE_LOSS * step.datagrams as f64,
        StepOutcome::Queued => true,
        StepOutcome::Passed | StepOutcome::SenderLimit => false,
    }
}

/// A ramp that is running.
#[derive(Debug, Clone)]
pub struct Ramp {
    request: RampRequest,
    rate: BitRate,
    highest: Option<BitRate>,
    failed: Option<BitRate>,
    sender_limit: bool,
    /// The current rate has failed once, perhaps by chance.
    retried: bool,
    is_complete: bool,
    steps: Vec<StepReport>,
}

impl Ramp {
    /// Starts a ramp at the first rate.
    pub fn new(request: RampRequest) -> Self {
        let first = request.rates.first().map_or(request.from, |first| *first);
        let rate = BitRate(first.0.clamp(1, request.to.0.max(1)));
        Ramp {
            request,
            rate,
            highest: None,
            failed: None,
            sender_limit: false,
            retried: false,
            is_complete: false,
            steps: Vec::new(),
        }
    }

    /// Returns the rate of the current step.
    pub fn rate(&self) -> BitRate {
        self.rate
    }

    /// Returns the number of the current step.
    pub fn step(&self) -> u32 {
        u32::try_from(self.steps.len()).unwrap_or(u32::MAX)
    }

    /// Records the result of a step; returns the next rate, or `None` at the end of the ramp.
    pub fn record_step(&mut self, sent: &StepSent, received: &StepReceived) -> Option<BitRate> {
        let report = self.report(sent, received);
        self.steps.push(report.clone());
        let next = self.evaluate(&report).filter(|_| self.steps.len() < MAX_STEPS);
        self.is_complete = next.is_none();
        self.rate = next.unwrap_or(self.rate);
        next
    }

    fn evaluate(&mut self, report: &StepReport) -> Option<BitRate> {
        if may_be_chance(report) && !self.retried && self.request.rates.is_empty() {
            self.retried = true;
            return Some(self.rate);
        }
        self.retried = false;
        match report.outcome {
            StepOutcome::Passed => self.highest = Some(self.rate.max(self.highest.unwrap_or_default())),
            StepOutcome::Lost | StepOutcome::Queued => self.failed = Some(self.rate),
            StepOutcome::SenderLimit => {
                self.sender_limit = true;
                self.highest = Some(report.sent.max(self.highest.unwrap_or_default()));
            }
        }
        if self.request.rates.is_empty() {
            return self.next_rate();
        }
        let next = self.request.rates.get(self.steps.len());
        next.map(|rate| BitRate(rate.0.clamp(1, self.request.to.0.max(1))))
    }

    /// Returns the result so far.
    pub fn report_all(&self) -> RampReport {
        let (highest, onset, sender_limit) = (self.highest, self.failed, self.sender_limit);
        let begun = Some(self.rate).filter(|_| !self.is_complete);
        RampReport {
            highest_passed: highest,
            lowest_failed: onset,
            sender_limit,
            steps: self.steps.clone(),
            unfinished_step: begun,
        }
    }

    fn next_rate(&self) -> Option<BitRate> {
        match (self.highest, self.failed) {
            _ if self.sender_limit => None,
            (Some(highest), None) if highest >= self.request.to => None,
            (Some(highest), None) => Some(BitRate(highest.0.saturating_mul(2).min(self.request.to.0))),
            (Some(highest), Some(failed)) if failed.as_f64() <= highest.as_f64() * PRECISION => None,
            (Some(highest), Some(failed)) => {
                // A gap below one bit per second is closed.
                let middle = BitRate((highest.as_f64() * failed.as_f64()).sqrt() as u64);
                (middle > highest && middle < failed).then_some(middle)
            }
            // The first rate was too high: divide by four, a limited number of times.
            (None, Some(failed)) => Some(BitRate(failed.0 / 4)).filter(|rate| rate.0 >= 1000 && self.steps.len() < 8),
            (None, None) => None,
        }
    }

    fn report(&self, sent: &StepSent, received: &StepReceived) -> StepReport {
        let rate = |datagrams: u64, time: Duration| {
            // The time from the first to the last datagram covers one datagram less.
            let bits = datagrams.saturating_sub(1).saturating_mul(sent.datagram_bytes) as f64 * 8.0;
            BitRate(if time.is_zero() { 0 } else { (bits / time.as_secs_f64()) as u64 })
        };
        let mut report = StepReport {
            step: self.step(),
            requested: self.rate,
            sent: rate(sent.datagrams, sent.time),
            datagrams: sent.datagrams,
            lost: sent.datagrams.saturating_sub(received.datagrams),
            received: rate(received.datagrams, received.time),
            delay_growth_seconds: received.delay_growth_seconds,
            outcome: StepOutcome::Passed,
            slices: received.slices.clone(),
        };
        let stretched = received.time.as_secs_f64() - sent.time.as_secs_f64();
        report.outcome = self.outcome(&report, stretched, sent.time);
        report
    }

    /// Returns the outcome of a step. `stretched` is the excess of the arrival time over the departure time: the
    /// received and the sent rate differ by its share of the step's time.
    fn outcome(&self, report: &StepReport, stretched: f64, time: Duration) -> StepOutcome {
        if report.lost as f64 > self.request.loss_allowed.get() * report.datagrams as f64 {
            return StepOutcome::Lost;
        }
        let beyond = |growth: f64, share: f64| growth > (share * time.as_secs_f64()).max(MIN_GROWTH.as_secs_f64());
        let growths = [report.delay_growth_seconds.get(), stretched];
        if growths.iter().any(|growth| beyond(*growth, MAX_GROWTH))
            || growths.iter().all(|growth| beyond(*growth, MAX_GROWTH_BY_BOTH))
        {
            return StepOutcome::Queued;
        }
        if report.sent.as_f64() < MIN_SENT_SHARE * report.requested.as_f64() {
            StepOutcome::SenderLimit
        } else {
            StepOutcome::Passed
        }
    }
}

#[cfg(test)]
mod tests {
    use lfn_base::figure::Figure;
    use lfn_base::units::Ratio;

    use super::*;
    use crate::proto::udp::step::StepMeter;

    const BYTES: u64 = 1472;

    /// Runs a ramp over a path with this capacity and queue, and a sender with the limit `sender`.
    fn try_path(request: RampRequest, capacity: f64, queue: f64, sender: f64, loss: f64) -> RampReport {
        let mut ramp = Ramp::new(request.clone());
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
            if ramp.record_step(&sent, &meter.figures()).is_none() {
                return ramp.report_all();
            }
        }
    }

    #[test]
    fn ramp_finds_the_capacity_with_any_queue() {
        for capacity in [3e6, 1e8, 9.4e9] {
            for queue in [0.001, 0.05, 5.0] {
                let found = try_path(RampRequest::default(), capacity, queue, 1e12, 0.0);
                let highest = found.highest_passed.unwrap().as_f64();
                let share = highest / capacity;
                assert!((0.97..1.006).contains(&share), "{capacity} {queue}: {share} {:#?}", found.steps);
                assert!(found.lowest_failed.unwrap().as_f64() <= highest * PRECISION && !found.sender_limit);
                assert!(found.steps.len() < 32, "{}", found.steps.len());
            }
        }
    }

    #[test]
    fn sender_limit_is_not_an_onset() {
        let found = try_path(RampRequest::default(), 1e10, 0.01, 3e9, 0.0);
        assert!(found.sender_limit && found.lowest_failed.is_none());
        assert!((found.highest_passed.unwrap().as_f64() / 3e9 - 1.0).abs() < 0.01, "{found:#?}");
    }

    #[test]
    fn random_loss_is_an_onset_unless_allowed() {
        let found = try_path(RampRequest::default(), 1e8, 0.01, 1e12, 0.05);
        assert_eq!(found.highest_passed, None, "{found:#?}");
        assert!(found.steps.len() <= 9);
        let allowed = RampRequest { loss_allowed: Ratio::new(0.06).unwrap(), ..RampRequest::default() };
        let found = try_path(allowed, 1e8, 0.01, 1e12, 0.05);
        assert!((found.highest_passed.unwrap().as_f64() / 1e8 - 1.0).abs() < 0.15, "{found:#?}");
    }

    #[test]
    fn step_with_one_loss_is_repeated() {
        let mut ramp = Ramp::new(RampRequest::default());
        let sent = StepSent { datagrams: 1000, datagram_bytes: BYTES, time: Duration::from_millis(11_765) };
        let received = |datagrams| StepReceived { datagrams, time: sent.time, ..StepReceived::default() };
        assert_eq!(ramp.record_step(&sent, &received(999)), Some(BitRate(1_000_000)));
        assert_eq!(ramp.record_step(&sent, &received(1000)), Some(BitRate(2_000_000)));
    }

    #[test]
    fn slow_step_with_one_loss_is_repeated_once() {
        let sent = StepSent { datagrams: 50, datagram_bytes: BYTES, time: Duration::from_millis(577) };
        let received = |datagrams| StepReceived { datagrams, time: sent.time, ..StepReceived::default() };
        let mut ramp = Ramp::new(RampRequest::default());
        assert_eq!(ramp.record_step(&sent, &received(49)), Some(BitRate(1_000_000)));
        assert_eq!(ramp.record_step(&sent, &received(49)), Some(BitRate(250_000)));
        let mut ramp = Ramp::new(RampRequest::default());
        assert_eq!(ramp.record_step(&sent, &received(48)), Some(BitRate(250_000)));
    }

    /// Returns a step in which the last datagrams took 60 ms longer than the first.
    fn stalled(ramp: &Ramp) -> (StepSent, StepReceived) {
        let time = Duration::from_millis(500);
        let sent = StepSent { datagrams: 1 + ramp.rate().0 / 2 / (BYTES * 8), datagram_bytes: BYTES, time };
        let delay_growth_seconds = Figure::new(0.06).unwrap();
        (
            sent,
            StepReceived {
                step: ramp.step(),
                datagrams: sent.datagrams,
                time,
                delay_growth_seconds,
                ..StepReceived::default()
            },
        )
    }

    #[test]
    fn single_pause_does_not_end_the_ramp() {
        let mut ramp = Ramp::new(RampRequest::default());
        let (sent, received) = stalled(&ramp);
        assert_eq!(ramp.record_step(&sent, &received), Some(BitRate(1_000_000)), "repeated");
        let clean = StepReceived { delay_growth_seconds: Figure::default(), ..received };
        assert_eq!(ramp.record_step(&sent, &clean), Some(BitRate(2_000_000)), "and it passed");
        let outcomes: Vec<StepOutcome> = ramp.report_all().steps.iter().map(|step| step.outcome).collect();
        assert_eq!(outcomes, [StepOutcome::Queued, StepOutcome::Passed], "both steps are reported");
        // A delay that grows in each try is a queue.
        let (sent, received) = stalled(&ramp);
        assert_eq!(ramp.record_step(&sent, &received), Some(BitRate(2_000_000)));
        let next = ramp.record_step(&sent, &received).unwrap();
        assert!(next < BitRate(2_000_000) && next > BitRate(1_000_000), "{next}");
        assert_eq!(ramp.report_all().lowest_failed, Some(BitRate(2_000_000)));
    }

    #[test]
    fn rate_is_repeated_only_once() {
        let mut ramp = Ramp::new(RampRequest::default());
        let (sent, received) = stalled(&ramp);
        let one_lost =
            StepReceived { datagrams: sent.datagrams - 1, delay_growth_seconds: Figure::default(), ..received.clone() };
        assert_eq!(ramp.record_step(&sent, &received), Some(BitRate(1_000_000)));
        assert_eq!(ramp.record_step(&sent, &one_lost), Some(BitRate(250_000)));
        assert!(try_path(RampRequest::default(), 100.0, 1e6, 1e12, 0.0).steps.len() <= 8, "each twice, not for ever");
    }

    /// Returns the outcome of a step. The line through its transit times grows by `line` milliseconds. The step leaves
    /// within 500 ms and arrives within `stretched` milliseconds more.
    fn grown(line: f64, stretched: u64) -> StepOutcome {
        let mut ramp = Ramp::new(RampRequest::default());
        let time = Duration::from_millis(500);
        let sent = StepSent { datagrams: 43, datagram_bytes: BYTES, time };
        let delay_growth_seconds = Figure::new(line / 1e3).unwrap();
        let time = time + Duration::from_millis(stretched);
        ramp.record_step(&sent, &StepReceived { datagrams: 43, time, delay_growth_seconds, ..StepReceived::default() });
        ramp.report_all().steps[0].outcome
    }

    #[test]
    fn slower_arrival_fails_the_step() {
        // Measured on a real path: 1.4 % less received than sent, and 7 ms more delay at the end of the step.
        assert_eq!(grown(7.0, 7), StepOutcome::Queued);
        assert_eq!(grown(3.0, 3), StepOutcome::Queued);
        assert_eq!(grown(2.0, 2), StepOutcome::Passed, "jitter");
        // A short pause at the end or in the middle appears in one of the two measures.
        assert_eq!((grown(1.0, 7), grown(7.0, 0)), (StepOutcome::Passed, StepOutcome::Passed));
        assert_eq!((grown(11.0, 0), grown(1.0, 11)), (StepOutcome::Queued, StepOutcome::Queued), "too long for that");
        assert_eq!(grown(-7.0, 0), StepOutcome::Passed);
        let mut ramp = Ramp::new(RampRequest::default());
        let sent = StepSent { datagrams: 1000, datagram_bytes: BYTES, time: Duration::from_millis(400) };
        let early = StepReceived { datagrams: 999, time: Duration::from_millis(300), ..StepReceived::default() };
        ramp.record_step(&sent, &early);
        assert_eq!(ramp.report_all().steps[0].outcome, StepOutcome::Lost, "the last was lost, and nothing took longer");
    }

    #[test]
    fn queue_growth_of_one_percent_is_detected() {
        // 101 Mb/s into 100 Mb/s, with a queue of a second, so that nothing is lost.
        let only = |rate: u64| RampRequest { from: BitRate(rate), to: BitRate(rate), ..RampRequest::default() };
        let over = try_path(only(101_000_000), 1e8, 1.0, 1e12, 0.0);
        assert_eq!((over.steps[0].lost, over.steps[0].outcome), (0, StepOutcome::Queued), "{:?}", over.steps[0]);
        assert_eq!(over.lowest_failed, Some(BitRate(101_000_000)));
        let just = try_path(only(100_000_000), 1e8, 1.0, 1e12, 0.0);
        assert_eq!((just.highest_passed, just.lowest_failed), (Some(BitRate(100_000_000)), None));
    }

    #[test]
    fn unfinished_rate_is_reported_until_the_end() {
        let request = RampRequest { to: BitRate(2_000_000), ..RampRequest::default() };
        let mut ramp = Ramp::new(request);
        assert_eq!(ramp.report_all().unfinished_step, Some(BitRate(1_000_000)));
        let time = Duration::from_millis(500);
        let pass = |ramp: &mut Ramp| {
            let datagrams = 1 + ramp.rate().0 / 2 / (BYTES * 8);
            let sent = StepSent { datagrams, datagram_bytes: BYTES, time };
            ramp.record_step(&sent, &StepReceived { datagrams, time, ..StepReceived::default() })
        };
        assert_eq!(pass(&mut ramp), Some(BitRate(2_000_000)));
        let so_far = ramp.report_all();
        assert_eq!(
            (so_far.highest_passed, so_far.unfinished_step),
            (Some(BitRate(1_000_000)), Some(BitRate(2_000_000)))
        );
        assert_eq!(pass(&mut ramp), None);
        assert_eq!(
            (ramp.report_all().highest_passed, ramp.report_all().unfinished_step),
            (Some(BitRate(2_000_000)), None)
        );
    }

    #[test]
    fn invalid_figures_end_the_ramp() {
        let mut ramp = Ramp::new(RampRequest::default());
        let received = StepReceived {
            datagrams: u64::MAX,
            delay_growth_seconds: Figure::new(f64::MIN).unwrap(),
            ..StepReceived::default()
        };
        let mut steps = 0;
        while ramp.record_step(&StepSent { datagrams: 1, ..StepSent::default() }, &received).is_some() {
            steps += 1;
            assert!(steps <= MAX_STEPS);
        }
    }

    #[test]
    fn given_rates_are_sent_in_order_whatever_their_outcomes() {
        let rates = vec![BitRate(8_000_000), BitRate(1_000_000), BitRate(4_000_000), BitRate(4_000_000)];
        let report = try_path(RampRequest { rates: rates.clone(), ..RampRequest::default() }, 2e6, 0.01, 1e9, 0.0);
        assert_eq!(report.steps.iter().map(|step| step.requested).collect::<Vec<_>>(), rates);
        let lost: Vec<bool> = report.steps.iter().map(|step| step.lost > 0).collect();
        assert_eq!(lost, [true, false, true, true]);
        assert_eq!((report.highest_passed, report.unfinished_step), (Some(BitRate(1_000_000)), None));
    }
}
