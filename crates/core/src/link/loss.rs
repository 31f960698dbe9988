//! Independent random loss.
//!
//! The number of virtual packets until the next loss is drawn once (it is geometric) and counted down, so a
//! super-packet in which no loss falls costs one subtraction, and super-packets and single packets see the same draws.

use std::collections::VecDeque;

use rand::RngExt;
use rand_pcg::Pcg64;

use super::{DropCause, Event, Packet, Stage};
use crate::time::Instant;
use crate::units::Ratio;

/// Loses each virtual packet with the same probability.
pub(super) struct Loss {
    /// ln(1 − p): minus infinity when everything is lost.
    log_survival: f64,
    generator: Pcg64,
    /// Virtual packets that pass before the next is lost.
    gap: u64,
    out: VecDeque<Event>,
}

impl Loss {
    pub(super) fn new(loss: Ratio, generator: Pcg64) -> Self {
        let mut stage = Loss { log_survival: (-loss.get()).ln_1p(), generator, gap: 0, out: VecDeque::new() };
        stage.gap = stage.draw();
        stage
    }

    /// Inversion: P(gap ≥ n) = (1 − p)^n.
    fn draw(&mut self) -> u64 {
        // From (0, 1], so that the logarithm is finite.
        let uniform = 1.0 - self.generator.random::<f64>();
        // Saturates: with p = 0 the gap is infinite (or 0/0 once in 2^53 draws, which a stage without loss never makes).
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
                self.out.push_back(Event::Forward { packet: packet.part(passed, pass), due: now });
                self.gap -= u64::from(pass);
                passed += pass;
            }
            if passed < packet.count {
                let lost = self.losses(packet.count - passed);
                self.out.push_back(Event::Drop { packet: packet.part(passed, lost), cause: DropCause::Loss, at: now });
                passed += lost;
            }
        }
    }

    fn pop(&mut self, now: Instant) -> Option<Event> {
        if self.out.front()?.at() <= now { self.out.pop_front() } else { None }
    }

    fn next(&self) -> Option<Instant> {
        self.out.front().map(Event::at)
    }
}
