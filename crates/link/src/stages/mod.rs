//! The impairments: this file lists them, and each has its own file.
//!
//! The file of an impairment has its settings with parser and check, the [`Key`] with the help text, and the
//! [`ImpairmentStage`] that applies the settings. A new impairment needs such a file and, in this file, a module, a field
//! of [`LinkConfig`] with a default that has no effect, a row of [`IMPAIRMENTS`] and a row of [`hop_stages`]. Flags,
//! profiles, changes of a running link, help and hints follow from the row.
//!
//! Every hop has every stage in the order of [`hop_stages`], and most stages are idle. Any setting can therefore change
//! while the link runs, and an idle stage passes packets on immediately. Each stage draws from its own generator and
//! knows nothing about the others.

mod bucket;
mod corrupt;
mod delay;
mod duplicate;
mod jitter;
mod line;
mod loss;
mod mtu;
mod outage;
mod queue;
mod ranges;
mod rate;
mod reorder;

pub use bucket::{Policer, Shaper};
use bucket::{PolicerStage, ShaperStage};
use corrupt::{CorruptSettings, CorruptStage};
pub(super) use delay::min_delay;
use delay::{DelaySettings, DelayStage};
use duplicate::DuplicateStage;
pub use jitter::{JitterDistribution, LinkJitter};
use loss::LossStage;
pub use loss::{Gilbert, LossExtent, LossModel, ScheduledLoss};
use mtu::MtuStage;
pub use mtu::PathMtu;
use outage::OutageStage;
pub use outage::{Outage, Outages};
use queue::LineSettings;
pub use queue::{CoDel, Discipline, DisciplineError, FqCoDel, QueueLimit, Red};
use rate::RateStage;
pub use reorder::Reorder;
use std::time::Duration;

use lfn_base::framing::Layer;
use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes, Ratio};

use super::hop_context::{HopContext, LinkDirection};
use super::key::Key;
use super::packet::{LinkEvent, LinkStats, Packet};
use super::stage::{ImpairmentStage, Stage};
use super::timetable::Timetable;
use super::value::{Effects, Value};
use reorder::ReorderStage;

/// Settings of one direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Line rate, counted in bytes of `layer`. A step of a timetable may be zero: the line is stalled until the next
    /// step.
    pub rate: Timetable<BitRate>,
    /// Layer at which the line counts bytes. The layer defines the overhead that each virtual packet adds to its IP
    /// length. The default counts frames as `tc` does (Ethernet header, without checksum and preamble).
    pub layer: Layer,
    /// One-way delay after the last bit was sent. The value at that instant applies.
    pub delay: Timetable<Duration>,
    /// Variation of the delay from packet to packet.
    pub jitter: LinkJitter,
    /// Maximum queue length. The packet on the line counts until its last bit is sent, so no packet waits longer than
    /// the time to send this queue. A packet that finds the link idle is always accepted.
    pub queue: QueueLimit,
    /// Order of sending, early drops and marks.
    pub discipline: Discipline,
    /// Whether the discipline marks ECN-capable packets instead of dropping them (RFC 3168). A full queue drops
    /// ECN-capable packets too.
    pub ecn: bool,
    /// Longer IP packets are dropped. `None` means no limit.
    pub path_mtu: Option<PathMtu>,
    pub outage: Outages,
    pub loss: LossModel,
    /// Drops packets that exceed a rate and a burst.
    pub policer: Option<Policer>,
    /// Delays packets that exceed a rate and a burst, ahead of the line and its queue.
    pub shaper: Option<Shaper>,
    /// Packets that wait until later packets have passed them.
    pub reorder: Reorder,
    /// Probability that a virtual packet comes out twice. The copy follows immediately.
    pub duplicate: Ratio,
    /// Probability that a bit of a virtual packet is flipped so that the receiver's checksum detects it.
    pub corrupt: Ratio,
    /// Probability that a bit of the payload is flipped and the checksum is corrected, so that only the application can
    /// detect it. Packets without payload and frames of other protocols are not changed.
    pub corrupt_hidden: Ratio,
    /// Maximum packet length with the Ethernet header. CoDel does not treat one such packet as a queue, and the memory
    /// for a queue limited in packets is computed from it.
    pub largest_packet: Bytes,
    /// Seed of every random generator. The same seed and arrivals cause the same drops.
    pub seed: u64,
    /// Gives each direction its own random generators.
    pub direction: LinkDirection,
    /// Gives links in series and in parallel their own random generators.
    pub hop: u32,
    /// Start of all timetables.
    pub epoch: Instant,
    /// Maximum line time of the virtual packets of one range. Super-packets are cut to this time. Zero cuts every
    /// super-packet into single packets. With super-packets, at most two ranges per slice leave on average: a caller
    /// that can forward `n` ranges per second needs a slice of at least `2/n` seconds.
    pub slice: Duration,
}

