//! A loss model at work: what it has drawn and not yet used up.

use rand::RngExt;
use rand_pcg::Pcg64;

use super::{Gilbert, LossModel, Lost, Scheduled};
use crate::link::Varying;
use crate::link::chance::Geometric;
use crate::time::Instant;
use crate::units::Ratio;

/// Says of each virtual packet in turn whether it is lost.
pub(super) enum Pattern {
    None,
    Independent(Independent),
    Gilbert(States),
    /// Of bursts, and of the nth packet: passing and losing by turns.
    Turns(Turns),
    Schedule(Schedule),
}

impl Pattern {
    /// At work from `now` on.
    pub(super) fn new(model: &LossModel, epoch: Instant, now: Instant, generator: &mut Pcg64) -> Self {
        match model {
            LossModel::None => Pattern::None,
            LossModel::Independent(ratio) => Pattern::Independent(Independent::new(ratio, epoch, now, generator)),
            LossModel::Gilbert(gilbert) => Pattern::Gilbert(States::new(gilbert, generator)),
            LossModel::Nth(nth) => Pattern::Turns(Turns::new(Gap::Fixed(nth.saturating_sub(1)), 1, generator)),
            LossModel::Bursts { probability, length } => {
                Pattern::Turns(Turns::new(Gap::Drawn(Geometric::new(probability.get())), *length, generator))
            }
            LossModel::Schedule(list) => Pattern::Schedule(Schedule::new(list, epoch, now)),
        }
    }

    /// What comes next arrives at `now`.
    pub(super) fn arrive(&mut self, now: Instant, generator: &mut Pcg64) {
        match self {
            Pattern::Independent(independent) => independent.arrive(now, generator),
            Pattern::Schedule(schedule) => schedule.arrive(now),
            Pattern::None | Pattern::Gilbert(_) | Pattern::Turns(_) => {}
        }
    }

    /// Whether the next virtual packets are lost, and how many of at most `most` fare so.
    pub(super) fn next(&mut self, most: u32, generator: &mut Pcg64) -> (bool, u32) {
        match self {
            Pattern::None => (false, most),
            Pattern::Independent(independent) => independent.next(most, generator),
            Pattern::Gilbert(states) => states.next(most, generator),
            Pattern::Turns(turns) => turns.next(most, generator),
            Pattern::Schedule(schedule) => schedule.next(most),
        }
    }
}

/// Takes from `left` as many as are there, `most` at most.
fn take(left: &mut u64, most: u32) -> u32 {
    let taken = u32::try_from(*left).map_or(most, |left| left.min(most));
    *left -= u64::from(taken);
    taken
}

/// Chance that has no memory, and may change with time.
pub(super) struct Independent {
    ratio: Varying<Ratio>,
    epoch: Instant,
    /// When the ratio is to be looked up again.
    until: Option<Instant>,
    chance: Geometric,
    /// How many pass before the next is lost.
    gap: u64,
}

impl Independent {
    fn new(ratio: &Varying<Ratio>, epoch: Instant, now: Instant, generator: &mut Pcg64) -> Self {
        let since = now.saturating_since(epoch);
        let until = ratio.step_after(since).map(|after| epoch + after);
        let chance = Geometric::new(ratio.at(since).get());
        let gap = chance.draw(generator);
        Independent { ratio: ratio.clone(), epoch, until, chance, gap }
    }

    fn arrive(&mut self, now: Instant, generator: &mut Pcg64) {
        if self.until.is_none_or(|until| now < until) {
            return;
        }
        let since = now.saturating_since(self.epoch);
        self.until = self.ratio.step_after(since).map(|after| self.epoch + after);
        let chance = Geometric::new(self.ratio.at(since).get());
        if chance != self.chance {
            // What was drawn holds for the ratio before. Chance has no memory, so a new draw is as good.
            self.chance = chance;
            self.gap = chance.draw(generator);
        }
    }

    fn next(&mut self, most: u32, generator: &mut Pcg64) -> (bool, u32) {
        if self.gap > 0 {
            return (false, take(&mut self.gap, most));
        }
        if self.chance.is_certain() {
            return (true, most);
        }
        self.gap = self.chance.draw(generator);
        (true, 1)
    }
}

