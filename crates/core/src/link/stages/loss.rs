//! Loss: independent, in bursts, by count or by schedule.
//!
//! No model tosses a coin a packet. Each draws how many virtual packets pass before the next loss, and how many are
//! lost then (both are geometric where the model is a chance), and counts down: a super-packet in which nothing falls
//! costs one subtraction, and super-packets and single packets see the same draws.

mod pattern;
mod text;

use std::time::Duration;

use pattern::Pattern;
use rand_pcg::Pcg64;

use super::ranges::apart;
use crate::link::outbox::Outbox;
use crate::link::random::generator;
use crate::link::{DropCause, Event, LinkConfig, LinkError, Packet, Stage, Varying};
use crate::time::Instant;
use crate::units::Ratio;

/// Which virtual packets a link loses.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LossModel {
    /// None of them.
    #[default]
    None,
    /// Each with this probability, whatever became of the others.
    Independent(Varying<Ratio>),
    /// More in bad times than in good ones.
    Gilbert(Gilbert),
    /// The last of every so many; not 0.
    Nth(u64),
    /// At every packet outside a burst one begins with this probability: that packet and those after it are lost.
    Bursts {
        /// Of a burst to begin.
        probability: Ratio,
        /// How many packets a burst loses; not 0.
        length: u64,
    },
    /// At these times, in order, what takes time apart from what follows.
    Schedule(Vec<Scheduled>),
}

/// The model of Gilbert (1960) and Elliott (1963) as netem has it (`loss gemodel p r 1-h 1-k`): a chain of two states,
/// one step a packet. It begins in either state, as often as it is in it on the whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gilbert {
    /// p: from good to bad.
    pub to_bad: Ratio,
    /// r: from bad to good. A bad time lasts 1/r packets on average.
    pub to_good: Ratio,
    /// h: a packet passes in bad times; 0 in Gilbert's simple model.
    pub pass_bad: Ratio,
    /// k: a packet passes in good times; 1 in Gilbert's model.
    pub pass_good: Ratio,
}

/// One entry of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// When it begins, since the epoch of the link.
    pub at: Duration,
    /// What is lost.
    pub what: Lost,
}

/// What an entry of a schedule loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The next so many packets, however long it takes until they come.
    Packets(u64),
    /// All that arrive within this time.
    Within(Duration),
}

impl From<Ratio> for LossModel {
    /// Independent loss, or none.
    fn from(ratio: Ratio) -> Self {
        if ratio.get() > 0.0 { LossModel::Independent(ratio.into()) } else { LossModel::None }
    }
}

impl LossModel {
    /// The share of packets lost in the long run: what a prediction may be made from. A schedule has an end, so that it
    /// is 0; so is that of a timetable, but for its last value.
    pub fn mean(&self) -> Ratio {
        let mean = match self {
            LossModel::None | LossModel::Schedule(_) => 0.0,
            LossModel::Independent(ratio) => mean_over_time(ratio),
            LossModel::Gilbert(gilbert) => gilbert.mean(),
            LossModel::Nth(nth) => 1.0 / (*nth).max(1) as f64,
            LossModel::Bursts { probability, length } => {
                // A burst, and the packets that pass until one begins: (1 − p)/p of them.
                let lost = probability.get() * *length as f64;
                if lost > 0.0 { lost / (lost + 1.0 - probability.get()) } else { 0.0 }
            }
        };
        Ratio::new(mean.clamp(0.0, 1.0)).unwrap_or_default()
    }

    /// Refuses what means nothing, or would lose everything by mistake.
    pub fn check(&self) -> Result<(), LinkError> {
        match self {
            LossModel::None | LossModel::Independent(_) => Ok(()),
            LossModel::Gilbert(gilbert) => gilbert.check(),
            LossModel::Nth(nth) => {
                if *nth == 0 {
                    Err(LinkError::NthOfZero)
                } else {
                    Ok(())
                }
            }
            LossModel::Bursts { length, .. } => {
                if *length == 0 {
                    Err(LinkError::EmptyBurst)
                } else {
                    Ok(())
                }
            }
            LossModel::Schedule(list) => {
                let end = |entry: &Scheduled| match entry.what {
                    Lost::Packets(_) => entry.at,
                    Lost::Within(time) => entry.at.saturating_add(time),
                };
                let overlap = list.windows(2).find(|pair| pair[1].at < end(&pair[0]));
                overlap.map_or(Ok(()), |pair| Err(LinkError::ScheduleOrder(pair[1].at)))
            }
        }
    }
}

