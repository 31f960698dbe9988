//! Emulated path: creates the hops of both directions from settings, and computes the figures of the path.

use std::time::Duration;

use lfn_base::framing::{ETHERNET_HEADER, Framing};
use lfn_base::path::{PathProfile, QueueSize};
use lfn_base::units::{BitRate, Bytes, Ratio};

use super::error::{MAX_MTU, MIN_MTU, SettingsError};
use super::hop_settings::{HopSettings, split_rtt};
use super::link_settings::{ImpairmentSettings, LinkSettings};
use crate::{Discipline, Link, LinkConfig, LinkDirection, LinkJitter, LinkWarning, LossModel, QueueLimit, Timetable};

/// Minimum number of packets in a queue with a size in BDPs, for short paths.
const MIN_PACKETS: u64 = 10;

/// Emulated path: its hops in both directions and its figures.
#[derive(Clone, Debug)]
pub struct EmulatedPath {
    /// Figures for predictions and for the command: capacity, queue and framing of the narrowest hop forward, delay of
    /// all hops in both directions, MTU of the interfaces, loss of all hops forward.
    pub profile: PathProfile,
    /// Hops from near to far, in this order. Seed, direction and hop number are set when the run starts.
    pub forward: Vec<LinkConfig>,
    /// Hops from far to near, in the order in which packets pass them.
    pub back: Vec<LinkConfig>,
    /// Settings of the hops, in the order of `forward`.
    pub settings: Vec<HopSettings>,
}

