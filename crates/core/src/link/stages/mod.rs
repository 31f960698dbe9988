//! The impairments. Each file has the settings of one impairment and the [`Stage`] that applies them.
//!
//! Every hop has every stage in the order below, and most stages are idle. Any setting can therefore change while the
//! link runs, and an idle stage passes packets on immediately. Each stage draws from its own generator and knows
//! nothing about the others.

mod bucket;
mod corrupt;
mod delay;
mod duplicate;
mod jitter;
mod line;
mod loss;
mod mtu;
mod outage;
mod queue;
mod ranges;
mod rate;
mod reorder;

pub use bucket::{Policer, Shaper};
use bucket::{PolicerStage, ShaperStage};
use corrupt::CorruptStage;
use delay::DelayStage;
use duplicate::DuplicateStage;
pub use jitter::{JitterDistribution, LinkJitter};
use loss::LossStage;
pub use loss::{Gilbert, LossExtent, LossModel, ScheduledLoss};
use mtu::MtuStage;
pub use mtu::PathMtu;
use outage::OutageStage;
pub use outage::{Outage, Outages};
pub(crate) use queue::parse_packets;
pub use queue::{CoDel, Discipline, DisciplineError, FqCoDel, QueueLimit, Red};
use rate::RateStage;
pub use reorder::Reorder;
use reorder::ReorderStage;

use super::{LinkConfig, Stage};

pub(super) const STAGES_PER_HOP: usize = 10;

/// Creates the stages of one hop, in the order in which a packet meets them.
pub(super) fn hop_stages(config: &LinkConfig) -> [Box<dyn Stage + Send>; STAGES_PER_HOP] {
    [
        Box::new(MtuStage::new(config)),
        Box::new(OutageStage::new(config)),
        Box::new(LossStage::new(config)),
        Box::new(PolicerStage::new(config)),
        Box::new(ShaperStage::new(config)),
        Box::new(RateStage::new(config)),
        Box::new(DelayStage::new(config)),
        Box::new(ReorderStage::new(config)),
        Box::new(DuplicateStage::new(config)),
        Box::new(CorruptStage::new(config)),
    ]
}
