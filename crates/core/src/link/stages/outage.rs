//! Outages: while the link is down, what arrives is lost. What is on its way already goes on.
//!
//! When the link is down is a function of the settings, the seed and the epoch, never of the traffic, and the same in
//! both directions: a cable that is out is out both ways.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64;

use crate::link::outbox::Outbox;
use crate::link::random::generator;
use crate::link::setting::{Parts, SettingError};
use crate::link::{Direction, DropCause, Event, LinkConfig, LinkError, Packet, Stage};
use crate::time::Instant;
use crate::units::{parse_unit_duration, typed_duration};

/// When a link is down, since its epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outages {
    /// Never.
    #[default]
    None,
    /// At these times, in order and apart.
    At(Vec<Outage>),
    /// For the last `down` of every `period`: up at first, and up again when the next period begins, as a dish is that
    /// loses one satellite before it has the next.
    Every {
        /// From the end of one outage to the end of the next.
        period: Duration,
        /// How long each lasts; shorter than the period.
        down: Duration,
    },
    /// Up at first, then down and up by turns for times drawn from exponential distributions.
    Flapping {
        /// Mean time up; at least 1 ms.
        up: Duration,
        /// Mean time down; at least 1 ms.
        down: Duration,
    },
}

/// One outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When it begins, since the epoch.
    pub at: Duration,
    /// How long it lasts.
    pub lasts: Duration,
}

const FORMS: &str = "at:10s:500ms, every:15s:200ms, flap:up=10s:down=500ms or none";

impl FromStr for Outages {
    type Err = SettingError;

    /// `none`, `at:10s:500ms+20s:1s`, `every:15s:200ms`, `flap:up=10s:down=500ms`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let outages = if text == "none" {
            Outages::None
        } else if let Some(list) = text.strip_prefix("at:") {
            Outages::At(list.split('+').map(outage).collect::<Result<_, _>>()?)
        } else if let Some(mut parts) = Parts::of(text, "every", "every:PERIOD:DOWN, such as every:15s:200ms") {
            let period = parts.next("the period", parse_unit_duration)?;
            let down = parts.next("how long the link is down", parse_unit_duration)?;
            parts.end()?;
            Outages::Every { period, down }
        } else if let Some(mut parts) =
            Parts::of(text, "flap", "flap:up=TIME:down=TIME, such as flap:up=10s:down=500ms")
        {
            let (up, down) =
                (parts.wanted_key("up", parse_unit_duration)?, parts.wanted_key("down", parse_unit_duration)?);
            parts.end()?;
            Outages::Flapping { up, down }
        } else {
            return Err(SettingError::Unknown { text: text.to_owned(), setting: "an outage", forms: FORMS });
        };
        outages.check()?;
        Ok(outages)
    }
}

fn outage(text: &str) -> Result<Outage, SettingError> {
    let mut parts = Parts::all(text, "at:TIME:DOWN, several joined with +, such as at:10s:500ms+20s:1s");
    let at = parts.next("when it begins", parse_unit_duration)?;
    let lasts = parts.next("how long it lasts", parse_unit_duration)?;
    parts.end()?;
    Ok(Outage { at, lasts })
}

impl fmt::Display for Outages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let typed = |duration: &Duration| typed_duration(*duration);
        match self {
            Outages::None => f.write_str("none"),
            Outages::At(list) => {
                let each = |outage: &Outage| format!("{}:{}", typed(&outage.at), typed(&outage.lasts));
                write!(f, "at:{}", list.iter().map(each).collect::<Vec<_>>().join("+"))
            }
            Outages::Every { period, down } => write!(f, "every:{}:{}", typed(period), typed(down)),
            Outages::Flapping { up, down } => write!(f, "flap:up={}:down={}", typed(up), typed(down)),
        }
    }
}

impl Outages {
    /// Refuses what contradicts itself.
    pub fn check(&self) -> Result<(), LinkError> {
        match self {
            Outages::None => Ok(()),
            Outages::At(list) => {
                let overlap = list.windows(2).find(|pair| pair[0].at.saturating_add(pair[0].lasts) > pair[1].at);
                overlap.map_or(Ok(()), |pair| Err(LinkError::ScheduleOrder(pair[1].at)))
            }
            &Outages::Every { period, down } if down >= period => Err(LinkError::NeverUp { period, down }),
            Outages::Every { .. } => Ok(()),
            Outages::Flapping { up, down } => match up.min(down) {
                mean if *mean < LEAST_MEAN => Err(LinkError::FlapsTooFast(*mean)),
                _ => Ok(()),
            },
        }
    }
}

/// Shorter ones would take longer to draw than they last.
const LEAST_MEAN: Duration = Duration::from_millis(1);

