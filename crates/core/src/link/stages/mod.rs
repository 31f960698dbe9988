//! The impairments, one file each: what it is set to, and the [`Stage`] that does it.
//!
//! Every hop has every stage, in the order below, most of them idle: so any setting can change while the link runs, and
//! an idle stage hands on at once what it is given. A stage draws from a generator of its own and knows nothing of the
//! others.

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

use bucket::{Police, Shape};
pub use bucket::{Policer, Shaper};
use corrupt::Corruption;
use delay::Delay;
use duplicate::Duplication;
pub use jitter::{Distribution, Jitter};
use loss::Loss;
pub use loss::{Gilbert, LossModel, Lost, Scheduled};
pub use mtu::PathMtu;
use mtu::TooBig;
use outage::Down;
pub use outage::{Outage, Outages};
pub(crate) use queue::packets;
pub use queue::{CoDel, Discipline, DisciplineError, FqCoDel, QueueLimit, Red};
use rate::Bottleneck;
pub use reorder::Reorder;
use reorder::Reordering;

use super::{LinkConfig, Stage};

/// How many stages a hop has.
pub(super) const STAGES: usize = 10;

/// The stages of one hop, in the order in which a packet meets them.
pub(super) fn stages(config: &LinkConfig) -> [Box<dyn Stage + Send>; STAGES] {
    [
        Box::new(TooBig::new(config)),
        Box::new(Down::new(config)),
        Box::new(Loss::new(config)),
        Box::new(Police::new(config)),
        Box::new(Shape::new(config)),
        Box::new(Bottleneck::new(config)),
        Box::new(Delay::new(config)),
        Box::new(Reordering::new(config)),
        Box::new(Duplication::new(config)),
        Box::new(Corruption::new(config)),
    ]
}