impl Default for LinkConfig {
    /// Returns Gigabit Ethernet with a shallow switch queue, without delay and loss, with slices of 150 µs. A slice is
    /// one 1,514-byte packet up to 161 Mb/s and a whole 64 KiB super-packet from 3.6 Gb/s.
    fn default() -> Self {
        LinkConfig {
            rate: BitRate(1_000_000_000).into(),
            layer: Layer::EthernetHeader,
            delay: Timetable::constant(Duration::ZERO),
            jitter: LinkJitter::default(),
            queue: QueueLimit::Bytes(Bytes(512 * 1024)),
            discipline: Discipline::DropTail,
            ecn: false,
            path_mtu: None,
            outage: Outages::None,
            loss: LossModel::None,
            policer: None,
            shaper: None,
            reorder: Reorder::default(),
            duplicate: Ratio::default(),
            corrupt: Ratio::default(),
            corrupt_hidden: Ratio::default(),
            largest_packet: Bytes(1514),
            seed: 0,
            direction: LinkDirection::Forward,
            hop: 0,
            epoch: Instant::ZERO,
            slice: Duration::from_micros(150),
        }
    }
}

/// Impairment with a setting of its own.
pub(super) struct Impairment {
    pub(super) key: Key,
    /// Reads text into the field, or returns the error message.
    pub(super) read: fn(&mut LinkConfig, &str) -> Result<(), String>,
    pub(super) write: fn(&LinkConfig) -> String,
    /// Copies the field from another configuration.
    pub(super) copy: fn(&mut LinkConfig, &LinkConfig),
    pub(super) is_equal: fn(&LinkConfig, &LinkConfig) -> bool,
    pub(super) effects: fn(&LinkConfig) -> &dyn Effects,
}

/// Creates the row of the impairment whose setting is a field of [`LinkConfig`].
macro_rules! impairment {
    ($field:ident, $key:expr) => {
        Impairment {
            key: $key,
            read: |config, text| {
                config.$field = Value::parse(text)?;
                Ok(())
            },
            write: |config| config.$field.write(),
            copy: |config, from| config.$field.clone_from(&from.$field),
            is_equal: |config, other| config.$field == other.$field,
            effects: |config| &config.$field,
        }
    };
}

/// All impairments with a setting of their own, in the order of the help.
pub(super) const IMPAIRMENTS: &[Impairment] = &[
    impairment!(policer, bucket::POLICER),
    impairment!(shaper, bucket::SHAPER),
    impairment!(jitter, jitter::KEY),
    impairment!(reorder, reorder::KEY),
    impairment!(loss, loss::KEY),
    impairment!(outage, outage::KEY),
    impairment!(path_mtu, mtu::KEY),
    impairment!(duplicate, duplicate::KEY),
    impairment!(corrupt, corrupt::KEY),
    impairment!(corrupt_hidden, corrupt::HIDDEN),
];

/// Creates the stages of one hop, in the order in which a packet meets them.
pub(super) fn hop_stages(config: &LinkConfig) -> Vec<Box<dyn HopStage>> {
    vec![
        stage::<MtuStage>(config, |config| config.path_mtu),
        stage::<OutageStage>(config, |config| config.outage.clone()),
        stage::<LossStage>(config, |config| config.loss.clone()),
        stage::<PolicerStage>(config, |config| config.policer),
        stage::<ShaperStage>(config, |config| config.shaper),
        stage::<RateStage>(config, LinkConfig::line),
        stage::<DelayStage>(config, |config| DelaySettings { delay: config.delay.clone(), jitter: config.jitter }),
        stage::<ReorderStage>(config, |config| config.reorder),
        stage::<DuplicateStage>(config, |config| config.duplicate),
        stage::<CorruptStage>(config, |config| CorruptSettings {
            detected: config.corrupt,
            hidden: config.corrupt_hidden,
        }),
    ]
}

/// Stage of a hop that takes its settings from those of the hop.
pub(super) trait HopStage: Stage + Send {
    /// Applies new settings from `now` on.
    fn set(&mut self, config: &LinkConfig, now: Instant);
}

/// Stage together with the choice of its settings.
struct ConfiguredStage<S: ImpairmentStage> {
    stage: S,
    settings: fn(&LinkConfig) -> S::Settings,
}

fn stage<S: ImpairmentStage + Send + 'static>(
    config: &LinkConfig,
    settings: fn(&LinkConfig) -> S::Settings,
) -> Box<dyn HopStage> {
    Box::new(ConfiguredStage { stage: S::new(settings(config), &config.context()), settings })
}

impl<S: ImpairmentStage + Send> HopStage for ConfiguredStage<S> {
    fn set(&mut self, config: &LinkConfig, now: Instant) {
        self.stage.set((self.settings)(config), &config.context(), now);
    }
}

impl<S: ImpairmentStage> Stage for ConfiguredStage<S> {
    fn push(&mut self, packet: Packet, now: Instant) {
        self.stage.push(packet, now);
    }

    fn pop(&mut self, now: Instant) -> Option<LinkEvent> {
        self.stage.pop(now)
    }

    fn next_event_at(&self) -> Option<Instant> {
        self.stage.next_event_at()
    }

    fn min_delay(&self) -> Duration {
        self.stage.min_delay()
    }

    fn add_stats(&self, stats: &mut LinkStats) {
        self.stage.add_stats(stats);
    }
}

impl LinkConfig {
    /// Returns the facts about the hop that several stages need.
    fn context(&self) -> HopContext {
        let LinkConfig { seed, direction, hop, epoch, largest_packet, slice, .. } = *self;
        HopContext { seed, direction, hop, epoch, largest_packet, slice }
    }

    fn line(&self) -> LineSettings {
        let LinkConfig { layer, queue, discipline, ecn, .. } = *self;
        LineSettings { rate: self.rate.clone(), layer, queue, discipline, ecn }
    }
}
