//! Whether the settings can be carried faithfully, by what forwarding costs here.
//!
//! A direction is one thread, so it can do a second's work a second; and the packets' own senders and receivers need the
//! processors too. What a packet costs is put down as a part for the packet and a part for its bytes, from the two sizes
//! that were measured. It is an estimate: what is a little too much is said, what is far too much is refused.

use std::fmt;

use lfn_core::link::{Discipline, LinkConfig};
use lfn_core::units::BitRate;

use super::{Cost, Costs};
use crate::emulator::{EmulateError, Setup};

/// What the measurement says of the settings.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::emulator) struct Verdict {
    /// The rate asked for.
    pub(in crate::emulator) rate: BitRate,
    /// Bytes that leave together at that rate: single packets on a slow line, super-packets on a fast one.
    pub(in crate::emulator) together: u32,
    /// Whether nearly all leave one by one.
    pub(in crate::emulator) is_alone: bool,
    /// The most that can be carried so.
    pub(in crate::emulator) most: BitRate,
    /// A rate that can be carried faithfully.
    pub(in crate::emulator) fits: BitRate,
}

/// Bytes of the packet whose cost is measured.
const PACKET: f64 = 1514.0;
/// Bytes of the Ethernet header.
const ETHERNET_HEADER: u64 = 14;
/// Bytes of the super-packets whose cost is measured.
const SUPER_PACKET: f64 = 65_226.0;
/// A slow machine: what takes less than half of it is carried everywhere, and nothing needs to be measured.
const SLOW: Costs =
    Costs { packet: Cost { thread: 25e-6, all: 50e-6 }, gigabyte: Cost { thread: 1.5, all: 3.0 }, processors: 2 };
/// Above this share of what can be carried packets wait for the thread, not for the link.
const FAITHFUL: f64 = 0.75;
/// This share is said to fit.
const FITTING: f64 = 0.6;
/// More than so many times what can be carried is refused: the machine may be less busy later, but not so much.
const HOPELESS: f64 = 4.0;

/// Whether the settings are such that it matters what forwarding costs here.
pub(super) fn needs_costs(setup: &Setup) -> bool {
    directions(setup).any(|hops| Demand::of(hops).is_some_and(|demand| demand.share(&SLOW) > 0.5))
}

/// What is to be said of the settings; nothing if they fit. Refuses what is hopeless, unless `force` is given.
pub(in crate::emulator) fn judge(setup: &Setup, costs: &Costs) -> Result<Option<Verdict>, EmulateError> {
    let demands = directions(setup).filter_map(Demand::of);
    let Some((share, demand)) =
        demands.map(|demand| (demand.share(costs), demand)).max_by(|one, other| one.0.total_cmp(&other.0))
    else {
        return Ok(None);
    };
    let verdict = demand.verdict(costs);
    match share {
        share if share > HOPELESS && !setup.force => Err(EmulateError::Beyond(verdict.to_string(), verdict.fits)),
        share if share > FAITHFUL => Ok(Some(verdict)),
        _ => Ok(None),
    }
}

fn directions(setup: &Setup) -> impl Iterator<Item = &[LinkConfig]> {
    setup.paths.iter().flat_map(|path| [&path.forward[..], &path.back[..]])
}

/// What a direction asks of its thread when it is full.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Demand {
    rate: BitRate,
    /// Bytes of a full packet.
    packet: f64,
    /// Bytes that leave in one go.
    together: f64,
}

impl Demand {
    /// Of the narrowest hop; later hops may cut smaller.
    fn of(hops: &[LinkConfig]) -> Option<Demand> {
        let rate = hops.iter().map(LinkConfig::highest_rate).min()?;
        let packet = hops.iter().map(longest_packet).min()?.max(1) as f64;
        let pieces = hops.iter().map(|hop| piece(hop, packet));
        let packets = (pieces.fold(SUPER_PACKET, f64::min) / packet).floor().max(1.0);
        // What one hop has cut stays cut.
        let cuts: f64 = hops.iter().map(cuts).sum();
        let together = (1.0 / (1.0 / packets + cuts)).max(1.0) * packet;
        Some(Demand { rate, packet, together })
    }

    /// Of what can be carried, how much this is.
    fn share(&self, costs: &Costs) -> f64 {
        self.rate.as_f64() / self.most(costs)
    }

