//! Loss: independent, in bursts, by count or by schedule.
//!
//! No model draws once per packet. Each model draws how many virtual packets pass before the next loss and how many are
//! then lost (both geometric for random models), and counts down. A super-packet without a loss costs one subtraction,
//! and super-packets and single packets use the same draws.

mod model;
mod pattern;
mod text;

use lfn_base::time::Instant;
pub use model::{Gilbert, LossExtent, LossModel, ScheduledLoss};
use rand_pcg::Pcg64;

use super::ranges::split_by_outcome;
use crate::hop_context::HopContext;
use crate::key::{Key, key};
use crate::outbox::Outbox;
use crate::packet::{DropCause, LinkEvent, Packet};
use crate::random::generator;
use crate::stage::{ImpairmentStage, Stage};
use pattern::Pattern;

pub(super) const KEY: Key = Key {
    words: &["gilbert", "burst", "nth", "steps", "none"],
    ..key!(
        Loss,
        "loss",
        "MODEL",
        "1e-4",
        "Lose packets: 1e-4 or 0.01% at random, gilbert:loss=1%:burst=4, nth:100, burst:1e-4:10, at:10s:3",
        "`1e-4` or `0.01%`: independent loss. `gilbert:loss=1%:burst=4`: share, and mean length of bursts; or \
         `gilbert:p=…:r=…:h=…:k=…` like netem's `gemodel`. `nth:100`: every 100th packet. `burst:1e-4:10`: bursts of \
         10 packets, each of which starts with this probability. `at:10s:3+20s:500ms`: 3 packets at 10 s, and all \
         packets for 500 ms at 20 s. `steps:0s=0+10s=1%:every=15s`: steps over time."
    )
};

/// Drops packets as the loss model decides.
pub(super) struct LossStage {
    model: LossModel,
    epoch: Instant,
    pattern: Pattern,
    generator: Pcg64,
    out: Outbox,
}

impl Stage for LossStage {
    fn push(&mut self, packet: Packet, now: Instant) {
        let LossStage { pattern, generator, out, .. } = self;
        pattern.advance_to(now, generator);
        let emit = |is_lost, packet| {
            if is_lost { out.drop(packet, DropCause::Loss, now) } else { out.forward(packet, now) }
        };
        split_by_outcome(packet, |max| pattern.next_run(max, generator), emit);
    }

    fn pop(&mut self, now: Instant) -> Option<LinkEvent> {
        self.out.pop(now)
    }

    fn next_event_at(&self) -> Option<Instant> {
        self.out.next_event_at()
    }
}

impl ImpairmentStage for LossStage {
    type Settings = LossModel;

    fn new(settings: LossModel, context: &HopContext) -> Self {
        let mut generator = generator(context, "loss");
        let pattern = Pattern::new(&settings, context.epoch, context.epoch, &mut generator);
        LossStage { model: settings, epoch: context.epoch, pattern, generator, out: Outbox::default() }
    }

    /// Starts a changed model from the beginning. Scheduled entries before `now` are in the past.
    fn set(&mut self, settings: LossModel, context: &HopContext, now: Instant) {
        if (&self.model, self.epoch) != (&settings, context.epoch) {
            self.pattern = Pattern::new(&settings, context.epoch, now, &mut self.generator);
            self.model = settings;
            self.epoch = context.epoch;
        }
    }
}
