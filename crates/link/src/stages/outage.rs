//! Outages: packets that arrive while the link is down are lost. Packets in flight continue.
//!
//! The times of outages depend only on the settings, the seed and the epoch, never on the traffic. They are the same in
//! both directions, because a broken cable breaks both directions.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{duration_argument, parse_unit_duration};
use rand::RngExt;
use rand_pcg::Pcg64;

use crate::error::LinkError;
use crate::hop_context::{HopContext, LinkDirection};
use crate::key::{Key, key};
use crate::outbox::Outbox;
use crate::packet::{DropCause, LinkEvent, Packet};
use crate::random::generator;
use crate::setting::{Parts, SettingError};
use crate::stage::{ImpairmentStage, Stage};
use crate::value::{Effects, impl_value};

pub(super) const KEY: Key = Key {
    words: &["every", "flap", "none"],
    ..key!(
        Loss,
        "outage",
        "TIMES",
        "every:15s:200ms",
        "Take the link down: at:10s:500ms, every:15s:200ms, flap:up=10s:down=1s",
        "Times at which no packet passes: `at:10s:500ms+30s:1s`, `every:15s:200ms` (the last 200 ms of each 15 s), \
         `flap:up=10s:down=1s` (random times with these means)."
    )
};

/// Times at which a link is down, since its epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outages {
    #[default]
    None,
    /// A list of outages, in order and without overlap.
    At(Vec<Outage>),
    /// The link is down for the last `down` of every `period`. It starts up. A satellite dish has such outages when it
    /// loses one satellite before it reaches the next.
    Periodic {
        /// Time from the end of one outage to the end of the next.
        period: Duration,
        /// Duration of each outage; shorter than the period.
        down: Duration,
    },
    /// The link starts up, then goes down and up for times drawn from exponential distributions.
    Flapping {
        /// Mean time up; at least 1 ms.
        up: Duration,
        /// Mean time down; at least 1 ms.
        down: Duration,
    },
}

/// Outage with a fixed start and duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Start since the epoch.
    pub start: Duration,
    pub duration: Duration,
}

const FORMS: &str = "at:10s:500ms, every:15s:200ms, flap:up=10s:down=500ms or none";

impl FromStr for Outages {
    type Err = SettingError;

    /// Reads `none`, `at:10s:500ms+20s:1s`, `every:15s:200ms` or `flap:up=10s:down=500ms`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let outages = if text == "none" {
            Outages::None
        } else if let Some(list) = text.strip_prefix("at:") {
            Outages::At(list.split('+').map(parse_outage).collect::<Result<_, _>>()?)
        } else if let Some(mut parts) = Parts::after_name(text, "every", "every:PERIOD:DOWN, such as every:15s:200ms") {
            let period = parts.next("the period", parse_unit_duration)?;
            let down = parts.next("the duration of an outage", parse_unit_duration)?;
            parts.finish()?;
            Outages::Periodic { period, down }
        } else if let Some(mut parts) =
            Parts::after_name(text, "flap", "flap:up=TIME:down=TIME, such as flap:up=10s:down=500ms")
        {
            let (up, down) =
                (parts.required_key("up", parse_unit_duration)?, parts.required_key("down", parse_unit_duration)?);
            parts.finish()?;
            Outages::Flapping { up, down }
        } else {
            return Err(SettingError::Unknown { text: text.to_owned(), setting: "an outage", forms: FORMS });
        };
        outages.check()?;
        Ok(outages)
    }
}

fn parse_outage(text: &str) -> Result<Outage, SettingError> {
    let mut parts = Parts::split(text, "at:TIME:DOWN, several joined with +, such as at:10s:500ms+20s:1s");
    let at = parts.next("the start time", parse_unit_duration)?;
    let lasts = parts.next("the duration", parse_unit_duration)?;
    parts.finish()?;
    Ok(Outage { start: at, duration: lasts })
}

impl fmt::Display for Outages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let typed = |duration: &Duration| duration_argument(*duration);
        match self {
            Outages::None => f.write_str("none"),
            Outages::At(list) => {
                let each = |outage: &Outage| format!("{}:{}", typed(&outage.start), typed(&outage.duration));
                write!(f, "at:{}", list.iter().map(each).collect::<Vec<_>>().join("+"))
            }
            Outages::Periodic { period, down } => write!(f, "every:{}:{}", typed(period), typed(down)),
            Outages::Flapping { up, down } => write!(f, "flap:up={}:down={}", typed(up), typed(down)),
        }
    }
}

impl Outages {
    /// Refuses outages that overlap, never end or change too fast.
    pub fn check(&self) -> Result<(), LinkError> {
        match self {
            Outages::None => Ok(()),
            Outages::At(list) => {
                let overlap =
                    list.windows(2).find(|pair| pair[0].start.saturating_add(pair[0].duration) > pair[1].start);
                overlap.map_or(Ok(()), |pair| Err(LinkError::ScheduleOrder(pair[1].start)))
            }
            &Outages::Periodic { period, down } if down >= period => Err(LinkError::NeverUp { period, down }),
            Outages::Periodic { .. } => Ok(()),
            Outages::Flapping { up, down } => match up.min(down) {
                mean if *mean < MIN_MEAN => Err(LinkError::FlapsTooFast(*mean)),
                _ => Ok(()),
            },
        }
    }
}

