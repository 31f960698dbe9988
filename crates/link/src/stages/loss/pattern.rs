//! State of a loss model: the draws that are not used yet.

use lfn_base::time::Instant;
use lfn_base::units::Ratio;
use rand::RngExt;
use rand_pcg::Pcg64;

use super::model::{Gilbert, LossExtent, LossModel, ScheduledLoss};
use crate::sampler::Geometric;
use crate::timetable::Timetable;

/// Decides for each virtual packet in turn whether it is lost.
pub(super) enum Pattern {
    None,
    Independent(Independent),
    Gilbert(GilbertChain),
    /// Bursts, and every nth packet: runs of passing and lost packets alternate.
    AlternatingRuns(AlternatingRuns),
    Schedule(Schedule),
}

impl Pattern {
    /// Starts the model at `now`.
    pub(super) fn new(model: &LossModel, epoch: Instant, now: Instant, generator: &mut Pcg64) -> Self {
        match model {
            LossModel::None => Pattern::None,
            LossModel::Independent(ratio) => Pattern::Independent(Independent::new(ratio, epoch, now, generator)),
            LossModel::Gilbert(gilbert) => Pattern::Gilbert(GilbertChain::new(gilbert, generator)),
            LossModel::Nth(nth) => {
                Pattern::AlternatingRuns(AlternatingRuns::new(Gap::Fixed(nth.saturating_sub(1)), 1, generator))
            }
            LossModel::Bursts { probability, length } => Pattern::AlternatingRuns(AlternatingRuns::new(
                Gap::Drawn(Geometric::new(probability.get())),
                *length,
                generator,
            )),
            LossModel::Schedule(list) => Pattern::Schedule(Schedule::new(list, epoch, now)),
        }
    }

    /// Advances to `now`, when the next packet arrives.
    pub(super) fn advance_to(&mut self, now: Instant, generator: &mut Pcg64) {
        match self {
            Pattern::Independent(independent) => independent.advance_to(now, generator),
            Pattern::Schedule(schedule) => schedule.advance_to(now),
            Pattern::None | Pattern::Gilbert(_) | Pattern::AlternatingRuns(_) => {}
        }
    }

    /// Reports whether the next virtual packets are lost, and how many of at most `max` have this outcome.
    pub(super) fn next_run(&mut self, max: u32, generator: &mut Pcg64) -> (bool, u32) {
        match self {
            Pattern::None => (false, max),
            Pattern::Independent(independent) => independent.next_run(max, generator),
            Pattern::Gilbert(states) => states.next_run(max, generator),
            Pattern::AlternatingRuns(turns) => turns.next_run(max, generator),
            Pattern::Schedule(schedule) => schedule.next_run(max),
        }
    }
}

/// Takes up to `max` from `left`.
fn take(left: &mut u64, max: u32) -> u32 {
    let taken = u32::try_from(*left).map_or(max, |left| left.min(max));
    *left -= u64::from(taken);
    taken
}

/// Independent loss with a ratio that may change with time.
pub(super) struct Independent {
    ratio: Timetable<Ratio>,
    epoch: Instant,
    /// Time at which the ratio may change.
    next_change: Option<Instant>,
    chance: Geometric,
    /// Packets that pass before the next loss.
    gap: u64,
}

impl Independent {
    fn new(ratio: &Timetable<Ratio>, epoch: Instant, now: Instant, generator: &mut Pcg64) -> Self {
        let since = now.saturating_since(epoch);
        let next_change = ratio.next_step_after(since).map(|after| epoch + after);
        let chance = Geometric::new(ratio.value_at(since).get());
        let gap = chance.draw(generator);
        Independent { ratio: ratio.clone(), epoch, next_change, chance, gap }
    }

    fn advance_to(&mut self, now: Instant, generator: &mut Pcg64) {
        if self.next_change.is_none_or(|until| now < until) {
            return;
        }
        let since = now.saturating_since(self.epoch);
        self.next_change = self.ratio.next_step_after(since).map(|after| self.epoch + after);
        let chance = Geometric::new(self.ratio.value_at(since).get());
        if chance != self.chance {
            // The old draw belongs to the old ratio. Geometric gaps have no memory, so a new draw is equivalent.
            self.chance = chance;
            self.gap = chance.draw(generator);
        }
    }

    fn next_run(&mut self, max: u32, generator: &mut Pcg64) -> (bool, u32) {
        if self.gap > 0 {
            return (false, take(&mut self.gap, max));
        }
        if self.chance.is_certain() {
            return (true, max);
        }
        self.gap = self.chance.draw(generator);
        (true, 1)
    }
}

/// Good and bad states alternate, each with its own loss probability.
pub(super) struct GilbertChain {
    good: GilbertState,
    bad: GilbertState,
    is_bad: bool,
    /// Packets until the present state ends.
    remaining: u64,
    /// Packets that pass before the next loss in this state.
    gap: u64,
}

