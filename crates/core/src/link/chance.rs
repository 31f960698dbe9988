//! What befalls each virtual packet with the same probability, independently: drawn as the gap to the next one.
//!
//! The number of virtual packets until the next is geometric, so it is drawn once and counted down: a super-packet in
//! which nothing falls costs one subtraction, and super-packets and single packets see the same draws.

use rand::RngExt;
use rand_pcg::Pcg64;

use super::LinkConfig;
use super::random::generator;
use crate::units::Ratio;

/// Where the next one falls.
pub(super) struct Chance {
    /// ln(1 − p): minus infinity when it befalls every packet, zero when none.
    log_survival: f64,
    generator: Pcg64,
    gap: u64,
}

impl Chance {
    /// With a generator of its own, named `label`.
    pub(super) fn new(config: &LinkConfig, label: &str, probability: Ratio) -> Self {
        let mut chance = Chance { log_survival: 0.0, generator: generator(config, label), gap: u64::MAX };
        chance.set(probability);
        chance
    }

    /// Another probability from now on: a gap begun at the old one is drawn anew.
    pub(super) fn set(&mut self, probability: Ratio) {
        let log_survival = (-probability.get()).ln_1p();
        if log_survival != self.log_survival {
            self.log_survival = log_survival;
            self.gap = self.draw();
        }
    }

    /// How many of the next `most` virtual packets come before the next it befalls: `most` if it befalls none of them.
    pub(super) fn gap(&self, most: u32) -> u32 {
        u32::try_from(self.gap).map_or(most, |gap| gap.min(most))
    }

    /// So many go by that it does not befall; no more than [`gap`](Self::gap) says.
    pub(super) fn pass(&mut self, count: u32) {
        self.gap -= u64::from(count);
    }

    /// It befalls the next one: a gap of zero is over.
    pub(super) fn strike(&mut self) {
        debug_assert_eq!(self.gap, 0);
        self.gap = self.draw();
    }

    /// A number that belongs to the packet struck, to tell it from others.
    pub(super) fn number(&mut self) -> u64 {
        self.generator.random()
    }

    /// Inversion: P(gap ≥ n) = (1 − p)^n.
    fn draw(&mut self) -> u64 {
        if self.log_survival == 0.0 {
            return u64::MAX;
        }
        // From (0, 1], so that the logarithm is finite.
        let uniform = 1.0 - self.generator.random::<f64>();
        (uniform.ln() / self.log_survival) as u64
    }
}