impl_value!(Outages, to_string);

impl Effects for Outages {
    fn check(&self) -> Result<(), LinkError> {
        Outages::check(self)
    }

    fn is_timed(&self) -> bool {
        *self != Outages::None
    }
}

/// Shorter times would take longer to draw than to pass.
const MIN_MEAN: Duration = Duration::from_millis(1);

/// Drops packets that arrive while the link is down.
pub(super) struct OutageStage {
    outages: Outages,
    epoch: Instant,
    flapping: Flapping,
    out: Outbox,
}

impl OutageStage {
    fn is_down(&mut self, now: Instant) -> bool {
        let since = now.saturating_since(self.epoch);
        match &self.outages {
            Outages::None => false,
            Outages::At(list) => {
                let begun = list.partition_point(|outage| outage.start <= since);
                list[..begun].last().is_some_and(|outage| since - outage.start < outage.duration)
            }
            Outages::Periodic { period, down } => {
                let phase = since.as_nanos() % period.as_nanos().max(1);
                phase >= (*period - *down).as_nanos()
            }
            Outages::Flapping { up, down } => self.flapping.is_down(since, *up, *down),
        }
    }
}

impl Stage for OutageStage {
    fn push(&mut self, packet: Packet, now: Instant) {
        if self.is_down(now) {
            self.out.drop(packet, DropCause::Outage, now);
        } else {
            self.out.forward(packet, now);
        }
    }

    fn pop(&mut self, now: Instant) -> Option<LinkEvent> {
        self.out.pop(now)
    }

    fn next_event_at(&self) -> Option<Instant> {
        self.out.next_event_at()
    }
}

impl ImpairmentStage for OutageStage {
    type Settings = Outages;

    fn new(settings: Outages, context: &HopContext) -> Self {
        OutageStage {
            flapping: Flapping::new(context),
            outages: settings,
            epoch: context.epoch,
            out: Outbox::default(),
        }
    }

    fn set(&mut self, settings: Outages, context: &HopContext, _now: Instant) {
        if (&self.outages, self.epoch) != (&settings, context.epoch) {
            let out = std::mem::take(&mut self.out);
            *self = OutageStage { out, ..OutageStage::new(settings, context) };
        }
    }
}

/// Times up and down, drawn one after the other from the start of an era. An era is the mean length of
/// [`CYCLES`](Self::CYCLES) cycles. The number of the era selects the position in the generator's sequence. Every
/// caller therefore finds the same state, even after a long pause.
struct Flapping {
    /// Generator before the first draw.
    origin: Pcg64,
    generator: Pcg64,
    is_down: bool,
    /// End of the present state, since the epoch; zero before the first draw.
    state_ends: Duration,
    /// End of the present era, since the epoch; zero before the first era.
    era_ends: Duration,
}

impl Flapping {
    /// Cycles of an era. They can be drawn between two packets, and the cut at the end of an era does not show in the
    /// statistics.
    const CYCLES: u32 = 10_000;
    /// Distance from the draws of one era to the draws of the next. The number exceeds the draws of any era and is odd,
    /// so the low bits of the generator's state differ too (golden ratio, as in SplitMix64).
    const STRIDE: u128 = 0x9e37_79b9_7f4a_7c15;

    fn new(context: &HopContext) -> Self {
        let both_ways = HopContext { direction: LinkDirection::Forward, ..*context };
        let origin = generator(&both_ways, "outage");
        let (ends, era_ends) = (Duration::ZERO, Duration::ZERO);
        Flapping { generator: origin.clone(), origin, is_down: true, state_ends: ends, era_ends }
    }

    fn is_down(&mut self, since: Duration, up: Duration, down: Duration) -> bool {
        let mean = |is_down: bool| if is_down { down } else { up };
        if since >= self.era_ends {
            self.begin_era(since, up, down);
        }
        while self.state_ends <= since {
            self.is_down = !self.is_down;
            self.state_ends = self.state_ends.saturating_add(self.draw_exponential(mean(self.is_down)));
        }
        self.is_down
    }

    /// Starts the era that contains `since`. Exponential times have no memory: the rest of a time has the same
    /// distribution as the whole.
    fn begin_era(&mut self, since: Duration, up: Duration, down: Duration) {
        let length = up.saturating_add(down).saturating_mul(Self::CYCLES);
        let number = since.as_nanos() / length.as_nanos().max(1);
        self.generator = self.origin.clone();
        self.generator.advance(number.wrapping_mul(Self::STRIDE));
        self.state_ends = length.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX));
        self.era_ends = self.state_ends.saturating_add(length);
        // The state before the era is the opposite of the first state in the era. The link begins up.
        let share = down.as_secs_f64() / (up.as_secs_f64() + down.as_secs_f64());
        self.is_down = number == 0 || self.generator.random::<f64>() >= share;
    }

    /// Draws from the exponential distribution by inversion.
    fn draw_exponential(&mut self, mean: Duration) -> Duration {
        let uniform = 1.0 - self.generator.random::<f64>();
        let nanos = -uniform.ln() * mean.as_nanos() as f64;
        // A time of zero would loop for ever.
        Duration::from_nanos((nanos as u64).max(1))
    }
}
