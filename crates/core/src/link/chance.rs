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
    odds: Geometric,
    generator: Pcg64,
    gap: u64,
}

impl Chance {
    /// With a generator of its own, named `label`.
    pub(super) fn new(config: &LinkConfig, label: &str, probability: Ratio) -> Self {
        let mut chance = Chance { odds: Geometric::NEVER, generator: generator(config, label), gap: u64::MAX };
        chance.set(probability);
        chance
    }

    /// Another probability from now on: a gap begun at the old one is drawn anew.
    pub(super) fn set(&mut self, probability: Ratio) {
        let odds = Geometric::new(probability.get());
        if odds != self.odds {
            self.odds = odds;
            self.gap = odds.draw(&mut self.generator);
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
        self.gap = self.odds.draw(&mut self.generator);
    }

    /// A number that belongs to the packet struck, to tell it from others.
    pub(super) fn number(&mut self) -> u64 {
        self.generator.random()
    }
}

/// How many times in a row something does not happen that happens each time with the same probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Geometric {
    /// ln(1 − p): minus infinity if it always happens.
    log_survival: f64,
}

impl Geometric {
    /// Does not happen.
    pub(super) const NEVER: Geometric = Geometric { log_survival: 0.0 };

    /// Happens with this probability, from 0 to 1.
    pub(super) fn new(probability: f64) -> Self {
        Geometric { log_survival: (-probability).ln_1p() }
    }

    /// By inversion: P(n or more) = (1 − p)^n. Nothing is drawn where there is nothing to decide.
    pub(super) fn draw(&self, generator: &mut Pcg64) -> u64 {
        if self.log_survival == 0.0 {
            return u64::MAX;
        }
        if self.is_certain() {
            return 0;
        }
        // From (0, 1], so that the logarithm is finite.
        let uniform = 1.0 - generator.random::<f64>();
        (uniform.ln() / self.log_survival) as u64
    }

    /// True if it happens every time.
    pub(super) fn is_certain(&self) -> bool {
        self.log_survival == f64::NEG_INFINITY
    }
}
