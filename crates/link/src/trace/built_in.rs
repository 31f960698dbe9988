//! Built-in traces: models with a fixed seed, equal on every machine and in every release.
//!
//! They are not recordings. The source of each trace names the measurements behind its figures and marks the estimates.
//! Your own recording in a file is more accurate.

use std::time::Duration;

use lfn_base::units::BitRate;
use rand::RngExt;
use rand_pcg::Pcg64;

use super::link_trace::LinkTrace;
use super::steps::StepList;

/// Trace that is built in.
pub struct BuiltInTrace {
    pub name: &'static str,
    pub title: &'static str,
    /// Source of the figures.
    pub source: &'static str,
    steps: fn() -> LinkTrace,
}

/// All traces that are built in.
pub const BUILT_IN: &[BuiltInTrace] = &[
    BuiltInTrace {
        name: "starlink-handovers",
        title: "one-way delay over a Starlink dish: eight satellites of 15 s each, with handovers between them; 2 min",
        source: "handovers every 15 s, delays 30 to 50 ms longer at each, 6.7 ms between one RTT and the next: Huston, \
                 A transport protocol's view of Starlink, APNIC 2024. Minimum RTT 20 ms: Michel et al., A first look at \
                 Starlink performance, IMC 2022. How it differs from satellite to satellite, and 200 ms for a \
                 handover's delay, are estimates (peaks of 140 ms: arXiv 2601.08439)",
        steps: starlink,
    },
    BuiltInTrace {
        name: "lte-drive",
        title: "downlink rate of an LTE phone in a car, 0 to 25 Mb/s, with dead spots; 2 min",
        source: "Brownian motion of 200 packets/s per root second, steps of 20 ms, dead spots of 1 s on average: the model \
                 and the constants of Winstein, Sivaraman and Balakrishnan, Stochastic forecasts achieve high throughput and low delay \
                 over cellular networks, NSDI 2013. The maximum rate is an estimate: twice the median of Huang et al., \
                 A close examination of performance and power characteristics of 4G LTE networks, MobiSys 2012",
        steps: lte_drive,
    },
];

/// Returns the generator of a trace, always with the same draws.
fn generator(seed: u128) -> Pcg64 {
    Pcg64::new(seed, 0)
}

const STEP: Duration = Duration::from_millis(20);
const SLOT: Duration = Duration::from_secs(15);

/// Minimum RTT of each satellite, ms. From 550 km overhead to 1,123 km at 25°, a bent pipe in both directions takes 7
/// to 15 ms. The rest is the route to the Internet.
const MIN_RTTS: [u64; 8] = [20, 25, 22, 28, 20, 24, 27, 22];

fn starlink() -> LinkTrace {
    let mut generator = generator(15);
    // Two RTTs of two such draws differ by 7/15 of the spread on average: 6.7 ms.
    const SPREAD: u64 = 14_400_000;
    const HANDOVER: Duration = Duration::from_millis(20);
    const HANDOVER_TIME: Duration = Duration::from_millis(200);
    let period = SLOT * MIN_RTTS.len() as u32;
    let mut steps = StepList::new();
    let mut at = Duration::ZERO;
    while at < period {
        let slot = (at.as_nanos() / SLOT.as_nanos()) as usize % MIN_RTTS.len();
        let min_delay = Duration::from_millis(MIN_RTTS[slot]) / 2;
        let spread = Duration::from_nanos(generator.random_range(0..SPREAD));
        let into = at - SLOT * slot as u32;
        let handover = if into < HANDOVER_TIME { HANDOVER } else { Duration::ZERO };
        steps.push(at, min_delay + spread + handover);
        at += STEP;
    }
    LinkTrace { delay: steps.finish(Some(period)).ok(), ..LinkTrace::unloaded("starlink-handovers") }
}

fn lte_drive() -> LinkTrace {
    // This seed, one of a hundred, gives a mean near the published median of 13 Mb/s and a dead spot every 12 s.
    let mut generator = generator(11);
    const PERIOD: Duration = Duration::from_secs(120);
    /// Packets of 1,500 bytes per second.
    const MAX: f64 = 2083.0;
    const DRIFT: f64 = 200.0;
    let seconds = STEP.as_secs_f64();
    let mut rate = MAX / 2.0;
    let mut steps = StepList::new();
    let mut at = Duration::ZERO;
    while at < PERIOD {
        // The sum of twelve uniform draws is close to a normal draw and equal on every machine.
        let normal = (0..12).map(|_| generator.random::<f64>()).sum::<f64>() - 6.0;
        let leaves = generator.random::<f64>() < seconds;
        rate = match rate {
            0.0 if !leaves => 0.0,
            0.0 => DRIFT * seconds.sqrt(),
            _ => (rate + DRIFT * seconds.sqrt() * normal).clamp(0.0, MAX),
        };
        steps.push(at, BitRate((rate * 12_000.0).round() as u64));
        at += STEP;
    }
    LinkTrace { rate: steps.finish(Some(PERIOD)).ok(), ..LinkTrace::unloaded("lte-drive") }
}

impl BuiltInTrace {
    /// Computes the timetable of the trace.
    pub fn load(&self) -> LinkTrace {
        (self.steps)()
    }
}