impl EmulatedPath {
    /// Returns the warnings about all hops, without duplicates.
    pub fn warnings(&self) -> Vec<LinkWarning> {
        let mut warnings = Vec::new();
        for warning in self.forward.iter().chain(&self.back).flat_map(LinkConfig::warnings) {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        warnings
    }

    /// Creates a path of hops in series, from near to far, between interfaces with an MTU of `mtu` bytes.
    pub fn new(settings: &[HopSettings], mtu: u32) -> Result<Self, SettingsError> {
        let delays = settings.iter().map(delays).collect::<Result<Vec<_>, _>>()?;
        if delays.iter().all(Option::is_none) {
            return Err(SettingsError::Missing { key: "rtt", direction: None });
        }
        let none = || [Duration::ZERO, Duration::ZERO].map(Timetable::constant);
        let delays: Vec<[Timetable<Duration>; 2]> =
            delays.into_iter().map(|delay| delay.unwrap_or_else(none)).collect();
        let rtt = delays.iter().flatten().filter_map(|delay| delay.values().min()).sum();
        if rtt == Duration::ZERO {
            return Err(SettingsError::ZeroRtt);
        }
        let hops = |direction: LinkDirection| -> Result<Vec<LinkConfig>, SettingsError> {
            let delay = |pair: &[Timetable<Duration>; 2]| pair[usize::from(direction == LinkDirection::Return)].clone();
            settings.iter().zip(&delays).map(|(hop, pair)| config(hop, direction, delay(pair), rtt, mtu)).collect()
        };
        let forward = hops(LinkDirection::Forward)?;
        let mut back = hops(LinkDirection::Return)?;
        back.reverse();
        let profile = profile(&forward, rtt, mtu);
        let path = EmulatedPath { profile, forward, back, settings: settings.to_vec() };
        path.check()?;
        Ok(path)
    }

    /// Returns the figures of the return direction, as seen from the far side.
    pub fn return_profile(&self) -> PathProfile {
        profile(&self.back, self.profile.base_rtt, self.profile.mtu)
    }

    /// Returns the capacity of the narrowest hop in each direction: near to far, far to near.
    pub fn capacities(&self) -> [BitRate; 2] {
        [&self.forward, &self.back].map(|hops| hops.iter().map(capacity).min().unwrap_or_default())
    }

    /// Creates a symmetric path of one hop from a profile: half of the round-trip time in each direction, and a queue
    /// of one BDP unless the profile sets a queue.
    pub fn symmetric(profile: PathProfile) -> Self {
        let largest_packet = largest_packet(profile.mtu);
        let queue = profile.queue.unwrap_or_else(|| queue(QueueSize::Bdp(1.0), &profile).max_bytes(largest_packet));
        let [there, back] = split_rtt(profile.base_rtt);
        let hop = |delay: Duration| LinkConfig {
            rate: profile.capacity.into(),
            delay: delay.into(),
            queue: queue.into(),
            loss: profile.loss.into(),
            largest_packet,
            ..LinkConfig::default()
        };
        let both = LinkSettings {
            rtt: Some(profile.base_rtt),
            rate: Some(profile.capacity),
            queue: Some(QueueSize::Bytes(queue)),
            impairments: ImpairmentSettings::with_loss(profile.loss.into()),
            ..LinkSettings::default()
        };
        EmulatedPath {
            profile: PathProfile { queue: Some(queue), ..profile },
            forward: vec![hop(there)],
            back: vec![hop(back)],
            settings: vec![HopSettings { both, ..HopSettings::default() }],
        }
    }

    /// Returns the path after a change of one hop (counted from 0) or of all hops, for a running link.
    pub fn with_change(&self, hop: Option<usize>, change: &HopSettings) -> Result<Self, SettingsError> {
        let mut settings = self.settings.clone();
        if let Some(hop) = hop.filter(|hop| *hop >= settings.len()) {
            return Err(SettingsError::UnknownHop { hop: hop + 1, hops: settings.len() });
        }
        for (index, settings) in settings.iter_mut().enumerate() {
            if hop.is_none_or(|hop| hop == index) {
                settings.overlay(change);
            }
        }
        EmulatedPath::new(&settings, self.profile.mtu)
    }

    /// Returns the hops of both directions for the model. Each hop draws from its own generators of `seed`, also among
    /// parallel paths, which have other numbers. Their timetables have not started.
    pub fn seeded_hops(&self, number: usize, seed: u64) -> [Vec<LinkConfig>; 2] {
        const MAX_HOPS: u32 = 1 << 16;
        let first = u32::try_from(number).unwrap_or(u32::MAX).saturating_mul(MAX_HOPS);
        let numbered = |hops: &[LinkConfig], direction| {
            let hop = |(hop, config): (u32, &LinkConfig)| LinkConfig {
                seed,
                direction,
                hop: first.saturating_add(hop),
                ..config.clone()
            };
            (0..).zip(hops).map(hop).collect()
        };
        [numbered(&self.forward, LinkDirection::Forward), numbered(&self.back, LinkDirection::Return)]
    }

    /// Checks the MTU, every hop, and that every queue holds a packet.
    pub fn check(&self) -> Result<(), SettingsError> {
        let mtu = self.profile.mtu;
        if !(MIN_MTU..=MAX_MTU).contains(&mtu) {
            return Err(SettingsError::Mtu(mtu));
        }
        let packet = largest_packet(mtu);
        for hops in [&self.forward, &self.back] {
            Link::chain(hops)?;
            if let Some(queue) = hops.iter().map(|hop| hop.queue.max_bytes(packet)).find(|queue| *queue < packet) {
                return Err(SettingsError::QueueBelowPacket { queue, packet });
            }
        }
        Ok(())
    }
}

/// Returns the one-way delays of a hop, if any are set.
fn delays(hop: &HopSettings) -> Result<Option<[Timetable<Duration>; 2]>, SettingsError> {
    let [there, back] = [LinkDirection::Forward, LinkDirection::Return].map(|direction| {
        let settings = hop.for_direction(direction);
        settings.delay.map(Timetable::constant).or_else(|| settings.timetables()?.delay.clone())
    });
    let missing = |direction| SettingsError::Missing { key: "delay", direction: Some(direction) };
    match (hop.both.rtt, there, back) {
        (Some(rtt), None, None) => Ok(Some(split_rtt(rtt).map(Timetable::constant))),
        (Some(_), ..) => Err(contradiction("rtt", delay_key(hop), "rtt is the delay of both directions")),
        (None, None, None) => Ok(None),
        (None, Some(there), Some(back)) => Ok(Some([there, back])),
        (None, Some(_), None) => Err(missing(LinkDirection::Return)),
        (None, None, Some(_)) => Err(missing(LinkDirection::Forward)),
    }
}

/// Returns the key that sets a one-way delay. A trace may set other things.
fn delay_key(hop: &HopSettings) -> &'static str {
    let keys = [
        (&hop.both, "delay", "trace"),
        (&hop.forward, "forward-delay", "forward-trace"),
        (&hop.back, "return-delay", "return-trace"),
    ];
    let find_key = |(settings, delay, trace): (&LinkSettings, _, _)| match settings {
        LinkSettings { delay: Some(_), .. } => Some(delay),
        _ => settings.has_delay().then_some(trace),
    };
    keys.into_iter().find_map(find_key).unwrap_or("delay")
}

/// Creates the configuration of one direction of a hop.
fn config(
    hop: &HopSettings,
    direction: LinkDirection,
    delay: Timetable<Duration>,
    rtt: Duration,
    mtu: u32,
) -> Result<LinkConfig, SettingsError> {
    let settings = hop.for_direction(direction);
    settings.check()?;
    let trace = settings.timetables();
    let rate = rate(&settings).ok_or_else(|| {
        let has_other = rate(&hop.for_direction(direction.other())).is_some();
        SettingsError::Missing { key: "rate", direction: has_other.then_some(direction) }
    })?;
    let layer = settings.overhead.or_else(|| trace?.layer).unwrap_or_default();
    let framing = Framing { layer, ..Framing::default() };
    let line = PathProfile { mtu, framing, ..PathProfile::new(mean(&rate), rtt) };
    let mut config = settings.impairments.config();
    if let Some(loss) = trace.and_then(|trace| trace.loss.clone()) {
        // The loss is set by the trace or by itself.
        config.loss = LossModel::Independent(loss);
    }
    Ok(LinkConfig {
        rate,
        layer,
        queue: queue(settings.queue.unwrap_or(QueueSize::Bdp(1.0)), &line),
        discipline: settings.aqm.unwrap_or_default(),
        ecn: settings.ecn.unwrap_or_default(),
        largest_packet: largest_packet(mtu),
        delay,
        ..config
    })
}

