//! Independent random loss.
//!
//! The number of virtual packets until the next loss is drawn once (it is geometric) and counted down, so a
//! super-packet in which no loss falls costs one subtraction, and super-packets and single packets see the same draws.

use rand::RngExt;
use rand_pcg::Pcg64;

use crate::link::outbox::Outbox;
use crate::link::random::generator;
use crate::link::{DropCause, Event, LinkConfig, Packet, Stage};
use crate::time::Instant;

/// Loses each virtual packet with the same probability.
pub(super) struct Loss {
    /// ln(1 − p): minus infinity when everything is lost.
    log_survival: f64,
    generator: Pcg64,
    /// Virtual packets that pass before the next is lost.
    gap: u64,
    out: Outbox,
}

impl Loss {
    pub(super) fn new(config: &LinkConfig) -> Self {
        let mut stage =
            Loss { log_survival: 0.0, generator: generator(config, "loss"), gap: u64::MAX, out: Outbox::default() };
        stage.set(config, config.epoch);
        stage
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

    /// How many virtual packets of the next `most` are lost in a row, given that the first is.
    fn losses(&mut self, most: u32) -> u32 {
        for lost in 1..=most {
            self.gap = self.draw();
            if self.gap > 0 {
                return lost;
            }
        }
        most
    }
}

impl Stage for Loss {
    fn push(&mut self, packet: Packet, now: Instant) {
        let mut passed = 0;
        while passed < packet.count {
            let left = packet.count - passed;
            let pass = u32::try_from(self.gap).map_or(left, |gap| gap.min(left));
            if pass > 0 {
                self.out.forward(packet.part(passed, pass), now);
                self.gap -= u64::from(pass);
                passed += pass;
            }
            if passed < packet.count {
                let lost = self.losses(packet.count - passed);
                self.out.drop(packet.part(passed, lost), DropCause::Loss, now);
                passed += lost;
            }
        }
    }

    fn pop(&mut self, now: Instant) -> Option<Event> {
        self.out.pop(now)
    }

    fn next(&self) -> Option<Instant> {
        self.out.next()
    }

    fn set(&mut self, config: &LinkConfig, _now: Instant) {
        let log_survival = (-config.loss.get()).ln_1p();
        if log_survival != self.log_survival {
            self.log_survival = log_survival;
            self.gap = self.draw();
        }
    }
}
