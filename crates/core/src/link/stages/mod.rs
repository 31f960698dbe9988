//! The impairments, one file each: what it is set to, and the [`Stage`] that does it.
//!
//! Every hop has every stage, in the order below, most of them idle: so any setting can change while the link runs, and
//! an idle stage hands on at once what it is given. A stage draws from a generator of its own and knows nothing of the
//! others.

mod delay;
mod loss;
mod queue;
mod rate;

use delay::Delay;
use loss::Loss;
use rate::Bottleneck;

use super::{LinkConfig, Stage};

/// How many stages a hop has.
pub(super) const STAGES: usize = 3;

/// The stages of one hop, in the order in which a packet meets them.
pub(super) fn stages(config: &LinkConfig) -> [Box<dyn Stage + Send>; STAGES] {
    [Box::new(Loss::new(config)), Box::new(Bottleneck::new(config)), Box::new(Delay::new(config))]
}