/// Drops what arrives while the link is down.
pub(super) struct Down {
    outages: Outages,
    epoch: Instant,
    flapping: Flapping,
    out: Outbox,
}

impl Down {
    pub(super) fn new(config: &LinkConfig) -> Self {
        Down {
            outages: config.outage.clone(),
            epoch: config.epoch,
            flapping: Flapping::new(config),
            out: Outbox::default(),
        }
    }

    fn is_down(&mut self, now: Instant) -> bool {
        let since = now.saturating_since(self.epoch);
        match &self.outages {
            Outages::None => false,
            Outages::At(list) => {
                let begun = list.partition_point(|outage| outage.at <= since);
                list[..begun].last().is_some_and(|outage| since - outage.at < outage.lasts)
            }
            Outages::Every { period, down } => {
                let phase = since.as_nanos() % period.as_nanos().max(1);
                phase >= (*period - *down).as_nanos()
            }
            Outages::Flapping { up, down } => self.flapping.is_down(since, *up, *down),
        }
    }
}

impl Stage for Down {
    fn push(&mut self, packet: Packet, now: Instant) {
        if self.is_down(now) {
            self.out.drop(packet, DropCause::Outage, now);
        } else {
            self.out.forward(packet, now);
        }
    }

    fn pop(&mut self, now: Instant) -> Option<Event> {
        self.out.pop(now)
    }

    fn next(&self) -> Option<Instant> {
        self.out.next()
    }

    fn set(&mut self, config: &LinkConfig, _now: Instant) {
        if (&self.outages, self.epoch) != (&config.outage, config.epoch) {
            let out = std::mem::take(&mut self.out);
            *self = Down { out, ..Down::new(config) };
        }
    }
}

/// Times up and down, drawn one after the other from the beginning of an era on. An era is as long as so many cycles are
/// in the mean, and where in the generator's sequence its draws begin goes by its number: so whoever looks finds the same
/// state, also who has not looked for long.
struct Flapping {
    /// As it is before the first draw of all.
    origin: Pcg64,
    generator: Pcg64,
    is_down: bool,
    /// When this state ends, since the epoch; zero before the first is drawn.
    ends: Duration,
    /// When this era ends, since the epoch; zero before the first.
    era_ends: Duration,
}

impl Flapping {
    /// Cycles in an era: few enough to be drawn between two packets, and so many that what is cut off at the end of an
    /// era does not show in the statistics.
    const CYCLES: u32 = 10_000;
    /// From the draws of one era to those of the next: more than any needs, and odd, so that the low bits of the
    /// generator's state differ as well (the golden ratio, as in SplitMix64).
    const STRIDE: u128 = 0x9e37_79b9_7f4a_7c15;

    fn new(config: &LinkConfig) -> Self {
        let both_ways = LinkConfig { direction: Direction::Forward, ..config.clone() };
        let origin = generator(&both_ways, "outage");
        let (ends, era_ends) = (Duration::ZERO, Duration::ZERO);
        Flapping { generator: origin.clone(), origin, is_down: true, ends, era_ends }
    }

    fn is_down(&mut self, since: Duration, up: Duration, down: Duration) -> bool {
        let mean = |is_down: bool| if is_down { down } else { up };
        if since >= self.era_ends {
            self.begin_era(since, up, down);
        }
        while self.ends <= since {
            self.is_down = !self.is_down;
            self.ends = self.ends.saturating_add(self.draw(mean(self.is_down)));
        }
        self.is_down
    }

    /// Goes to the beginning of the era that `since` is in. These times have no memory: what is left of one is
    /// distributed as the whole.
    fn begin_era(&mut self, since: Duration, up: Duration, down: Duration) {
        let length = up.saturating_add(down).saturating_mul(Self::CYCLES);
        let number = since.as_nanos() / length.as_nanos().max(1);
        self.generator = self.origin.clone();
        self.generator.advance(number.wrapping_mul(Self::STRIDE));
        self.ends = length.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX));
        self.era_ends = self.ends.saturating_add(length);
        // The state that ends as the era begins: the other than it begins with. The link begins up.
        let share = down.as_secs_f64() / (up.as_secs_f64() + down.as_secs_f64());
        self.is_down = number == 0 || self.generator.random::<f64>() >= share;
    }

    /// From the exponential distribution, by inversion.
    fn draw(&mut self, mean: Duration) -> Duration {
        let uniform = 1.0 - self.generator.random::<f64>();
        let nanos = -uniform.ln() * mean.as_nanos() as f64;
        // Not for ever in one instant.
        Duration::from_nanos((nanos as u64).max(1))
    }
}
