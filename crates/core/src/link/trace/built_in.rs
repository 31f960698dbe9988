//! Traces that are built in: models with a fixed seed, so that each is the same on every machine and in every release.
//!
//! They are no recordings. Each says whose measurements its figures come from and which of them are estimates; a
//! recording of one's own is better, and a file away.

use std::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64;

use super::{Steps, Trace};
use crate::units::BitRate;

/// A trace that is built in.
pub struct BuiltIn {
    /// As it is asked for.
    pub name: &'static str,
    /// What it has timetables of, and for how long.
    pub title: &'static str,
    /// Where its figures come from.
    pub source: &'static str,
    steps: fn() -> Trace,
}

/// All of them.
pub const BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        name: "starlink-handovers",
        title: "one-way delay over a Starlink dish: eight satellites of 15 s each, handovers between them; 2 min",
        source: "handovers every 15 s, delays 30 to 50 ms longer at each, 6.7 ms between one RTT and the next: Huston, \
                 A transport protocol's view of Starlink, APNIC 2024. Least RTT 20 ms: Michel et al., A first look at \
                 Starlink performance, IMC 2022. How it differs from satellite to satellite, and 200 ms for a \
                 handover's delay, are estimates (peaks of 140 ms: arXiv 2601.08439)",
        steps: starlink,
    },
    BuiltIn {
        name: "lte-drive",
        title: "downlink rate of an LTE phone in a car, 0 to 25 Mb/s, dead spots among it; 2 min",
        source: "Brownian motion of 200 packets/s per root second, steps of 20 ms, dead spots of 1 s on average: the model \
                 and the constants of Winstein, Sivaraman and Balakrishnan, Stochastic forecasts achieve high throughput and low delay \
                 over cellular networks, NSDI 2013. The highest rate is an estimate: twice the median of Huang et al., \
                 A close examination of performance and power characteristics of 4G LTE networks, MobiSys 2012",
        steps: lte_drive,
    },
];

/// Of the draws that make a trace, ever the same.
fn generator(seed: u128) -> Pcg64 {
    Pcg64::new(seed, 0)
}

const STEP: Duration = Duration::from_millis(20);
const SLOT: Duration = Duration::from_secs(15);

/// Least RTT over each satellite, ms. Between 550 km straight up and 1,123 km at 25° a bent pipe there and back takes 7 to
/// 15 ms; the rest is the way to the Internet.
const LEAST_RTTS: [u64; 8] = [20, 25, 22, 28, 20, 24, 27, 22];

fn starlink() -> Trace {
    let mut generator = generator(15);
    // Two RTTs of two such draws each differ by 7/15 of it on average: 6.7 ms.
    const SPREAD: u64 = 14_400_000;
    const HANDOVER: Duration = Duration::from_millis(20);
    const HANDOVER_TIME: Duration = Duration::from_millis(200);
    let period = SLOT * LEAST_RTTS.len() as u32;
    let mut steps = Steps::new();
    let mut at = Duration::ZERO;
    while at < period {
        let slot = (at.as_nanos() / SLOT.as_nanos()) as usize % LEAST_RTTS.len();
        let least = Duration::from_millis(LEAST_RTTS[slot]) / 2;
        let spread = Duration::from_nanos(generator.random_range(0..SPREAD));
        let into = at - SLOT * slot as u32;
        let handover = if into < HANDOVER_TIME { HANDOVER } else { Duration::ZERO };
        steps.push(at, least + spread + handover);
        at += STEP;
    }
    Trace { delay: steps.finish(Some(period)).ok(), ..Trace::named("starlink-handovers") }
}

fn lte_drive() -> Trace {
    // Chosen among a hundred for a mean near the published median, 13 Mb/s, and a dead spot every 12 s.
    let mut generator = generator(11);
    const PERIOD: Duration = Duration::from_secs(120);
    /// Packets of 1,500 bytes a second.
    const MOST: f64 = 2083.0;
    const DRIFT: f64 = 200.0;
    let seconds = STEP.as_secs_f64();
    let mut rate = MOST / 2.0;
    let mut steps = Steps::new();
    let mut at = Duration::ZERO;
    while at < PERIOD {
        // Twelve uniform draws make a normal one near enough, and the same on every machine.
        let normal = (0..12).map(|_| generator.random::<f64>()).sum::<f64>() - 6.0;
        let leaves = generator.random::<f64>() < seconds;
        rate = match rate {
            0.0 if !leaves => 0.0,
            0.0 => DRIFT * seconds.sqrt(),
            _ => (rate + DRIFT * seconds.sqrt() * normal).clamp(0.0, MOST),
        };
        steps.push(at, BitRate((rate * 12_000.0).round() as u64));
        at += STEP;
    }
    Trace { rate: steps.finish(Some(PERIOD)).ok(), ..Trace::named("lte-drive") }
}

impl BuiltIn {
    /// The trace.
    pub fn make(&self) -> Trace {
        (self.steps)()
    }
}
