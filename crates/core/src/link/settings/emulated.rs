//! From settings to a path that can be emulated: hops each way, and the figures that come of them.

use std::time::Duration;

use super::{HopSettings, LinkSettings, SettingsError, halves};
use crate::framing::Framing;
use crate::link::{Direction, Discipline, Jitter, Link, LinkConfig, LinkDoubt, LossModel, QueueLimit, Varying};
use crate::path::{PathProfile, QueueSize};
use crate::units::{BitRate, Bytes, Ratio};

/// Smallest MTU an IPv4 link may have, bytes (RFC 791).
pub const LEAST_MTU: u32 = 68;
/// Largest MTU of a veth interface, bytes.
pub const MOST_MTU: u32 = 65_535;
/// Bytes of the Ethernet header, which the link counts and the MTU does not.
const ETHERNET_HEADER: u32 = 14;
/// A queue in BDPs holds so many packets at least, however short the path.
const LEAST_PACKETS: u64 = 10;

/// One path: its hops each way, and the figures that come of them.
#[derive(Clone, Debug)]
pub struct EmulatedPath {
    /// For predictions, and told to the commands: capacity of the narrowest hop forward, delay of all hops both ways,
    /// MTU of the interfaces, the narrowest hop's queue and framing, loss of all hops forward.
    pub profile: PathProfile,
    /// From near to far, in this order. Seed, direction and hop number are filled in when the run starts.
    pub forward: Vec<LinkConfig>,
    /// From far to near, in the order in which those packets meet them.
    pub back: Vec<LinkConfig>,
    /// What the hops were made from, in the order of `forward`.
    pub settings: Vec<HopSettings>,
}

impl EmulatedPath {
    /// What is odd about the hops, each thing once.
    pub fn doubts(&self) -> Vec<LinkDoubt> {
        let mut doubts = Vec::new();
        for doubt in self.forward.iter().chain(&self.back).flat_map(LinkConfig::doubts) {
            if !doubts.contains(&doubt) {
                doubts.push(doubt);
            }
        }
        doubts
    }

    /// Hops in a row, from near to far, between interfaces of this MTU in bytes.
    pub fn new(settings: &[HopSettings], mtu: u32) -> Result<Self, SettingsError> {
        let delays = settings.iter().map(delays).collect::<Result<Vec<_>, _>>()?;
        if delays.iter().all(Option::is_none) {
            return Err(SettingsError::Missing { key: "rtt", direction: None });
        }
        let none = || [Duration::ZERO, Duration::ZERO].map(Varying::constant);
        let delays: Vec<[Varying<Duration>; 2]> = delays.into_iter().map(|delay| delay.unwrap_or_else(none)).collect();
        let rtt = delays.iter().flatten().filter_map(|delay| delay.values().min()).sum();
        if rtt == Duration::ZERO {
            return Err(SettingsError::ZeroRtt);
        }
        let hops = |direction: Direction| -> Result<Vec<LinkConfig>, SettingsError> {
            let delay = |pair: &[Varying<Duration>; 2]| pair[usize::from(direction == Direction::Return)].clone();
            settings.iter().zip(&delays).map(|(hop, pair)| config(hop, direction, delay(pair), rtt, mtu)).collect()
        };
        let forward = hops(Direction::Forward)?;
        let mut back = hops(Direction::Return)?;
        back.reverse();
        let profile = profile(&forward, rtt, mtu);
        let path = EmulatedPath { profile, forward, back, settings: settings.to_vec() };
        path.check()?;
        Ok(path)
    }

    /// The figures of the way back, as seen from far.
    pub fn return_profile(&self) -> PathProfile {
        profile(&self.back, self.profile.base_rtt, self.profile.mtu)
    }

    /// What the narrowest hop carries, from near to far and from far to near.
    pub fn capacities(&self) -> [BitRate; 2] {
        [&self.forward, &self.back].map(|hops| hops.iter().map(capacity).min().unwrap_or_default())
    }

