//! From settings to a path that can be emulated: hops each way, and the figures that come of them.

use std::time::Duration;

use super::{HopSettings, LinkSettings, SettingsError, halves};
use crate::link::{Direction, Link, LinkConfig, QueueLimit};
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
    /// Hops in a row, from near to far, between interfaces of this MTU in bytes.
    pub fn new(settings: &[HopSettings], mtu: u32) -> Result<Self, SettingsError> {
        let delays = settings.iter().map(delays).collect::<Result<Vec<_>, _>>()?;
        if delays.iter().all(Option::is_none) {
            return Err(SettingsError::Missing { key: "rtt", direction: None });
        }
        let delays: Vec<[Duration; 2]> = delays.into_iter().map(Option::unwrap_or_default).collect();
        let rtt = delays.iter().flatten().sum();
        let hop = |index: usize, direction: Direction| {
            let delay = delays[index][usize::from(direction == Direction::Return)];
            config(&settings[index], direction, delay, rtt, mtu)
        };
        let count = settings.len();
        let forward = (0..count).map(|index| hop(index, Direction::Forward)).collect::<Result<Vec<_>, _>>()?;
        let back = (0..count).rev().map(|index| hop(index, Direction::Return)).collect::<Result<Vec<_>, _>>()?;
        let profile = profile(&forward, rtt, mtu)?;
        let path = EmulatedPath { profile, forward, back, settings: settings.to_vec() };
        path.check()?;
        Ok(path)
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
        for (index, settings) in settings.iter_mut().enumerate() {
            if hop.is_none_or(|hop| hop == index) {
                settings.overlay(change);
            }
        }
        EmulatedPath::new(&settings, self.profile.mtu)
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
fn delays(hop: &HopSettings) -> Result<Option<[Duration; 2]>, SettingsError> {
    let [there, back] = [Direction::Forward, Direction::Return].map(|direction| hop.of(direction).delay);
    let missing = |direction| SettingsError::Missing { key: "delay", direction: Some(direction) };
    match (hop.both.rtt, there, back) {
        (Some(_), Some(_), _) | (Some(_), _, Some(_)) => {
            let named = hop.given().map(|(key, _)| key).find(|key| key.ends_with("delay"));
            Err(SettingsError::Contradiction {
                first: "rtt".to_owned(),
                second: named.unwrap_or_else(|| "delay".to_owned()),
                why: "rtt is the delay there and back",
            })
        }
        (Some(rtt), None, None) => Ok(Some(halves(rtt))),
        (None, None, None) => Ok(None),
        (None, Some(there), Some(back)) => Ok(Some([there, back])),
        (None, Some(_), None) => Err(missing(Direction::Return)),
        (None, None, Some(_)) => Err(missing(Direction::Forward)),
    }
}

/// One direction of a hop.
fn config(
    hop: &HopSettings,
    direction: Direction,
    delay: Duration,
    rtt: Duration,
    mtu: u32,
) -> Result<LinkConfig, SettingsError> {
    let said = hop.of(direction);
    let one_way = hop.of(match direction {
        Direction::Forward => Direction::Return,
        Direction::Return => Direction::Forward,
    });
    let missing_in = one_way.rate.map(|_| direction);
    let rate = said.rate.ok_or(SettingsError::Missing { key: "rate", direction: missing_in })?;
    let line = PathProfile { mtu, ..PathProfile::new(rate, rtt) };
    let queue = queue(said.queue.unwrap_or(QueueSize::Bdp(1.0)), &line);
    Ok(LinkConfig {
        rate: rate.into(),
        queue,
        largest_packet: largest_packet(mtu),
        delay: delay.into(),
        jitter: said.jitter.unwrap_or_default(),
        loss: said.loss.unwrap_or_default(),
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

/// The figures of the whole path, as seen from near.
fn profile(forward: &[LinkConfig], rtt: Duration, mtu: u32) -> Result<PathProfile, SettingsError> {
    if rtt.is_zero() {
        return Err(SettingsError::ZeroRtt);
    }
    let narrowest = forward.iter().min_by_key(|hop| hop.highest_rate());
    let capacity = narrowest.map_or(BitRate(0), LinkConfig::highest_rate);
    let survive: f64 = forward.iter().map(|hop| 1.0 - hop.loss.mean().get()).product();
    let loss = match forward {
        [only] => only.loss.mean(),
        _ => Ratio::new(1.0 - survive).unwrap_or_default(),
    };
    let queue = narrowest.map(|hop| hop.queue.most_bytes(hop.largest_packet));
    Ok(PathProfile { mtu, queue, loss, ..PathProfile::new(capacity, rtt) })
}
