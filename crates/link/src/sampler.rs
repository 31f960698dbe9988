//! Random selection of virtual packets, each with the same independent probability.
//!
//! The number of virtual packets before the next selected one is geometric. It is drawn once and counted down. A
//! super-packet without a selected packet costs one subtraction, and super-packets and single packets use the same
//! draws.

use lfn_base::units::Ratio;
use rand::RngExt;
use rand_pcg::Pcg64;

use super::hop_context::HopContext;
use super::random::generator;

/// Selects virtual packets at random.
pub(super) struct PacketSampler {
    odds: Geometric,
    generator: Pcg64,
    gap: u64,
}

impl PacketSampler {
    /// Creates a sampler with its own generator, named `label`.
    pub(super) fn new(context: &HopContext, label: &str, probability: Ratio) -> Self {
        let mut sampler = PacketSampler { odds: Geometric::NEVER, generator: generator(context, label), gap: u64::MAX };
        sampler.set(probability);
        sampler
    }

    /// Sets another probability from now on. A gap that was drawn for the old probability is drawn again.
    pub(super) fn set(&mut self, probability: Ratio) {
        let odds = Geometric::new(probability.get());
        if odds != self.odds {
            self.odds = odds;
            self.gap = odds.draw(&mut self.generator);
        }
    }

    /// Returns the number of virtual packets before the next selected one; `max` if none of the next `max` is selected.
    pub(super) fn gap_up_to(&self, max: u32) -> u32 {
        u32::try_from(self.gap).map_or(max, |gap| gap.min(max))
    }

    /// Skips `count` virtual packets that are not selected; at max [`gap_up_to`](Self::gap_up_to) packets.
    pub(super) fn skip(&mut self, count: u32) {
        self.gap -= u64::from(count);
    }

    /// Consumes the selection of the next packet, which requires a gap of zero.
    pub(super) fn take_hit(&mut self) {
        debug_assert_eq!(self.gap, 0);
        self.gap = self.odds.draw(&mut self.generator);
    }

    /// Draws a random number for the selected packet.
    pub(super) fn random(&mut self) -> u64 {
        self.generator.random()
    }
}

/// Geometric distribution: the number of independent trials before the first event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Geometric {
    /// ln(1 − p): minus infinity for probability 1.
    log_survival: f64,
}

impl Geometric {
    pub(super) const NEVER: Geometric = Geometric { log_survival: 0.0 };

    /// Creates the distribution of a probability from 0 to 1.
    pub(super) fn new(probability: f64) -> Self {
        Geometric { log_survival: (-probability).ln_1p() }
    }

    /// Draws by inversion: P(n or more) = (1 − p)^n. Probabilities 0 and 1 consume no random number.
    pub(super) fn draw(&self, generator: &mut Pcg64) -> u64 {
        if self.log_survival == 0.0 {
            return u64::MAX;
        }
        if self.is_certain() {
            return 0;
        }
        // The range (0, 1] keeps the logarithm finite.
        let uniform = 1.0 - generator.random::<f64>();
        (uniform.ln() / self.log_survival) as u64
    }

    /// Reports whether the event happens in every trial.
    pub(super) fn is_certain(&self) -> bool {
        self.log_survival == f64::NEG_INFINITY
    }
}