    /// One hop, alike both ways, that is what the profile says: the round trip shared out evenly, one BDP of queue if
    /// the profile names none.
    pub fn symmetric(profile: PathProfile) -> Self {
        let largest_packet = largest_packet(profile.mtu);
        let queue = profile.queue.unwrap_or_else(|| queue(QueueSize::Bdp(1.0), &profile).most_bytes(largest_packet));
        let [there, back] = halves(profile.base_rtt);
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
            loss: Some(profile.loss.into()),
            ..LinkSettings::default()
        };
        EmulatedPath {
            profile: PathProfile { queue: Some(queue), ..profile },
            forward: vec![hop(there)],
            back: vec![hop(back)],
            settings: vec![HopSettings { both, ..HopSettings::default() }],
        }
    }

    /// The same path after a change of one hop, counted from 0, or of all its hops: to hand to a running link.
    pub fn changed(&self, hop: Option<usize>, change: &HopSettings) -> Result<Self, SettingsError> {
        let mut settings = self.settings.clone();
        if let Some(hop) = hop.filter(|hop| *hop >= settings.len()) {
            return Err(SettingsError::NoHop { hop: hop + 1, hops: settings.len() });
        }
        for (index, settings) in settings.iter_mut().enumerate() {
            if hop.is_none_or(|hop| hop == index) {
                settings.overlay(change);
            }
        }
        EmulatedPath::new(&settings, self.profile.mtu)
    }

    /// The hops near to far and far to near as the model takes them: each draws by `seed` as no other does, of this path
    /// or of those beside it, which have other numbers. Their time has not begun yet.
    pub fn numbered(&self, number: usize, seed: u64) -> [Vec<LinkConfig>; 2] {
        const MOST_HOPS: u32 = 1 << 16;
        let first = u32::try_from(number).unwrap_or(u32::MAX).saturating_mul(MOST_HOPS);
        let numbered = |hops: &[LinkConfig], direction| {
            let hop = |(hop, config): (u32, &LinkConfig)| LinkConfig {
                seed,
                direction,
                hop: first.saturating_add(hop),
                ..config.clone()
            };
            (0..).zip(hops).map(hop).collect()
        };
        [numbered(&self.forward, Direction::Forward), numbered(&self.back, Direction::Return)]
    }

    /// Says what is wrong with it.
    pub fn check(&self) -> Result<(), SettingsError> {
        let mtu = self.profile.mtu;
        if !(LEAST_MTU..=MOST_MTU).contains(&mtu) {
            return Err(SettingsError::Mtu(mtu));
        }
        let packet = largest_packet(mtu);
        for hops in [&self.forward, &self.back] {
            Link::chain(hops)?;
            if let Some(queue) = hops.iter().map(|hop| hop.queue.most_bytes(packet)).find(|queue| *queue < packet) {
                return Err(SettingsError::Queue { queue, packet });
            }
        }
        Ok(())
    }
}

/// The one-way delays of a hop, if anything is said of them.
fn delays(hop: &HopSettings) -> Result<Option<[Varying<Duration>; 2]>, SettingsError> {
    let [there, back] = [Direction::Forward, Direction::Return].map(|direction| {
        let said = hop.of(direction);
        said.delay.map(Varying::constant).or_else(|| said.timetables()?.delay.clone())
    });
    let missing = |direction| SettingsError::Missing { key: "delay", direction: Some(direction) };
    match (hop.both.rtt, there, back) {
        (Some(rtt), None, None) => Ok(Some(halves(rtt).map(Varying::constant))),
        (Some(_), ..) => Err(contradiction("rtt", says_delay(hop), "rtt is the delay there and back")),
        (None, None, None) => Ok(None),
        (None, Some(there), Some(back)) => Ok(Some([there, back])),
        (None, Some(_), None) => Err(missing(Direction::Return)),
        (None, None, Some(_)) => Err(missing(Direction::Forward)),
    }
}

/// Which key speaks of a one-way delay. A trace may be of other things.
fn says_delay(hop: &HopSettings) -> &'static str {
    let keys = [
        (&hop.both, "delay", "trace"),
        (&hop.forward, "forward-delay", "forward-trace"),
        (&hop.back, "return-delay", "return-trace"),
    ];
    let said = |(settings, delay, trace): (&LinkSettings, _, _)| match settings {
        LinkSettings { delay: Some(_), .. } => Some(delay),
        _ => settings.has_delay().then_some(trace),
    };
    keys.into_iter().find_map(said).unwrap_or("delay")
}