fn mean_over_time(ratio: &Varying<Ratio>) -> f64 {
    let steps = ratio.steps();
    let Some(period) = ratio.period() else { return steps.last().map_or(0.0, |(_, last)| last.get()) };
    let ends = steps.iter().skip(1).map(|(at, _)| *at).chain([period]);
    let weighted = steps.iter().zip(ends).map(|((at, ratio), end)| ratio.get() * (end - *at).as_secs_f64());
    weighted.sum::<f64>() / period.as_secs_f64()
}

impl Gilbert {
    /// Gilbert's own model: all is lost in bad times and nothing in good ones.
    pub fn simple(to_bad: Ratio, to_good: Ratio) -> Self {
        Gilbert { to_bad, to_good, pass_bad: Ratio::NONE, pass_good: Ratio::ALL }
    }

    /// The simple model that loses the share `loss` of all packets, `burst` in a row on average.
    pub fn with_bursts(loss: Ratio, burst: f64) -> Result<Self, LinkError> {
        // r = 1/burst, and the share of bad times p/(p + r) is the loss.
        let to_bad = loss.get() / (1.0 - loss.get()) / burst;
        match (Ratio::new(to_bad), Ratio::new(1.0 / burst)) {
            (Some(to_bad), Some(to_good)) => Ok(Gilbert::simple(to_bad, to_good)),
            _ => Err(LinkError::GilbertBurst { loss, burst: burst.to_string() }),
        }
    }

    /// What [`with_bursts`](Self::with_bursts) was given, if it makes the same of round numbers.
    fn as_bursts(&self) -> Option<(Ratio, f64)> {
        const MOST_DIGITS: usize = 6;
        let (loss, burst) = (self.mean(), 1.0 / self.to_good.get());
        (1..=MOST_DIGITS).find_map(|digits| {
            let rounded = |value: f64| format!("{value:.*e}", digits - 1).parse::<f64>().ok();
            let (loss, burst) = (Ratio::new(rounded(loss)?)?, rounded(burst)?);
            (Gilbert::with_bursts(loss, burst).ok()? == *self).then_some((loss, burst))
        })
    }

    /// The share of packets lost in the long run.
    fn mean(&self) -> f64 {
        let bad = self.share_bad();
        bad * (1.0 - self.pass_bad.get()) + (1.0 - bad) * (1.0 - self.pass_good.get())
    }

    /// The share of packets that meet a bad time.
    fn share_bad(&self) -> f64 {
        let (p, r) = (self.to_bad.get(), self.to_good.get());
        if p > 0.0 { p / (p + r) } else { 0.0 }
    }

    fn check(&self) -> Result<(), LinkError> {
        let stays_bad = self.to_bad.get() > 0.0 && self.to_good.get() == 0.0;
        if stays_bad { Err(LinkError::GilbertStaysBad(self.to_bad)) } else { Ok(()) }
    }
}

/// Loses what the model says.
pub(super) struct Loss {
    model: LossModel,
    epoch: Instant,
    pattern: Pattern,
    generator: Pcg64,
    out: Outbox,
}

impl Loss {
    pub(super) fn new(config: &LinkConfig) -> Self {
        let mut generator = generator(config, "loss");
        let pattern = Pattern::new(&config.loss, config.epoch, config.epoch, &mut generator);
        Loss { model: config.loss.clone(), epoch: config.epoch, pattern, generator, out: Outbox::default() }
    }
}

impl Stage for Loss {
    fn push(&mut self, packet: Packet, now: Instant) {
        let Loss { pattern, generator, out, .. } = self;
        pattern.arrive(now, generator);
        let tell = |is_lost, packet| {
            if is_lost { out.drop(packet, DropCause::Loss, now) } else { out.forward(packet, now) }
        };
        apart(packet, |most| pattern.next(most, generator), tell);
    }

    fn pop(&mut self, now: Instant) -> Option<Event> {
        self.out.pop(now)
    }

    fn next(&self) -> Option<Instant> {
        self.out.next()
    }

    /// Another model begins afresh; what a schedule set for before `now` is past.
    fn set(&mut self, config: &LinkConfig, now: Instant) {
        if (&self.model, self.epoch) != (&config.loss, config.epoch) {
            self.pattern = Pattern::new(&config.loss, config.epoch, now, &mut self.generator);
            self.model = config.loss.clone();
            self.epoch = config.epoch;
        }
    }
}