impl LinkSettings {
    /// Refuses contradictory settings of one direction.
    fn check(&self) -> Result<(), SettingsError> {
        if let Some(trace) = self.timetables() {
            if !trace.is_loaded() {
                let (key, name) = ("trace".to_owned(), trace.name.clone());
                return Err(SettingsError::Trace { key, name, reason: "the file was not read".to_owned() });
            }
            let twice = [
                ("rate", self.rate.is_some() && trace.rate.is_some()),
                ("delay", self.delay.is_some() && trace.delay.is_some()),
                ("loss", self.impairments.has_loss() && trace.loss.is_some()),
            ];
            if let Some((key, _)) = twice.iter().find(|(_, is_set_twice)| *is_set_twice) {
                return Err(contradiction(key, "trace", "the trace sets it too"));
            }
        }
        let drops_early = self.aqm.is_some_and(|aqm| aqm != Discipline::DropTail);
        if self.ecn == Some(true) && !drops_early {
            return Err(SettingsError::EcnWithoutAqm);
        }
        let draws = |jitter: &LinkJitter| jitter.reorder || jitter.correlation.get() > 0.0;
        let jitter = self.impairments.config().jitter;
        if jitter.spread.is_zero() && draws(&jitter) {
            return Err(SettingsError::ZeroJitter);
        }
        Ok(())
    }
}

fn contradiction(first: &str, second: &str, reason: &'static str) -> SettingsError {
    SettingsError::Contradiction { first: first.to_owned(), second: second.to_owned(), reason }
}

/// Returns the line rate from the settings or from the trace.
fn rate(settings: &LinkSettings) -> Option<Timetable<BitRate>> {
    settings.rate.map(Timetable::constant).or_else(|| settings.timetables()?.rate.clone())
}

/// Returns the long-term rate of a line: over the period of its timetable, or from its last step on.
fn mean(rate: &Timetable<BitRate>) -> BitRate {
    let steps = rate.steps();
    let Some(period) = rate.period() else { return rate.values().last().unwrap_or_default() };
    let ends = steps.iter().skip(1).map(|(at, _)| *at).chain([period]);
    let bits = |((at, rate), end): (&(Duration, BitRate), Duration)| u128::from(rate.0) * (end - *at).as_nanos();
    let mean = steps.iter().zip(ends).map(bits).sum::<u128>() / period.as_nanos().max(1);
    BitRate(u64::try_from(mean).unwrap_or(u64::MAX))
}

fn capacity(hop: &LinkConfig) -> BitRate {
    mean(&hop.rate)
}

/// Computes the queue limit: in BDPs of the whole path at the rate of this hop, or in bytes, packets or time.
fn queue(size: QueueSize, line: &PathProfile) -> QueueLimit {
    let min_bytes = MIN_PACKETS * largest_packet(line.mtu).0;
    match size {
        QueueSize::Bdp(times) if times > 0.0 => size.bytes_on(line).max(Bytes(min_bytes)).into(),
        _ => size.limit(line),
    }
}

/// Returns the bytes of a full packet with its Ethernet header.
fn largest_packet(mtu: u32) -> Bytes {
    Bytes(u64::from(mtu.saturating_add(ETHERNET_HEADER)))
}

/// Computes the figures of the whole path from the first of these hops.
fn profile(forward: &[LinkConfig], rtt: Duration, mtu: u32) -> PathProfile {
    let losses: Vec<Ratio> = forward.iter().map(|hop| hop.loss.mean()).filter(|loss| loss.get() > 0.0).collect();
    let loss = match losses[..] {
        [] => Ratio::default(),
        // A single value keeps all its digits.
        [only] => only,
        _ => Ratio::new(1.0 - losses.iter().map(|loss| 1.0 - loss.get()).product::<f64>()).unwrap_or_default(),
    };
    let Some(narrowest) = forward.iter().min_by_key(|hop| capacity(hop)) else {
        return PathProfile { mtu, loss, ..PathProfile::new(BitRate(0), rtt) };
    };
    PathProfile {
        mtu,
        queue: Some(narrowest.queue.max_bytes(narrowest.largest_packet)),
        loss,
        framing: Framing { layer: narrowest.layer, ..Framing::default() },
        ..PathProfile::new(capacity(narrowest), rtt)
    }
}