/// Times good and bad by turns, each with a chance of its own.
pub(super) struct States {
    good: State,
    bad: State,
    is_bad: bool,
    /// Packets that the present time still lasts.
    left: u64,
    /// How many of them pass before the next is lost.
    gap: u64,
}

struct State {
    /// That the next packet meets the other state.
    leave: Geometric,
    loss: Geometric,
}

impl States {
    fn new(gilbert: &Gilbert, generator: &mut Pcg64) -> Self {
        let state = |leave: Ratio, pass: Ratio| State {
            leave: Geometric::new(leave.get()),
            loss: Geometric::new(1.0 - pass.get()),
        };
        let good = state(gilbert.to_bad, gilbert.pass_good);
        let bad = state(gilbert.to_good, gilbert.pass_bad);
        let is_bad = generator.random::<f64>() < gilbert.share_bad();
        let mut states = States { good, bad, is_bad, left: 0, gap: 0 };
        states.enter(is_bad, generator);
        states
    }

    fn enter(&mut self, is_bad: bool, generator: &mut Pcg64) {
        self.is_bad = is_bad;
        // The packet that meets a state first is in it, whatever comes after.
        self.left = self.present().leave.draw(generator).saturating_add(1);
        self.gap = self.present().loss.draw(generator);
    }

    fn present(&self) -> &State {
        if self.is_bad { &self.bad } else { &self.good }
    }

    fn next(&mut self, most: u32, generator: &mut Pcg64) -> (bool, u32) {
        let fate = if self.gap > 0 {
            let mut passing = self.gap.min(self.left);
            let passed = take(&mut passing, most);
            self.gap -= u64::from(passed);
            self.left -= u64::from(passed);
            (false, passed)
        } else if self.present().loss.is_certain() {
            (true, take(&mut self.left, most))
        } else {
            self.gap = self.present().loss.draw(generator);
            (true, take(&mut self.left, 1))
        };
        if self.left == 0 {
            self.enter(!self.is_bad, generator);
        }
        fate
    }
}

/// Passing and losing by turns.
pub(super) struct Turns {
    gap: Gap,
    length: u64,
    passing: u64,
    losing: u64,
}

/// How many pass between two bursts.
pub(super) enum Gap {
    Fixed(u64),
    Drawn(Geometric),
}

impl Turns {
    fn new(gap: Gap, length: u64, generator: &mut Pcg64) -> Self {
        let passing = gap.draw(generator);
        Turns { gap, length, passing, losing: length }
    }

    fn next(&mut self, most: u32, generator: &mut Pcg64) -> (bool, u32) {
        if self.passing > 0 {
            return (false, take(&mut self.passing, most));
        }
        let lost = take(&mut self.losing, most);
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

/// A list of what is lost when.
pub(super) struct Schedule {
    /// What is still to begin, the next one last.
    ahead: Vec<(Instant, Lost)>,
    /// Packets to lose, of all entries that have begun.
    packets: u64,
    /// Everything that arrives before is lost.
    until: Instant,
    is_within: bool,
}

impl Schedule {
    /// Counts of packets that were due before `now` are past; times that still run are not.
    fn new(list: &[Scheduled], epoch: Instant, now: Instant) -> Self {
        let is_ahead = |entry: &&Scheduled| matches!(entry.what, Lost::Within(_)) || epoch + entry.at >= now;
        let ahead = list.iter().filter(is_ahead).rev().map(|entry| (epoch + entry.at, entry.what)).collect();
        Schedule { ahead, packets: 0, until: Instant::ZERO, is_within: false }
    }

    fn arrive(&mut self, now: Instant) {
        while let Some((at, what)) = self.ahead.pop_if(|(at, _)| *at <= now) {
            match what {
                Lost::Packets(packets) => self.packets = self.packets.saturating_add(packets),
                Lost::Within(time) => self.until = self.until.max(at + time),
            }
        }
        self.is_within = now < self.until;
    }

    fn next(&mut self, most: u32) -> (bool, u32) {
        if self.is_within {
            return (true, most);
        }
        match take(&mut self.packets, most) {
            0 => (false, most),
            lost => (true, lost),
        }
    }
}