    /// Bits per second: what one thread can do, or all processors, whichever is less.
    fn most(&self, costs: &Costs) -> f64 {
        let one = self.per_byte(costs.packet.thread, costs.gigabyte.thread);
        let all = self.per_byte(costs.packet.all, costs.gigabyte.all);
        8.0 / one.max(all / costs.share())
    }

    /// Processor time of a byte, by that of a single packet and of a gigabyte in super-packets.
    fn per_byte(&self, packet: f64, gigabyte: f64) -> f64 {
        let super_packet = gigabyte * SUPER_PACKET / 1e9;
        // A machine that is busy may seem to take longer over a small packet than over a large one.
        let packet = packet.min(super_packet);
        let of_byte = (super_packet - packet) / (SUPER_PACKET - PACKET);
        let of_packet = (packet - of_byte * PACKET).max(0.0);
        of_packet / self.together + of_byte
    }

    fn verdict(&self, costs: &Costs) -> Verdict {
        let most = self.most(costs);
        let rate = |bits: f64| BitRate(bits as u64);
        Verdict {
            rate: self.rate,
            together: self.together as u32,
            is_alone: self.together < 2.0 * self.packet,
            most: rate(two_digits(most)),
            fits: rate(two_digits(most * FITTING)),
        }
    }
}

/// The longest packet that passes, bytes with its header.
fn longest_packet(hop: &LinkConfig) -> u64 {
    let path_mtu = hop.path_mtu.map(|limit| u64::from(limit.mtu) + ETHERNET_HEADER);
    path_mtu.unwrap_or(u64::MAX).min(hop.largest_packet.0)
}

/// Bytes of the most that a hop lets leave in one go.
fn piece(hop: &LinkConfig, packet: f64) -> f64 {
    let slice = hop.highest_rate().times(hop.slice).0 as f64;
    let turn = match hop.discipline {
        Discipline::FqCoDel(fq_codel) => fq_codel.quantum.0 as f64,
        Discipline::DropTail | Discipline::CoDel(_) | Discipline::Red(_) => slice,
    };
    // Every packet has a delay of its own.
    if hop.jitter.spread.is_zero() { slice.min(turn) } else { packet }
}

/// How often a hop cuts per packet: where one is missing, on both sides of one that differs, and once more where one that
/// was held back is let go.
fn cuts(hop: &LinkConfig) -> f64 {
    let differs = [hop.duplicate, hop.corrupt, hop.corrupt_hidden].map(|share| share.get()).iter().sum::<f64>();
    hop.loss.mean().get() + 2.0 * differs + 3.0 * hop.reorder.share.get()
}