/// One direction of a hop.
fn config(
    hop: &HopSettings,
    direction: Direction,
    delay: Varying<Duration>,
    rtt: Duration,
    mtu: u32,
) -> Result<LinkConfig, SettingsError> {
    let said = hop.of(direction);
    said.check()?;
    let trace = said.timetables();
    let rate = rate(&said).ok_or_else(|| {
        let has_other = rate(&hop.of(direction.other())).is_some();
        SettingsError::Missing { key: "rate", direction: has_other.then_some(direction) }
    })?;
    let layer = said.overhead.or_else(|| trace?.layer).unwrap_or_default();
    let framing = Framing { layer, ..Framing::default() };
    let line = PathProfile { mtu, framing, ..PathProfile::new(mean(&rate), rtt) };
    let loss = said.loss.clone().or_else(|| trace?.loss.clone().map(LossModel::Independent));
    Ok(LinkConfig {
        rate,
        layer,
        queue: queue(said.queue.unwrap_or(QueueSize::Bdp(1.0)), &line),
        discipline: said.aqm.unwrap_or_default(),
        ecn: said.ecn.unwrap_or_default(),
        largest_packet: largest_packet(mtu),
        delay,
        jitter: said.jitter.unwrap_or_default(),
        loss: loss.unwrap_or_default(),
        outage: said.outage.unwrap_or_default(),
        path_mtu: said.path_mtu.flatten(),
        policer: said.policer.flatten(),
        shaper: said.shaper.flatten(),
        reorder: said.reorder.unwrap_or_default(),
        duplicate: said.duplicate.unwrap_or_default(),
        corrupt: said.corrupt.unwrap_or_default(),
        corrupt_hidden: said.corrupt_hidden.unwrap_or_default(),
        ..LinkConfig::default()
    })
}

impl LinkSettings {
    /// Refuses what contradicts itself in one direction.
    fn check(&self) -> Result<(), SettingsError> {
        if let Some(trace) = self.timetables() {
            if !trace.is_read() {
                let (key, name) = ("trace".to_owned(), trace.name.clone());
                return Err(SettingsError::Trace { key, name, reason: "nobody read the file".to_owned() });
            }
            let twice = [
                ("rate", self.rate.is_some() && trace.rate.is_some()),
                ("delay", self.delay.is_some() && trace.delay.is_some()),
                ("loss", self.loss.is_some() && trace.loss.is_some()),
            ];
            if let Some((key, _)) = twice.iter().find(|(_, is_twice)| *is_twice) {
                return Err(contradiction(key, "trace", "the trace has a timetable of it"));
            }
        }
        let drops_early = self.aqm.is_some_and(|aqm| aqm != Discipline::DropTail);
        if self.ecn == Some(true) && !drops_early {
            return Err(SettingsError::Ecn);
        }
        let draws = |jitter: &Jitter| jitter.reorder || jitter.correlation.get() > 0.0;
        if self.jitter.is_some_and(|jitter| jitter.spread.is_zero() && draws(&jitter)) {
            return Err(SettingsError::Jitter);
        }
        Ok(())
    }
}

fn contradiction(first: &str, second: &str, why: &'static str) -> SettingsError {
    SettingsError::Contradiction { first: first.to_owned(), second: second.to_owned(), why }
}

/// The line's rate, as said or as its trace has it.
fn rate(said: &LinkSettings) -> Option<Varying<BitRate>> {
    said.rate.map(Varying::constant).or_else(|| said.timetables()?.rate.clone())
}

/// What a line carries in the long run: over the period of its timetable, or from its last step on.
fn mean(rate: &Varying<BitRate>) -> BitRate {
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

/// Room of a queue: in BDPs of the whole path at this hop's rate; in bytes, packets or time as typed.
fn queue(size: QueueSize, line: &PathProfile) -> QueueLimit {
    let least = LEAST_PACKETS * largest_packet(line.mtu).0;
    match size {
        QueueSize::Bdp(times) if times > 0.0 => size.on(line).max(Bytes(least)).into(),
        _ => size.limit(line),
    }
}

/// A full packet with its Ethernet header.
fn largest_packet(mtu: u32) -> Bytes {
    Bytes(u64::from(mtu.saturating_add(ETHERNET_HEADER)))
}

/// The figures of the whole path, as seen from where these hops begin.
fn profile(forward: &[LinkConfig], rtt: Duration, mtu: u32) -> PathProfile {
    let losses: Vec<Ratio> = forward.iter().map(|hop| hop.loss.mean()).filter(|loss| loss.get() > 0.0).collect();
    let loss = match losses[..] {
        [] => Ratio::default(),
        // As it was said, to the last digit.
        [only] => only,
        _ => Ratio::new(1.0 - losses.iter().map(|loss| 1.0 - loss.get()).product::<f64>()).unwrap_or_default(),
    };
    let Some(narrowest) = forward.iter().min_by_key(|hop| capacity(hop)) else {
        return PathProfile { mtu, loss, ..PathProfile::new(BitRate(0), rtt) };
    };
    PathProfile {
        mtu,
        queue: Some(narrowest.queue.most_bytes(narrowest.largest_packet)),
        loss,
        framing: Framing { layer: narrowest.layer, ..Framing::default() },
        ..PathProfile::new(capacity(narrowest), rtt)
    }
}
