//! Loss models: their parameters, checks and long-term loss.

use std::time::Duration;

use lfn_base::units::Ratio;

use crate::error::LinkError;
use crate::timetable::Timetable;
use crate::value::{Effects, impl_value};

/// Selects the virtual packets that a link loses.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LossModel {
    #[default]
    None,
    /// Each packet is lost with this probability, independently.
    Independent(Timetable<Ratio>),
    /// Losses are more frequent in the bad state than in the good state.
    Gilbert(Gilbert),
    /// Every nth packet is lost; not 0.
    Nth(u64),
    /// Outside a burst, each packet starts a burst with this probability. The burst loses this packet and the following
    /// ones.
    Bursts {
        /// Probability that a packet starts a burst.
        probability: Ratio,
        /// Packets per burst; not 0.
        length: u64,
    },
    /// Losses at these times, in order. An entry with a duration ends before the next entry.
    Schedule(Vec<ScheduledLoss>),
}

/// Model of Gilbert (1960) and Elliott (1963) as in netem (`loss gemodel p r 1-h 1-k`): a chain of two states with one
/// step per packet. The first state is drawn with the long-term share of each state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gilbert {
    /// p: probability of the step from good to bad.
    pub to_bad: Ratio,
    /// r: probability of the step from bad to good. A bad state lasts 1/r packets on average.
    pub to_good: Ratio,
    /// h: probability that a packet passes in the bad state; 0 in Gilbert's simple model.
    pub pass_bad: Ratio,
    /// k: probability that a packet passes in the good state; 1 in Gilbert's model.
    pub pass_good: Ratio,
}

/// One entry of a loss schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledLoss {
    /// Start since the epoch of the link.
    pub start: Duration,
    pub extent: LossExtent,
}

/// Extent of a scheduled loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossExtent {
    /// The next packets, however long it takes until they arrive.
    Packets(u64),
    /// All packets that arrive within this time.
    Duration(Duration),
}

impl From<Ratio> for LossModel {
    /// Creates independent loss, or no loss for a ratio of zero.
    fn from(ratio: Ratio) -> Self {
        if ratio.get() > 0.0 { LossModel::Independent(ratio.into()) } else { LossModel::None }
    }
}

impl LossModel {
    /// Returns the long-term share of lost packets, for predictions. A schedule ends, so its share is 0. A timetable
    /// without a period counts with its last value only.
    pub fn mean(&self) -> Ratio {
        let mean = match self {
            LossModel::None | LossModel::Schedule(_) => 0.0,
            LossModel::Independent(ratio) => mean_over_time(ratio),
            LossModel::Gilbert(gilbert) => gilbert.mean(),
            LossModel::Nth(nth) => 1.0 / (*nth).max(1) as f64,
            LossModel::Bursts { probability, length } => {
                // Burst plus the packets that pass until the next burst: (1 − p)/p on average.
                let lost = probability.get() * *length as f64;
                if lost > 0.0 { lost / (lost + 1.0 - probability.get()) } else { 0.0 }
            }
        };
        Ratio::new(mean.clamp(0.0, 1.0)).unwrap_or_default()
    }

    /// Refuses a model without effect, or one that would lose everything by mistake.
    pub fn check(&self) -> Result<(), LinkError> {
        match self {
            LossModel::None | LossModel::Independent(_) => Ok(()),
            LossModel::Gilbert(gilbert) => gilbert.check(),
            LossModel::Nth(nth) => {
                if *nth == 0 {
                    Err(LinkError::ZerothPacket)
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
                let end = |entry: &ScheduledLoss| match entry.extent {
                    LossExtent::Packets(_) => entry.start,
                    LossExtent::Duration(time) => entry.start.saturating_add(time),
                };
                let overlap = list.windows(2).find(|pair| pair[1].start < end(&pair[0]));
                overlap.map_or(Ok(()), |pair| Err(LinkError::ScheduleOrder(pair[1].start)))
            }
        }
    }
}

fn mean_over_time(ratio: &Timetable<Ratio>) -> f64 {
    let steps = ratio.steps();
    let Some(period) = ratio.period() else { return steps.last().map_or(0.0, |(_, last)| last.get()) };
    let ends = steps.iter().skip(1).map(|(at, _)| *at).chain([period]);
    let weighted = steps.iter().zip(ends).map(|((at, ratio), end)| ratio.get() * (end - *at).as_secs_f64());
    weighted.sum::<f64>() / period.as_secs_f64()
}

impl Gilbert {
    /// Creates Gilbert's own model: the bad state loses all packets and the good state none.
    pub fn simple(to_bad: Ratio, to_good: Ratio) -> Self {
        Gilbert { to_bad, to_good, pass_bad: Ratio::ZERO, pass_good: Ratio::ONE }
    }

    /// Creates the simple model that loses the share `loss` of all packets in bursts of `burst` packets on average.
    pub fn with_bursts(loss: Ratio, burst: f64) -> Result<Self, LinkError> {
        // r = 1/burst, and the share of the bad state p/(p + r) is the loss.
        let to_bad = loss.get() / (1.0 - loss.get()) / burst;
        match (Ratio::new(to_bad), Ratio::new(1.0 / burst)) {
            (Some(to_bad), Some(to_good)) => Ok(Gilbert::simple(to_bad, to_good)),
            _ => Err(LinkError::GilbertBurst { loss, burst: burst.to_string() }),
        }
    }

    /// Returns the arguments of [`with_bursts`](Self::with_bursts) if round numbers give the same model.
    pub(super) fn as_bursts(&self) -> Option<(Ratio, f64)> {
        const MAX_DIGITS: usize = 6;
        let (loss, burst) = (self.mean(), 1.0 / self.to_good.get());
        (1..=MAX_DIGITS).find_map(|digits| {
            let rounded = |value: f64| format!("{value:.*e}", digits - 1).parse::<f64>().ok();
            let (loss, burst) = (Ratio::new(rounded(loss)?)?, rounded(burst)?);
            (Gilbert::with_bursts(loss, burst).ok()? == *self).then_some((loss, burst))
        })
    }

    /// Returns the long-term share of lost packets.
    fn mean(&self) -> f64 {
        let bad = self.share_bad();
        bad * (1.0 - self.pass_bad.get()) + (1.0 - bad) * (1.0 - self.pass_good.get())
    }

    /// Returns the share of packets in the bad state.
    pub(super) fn share_bad(&self) -> f64 {
        let (p, r) = (self.to_bad.get(), self.to_good.get());
        if p > 0.0 { p / (p + r) } else { 0.0 }
    }

    fn check(&self) -> Result<(), LinkError> {
        let stays_bad = self.to_bad.get() > 0.0 && self.to_good.get() == 0.0;
        if stays_bad { Err(LinkError::GilbertStaysBad(self.to_bad)) } else { Ok(()) }
    }
}

impl_value!(LossModel, to_string);

impl Effects for LossModel {
    fn check(&self) -> Result<(), LinkError> {
        LossModel::check(self)
    }

    fn is_timed(&self) -> bool {
        match self {
            LossModel::Independent(ratio) => ratio.as_constant().is_none(),
            LossModel::Schedule(_) => true,
            LossModel::None | LossModel::Gilbert(_) | LossModel::Nth(_) | LossModel::Bursts { .. } => false,
        }
    }

    fn splits_per_packet(&self) -> f64 {
        self.mean().get()
    }
}