/// Rounded down, because it is an estimate.
fn two_digits(value: f64) -> f64 {
    let unit = 10_f64.powf((value.max(1.0).log10() - 1.0).floor());
    (value / unit + 1e-6).floor() * unit
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { rate, most, .. } = self;
        match self.is_alone {
            true => write!(f, "{rate} in single packets is more than this machine can carry: about {most}"),
            false => write!(f, "{rate} is more than this machine can carry: about {most} of bulk TCP"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::FarSide;
    use lfn_core::link::EmulatedPath;
    use lfn_core::link::settings::HopSettings;
    use lfn_core::path::PathProfile;
    use std::time::Duration;

    /// As measured on two processors of a virtual machine: 16 Gb/s if all goes well.
    const COSTS: Costs =
        Costs { packet: Cost { thread: 8e-6, all: 15e-6 }, gigabyte: Cost { thread: 0.42, all: 0.99 }, processors: 2 };

    fn setup(rate: BitRate) -> Setup {
        let path = EmulatedPath::symmetric(PathProfile::new(rate, Duration::from_millis(50)));
        Setup::new(path, 0, FarSide::Nothing)
    }

    fn with_slice(rate: BitRate, slice: Duration) -> Setup {
        let mut setup = setup(rate);
        for hop in setup.paths.iter_mut().flat_map(|path| path.forward.iter_mut().chain(&mut path.back)) {
            hop.slice = slice;
        }
        setup
    }

    const GBIT: u64 = 1_000_000_000;

    #[test]
    fn what_fits_is_not_spoken_of() {
        for rate in [BitRate(135_000_000), BitRate(GBIT), BitRate(8 * GBIT)] {
            assert_eq!(judge(&setup(rate), &COSTS).unwrap(), None, "{rate}");
        }
    }

    #[test]
    fn a_little_too_much_is_said_and_far_too_much_refused() {
        let verdict = judge(&setup(BitRate(20 * GBIT)), &COSTS).unwrap().unwrap();
        assert_eq!((verdict.most, verdict.fits), (BitRate(16 * GBIT), BitRate(9_600_000_000)));
        assert_eq!(verdict.to_string(), "20 Gb/s is more than this machine can carry: about 16 Gb/s of bulk TCP");
        assert!(judge(&setup(BitRate(60 * GBIT)), &COSTS).unwrap().is_some());
        let far = setup(BitRate(100 * GBIT));
        assert!(matches!(judge(&far, &COSTS), Err(EmulateError::Beyond(_, BitRate(9_600_000_000)))));
        assert!(judge(&Setup { force: true, ..far }, &COSTS).unwrap().is_some());
    }

    #[test]
    fn single_packets_cost_more() {
        let singles = |rate| with_slice(rate, Duration::ZERO);
        assert_eq!(judge(&singles(BitRate(GBIT)), &COSTS).unwrap(), None);
        let verdict = judge(&singles(BitRate(2 * GBIT)), &COSTS).unwrap().unwrap();
        assert_eq!(verdict.most, BitRate(1_500_000_000));
        assert_eq!(verdict.to_string(), "2 Gb/s in single packets is more than this machine can carry: about 1.5 Gb/s");
        assert!(judge(&singles(BitRate(8 * GBIT)), &COSTS).is_err());
    }

    fn typed(mtu: u32, spec: &str) -> Setup {
        let mut hop = HopSettings::default();
        spec.split(',').for_each(|pair| hop.set_pair(pair).unwrap());
        Setup::new(EmulatedPath::new(&[hop], mtu).unwrap(), 0, FarSide::Nothing)
    }

    #[test]
    fn what_takes_super_packets_apart_costs_what_single_packets_cost() {
        let most = |mtu: u32, setting: &str| {
            let setup = typed(mtu, &format!("rate=4gbit,rtt=50ms{setting}"));
            judge(&setup, &COSTS).unwrap().map(|verdict| (verdict.most, verdict.is_alone))
        };
        let alone = Some((BitRate(1_500_000_000), true));
        for setting in ["", ",loss=1e-4", ",jitter=none", ",aqm=codel", ",reorder=none"] {
            assert_eq!(most(1500, setting), None, "{setting}");
        }
        for setting in [",jitter=5ms", ",forward-jitter=normal:1ms", ",aqm=fq-codel", ",reorder=100%:3"] {
            assert_eq!(most(1500, setting), alone, "{setting}");
        }
        // Longer packets are fewer, shorter ones more.
        assert_eq!(most(9000, ",jitter=5ms"), None);
        let short = |mtu, setting: &str| {
            let setup = Setup { force: true, ..typed(mtu, &format!("rate=4gbit,rtt=50ms,jitter=5ms{setting}")) };
            judge(&setup, &COSTS).unwrap().unwrap().most
        };
        assert!(short(750, "") < BitRate(GBIT) && short(750, "") == short(1500, ",path-mtu=750"));
        // The more often a super-packet is cut, the less can be carried.
        let carried = ["loss=1e-6", "reorder=1%:3", "reorder=5%:3"].map(|spec| {
            let setup = Setup { force: true, ..typed(1500, &format!("rate=40gbit,rtt=5ms,{spec}")) };
            judge(&setup, &COSTS).unwrap().unwrap().most
        });
        assert!(carried.is_sorted_by(|one, next| one > next), "{carried:?}");
    }

    #[test]
    fn slow_lines_need_no_measurement() {
        assert!(!needs_costs(&setup(BitRate(135_000_000))) && !needs_costs(&setup(BitRate(GBIT))));
        assert!(needs_costs(&setup(BitRate(4 * GBIT))) && needs_costs(&with_slice(BitRate(GBIT), Duration::ZERO)));
    }

    #[test]
    fn costs_that_make_no_sense_do_no_harm() {
        let zero = Cost { thread: 0.0, all: 0.0 };
        let nothing = Costs { packet: zero, gigabyte: zero, processors: 0 };
        assert_eq!(judge(&setup(BitRate(GBIT)), &nothing).unwrap(), None);
        let upside_down = Costs { packet: Cost { thread: 1e-3, all: 2e-3 }, ..COSTS };
        assert!(judge(&setup(BitRate(8 * GBIT)), &upside_down).is_ok());
    }
}