struct GilbertState {
    /// Probability that the next packet is in the other state.
    leave: Geometric,
    loss: Geometric,
}

impl GilbertChain {
    fn new(gilbert: &Gilbert, generator: &mut Pcg64) -> Self {
        let state = |leave: Ratio, pass: Ratio| GilbertState {
            leave: Geometric::new(leave.get()),
            loss: Geometric::new(1.0 - pass.get()),
        };
        let good = state(gilbert.to_bad, gilbert.pass_good);
        let bad = state(gilbert.to_good, gilbert.pass_bad);
        let is_bad = generator.random::<f64>() < gilbert.share_bad();
        let mut states = GilbertChain { good, bad, is_bad, remaining: 0, gap: 0 };
        states.enter(is_bad, generator);
        states
    }

    fn enter(&mut self, is_bad: bool, generator: &mut Pcg64) {
        self.is_bad = is_bad;
        // A state always includes the packet that enters it.
        self.remaining = self.present().leave.draw(generator).saturating_add(1);
        self.gap = self.present().loss.draw(generator);
    }

    fn present(&self) -> &GilbertState {
        if self.is_bad { &self.bad } else { &self.good }
    }

    fn next_run(&mut self, max: u32, generator: &mut Pcg64) -> (bool, u32) {
        let run = if self.gap > 0 {
            let mut passing = self.gap.min(self.remaining);
            let passed = take(&mut passing, max);
            self.gap -= u64::from(passed);
            self.remaining -= u64::from(passed);
            (false, passed)
        } else if self.present().loss.is_certain() {
            (true, take(&mut self.remaining, max))
        } else {
            self.gap = self.present().loss.draw(generator);
            (true, take(&mut self.remaining, 1))
        };
        if self.remaining == 0 {
            self.enter(!self.is_bad, generator);
        }
        run
    }
}

/// Alternating runs of passing and lost packets.
pub(super) struct AlternatingRuns {
    gap: Gap,
    length: u64,
    passing: u64,
    losing: u64,
}

/// Number of packets between two bursts.
pub(super) enum Gap {
    Fixed(u64),
    Drawn(Geometric),
}

impl AlternatingRuns {
    fn new(gap: Gap, length: u64, generator: &mut Pcg64) -> Self {
        let passing = gap.draw(generator);
        AlternatingRuns { gap, length, passing, losing: length }
    }

    fn next_run(&mut self, max: u32, generator: &mut Pcg64) -> (bool, u32) {
        if self.passing > 0 {
            return (false, take(&mut self.passing, max));
        }
        let lost = take(&mut self.losing, max);
        if self.losing == 0 {
            self.passing = self.gap.draw(generator);
            self.losing = self.length;
        }
        (true, lost)
    }
}

impl Gap {
    fn draw(&self, generator: &mut Pcg64) -> u64 {
        match self {
            Gap::Fixed(packets) => *packets,
            Gap::Drawn(chance) => chance.draw(generator),
        }
    }
}

/// Losses at fixed times.
pub(super) struct Schedule {
    /// Entries that have not begun, in reverse order of time.
    upcoming: Vec<(Instant, LossExtent)>,
    /// Packets to lose, over all entries that have begun.
    packets_to_lose: u64,
    /// All packets that arrive before this time are lost.
    lose_until: Instant,
    is_losing: bool,
}

impl Schedule {
    /// Skips packet counts that were due before `now`. Entries with a duration that still runs are kept.
    fn new(list: &[ScheduledLoss], epoch: Instant, now: Instant) -> Self {
        let is_upcoming =
            |entry: &&ScheduledLoss| matches!(entry.extent, LossExtent::Duration(_)) || epoch + entry.start >= now;
        let upcoming = list.iter().filter(is_upcoming).rev().map(|entry| (epoch + entry.start, entry.extent)).collect();
        Schedule { upcoming, packets_to_lose: 0, lose_until: Instant::ZERO, is_losing: false }
    }

    fn advance_to(&mut self, now: Instant) {
        while let Some((at, extent)) = self.upcoming.pop_if(|(at, _)| *at <= now) {
            match extent {
                LossExtent::Packets(packets) => self.packets_to_lose = self.packets_to_lose.saturating_add(packets),
                LossExtent::Duration(time) => self.lose_until = self.lose_until.max(at + time),
            }
        }
        self.is_losing = now < self.lose_until;
    }

    fn next_run(&mut self, max: u32) -> (bool, u32) {
        if self.is_losing {
            return (true, max);
        }
        match take(&mut self.packets_to_lose, max) {
            0 => (false, max),
            lost => (true, lost),
        }
    }
}
